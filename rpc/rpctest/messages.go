package rpctest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"penstock/rpc/wire"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Filled is a message of m's type with every field set that is asked for, so many in each list:
// what a later release adds is there too.
func Filled(
	m proto.Message, items int, value func(f protoreflect.FieldDescriptor) protoreflect.Value,
) proto.Message {
	m = m.ProtoReflect().New().Interface()
	fillIn(m.ProtoReflect(), items, value)
	return m
}

func fillIn(
	m protoreflect.Message, items int,
	value func(f protoreflect.FieldDescriptor) protoreflect.Value,
) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		switch {
		case f.IsMap():
			for n := range items % 3 {
				m.Mutable(f).Map().Set(
					protoreflect.ValueOfString(fmt.Sprint("key", n)).MapKey(),
					protoreflect.ValueOfString(strings.Repeat("v", 50*n+1)),
				)
			}
		case f.IsList() && f.Message() != nil:
			for range items {
				e := m.Mutable(f).List().AppendMutable()
				fillIn(e.Message(), items, value)
			}
		case f.IsList():
			if v := value(f); v.IsValid() {
				m.Mutable(f).List().Append(v)
			}
		case f.Message() != nil:
			fillIn(m.Mutable(f).Message(), items, value)
		default:
			if v := value(f); v.IsValid() {
				m.Set(f, v)
			}
		}
	}
}

// ValueOf is number, and what comes nearest to it for another kind of field.
func ValueOf(number int64, text string) func(f protoreflect.FieldDescriptor) protoreflect.Value {
	return func(f protoreflect.FieldDescriptor) protoreflect.Value {
		switch f.Kind() {
		case protoreflect.BoolKind:
			return protoreflect.ValueOfBool(number != 0)
		case protoreflect.StringKind:
			return protoreflect.ValueOfString(text)
		case protoreflect.BytesKind:
			return protoreflect.ValueOfBytes([]byte(text))
		case protoreflect.Int32Kind:
			return protoreflect.ValueOfInt32(int32(number))
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(number)))
		case protoreflect.Int64Kind:
			return protoreflect.ValueOfInt64(number)
		case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
			return protoreflect.ValueOfUint64(uint64(number))
		case protoreflect.Uint32Kind:
			return protoreflect.ValueOfUint32(uint32(number))
		}
		return protoreflect.Value{}
	}
}

// CheckWritten: what is written is m, as long as the library would write it, and says so.
func CheckWritten(
	t *testing.T, m proto.Message, write func(wire.Codec) (mem.BufferSlice, error),
	codec wire.Codec,
) {
	t.Helper()
	written, err := write(codec)
	if err != nil {
		t.Fatal(err)
	}
	back := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(written.Materialize(), back); err != nil || !proto.Equal(m, back) {
		t.Fatalf("%v: %v is read as %v", err, m, back)
	}
	if want := proto.Size(m); written.Len() != want {
		t.Fatalf("%v has %d bytes, want %d", m, written.Len(), want)
	}
	written.Free()
}

// CheckReadBy: call reads b as the library reads it into want, or refuses it as it refuses it, and
// then b is free for others. It reports whether b was read.
func CheckReadBy(t *testing.T, call wire.Call, want proto.Message, b []byte) bool {
	t.Helper()
	wantErr := proto.Unmarshal(b, want)
	lent := bytes.Clone(b)
	err := wire.NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(lent)}, call)
	for i := range lent {
		lent[i] = 'x'
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%T %x: %v, want %v", want, b, err, wantErr)
	}
	return err == nil
}

// OddMessages are messages of items as no client of ours writes them.
func OddMessages() map[string][]byte {
	item := func(fields ...[]byte) []byte {
		return protowire.AppendBytes([]byte{1<<3 | 2}, bytes.Join(fields, nil))
	}
	key, id := []byte{3<<3 | 2, 1, 'k'}, []byte{5<<3 | 2, 2, 2 << 3, 7}
	return map[string][]byte{
		"nothing":               {},
		"half a tag":            {0x8a},
		"an item too long":      {1<<3 | 2, 200, 'k'},
		"field of another type": item([]byte{3 << 3, 1}),
		"unknown field":         item(key, []byte{99<<3&0x7f | 0x80, 6, 1}),
		"field twice":           item(key, []byte{3<<3 | 2, 1, 'l'}),
		"id in halves": item(
			key, id, []byte{5<<3 | 2, 9, 1<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8},
		),
		"text that is none": item([]byte{1<<3 | 2, 1, 0xff}, []byte{2<<3 | 2, 1, 0xff}),
		"atomic":            append(item(key), 2<<3, 1),
		"group":             item([]byte{7<<3 | 3, 7<<3 | 4}),
		"number of 11 bytes": item(
			[]byte{4 << 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		),
		"overlong tag": item([]byte{4<<3 | 0x80, 0, 5}),
	}
}
