package cluster

import (
	"errors"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: a node that stood still for longer than owners remember answers knows so from the first
// instruction on, until all that came meanwhile has been read; one that stood still for less does
// not.
func TestNodeKnowsThatItStoodStill(t *testing.T) {
	for name, still := range map[string]struct {
		lasts time.Duration
		old   bool
	}{
		"for longer than owners remember": {2200 * time.Millisecond, true},
		"not for that long":               {900 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, five)
			w.pass(20 * time.Second) // nodes are idle
			w.freeze("n1")
			w.pass(still.lasts)
			if got := w.nodes["n1"].still.mayBeOld(w.now); got != still.old {
				t.Errorf("in its first instruction: %v", got)
			}
			w.thaw("n1")
			for _, ms := range []time.Duration{0, 20, 400} {
				w.pass(ms * time.Millisecond)
				if got := w.nodes["n1"].still.mayBeOld(w.now); got != still.old {
					t.Errorf("%v ms after the last look: %v", int64(ms), got)
				}
			}
			if w.pass(oldFor); w.nodes["n1"].still.mayBeOld(w.now) {
				t.Error("it is never over")
			}
		})
	}
}

// Promise: a node that has stopped has no ticks, and is not taken for one that stood still.
func TestStoppedNodeIsNotOld(t *testing.T) {
	var s stillness
	at := limiter.Instant(time.Hour)
	s.runs(at)
	if s.mayBeOld(at.Add(2*time.Second)) || !s.mayBeOld(at.Add(2*time.Second+1)) {
		t.Error("it counts from another instant than its last tick")
	}
	s.ends()
	if s.mayBeOld(at.Add(time.Hour)) {
		t.Error("a node without timers stands still")
	}
}

// Promise: a node that stood still drops what its client has hung up on, and answers a client that
// waits; one that did not stand still asks nobody.
func TestWhatLayAtItsDoor(t *testing.T) {
	for _, x := range []struct {
		name  string
		still time.Duration
		after time.Duration // when the client hangs up; 0: it waits
		want  error
	}{
		{"it had hung up", 2200 * time.Millisecond, 1, ErrHungUp},
		{"it shows a little later", 2200 * time.Millisecond, hangUpTime - 1, ErrHungUp},
		{"it waits", 2200 * time.Millisecond, 0, nil},
		{"it had hung up on one that was there", 300 * time.Millisecond, 1, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, 3, five)
			w.pass(20 * time.Second)
			w.freeze("n1")
			w.pass(x.still)
			w.thaw("n1")
			left := false
			if x.after != 0 {
				w.after("", x.after, func() { left = true })
			}
			for i, owner := range []string{"n1", "n2"} {
				out := make([]Decision, 1)
				err := w.nodes["n1"].Check(&Request{
					Items:  []Item{{Limit: "five", Key: w.key(owner, i), Cost: 1}},
					HungUp: func() bool { return left },
				}, out)
				if !errors.Is(err, x.want) || err == nil && out[0].Source == SourceFallback {
					t.Errorf("a key of %s: %+v, %v; want %v", owner, out[0], err, x.want)
				}
				want := int64(5)
				if x.want == nil {
					want = 4
				}
				if got := w.remaining(owner, "five", w.key(owner, i)); got != want {
					t.Errorf("a key of %s: %d left, want %d", owner, got, want)
				}
			}
		})
	}
}

// Promise: no share admits for a client that has hung up, and nothing is owed for it: it asks
// another node, under the same id, and may be charged there. A client that waits is answered.
func TestShareAdmitsForNobody(t *testing.T) {
	below := limiter.Spec{
		Name: "below", Parent: "five", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 9, Per: time.Minute,
	}
	for _, x := range []struct {
		name   string
		limit  string
		op     Op
		atomic bool
		after  int64 // what is left of the other key if nobody waits
	}{
		{"takes, each for itself", "five", OpTake, false, 4},
		{"takes, all or none", "five", OpTake, true, 5},
		{"reservations, each for itself", "five", OpReserve, false, 4},
		{"reservations, all or none", "five", OpReserve, true, 5},
		{"takes below another limit", "below", OpTake, false, 4},
	} {
		for _, waits := range []bool{false, true} {
			w := newWorld(t, 3, five, below)
			w.meet = func(c *Call, deliver func() *Answer) {
				if c.Err = ErrUnsent; c.To.ID != "n2" {
					c.Answer, c.Err = deliver(), nil
				}
			}
			left := false
			r := &Request{HungUp: func() bool { return left }, Atomic: x.atomic}
			keys := []string{w.key("n2", 0), w.key("n3", 0)}
			for i, key := range keys {
				it := Item{Limit: x.limit, Key: key, Cost: 1, Op: x.op}
				if it.ID = (ID{Origin: 77, Sequence: uint64(i + 1)}); x.limit == "below" {
					it.Key += "/a"
				}
				if x.op == OpReserve {
					it.Hold = &HoldTerms{TTL: time.Minute}
				}
				r.Items = append(r.Items, it)
			}
			if !waits {
				w.after("", time.Millisecond, func() { left = true })
			}
			out := make([]Decision, len(keys))
			if err := w.nodes["n1"].Check(r, out); err != nil {
				t.Fatal(err)
			}
			if out[0].Allowed != waits || !out[0].Degraded {
				t.Errorf("%s, it waits: %t: %+v", x.name, waits, out[0])
			}
			w.meet = nil
			w.pass(5 * time.Second)
			want := [2]int64{4, 4} // of n2's key, if it waits, by what is owed
			if !waits {
				want = [2]int64{5, x.after}
			}
			got := [2]int64{
				w.remaining("n3", "five", keys[0]), w.remaining("n3", "five", keys[1]),
			}
			if got != want {
				t.Errorf("%s, it waits: %t: %d left, want %d", x.name, waits, got, want)
			}
		}
	}
}

// Promise: a node that stood still keeps the deadlines that lie ahead of it while it waits whether
// a client hangs up. One that passed meanwhile says nothing: the client may have none.
func TestDeadlineAfterAStop(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		name           string
		deadline, want time.Duration // since it went on
	}{
		{"far ahead", time.Second, hangUpTime},
		{"ahead", 20 * ms, 20 * ms},
		{"it comes just now", 0, 0},
		{"it came while the node stood still", -100 * ms, hangUpTime},
	} {
		w := newWorld(t, 3, five)
		w.pass(20 * time.Second)
		w.freeze("n1")
		w.pass(2200 * ms)
		w.thaw("n1")
		woke := w.now
		if w.nodes["n1"].isOver(woke.Add(x.deadline), func() bool { return false }) {
			t.Errorf("%s: a client that waits has hung up", x.name)
		}
		if got := time.Duration(w.now - woke); got != x.want {
			t.Errorf("%s: it waits for %v, want %v", x.name, got, x.want)
		}
	}
}
