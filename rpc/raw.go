package rpc

import "google.golang.org/grpc/mem"

// message is the bytes of one message, as gRPC brings it.
type message struct{ buf mem.Buffer }

func (m *message) bytes() []byte { return m.buf.ReadOnlyData() }

// free gives the bytes back: from then on they belong to another message.
func (m *message) free() {
	m.buf.Free()
	m.buf = nil
}

// rawCodec carries bytes: it marshals a *[]byte and unmarshals into a *message. What is in them is
// protobuf.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.Copy(*v.(*[]byte), buffers)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*message).buf = data.MaterializeToBuffer(buffers)
	return nil
}

func (rawCodec) Name() string { return "proto" }
