package wire

import "google.golang.org/grpc/mem"

// Message is the bytes of one message, as gRPC brings it.
type Message struct{ buf mem.Buffer }

func (m *Message) Bytes() []byte { return m.buf.ReadOnlyData() }

// Free gives the bytes back: from then on they belong to another message.
func (m *Message) Free() {
	m.buf.Free()
	m.buf = nil
}

// RawCodec carries bytes: it marshals a *[]byte and unmarshals into a *message. What is in them is
// protobuf.
type RawCodec struct{}

func (RawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.Copy(*v.(*[]byte), Buffers)}, nil
}

func (RawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*Message).buf = data.MaterializeToBuffer(Buffers)
	return nil
}

func (RawCodec) Name() string { return "proto" }
