package fair

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// hand is a clock and a scheduler that a test moves.
type hand struct{ now, wait time.Duration }

func (h *hand) gate() *Gate {
	return newGate(
		func() time.Duration { return h.now },
		func() wait { return wait{wall: h.wait, own: h.wait} },
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

// Promise: a wait counts as far as processors worked for this process meanwhile, and all of it
// where that is not known.
func TestWaitsAreOfOwnProcessorTime(t *testing.T) {
	p := time.Duration(runtime.GOMAXPROCS(0))
	for _, c := range []struct{ used, own time.Duration }{
		{5 * time.Second, 5 * time.Second / p},
		{100 * p * time.Second, 20 * time.Second},
		{-time.Second, 20 * time.Second},
	} {
		from := moment{time.Now(), time.Second}
		w := from.until(moment{from.at.Add(20 * time.Second), from.used + c.used})
		if w.wall != 20*time.Second || w.own != c.own {
			t.Errorf("20 s in which processors worked for %v: %+v", c.used, w)
		}
	}
}

// Promise: a probe says how long what comes waits, also while it is still waiting; it begins anew
// after a pause, and keeps no goroutine when it is not asked.
func TestProbe(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := new(probe)
	for range 2 {
		if w := p.ask(); w.wall != 0 {
			t.Errorf("before a byte was sent the wait is %v", w.wall)
		}
		for tries := 0; p.ask().wall == 0; tries++ {
			if tries > 1000 {
				t.Fatal("no byte comes back")
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * probeIdle)
		p.ask()
	}
	p.mu.Lock() // the goroutine runs, and cannot say so
	p.under, p.sent = true, moment{time.Now().Add(-time.Hour), 0}
	p.mu.Unlock()
	if w := p.ask(); w.wall < time.Hour {
		t.Errorf("a byte that has been under way for an hour has waited for %v", w.wall)
	}
	p.mu.Lock()
	p.under = false
	p.mu.Unlock()
}

// Promise: a client may be further ahead where its level is low, so that what has gathered while
// other programs had the processors is answered, and never so far that it waits for long.
func TestPatience(t *testing.T) {
	for level, want := range map[float64]time.Duration{
		4: patience, 1: patience, 1. / 2: patience,
		1. / 4: 4 * patientWork, leastLevel: mostPatience,
	} {
		if got := (&shares{level: level}).patience(); got != want {
			t.Errorf("at a level of %v it is %v, not %v", level, got, want)
		}
	}
}

// Promise: what a client sends on many connections at once, and cannot be refused, keeps it and its
// connections waiting for a bounded time.
func TestDebtsAreBounded(t *testing.T) {
	h := &hand{now: time.Hour}
	g := Strained(leastLevel, func() time.Duration { return h.now })
	line := new(Line)
	for range 5000 {
		g.Spend("pipes", Work{Cost: 5 * time.Millisecond, Line: line})
	}
	if left := time.Duration(line.until.Load()) - time.Since(began); left > mostDebt {
		t.Errorf("its connection is not read for %v", left)
	}
	h.now += mostDebt
	if err := g.Enter("pipes", Work{}); err != nil {
		t.Errorf("after %v it is refused: %v", mostDebt, err)
	}
}

// Promise: a connection that is closed ends at once, however long it would not have been read.
// Until then it holds memory, and a gRPC door that has none left has others wait for it.
func TestClosedConnectionIsNotWaitedFor(t *testing.T) {
	line := new(Line)
	line.until.Store(int64(time.Since(began) + time.Hour))
	over := make(chan struct{})
	go func() {
		defer close(over)
		line.Wait()
		line.Hold()
	}()
	line.End()
	<-over
}
