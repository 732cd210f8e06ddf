package gubernator

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"penstock/proto/gubernator"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
	"penstock/rpc/wire"
)

// TestMessagesAreTheLibrarys: what is written by hand is what the library writes, and what is read
// by hand is what it reads; with every field there is, so a new one that the hand forgets fails
// here.
func TestMessagesAreTheLibrarys(t *testing.T) {
	for _, items := range []int{0, 1, 2, 3, 300} {
		for _, number := range []int64{0, 1, -1, 127, 128, math.MaxInt64, math.MinInt64} {
			for _, text := range []string{"", "alice", strings.Repeat("ä", 100)} {
				value := rpctest.ValueOf(number, text)
				bytes, err := proto.Marshal(rpctest.Filled(&gubernator.GetRateLimitsReq{}, items,
					value))
				if err != nil {
					t.Fatal(err)
				}
				checkCallReads(t, bytes)
				responses := rpctest.Filled(&gubernator.GetRateLimitsResp{}, items, value)
				c := &call{}
				c.out.Responses = responses.(*gubernator.GetRateLimitsResp).Responses
				rpctest.CheckWritten(t, responses, c.write, wire.NewCodec())
			}
		}
	}
}

// checkCallReads: a call reads b as the library does.
func checkCallReads(t *testing.T, b []byte) {
	t.Helper()
	c, want := &call{in: new(gubernator.GetRateLimitsReq)}, new(gubernator.GetRateLimitsReq)
	if rpctest.CheckReadBy(t, c, want, b) && !proto.Equal(want, c.in) {
		t.Fatalf("%x: %v, want %v", b, c.in, want)
	}
}

// TestCallLeavesTheRestToTheLibrary: messages as no client of ours writes them.
func TestCallLeavesTheRestToTheLibrary(t *testing.T) {
	for name, b := range rpctest.OddMessages() {
		t.Run(name, func(t *testing.T) { checkCallReads(t, b) })
	}
}

// TestCallRefusesWhatTheLibraryRefuses: text that is none.
func TestCallRefusesWhatTheLibraryRefuses(t *testing.T) {
	for _, r := range []*gubernator.RateLimitResp{
		{Error: "\xff"}, {Metadata: map[string]string{"owner": "\xff"}},
	} {
		var c call
		c.out.Responses = []*gubernator.RateLimitResp{r}
		if b, err := c.write(wire.NewCodec()); err == nil {
			t.Errorf("%x is written", b.Materialize())
		}
	}
}

func FuzzCallReads(f *testing.F) {
	b, err := proto.Marshal(rpctest.Filled(&gubernator.GetRateLimitsReq{}, 2,
		rpctest.ValueOf(300, "alice")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) { checkCallReads(t, b) })
}

// TestGubernatorCallIsUsedAgain: what a call read and answered before is not in what it reads and
// answers next.
func TestGubernatorCallIsUsedAgain(t *testing.T) {
	codec := wire.NewCodec()
	g := &Door{Node: rpctest.Alone(t), Inlines: new(door.Inlines)}
	now := time.Now()
	used := &call{in: new(gubernator.GetRateLimitsReq)}
	for round, request := range []*gubernator.RateLimitReq{
		{
			Name: "n", UniqueKey: "k", Hits: 1, Limit: 10, Duration: 60_000, Algorithm: 1,
			Behavior: 32, Burst: 20, CreatedAt: new(int64(5)),
			Metadata: map[string]string{"a": "b"},
		},
		{
			Name: "n", UniqueKey: "k", Hits: 1, Limit: 10, Duration: 60_000, Algorithm: 1,
			Behavior: 32, Burst: 20, CreatedAt: new(int64(5)),
		},
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
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, used); err != nil ||
			!proto.Equal(used.in, in) {
			t.Fatalf("%v, read %v, want %v", err, used.in, in)
		}
		in.Requests = in.Requests[:1]
		for _, r := range in.Requests {
			r.Hits = 0
		}
		if err := g.answer(now, used); err != nil {
			t.Fatal(err)
		}
		last := used.out.Responses[len(used.out.Responses)-1]
		fresh, err := answerAt(g, now, in)
		if err != nil || last.Limit != fresh.Responses[0].Limit ||
			last.Remaining != fresh.Responses[0].Remaining ||
			last.Error != fresh.Responses[0].Error {
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
	for i, data := range []map[string]string{nil, shared, shared, {"owner": strings.Repeat("long",
		50), "degraded": "1"}, shared, nil, {}, nil, shared, shared} {
		m.Responses = append(m.Responses, &gubernator.RateLimitResp{
			Limit: int64(i),
			Error: strings.Repeat("e", 30*i), Metadata: data,
		})
	}
	c := &call{}
	c.out.Responses = m.Responses
	rpctest.CheckWritten(t, m, c.write, wire.NewCodec())
}
