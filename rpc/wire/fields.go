package wire

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields walks over the fields of one message:
//
//	f := wire.Fields{Rest: b}
//	for f.Next() {
//		switch f.Num { … }
//	}
//	return f.Err
type Fields struct {
	Rest []byte
	Err  error // why the walk ended early

	Num   protowire.Number
	Wire  protowire.Type
	Value uint64 // of a varint, fixed64 or fixed32
	Bytes []byte // of a string, bytes or message; part of the walked bytes
}

// Next is the next field. Most have a tag of one byte, and so has the length of most.
func (f *Fields) Next() bool {
	b := f.Rest
	if len(b) < 2 || b[0] < 1<<3 || b[0] >= 0x80 {
		return f.nextLong()
	}
	f.Num, f.Wire = protowire.Number(b[0]>>3), protowire.Type(b[0]&7)
	switch f.Wire {
	case protowire.VarintType:
		if b[1] == 0xff && beginsWithNever(b[1:]) { // a time that never comes
			f.Value, f.Bytes, f.Rest = ^uint64(0), nil, b[11:]
			return true
		}
		var v uint64
		for i := 1; i < min(len(b), 10); i++ {
			if v |= uint64(b[i]&0x7f) << (7 * (i - 1)); b[i] < 0x80 {
				f.Value, f.Bytes, f.Rest = v, nil, b[i+1:]
				return true
			}
		}
	case protowire.BytesType:
		if n := 2 + int(b[1]); b[1] < 0x80 && n <= len(b) {
			f.Value, f.Bytes, f.Rest = 0, b[2:n], b[n:]
			return true
		}
	case protowire.Fixed64Type:
		if len(b) > 8 {
			f.Value, f.Bytes, f.Rest = binary.LittleEndian.Uint64(b[1:]), nil, b[9:]
			return true
		}
	}
	return f.nextLong()
}

// beginsWithNever reports whether b begins with the varint of -1, which has ten bytes.
func beginsWithNever(b []byte) bool {
	return len(b) > 9 && binary.LittleEndian.Uint64(b) == ^uint64(0) && b[8] == 0xff && b[9] == 1
}

func (f *Fields) nextLong() bool {
	if len(f.Rest) == 0 {
		return false
	}
	num, wire, n := protowire.ConsumeTag(f.Rest)
	if n < 0 {
		f.Err = ErrMessage
		return false
	}
	f.Num, f.Wire, f.Value, f.Bytes, f.Rest = num, wire, 0, nil, f.Rest[n:]
	switch wire {
	case protowire.VarintType:
		f.Value, n = protowire.ConsumeVarint(f.Rest)
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(f.Rest)
	case protowire.Fixed64Type:
		f.Value, n = protowire.ConsumeFixed64(f.Rest)
	default:
		n = protowire.ConsumeFieldValue(num, wire, f.Rest)
	}
	if n < 0 {
		f.Err = ErrMessage
		return false
	}
	f.Rest = f.Rest[n:]
	return true
}

// ErrMessage is what is wrong with bytes that are no protobuf message at all.
var ErrMessage = errors.New("is not a protobuf message")

// Borrow is b as a string without a copy: good as long as b is not changed.
func Borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// The append functions write one field. As in all of proto3, zero is not written.

func AppendHead(b []byte, num protowire.Number, size int) []byte {
	if num < 16 && size < 0x80 {
		return append(b, byte(num)<<3|byte(protowire.BytesType), byte(size))
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(size))
}

func AppendUint(b []byte, num protowire.Number, v uint64) []byte {
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

func AppendBool(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return AppendUint(b, num, 1)
}

func AppendFixed(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	if num < 16 {
		b = append(b, byte(num)<<3|byte(protowire.Fixed64Type))
	} else {
		b = protowire.AppendTag(b, num, protowire.Fixed64Type)
	}
	return binary.LittleEndian.AppendUint64(b, v)
}

func AppendString(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return append(AppendHead(b, num, len(v)), v...)
}

// Open begins a message within a message, and Close ends the one that began at an index. Most are
// so short that their length is one byte; longer ones are moved up.
func Open(b []byte, num protowire.Number) (_ []byte, at int) {
	b = AppendHead(b, num, 0)
	return b, len(b)
}

func Close(b []byte, at int) []byte {
	size := len(b) - at
	if size < 0x80 {
		b[at-1] = byte(size)
		return b
	}
	more := protowire.SizeVarint(uint64(size)) - 1
	for range more {
		b = append(b, 0)
	}
	copy(b[at+more:], b[at:at+size])
	protowire.AppendVarint(b[:at-1], uint64(size))
	return b
}
