package fair

import (
	"errors"
	"fmt"
	"runtime/metrics"
	"testing"
	"time"
)

// hand is a clock and a scheduler that a test moves.
type hand struct{ now, wait time.Duration }

func (h *hand) gate() *Gate {
	return newGate(
		func() time.Duration { return h.now },
		func() waits { return waits{median: h.wait} },
	)
}

// fill has a client enter until it is refused, and returns how often it was let in.
func fill(g *Gate, client string) (n int) {
	for g.Enter(client, Work{}) == nil {
		n++
	}
	return n
}

// Promise: a greedy client leaves a fifth of the room to others, and a second greedy one gets
// nearly all that is left for two.
func TestGreedyClientLeavesRoom(t *testing.T) {
	g := new(hand).gate()
	if n := fill(g, "greedy"); n < mostRoom*3/4 || n > mostRoom*4/5+1 {
		t.Errorf("a greedy client alone has %d of %d", n, mostRoom)
	}
	second := fill(g, "second")
	for range mostRoom { // the first one's requests end, and it asks again at once
		g.Leave("greedy")
		_ = g.Enter("greedy", Work{})
		_ = g.Enter("second", Work{})
	}
	if after := g.clients["second"]; after < mostRoom*4/10 || after < second {
		t.Errorf(
			"a second greedy client has %d of %d at first and %d later",
			second,
			mostRoom,
			after,
		)
	}
	if err := g.Enter("modest", Work{}); err != nil {
		t.Errorf("a client with one request beside two greedy ones: %v", err)
	}
	if err := g.Enter("greedy", Work{}); err == nil || !errors.Is(err, ErrOverloaded) {
		t.Errorf("a further request of a greedy client: %v", err)
	}
}

// Promise: with a room that is full of other clients, a client still has its first requests, and
// all clients together cannot go beyond a bound.
func TestFullRoom(t *testing.T) {
	g := new(hand).gate()
	n := 0
	for g.Enter(fmt.Sprint("client ", n), Work{}) == nil {
		n++
	}
	if n != 2*mostRoom {
		t.Errorf("%d clients with a request each were let in; %d are the most", n, 2*mostRoom)
	}
	if len(g.clients) != n {
		t.Errorf("%d clients are known of %d", len(g.clients), n)
	}
	for i := range n {
		g.Leave(fmt.Sprint("client ", i))
	}
	if f := g.Figures(); f.Used != 0 || len(g.clients) != 0 || f.Refused != 1 {
		t.Errorf("after all have left: %+v and %d clients", f, len(g.clients))
	}
}

// Promise: the room shrinks while goroutines wait, to no less than leastRoom, and grows back.
func TestRoomFollowsTheWait(t *testing.T) {
	h := &hand{now: time.Second}
	g := h.gate()
	step := func() int {
		h.now += lookEvery
		if g.Enter("probe", Work{}) == nil {
			g.Leave("probe")
		}
		return g.Figures().Room
	}
	step()
	for i := range 4000 {
		_ = g.Enter(fmt.Sprint("busy-", i), Work{})
	}
	if g.Busy() {
		t.Error("a gate without goroutines that wait is busy")
	}
	h.wait = 2 * mostWait
	if step(); !g.Busy() {
		t.Error("a gate with goroutines that wait is not busy")
	}
	if room := step(); room != 3500 {
		t.Errorf("with 4000 under way that make goroutines wait the room is %d", room)
	}
	for range 50 {
		step()
	}
	if room := step(); room != leastRoom {
		t.Errorf("after a long wait the room is %d, not %d", room, leastRoom)
	}
	h.wait = 0
	for range 200 {
		step()
	}
	if room := step(); room != mostRoom || g.Busy() {
		t.Errorf("after the wait the room is %d, not %d", room, mostRoom)
	}
}

// Promise: the median is of what came since the last look.
func TestMedianSince(t *testing.T) {
	h := &metrics.Float64Histogram{
		Counts:  []uint64{10, 3, 9},
		Buckets: []float64{0, 0.001, 0.01, 0.1},
	}
	for _, c := range []struct {
		before []uint64
		want   time.Duration
	}{{nil, 10 * time.Millisecond}, {[]uint64{10, 3, 0}, 100 * time.Millisecond}, {
		[]uint64{0, 3, 9}, time.Millisecond,
	}, {h.Counts, 0}} {
		if got := quantileSince(c.before, h, 0.5); got != c.want {
			t.Errorf("since %v: %v, not %v", c.before, got, c.want)
		}
	}
	if New().waited().most < 0 {
		t.Error("this process waits less than nothing")
	}
}
