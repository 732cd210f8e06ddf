package rpc

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/proto/gubernator"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

var hotRequests = []proto.Message{&gubernator.GetRateLimitsReq{}, &penstockv1.CheckRequest{}, &penstockv1.CheckStreamRequest{}}

// filled is a message of m's type with every field set that is asked for, so many in each list:
// what a later release adds is there too.
func filled(m proto.Message, items int, value func(f protoreflect.FieldDescriptor) protoreflect.Value) proto.Message {
	m = m.ProtoReflect().New().Interface()
	fillIn(m.ProtoReflect(), items, value)
	return m
}

func fillIn(m protoreflect.Message, items int, value func(f protoreflect.FieldDescriptor) protoreflect.Value) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		switch {
		case f.IsMap():
			for n := range items % 3 {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(fmt.Sprint("key", n)).MapKey(), protoreflect.ValueOfString(strings.Repeat("v", 50*n+1)))
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

// valueOf is number, and what comes nearest to it for another kind of field.
func valueOf(number int64, text string) func(f protoreflect.FieldDescriptor) protoreflect.Value {
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

// TestHotMessagesAreTheLibrarys: what is written by hand is what the library writes, and what is
// read by hand is what it reads; with every field there is, so a new one that the hand forgets
// fails here.
func TestHotMessagesAreTheLibrarys(t *testing.T) {
	c := newHotCodec()
	for _, items := range []int{0, 1, 2, 3, 300} {
		for _, number := range []int64{0, 1, -1, 127, 128, math.MaxInt64, math.MinInt64} {
			for _, text := range []string{"", "alice", strings.Repeat("ä", 100)} {
				for _, of := range hotRequests {
					bytes, err := proto.Marshal(filled(of, items, valueOf(number, text)))
					if err != nil {
						t.Fatal(err)
					}
					checkRead(t, of, bytes)
				}
				responses := filled(&gubernator.GetRateLimitsResp{}, items, valueOf(number, text)).(*gubernator.GetRateLimitsResp)
				g := &gubernatorCall{}
				g.out.Responses = responses.Responses
				checkWritten(t, responses, g.write, c)
				decided := &streamCall{checkCall: checkCall{out: decisions(items, number, text)}, tag: uint64(number)}
				checkWritten(t, decided.response(), decided.checkCall.write, c)
				checkWritten(t, &penstockv1.CheckStreamResponse{Tag: decided.tag, Check: decided.response()}, decided.write, c)
			}
		}
	}
}

// decisions are n with every field set, of two limits and two owners in turns.
func decisions(n int, number int64, text string) []cluster.Decision {
	one, other := &limiter.Limit{}, &limiter.Limit{}
	one.Name, one.Override, other.Name = text, text, "other"
	out := make([]cluster.Decision, n)
	for i := range out {
		d := &out[i]
		d.Decision = limiter.Decision{
			Allowed: number != 0, Limit: number, Remaining: number, RetryAfter: time.Duration(number), ResetAfter: time.Duration(number),
			Delay: time.Duration(number), Drained: number, Session: limiter.Millis(number), Restarted: number != 0,
		}
		d.Rule, d.Owner, d.Source = one, text, cluster.SourceDenied
		d.Degraded, d.Bound, d.Shadow = number != 0, number, number != 0
		switch i % 7 {
		case 2:
			d.Rule = other
		case 3:
			d.Owner = "n2"
		case 4, 5:
			d.Decision, d.Degraded, d.Bound, d.Shadow = limiter.Decision{Allowed: true, Limit: number}, false, 0, false
		}
	}
	return out
}

// TestEveryFieldIsEncoded: a Decision of the protocol says all that it can.
func TestEveryFieldIsEncoded(t *testing.T) {
	d := encode(decisions(1, int64(time.Hour), "alice"))[0].ProtoReflect()
	for i := range d.Descriptor().Fields().Len() {
		if f := d.Descriptor().Fields().Get(i); !d.Has(f) {
			t.Errorf("%s is never said", f.Name())
		}
	}
}

// checkWritten: what is written is m, as long as the library would write it, and says so.
func checkWritten(t *testing.T, m proto.Message, write func(hotCodec) (mem.BufferSlice, error), codec hotCodec) {
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

// checkRead: b is read as the library reads it, or refused as it refuses it, and then b is free for
// others.
func checkRead(t *testing.T, of proto.Message, b []byte) {
	t.Helper()
	want := of.ProtoReflect().New().Interface()
	wantErr := proto.Unmarshal(b, want)
	lent := bytes.Clone(b)
	calls := map[proto.Message]hotCall{
		hotRequests[0]: &gubernatorCall{in: new(gubernator.GetRateLimitsReq)}, hotRequests[1]: new(checkCall), hotRequests[2]: new(streamCall),
	}
	call := calls[of]
	err := newHotCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(lent)}, call)
	for i := range lent {
		lent[i] = 'x'
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%T %x: %v, want %v", of, b, err, wantErr)
	}
	if err != nil {
		return
	}
	switch c := call.(type) {
	case *gubernatorCall:
		if !proto.Equal(want, c.in) {
			t.Fatalf("%T %x: %v, want %v", of, b, c.in, want)
		}
	case *checkCall:
		checkAsked(t, c, want.(*penstockv1.CheckRequest))
	case *streamCall:
		in := want.(*penstockv1.CheckStreamRequest)
		if c.tag != in.Tag || c.timeoutMs != in.TimeoutMs {
			t.Fatalf("%x: tag %d and %d ms, want %v", b, c.tag, c.timeoutMs, in)
		}
		if in.Check == nil {
			in.Check = new(penstockv1.CheckRequest)
		}
		checkAsked(t, &c.checkCall, in.Check)
	}
}

// checkAsked: c asks what the library reads as want.
func checkAsked(t *testing.T, c *checkCall, want *penstockv1.CheckRequest) {
	t.Helper()
	if c.in != nil {
		if !proto.Equal(c.in, want) {
			t.Fatalf("read %v, want %v", c.in, want)
		}
		return
	}
	var other checkCall
	if err := other.decode(want.Items, cluster.OpTake, new(door.Inlines)); err != nil {
		t.Fatalf("read by hand, and %v: %v", want, err)
	}
	if !reflect.DeepEqual(c.request, other.request) || len(c.out) != len(want.Items) {
		t.Fatalf("read %+v, want %+v", c.request, other.request)
	}
	if !proto.Equal(want, &penstockv1.CheckRequest{Items: want.Items}) {
		t.Fatalf("read by hand, although there is more than items: %v", want)
	}
}

// TestGubernatorCallIsUsedAgain: what a call read and answered before is not in what it reads and
// answers next.
func TestGubernatorCallIsUsedAgain(t *testing.T) {
	codec, door := newHotCodec(), &gubernatorDoor{node: rpctest.Alone(t), inlines: new(door.Inlines)}
	now := time.Now()
	used := &gubernatorCall{in: new(gubernator.GetRateLimitsReq)}
	for round, request := range []*gubernator.RateLimitReq{
		{Name: "n", UniqueKey: "k", Hits: 1, Limit: 10, Duration: 60_000, Algorithm: 1, Behavior: 32, Burst: 20, CreatedAt: new(int64(5)), Metadata: map[string]string{"a": "b"}},
		{Name: "n", UniqueKey: "k", Hits: 1, Limit: 10, Duration: 60_000, Algorithm: 1, Behavior: 32, Burst: 20, CreatedAt: new(int64(5))},
		{Name: "other", UniqueKey: "key", Hits: 100, Limit: 5, Duration: 60_000},
		{UniqueKey: "k"},
		{Name: "n", UniqueKey: "k", Hits: 1},
		{},
		{Name: "n", UniqueKey: "peek", Limit: 7, Duration: 60_000},
	} {
		in := &gubernator.GetRateLimitsReq{}
		for range 1 + 10*(round*3%7) {
			in.Requests = append(in.Requests, request)
		}
		b, err := proto.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, used); err != nil || !proto.Equal(used.in, in) {
			t.Fatalf("%v, read %v, want %v", err, used.in, in)
		}
		in.Requests = in.Requests[:1]
		for _, r := range in.Requests {
			r.Hits = 0
		}
		if err := door.answer(now, used); err != nil {
			t.Fatal(err)
		}
		last := used.out.Responses[len(used.out.Responses)-1]
		fresh, err := answerAt(door, now, in)
		if err != nil || last.Limit != fresh.Responses[0].Limit || last.Remaining != fresh.Responses[0].Remaining || last.Error != fresh.Responses[0].Error {
			t.Fatalf("%v, answered %v, afterwards %v", err, last, fresh.Responses[0])
		}
		want, err := proto.Marshal(&used.out)
		if err != nil {
			t.Fatal(err)
		}
		written, err := used.write(codec)
		if err != nil || written.Len() != len(want) {
			t.Fatalf("%v, %d bytes, want %d", err, written.Len(), len(want))
		}
	}
}

