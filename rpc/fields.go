package rpc

import (
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// fields walks over the fields of one message:
//
//	f := fields{rest: b}
//	for f.next() {
//		switch f.num { … }
//	}
//	return f.err
type fields struct {
	rest []byte
	err  error // why the walk ended early

	num   protowire.Number
	wire  protowire.Type
	value uint64 // of a varint, fixed64 or fixed32
	bytes []byte // of a string, bytes or message; part of the walked bytes
}

// next is the next field. Most have a tag and a number or a length of one byte each.
func (f *fields) next() bool {
	if b := f.rest; len(b) >= 2 && b[0] >= 1<<3 && b[0] < 0x80 && b[1] < 0x80 {
		f.num, f.wire = protowire.Number(b[0]>>3), protowire.Type(b[0]&7)
		switch n := 2 + int(b[1]); {
		case f.wire == protowire.VarintType:
			f.value, f.bytes, f.rest = uint64(b[1]), nil, b[2:]
			return true
		case f.wire == protowire.BytesType && n <= len(b):
			f.value, f.bytes, f.rest = 0, b[2:n], b[n:]
			return true
		}
	}
	return f.nextLong()
}

func (f *fields) nextLong() bool {
	if len(f.rest) == 0 {
		return false
	}
	num, wire, n := protowire.ConsumeTag(f.rest)
	if n < 0 {
		f.err = errFrame
		return false
	}
	f.num, f.wire, f.value, f.bytes, f.rest = num, wire, 0, nil, f.rest[n:]
	switch wire {
	case protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(f.rest)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(f.rest)
	case protowire.Fixed64Type:
		f.value, n = protowire.ConsumeFixed64(f.rest)
	default:
		n = protowire.ConsumeFieldValue(num, wire, f.rest)
	}
	if n < 0 {
		f.err = errFrame
		return false
	}
	f.rest = f.rest[n:]
	return true
}

// borrow is b as a string without a copy: good as long as b is not changed.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// The append functions write one field, the size functions say how long it gets. As in all of proto3, zero is not
// written. The size functions are for field numbers below 16, whose tag is one byte.

func appendHead(b []byte, num protowire.Number, size int) []byte {
	if num < 16 && size < 0x80 {
		return append(b, byte(num)<<3|byte(protowire.BytesType), byte(size))
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(size))
}

func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	switch {
	case v == 0:
		return b
	case num < 16 && v < 0x80:
		return append(b, byte(num)<<3|byte(protowire.VarintType), byte(v))
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendBool(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return appendUint(b, num, 1)
}

func appendFixed(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), v)
}

func appendString(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return append(appendHead(b, num, len(v)), v...)
}

// sizeBytes is the size of a field that holds size bytes, also if there are none.
func sizeBytes(size int) int { return 1 + protowire.SizeBytes(size) }

func sizeUint(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func sizeBool(v bool) int {
	if !v {
		return 0
	}
	return 2
}

func sizeFixed(v uint64) int {
	if v == 0 {
		return 0
	}
	return 9
}

func sizeString(v string) int {
	if v == "" {
		return 0
	}
	return sizeBytes(len(v))
}
