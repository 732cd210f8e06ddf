package client

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/wire"
)

// This file encodes and decodes the messages of CheckStream by hand. The protobuf library would
// take several times as long per decision as the rest of a take. The tests compare the two.

// bytesCodec carries the bytes of messages: a *[]byte.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal reuses the memory that v already has.
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, n := v.(*[]byte), data.Len()
	*b = slices.Grow((*b)[:0], n)[:n]
	data.CopyTo(*b)
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// appendItem appends r as an Item, with its id.
func appendItem(b []byte, r *Request, origin, sequence uint64) []byte {
	b = appendText(b, 1, r.Limit)
	b = appendText(b, 3, r.Key)
	b = appendNumber(b, 4, uint64(r.Cost))
	b = append(b, 5<<3|byte(protowire.BytesType), byte(1+8+1+protowire.SizeVarint(sequence)),
		1<<3|byte(protowire.Fixed64Type))
	b = binary.LittleEndian.AppendUint64(b, origin)
	b = appendNumber(b, 2, sequence)
	if r.Report {
		b = appendNumber(b, 6, 1)
	}
	if r.Drain {
		b = appendNumber(b, 7, 1)
	}
	if r.Strict {
		b = appendNumber(b, 8, 1)
	}
	if !r.At.IsZero() {
		b = appendNumber(b, 9, uint64(r.At.UnixMilli()))
	}
	if ms, said := r.maxDelayMs(); said {
		b = appendNumber(b, 10, uint64(ms))
	}
	if r.Plan != "" {
		b = appendText(b, 11, r.Plan)
	}
	return b
}

// appendText and appendNumber are for fields below 16. Most texts and numbers are short.
func appendText(b []byte, num protowire.Number, s string) []byte {
	if len(s) < 0x80 {
		return append(append(b, byte(num)<<3|byte(protowire.BytesType), byte(len(s))), s...)
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendNumber(b []byte, num protowire.Number, v uint64) []byte {
	b = append(b, byte(num)<<3|byte(protowire.VarintType))
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// streamRequest encodes a CheckStreamRequest of takes.
func streamRequest(tag uint64, joined []*take, timeout time.Duration) []byte {
	size := 0
	for _, one := range joined {
		size += 1 + protowire.SizeBytes(len(one.item))
	}
	b := make([]byte, 0, size+32)
	b = appendNumber(b, 1, tag)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(size))
	for _, one := range joined {
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), one.item)
	}
	return appendNumber(b, 3, uint64(max(1, timeout.Milliseconds())))
}

// streamResponse is a CheckStreamResponse. Its decisions are read one by one.
type streamResponse struct {
	tag   uint64
	check []byte // a CheckResponse
	err   error  // why nothing was decided
}

// readResponse decodes b; ok is false if b is not a valid message.
func readResponse(b []byte) (r streamResponse, ok bool) {
	f := wire.Fields{Rest: b}
	var failed []byte
	for f.Next() {
		switch f.Num {
		case 1:
			r.tag = f.Value
		case 2:
			r.check = f.Bytes
		case 3:
			failed = f.Bytes
		}
	}
	ok = f.Err == nil
	if failed != nil {
		code, text := codes.Unknown, ""
		for f = (wire.Fields{Rest: failed}); f.Next(); {
			switch f.Num {
			case 1:
				code = codes.Code(f.Value)
			case 2:
				text = string(f.Bytes)
			}
		}
		ok = ok && f.Err == nil
		r.err = status.Error(code, text)
	}
	return r, ok
}

// next decodes the next decision of the response into d. It returns false if none is left.
func (r *streamResponse) next(d *Decision, known *names) bool {
	for f := (wire.Fields{Rest: r.check}); f.Next(); {
		if r.check = f.Rest; f.Num == 1 && f.Wire == protowire.BytesType {
			return readDecision(f.Bytes, d, known)
		}
	}
	r.check = nil
	return false
}

// names interns the texts of answers, so that a repeated text needs no memory.
type names struct {
	all map[string]string
	// of the last decision: most decisions repeat those of the one before
	limit, owner, override string
}

// mostNames bounds a names. Beyond it each text is allocated anew.
const mostNames = 1024

func (n *names) of(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	s, found := n.all[string(b)]
	if !found {
		if n.all == nil {
			n.all = make(map[string]string)
		}
		if s = string(b); len(n.all) < mostNames {
			n.all[s] = s
		}
	}
	return s
}

func (n *names) again(last *string, b []byte) string {
	if string(b) != *last {
		*last = n.of(b)
	}
	return *last
}

func readDecision(b []byte, d *Decision, known *names) bool {
	*d = Decision{Source: sourceText(0)}
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case 1:
			d.Allowed = f.Value != 0
		case 2:
			d.Limit = int64(f.Value)
		case 3:
			d.Remaining = int64(f.Value)
		case 4:
			d.RetryAfter = duration(int64(f.Value))
		case 5:
			d.ResetAfter = duration(int64(f.Value))
		case 6:
			d.Delay = duration(int64(f.Value))
		case 7:
			d.LimitName = known.again(&known.limit, f.Bytes)
		case 8:
			d.Owner = known.again(&known.owner, f.Bytes)
		case 9:
			d.Source = sourceText(penstockv1.Source(f.Value))
		case 10:
			d.Degraded = f.Value != 0
		case 11:
			d.Bound = int64(f.Value)
		case 12:
			d.Shadow = f.Value != 0
		default:
			d.setRare(&f, known)
		}
	}
	return f.Err == nil
}

// setRare sets a field that few decisions have.
func (d *Decision) setRare(f *wire.Fields, known *names) {
	switch f.Num {
	case 13:
		d.Drained = int64(f.Value)
	case 14:
		d.Session = time.UnixMilli(int64(f.Value))
	case 15:
		d.Restarted = f.Value != 0
	case 16:
		d.Override = known.again(&known.override, f.Bytes)
	case 17:
		d.Tag = known.of(f.Bytes)
	case 18:
		d.Tier = int(int32(f.Value))
	case 19:
		if !d.Denial.read(f.Bytes, known) {
			f.Err = wire.ErrMessage
		}
	}
}

func (d *Denial) read(b []byte, known *names) bool {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case 1:
			d.Status = int(int32(f.Value))
		case 2:
			d.ContentType = known.of(f.Bytes)
		case 3:
			d.Body = known.of(f.Bytes)
		}
	}
	return f.Err == nil
}

// sources are the names of sources as Decision.Source has them.
var sources = func() (all []string) {
	for v := range penstockv1.Source(len(penstockv1.Source_name)) {
		all = append(all, sourceName(v))
	}
	return all
}()

// fallbackSource is the name of the source of decisions that a node has taken without the owner.
var fallbackSource = sourceText(penstockv1.Source_SOURCE_FALLBACK)

func sourceText(s penstockv1.Source) string {
	if s >= 0 && int(s) < len(sources) {
		return sources[s]
	}
	return sourceName(s)
}

func sourceName(s penstockv1.Source) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(s.String(), "SOURCE_")), "_", "-")
}
