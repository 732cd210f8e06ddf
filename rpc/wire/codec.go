package wire

import (
	"context"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec stands before
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Codec is protobuf at the door for clients. The messages that may have a thousand items it
// reads and writes by hand, for the library takes several times as long for one as deciding on it
// does. What it reads and writes is what the library would: a message with anything that is not
// foreseen here, a field in error among it, is left to the library.
type Codec struct{ encoding.CodecV2 }

func NewCodec() Codec { return Codec{encoding.GetCodecV2("proto")} }

// Call is a call with messages that are read and written by hand.
type Call interface {
	Read(b []byte) (foreseen bool) // reads the request, and keeps nothing of b
	ReadByLibrary(b []byte) error  // reads what is not as foreseen
	Written(codec Codec) (mem.BufferSlice, error)
}

// Marshal writes v.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if call, hot := v.(Call); hot {
		return call.Written(c)
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal reads v.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	call, hot := v.(Call)
	if !hot {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(Buffers)
	defer buf.Free()
	if call.Read(buf.ReadOnlyData()) {
		return nil
	}
	return call.ReadByLibrary(buf.ReadOnlyData()) // which forgets what has been read
}

// Writer appends fields to memory of gRPC's. Fields that are zero are left out.
type Writer struct {
	memory     *[]byte // from the pool; nil for a message so short that gRPC would not give it back
	B          []byte  // what is written, within memory or grown out of it
	Unforeseen bool    // the library must write the message
}

func (w *Writer) Begin(size int) {
	if mem.IsBelowBufferPoolingThreshold(size) {
		w.B = make([]byte, 0, size)
		return
	}
	w.memory = Buffers.Get(size)
	w.B = (*w.memory)[:0]
}

func (w *Writer) Free() {
	if w.memory != nil {
		Buffers.Put(w.memory)
	}
}

func (w *Writer) Slice() mem.BufferSlice {
	if w.memory == nil || cap(w.B) != cap(*w.memory) { // it is more than was expected
		w.Free()
		return mem.BufferSlice{mem.SliceBuffer(w.B)}
	}
	*w.memory = w.B
	return mem.BufferSlice{mem.NewBuffer(w.memory, Buffers)}
}

func (w *Writer) Number(field protowire.Number, x int64) {
	w.B = AppendUint(w.B, field, uint64(x))
}

func (w *Writer) Bool(field protowire.Number, x bool) { w.B = AppendBool(w.B, field, x) }

func (w *Writer) Text(field protowire.Number, s string) {
	w.Unforeseen = w.Unforeseen || !utf8.ValidString(s)
	w.B = AppendString(w.B, field, s)
}

// Open begins a message within the message, and Close ends it.
func (w *Writer) Open(field protowire.Number) (at int) {
	w.B, at = Open(w.B, field)
	return at
}

func (w *Writer) Close(at int) { w.B = Close(w.B, at) }

func (w *Writer) Texts(field protowire.Number, list []string) {
	for _, s := range list {
		w.Unforeseen = w.Unforeseen || s == "" // which stands in a list as well
		w.Text(field, s)
	}
}

// CountItems is how many items b has, or 0 if there is anything beside them.
func CountItems(b []byte) (n int) {
	f := Fields{Rest: b}
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

// TextOf is b as a string that lies where b lies, and whether it may be one.
func TextOf(b []byte) (s string, ok bool) { return Borrow(b), utf8.Valid(b) }

// ByHand is desc with another handler of one method, which does not go by way of the generated
// code.
func ByHand(desc grpc.ServiceDesc, method string, handler grpc.MethodHandler) grpc.ServiceDesc {
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		if desc.Methods[i].MethodName == method {
			desc.Methods[i].Handler = handler
		}
	}
	return desc
}

// Guarded serves call, which holds request and answer, behind guard; nil: there is none.
func Guarded[D, C any](
	ctx context.Context, guard grpc.UnaryServerInterceptor, door D, method string, call C,
	serve func(D, context.Context, C) error,
) (any, error) {
	if guard == nil {
		return call, serve(door, ctx, call)
	}
	info := &grpc.UnaryServerInfo{Server: door, FullMethod: method}
	return guard(ctx, call, info, func(ctx context.Context, _ any) (any, error) {
		return call, serve(door, ctx, call)
	})
}
