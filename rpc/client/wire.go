package client

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	penstockv1 "penstock/proto/penstock/v1"
)

// This file reads and writes the messages of CheckStream by hand: the library takes several times as long for a decision as all
// else that a take does. The tests hold the two against each other.

// bytesCodec carries the bytes of messages: a *[]byte.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// appendItem appends r as an Item, with its id.
func appendItem(b []byte, r *Request, origin, sequence uint64) []byte {
	b = appendText(b, 1, r.Limit)
	b = appendText(b, 3, r.Key)
	b = appendNumber(b, 4, uint64(r.Cost))
	b = protowire.AppendTag(b, 5, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(1+8+1+protowire.SizeVarint(sequence)))
	b = protowire.AppendFixed64(protowire.AppendTag(b, 1, protowire.Fixed64Type), origin)
	b = appendNumber(b, 2, sequence)
	for i, set := range []bool{r.Report, r.Drain, r.Strict} {
		if set {
			b = appendNumber(b, protowire.Number(6+i), 1)
		}
	}
	if !r.At.IsZero() {
		b = appendNumber(b, 9, uint64(r.At.UnixMilli()))
	}
	return b
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendNumber(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// streamRequest is a CheckStreamRequest of items.
func streamRequest(tag uint64, items [][]byte, timeout time.Duration) []byte {
	size := 0
	for _, it := range items {
		size += 1 + protowire.SizeBytes(len(it))
	}
	b := make([]byte, 0, size+32)
	b = appendNumber(b, 1, tag)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(size))
	for _, it := range items {
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), it)
	}
	return appendNumber(b, 3, uint64(max(1, timeout.Milliseconds())))
}

// streamResponse is a CheckStreamResponse. Its decisions are read one by one.
type streamResponse struct {
	tag   uint64
	check []byte // a CheckResponse
	err   error  // why nothing was decided
}

// readResponse reads b, unless that is no message.
func readResponse(b []byte) (r streamResponse, ok bool) {
	var failed []byte
	broken := eachField(b, func(num protowire.Number, v uint64, text []byte) {
		switch num {
		case 1:
			r.tag = v
		case 2:
			r.check = text
		case 3:
			failed = text
		}
	})
	if failed != nil {
		code, text := codes.Unknown, ""
		broken = eachField(failed, func(num protowire.Number, v uint64, b []byte) {
			switch num {
			case 1:
				code = codes.Code(v)
			case 2:
				text = string(b)
			}
		}) || broken
		r.err = status.Error(code, text)
	}
	return r, !broken
}

// next takes the next decision off the response; false if there is none.
func (r *streamResponse) next(known names) (d Decision, ok bool) {
	for len(r.check) > 0 {
		num, wire, n := protowire.ConsumeTag(r.check)
		if n < 0 {
			r.check = nil
			return d, false
		}
		m := protowire.ConsumeFieldValue(num, wire, r.check[n:])
		if m < 0 {
			r.check = nil
			return d, false
		}
		value := r.check[n : n+m]
		r.check = r.check[n+m:]
		if num == 1 && wire == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
			return readDecision(value, known)
		}
	}
	return d, false
}

// names are texts that answers have brought, so that one which comes again needs no memory.
type names map[string]string

// mostNames bounds a names: whoever uses more limits than that has each made anew.
const mostNames = 1024

func (n names) of(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	s, found := n[string(b)]
	if !found {
		if s = string(b); len(n) < mostNames {
			n[s] = s
		}
	}
	return s
}

func readDecision(b []byte, known names) (d Decision, ok bool) {
	d.Source = sourceText(0)
	broken := eachField(b, func(num protowire.Number, v uint64, text []byte) {
		switch num {
		case 1:
			d.Allowed = v != 0
		case 2:
			d.Limit = int64(v)
		case 3:
			d.Remaining = int64(v)
		case 4:
			d.RetryAfter = duration(int64(v))
		case 5:
			d.ResetAfter = duration(int64(v))
		case 6:
			d.Delay = duration(int64(v))
		case 7:
			d.LimitName = known.of(text)
		case 8:
			d.Owner = known.of(text)
		case 9:
			d.Source = sourceText(penstockv1.Source(v))
		case 10:
			d.Degraded = v != 0
		case 11:
			d.Bound = int64(v)
		case 12:
			d.Shadow = v != 0
		case 13:
			d.Drained = int64(v)
		case 14:
			d.Session = time.UnixMilli(int64(v))
		case 15:
			d.Restarted = v != 0
		case 16:
			d.Override = known.of(text)
		}
	})
	return d, !broken
}

// eachField calls fn with the fields of a message that have a number or bytes, and reports whether it is broken.
func eachField(b []byte, fn func(num protowire.Number, v uint64, text []byte)) (broken bool) {
	for len(b) > 0 {
		num, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return true
		}
		var v uint64
		var text []byte
		m := 0
		switch b = b[n:]; wire {
		case protowire.VarintType:
			v, m = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, m = protowire.ConsumeBytes(b)
		default:
			m = protowire.ConsumeFieldValue(num, wire, b)
		}
		if m < 0 {
			return true
		}
		b = b[m:]
		fn(num, v, text)
	}
	return false
}

// sources are the names of sources as Decision.Source has them.
var sources = func() map[penstockv1.Source]string {
	all := make(map[penstockv1.Source]string, len(penstockv1.Source_name))
	for v := range penstockv1.Source_name {
		all[penstockv1.Source(v)] = sourceName(penstockv1.Source(v))
	}
	return all
}()

func sourceText(s penstockv1.Source) string {
	if text, known := sources[s]; known {
		return text
	}
	return sourceName(s)
}

func sourceName(s penstockv1.Source) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(s.String(), "SOURCE_")), "_", "-")
}
