package native

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
	"penstock/rpc/wire"
)

// TestCheckCallIsUsedAgain: what a call read and answered before is not in what it reads and
// answers next, whether it or the library has read it.
func TestCheckCallIsUsedAgain(t *testing.T) {
	codec := wire.NewCodec()
	door := &rateLimiter{
		node: rpctest.Alone(t, rpctest.PerHour), clock: clock.New(),
		inlines: new(door.Inlines),
	}
	used := new(checkCall)
	item := func(key string, cost int64) *penstockv1.Item {
		return &penstockv1.Item{Limit: rpctest.PerHour.Name, Key: []byte(key), Cost: new(cost)}
	}
	id := item("id", 1)
	id.Id = &penstockv1.RequestId{Origin: 7, Sequence: 1}
	for round, in := range []*penstockv1.CheckRequest{
		{Items: []*penstockv1.Item{item("a", 1), id, item("b", 2)}},
		{Items: []*penstockv1.Item{{Limit: rpctest.PerHour.Name, Key: []byte("a")}, {
			Limit: rpctest.PerHour.Name,
			Key:   []byte("c"), Id: &penstockv1.RequestId{Origin: 8},
		}, item("a", 0)}},
		// the library reads this
		{Items: []*penstockv1.Item{item("a", 1), item("d", 1)}, Atomic: true},
		{Items: []*penstockv1.Item{item("e", 1)}},
		// and this
		{Items: []*penstockv1.Item{{
			Limit: rpctest.PerHour.Name, Key: []byte("a"), Report: true,
			Cost: new(int64(1)),
		}}},
		{Items: []*penstockv1.Item{item("a", 1)}},
		{Items: []*penstockv1.Item{id, id, id, id, id, id, id, id}},
	} {
		b, err := proto.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, used); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for i := range b {
			b[i] = 'x'
		}
		checkAsked(t, used, in)
		if err := door.serve(t.Context(), used); err != nil {
			t.Fatal(err)
		}
		fresh, err := door.Peek(t.Context(),
			&penstockv1.PeekRequest{Items: []*penstockv1.Item{
				item(string(in.Items[len(in.Items)-1].Key), 0),
			}})
		if err != nil {
			t.Fatal(err)
		}
		out := used.response()
		last := out.Decisions[len(out.Decisions)-1]
		if len(out.Decisions) != len(in.Items) || last.Remaining != fresh.Decisions[0].Remaining ||
			last.Limit != fresh.Decisions[0].Limit {
			t.Errorf("round %d: %d decisions, the last %v, afterwards %v", round,
				len(out.Decisions), last, fresh.Decisions[0])
		}
		if (out.Verdict != nil) != in.Atomic {
			t.Errorf("round %d: atomic %t, and the verdict is %v", round, in.Atomic, out.Verdict)
		}
		want, err := proto.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		written, err := used.write(codec)
		if err != nil || written.Len() != len(want) {
			t.Fatalf("round %d: %v, %d bytes, want %d", round, err, written.Len(), len(want))
		}
		used.clear()
	}
	d, err := door.Peek(t.Context(),
		&penstockv1.PeekRequest{Items: []*penstockv1.Item{item("id", 0), item("a", 0)}})
	if err != nil ||
		fmt.Sprint(d.Decisions[0].Limit-d.Decisions[0].Remaining,
			d.Decisions[1].Limit-d.Decisions[1].Remaining) != "1 5" {
		t.Errorf("charged otherwise than once an id, and 5 to a: %v, %v", d, err)
	}
}
