package rpc

import (
	"context"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that hotCodec stands before
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"penstock/rpc/wire"
)

// hotCodec is protobuf at the door for clients. The messages that may have a thousand items it
// reads and writes by hand, for the library takes several times as long for one as deciding on it
// does. What it reads and writes is what the library would: a message with anything that is not
// foreseen here, a field in error among it, is left to the library.
type hotCodec struct{ encoding.CodecV2 }

func newHotCodec() hotCodec { return hotCodec{encoding.GetCodecV2("proto")} }

// hotCall is a call with messages that are read and written by hand.
type hotCall interface {
	read(b []byte) (foreseen bool) // reads the request, and keeps nothing of b
	readByLibrary(b []byte) error  // reads what is not as foreseen
	written(codec hotCodec) (mem.BufferSlice, error)
}

// Marshal writes v.
func (c hotCodec) Marshal(v any) (mem.BufferSlice, error) {
	if call, hot := v.(hotCall); hot {
		return call.written(c)
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal reads v.
func (c hotCodec) Unmarshal(data mem.BufferSlice, v any) error {
	call, hot := v.(hotCall)
	if !hot {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(wire.Buffers)
	defer buf.Free()
	if call.read(buf.ReadOnlyData()) {
		return nil
	}
	return call.readByLibrary(buf.ReadOnlyData()) // which forgets what has been read
}

// hotWriter appends fields to memory of gRPC's. Fields that are zero are left out.
type hotWriter struct {
	memory     *[]byte // from the pool; nil for a message so short that gRPC would not give it back
	b          []byte  // what is written, within memory or grown out of it
	unforeseen bool    // the library must write the message
}

func (w *hotWriter) begin(size int) {
	if mem.IsBelowBufferPoolingThreshold(size) {
		w.b = make([]byte, 0, size)
		return
	}
	w.memory = wire.Buffers.Get(size)
	w.b = (*w.memory)[:0]
}

func (w *hotWriter) free() {
	if w.memory != nil {
		wire.Buffers.Put(w.memory)
	}
}

func (w *hotWriter) slice() mem.BufferSlice {
	if w.memory == nil || cap(w.b) != cap(*w.memory) { // it is more than was expected
		w.free()
		return mem.BufferSlice{mem.SliceBuffer(w.b)}
	}
	*w.memory = w.b
	return mem.BufferSlice{mem.NewBuffer(w.memory, wire.Buffers)}
}

func (w *hotWriter) number(field protowire.Number, x int64) {
	w.b = wire.AppendUint(w.b, field, uint64(x))
}

func (w *hotWriter) bool(field protowire.Number, x bool) { w.b = wire.AppendBool(w.b, field, x) }

func (w *hotWriter) text(field protowire.Number, s string) {
	w.unforeseen = w.unforeseen || !utf8.ValidString(s)
	w.b = wire.AppendString(w.b, field, s)
}

// open begins a message within the message, and close ends it. Most are so short that their length
// is one byte; longer ones are moved up.
func (w *hotWriter) open(field protowire.Number) (at int) {
	w.b = append(protowire.AppendTag(w.b, field, protowire.BytesType), 0)
	return len(w.b)
}

func (w *hotWriter) close(at int) {
	n := uint64(len(w.b) - at)
	for range protowire.SizeVarint(n) - 1 {
		w.b = append(w.b, 0)
	}
	copy(w.b[at-1+protowire.SizeVarint(n):], w.b[at:at+int(n)])
	protowire.AppendVarint(w.b[:at-1], n)
}

func (w *hotWriter) texts(field protowire.Number, list []string) {
	for _, s := range list {
		w.unforeseen = w.unforeseen || s == "" // which stands in a list as well
		w.text(field, s)
	}
}

// countItems is how many items b has, or 0 if there is anything beside them.
func countItems(b []byte) (n int) {
	f := wire.Fields{Rest: b}
	for ; f.Next(); n++ {
		if f.Num != 1 || f.Wire != protowire.BytesType {
			return 0
		}
	}
	if f.Err != nil {
		return 0
	}
	return n
}

// textOf is b as a string that lies where b lies, and whether it may be one.
func textOf(b []byte) (s string, ok bool) { return wire.Borrow(b), utf8.Valid(b) }

// byHand is desc with another handler of one method, which does not go by way of the generated code.
func byHand(desc grpc.ServiceDesc, method string, handler grpc.MethodHandler) grpc.ServiceDesc {
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		if desc.Methods[i].MethodName == method {
			desc.Methods[i].Handler = handler
		}
	}
	return desc
}

// guarded serves call, which holds request and answer, behind guard; nil: there is none.
func guarded[D, C any](ctx context.Context, guard grpc.UnaryServerInterceptor, door D, method string, call C, serve func(D, context.Context, C) error) (any, error) {
	if guard == nil {
		return call, serve(door, ctx, call)
	}
	info := &grpc.UnaryServerInfo{Server: door, FullMethod: method}
	return guard(ctx, call, info, func(ctx context.Context, _ any) (any, error) {
		return call, serve(door, ctx, call)
	})
}
