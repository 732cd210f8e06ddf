package rpc

import (
	"encoding/binary"
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

// next is the next field. Most have a tag of one byte, and so has the length of most.
func (f *fields) next() bool {
	b := f.rest
	if len(b) < 2 || b[0] < 1<<3 || b[0] >= 0x80 {
		return f.nextLong()
	}
	f.num, f.wire = protowire.Number(b[0]>>3), protowire.Type(b[0]&7)
	switch f.wire {
	case protowire.VarintType:
		var v uint64
		for i := 1; i < min(len(b), 10); i++ {
			if v |= uint64(b[i]&0x7f) << (7 * (i - 1)); b[i] < 0x80 {
				f.value, f.bytes, f.rest = v, nil, b[i+1:]
				return true
			}
		}
	case protowire.BytesType:
		if n := 2 + int(b[1]); b[1] < 0x80 && n <= len(b) {
			f.value, f.bytes, f.rest = 0, b[2:n], b[n:]
			return true
		}
	case protowire.Fixed64Type:
		if len(b) > 8 {
			f.value, f.bytes, f.rest = binary.LittleEndian.Uint64(b[1:]), nil, b[9:]
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

// The append functions write one field, the size functions say how long it gets. As in all of
// proto3, zero is not written. The size functions are for field numbers below 16, whose tag is one
// byte.

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
	case num < 16:
		b = append(b, byte(num)<<3|byte(protowire.VarintType))
	default:
		b = protowire.AppendTag(b, num, protowire.VarintType)
	}
	if v == minusOne { // which a decision says where it has nothing to say
		return append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1)
	}
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

const minusOne = 1<<64 - 1

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