// TestHotWriterKnowsMetadataAgain: responses may share what they say of their owner, or say more,
// or nothing.
func TestHotWriterKnowsMetadataAgain(t *testing.T) {
	shared := map[string]string{"owner": "127.0.0.1:7948"}
	m := &gubernator.GetRateLimitsResp{}
	for i, data := range []map[string]string{nil, shared, shared, {"owner": strings.Repeat("long", 50), "degraded": "1"}, shared, nil, {}, nil, shared, shared} {
		m.Responses = append(m.Responses, &gubernator.RateLimitResp{Limit: int64(i), Error: strings.Repeat("e", 30*i), Metadata: data})
	}
	c := &gubernatorCall{}
	c.out.Responses = m.Responses
	checkWritten(t, m, c.write, newHotCodec())
}

// TestHotReadersLeaveTheRestToTheLibrary: messages as no client of ours writes them.
func TestHotReadersLeaveTheRestToTheLibrary(t *testing.T) {
	item := func(fields ...[]byte) []byte { return protowire.AppendBytes([]byte{1<<3 | 2}, bytes.Join(fields, nil)) }
	key, id := []byte{3<<3 | 2, 1, 'k'}, []byte{5<<3 | 2, 2, 2 << 3, 7}
	for name, b := range map[string][]byte{
		"nothing":               {},
		"half a tag":            {0x8a},
		"an item too long":      {1<<3 | 2, 200, 'k'},
		"field of another type": item([]byte{3 << 3, 1}),
		"unknown field":         item(key, []byte{99<<3&0x7f | 0x80, 6, 1}),
		"field twice":           item(key, []byte{3<<3 | 2, 1, 'l'}),
		"id in halves":          item(key, id, []byte{5<<3 | 2, 9, 1<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8}),
		"text that is none":     item([]byte{1<<3 | 2, 1, 0xff}, []byte{2<<3 | 2, 1, 0xff}),
		"atomic":                append(item(key), 2<<3, 1),
		"group":                 item([]byte{7<<3 | 3, 7<<3 | 4}),
		"number of 11 bytes":    item([]byte{4 << 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}),
		"overlong tag":          item([]byte{4<<3 | 0x80, 0, 5}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, of := range hotRequests {
				checkRead(t, of, b)
				checkRead(t, of, append([]byte{1 << 3, 9}, protowire.AppendBytes([]byte{2<<3 | 2}, b)...)) // as a request on a stream
			}
		})
	}
}

// TestHotWriterRefusesWhatTheLibraryRefuses: text that is none.
func TestHotWriterRefusesWhatTheLibraryRefuses(t *testing.T) {
	var broken, owner gubernatorCall
	broken.out.Responses = []*gubernator.RateLimitResp{{Error: "\xff"}}
	owner.out.Responses = []*gubernator.RateLimitResp{{Metadata: map[string]string{"owner": "\xff"}}}
	decided := checkCall{out: decisions(1, 1, "\xff")}
	for _, write := range []func(hotCodec) (mem.BufferSlice, error){broken.write, owner.write, decided.write, (&streamCall{checkCall: decided}).write} {
		if b, err := write(newHotCodec()); err == nil {
			t.Errorf("%x is written", b.Materialize())
		}
	}
}

func FuzzHotRequests(f *testing.F) {
	for _, of := range hotRequests {
		b, err := proto.Marshal(filled(of, 2, valueOf(300, "alice")))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, of := range hotRequests {
			checkRead(t, of, b)
		}
	})
}
