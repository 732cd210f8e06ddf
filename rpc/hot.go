package rpc

import (
	"reflect"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that hotCodec stands before
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/proto/gubernator"
	"penstock/rpc/door"
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

	rule     *limiter.Limit // of the decision before, or nil
	owner    string         // of that too
	from, to int            // where in b these two are written
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

func (w *hotWriter) rateLimits(m *gubernator.GetRateLimitsResp) {
	var shared sharedMetadata
	for _, r := range m.Responses {
		if r == nil {
			w.unforeseen = true
			return
		}
		at := w.open(1)
		w.number(1, int64(r.Status))
		w.number(2, r.Limit)
		w.number(3, r.Remaining)
		w.number(4, r.ResetTime)
		w.text(5, r.Error)
		if len(r.Metadata) > 0 {
			w.sharedMetadata(&shared, r.Metadata)
		}
		w.close(at)
	}
}

// sharedMetadata are the metadata that a message had last, and how they were written: most
// responses share theirs with others.
type sharedMetadata struct {
	next  int // the place that the next ones take
	known [4]struct {
		id      uintptr
		space   [64]byte
		written []byte
	}
}

func (w *hotWriter) sharedMetadata(s *sharedMetadata, m map[string]string) {
	id := reflect.ValueOf(m).Pointer()
	for i := range s.known {
		if k := &s.known[i]; k.id == id {
			w.b = append(w.b, k.written...)
			return
		}
	}
	from := len(w.b)
	w.metadata(6, m)
	k := &s.known[s.next%len(s.known)]
	k.id, k.written = id, append(k.space[:0], w.b[from:]...)
	s.next++
}

func (w *hotWriter) metadata(field protowire.Number, m map[string]string) {
	for k, v := range m {
		w.unforeseen = w.unforeseen || k == "" || v == "" // which stand in a map as well
		at := w.open(field)
		w.text(1, k)
		w.text(2, v)
		w.close(at)
	}
}

// check writes the decisions of c, and their verdict.
func (w *hotWriter) check(c *checkCall) {
	for i := range c.out {
		w.decision(&c.out[i])
	}
	if v := c.verdict; v != nil {
		at := w.open(2)
		w.bool(1, v.Allowed)
		w.texts(2, v.RefusedBy)
		w.number(3, v.RetryAfterMs)
		w.texts(4, v.Rules)
		w.close(at)
	}
}

// decision writes d. Most decisions of a message name the same limit and owner, and have nothing
// more to say than how much is left.
func (w *hotWriter) decision(d *cluster.Decision) {
	at := w.open(1)
	w.bool(1, d.Allowed)
	w.number(2, d.Limit)
	w.number(3, d.Remaining)
	w.number(4, door.Millis(d.RetryAfter))
	w.number(5, door.Millis(d.ResetAfter))
	w.number(6, door.Millis(d.Delay))
	if d.Rule != w.rule || d.Owner != w.owner {
		w.rule, w.owner, w.from = d.Rule, d.Owner, len(w.b)
		w.text(7, d.Rule.Name)
		w.text(8, d.Owner)
		w.to = len(w.b)
	} else {
		w.b = append(w.b, w.b[w.from:w.to]...)
	}
	w.number(9, int64(encodeSource(d.Source)))
	if d.Degraded || d.Bound != 0 || d.Shadow {
		w.bool(10, d.Degraded)
		w.number(11, d.Bound)
		w.bool(12, d.Shadow)
	}
	if d.Drained != 0 || d.Session != 0 || d.Restarted || d.Rule.Override != "" {
		w.number(13, d.Drained)
		w.number(14, int64(d.Session))
		w.bool(15, door.Restarted(d))
		w.text(16, d.Rule.Override)
	}
	if w.close(at); len(w.b)-at > 0x7f { // it has been moved up
		w.rule = nil
	}
}

func (w *hotWriter) texts(field protowire.Number, list []string) {
	for _, s := range list {
		w.unforeseen = w.unforeseen || s == "" // which stands in a list as well
		w.text(field, s)
	}
}

// setHit sets a number of a request, and reports whether it is known.
func setHit(to *gubernator.RateLimitReq, field protowire.Number, v uint64) bool {
	switch field {
	case 3:
		to.Hits = int64(v)
	case 4:
		to.Limit = int64(v)
	case 5:
		to.Duration = int64(v)
	case 6:
		to.Algorithm = gubernator.Algorithm(v)
	case 7:
		to.Behavior = gubernator.Behavior(v)
	case 8:
		to.Burst = int64(v)
	case 10:
		to.CreatedAt = new(int64(v))
	default:
		return false
	}
	return true
}

func readID(b []byte, id *cluster.ID) bool {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch {
		case f.Wire == protowire.Fixed64Type && f.Num == 1:
			id.Origin = f.Value
		case f.Wire == protowire.VarintType && f.Num == 2:
			id.Sequence = f.Value
		default:
			return false
		}
	}
	return f.Err == nil
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
