package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// timers is how many timers are set while d goes by.
func (w *world) timers(d time.Duration) int {
	before := len(w.due)
	w.pass(d)
	return len(w.due) - before
}

// TestAloneAndCalmIsIdle: a node that agrees with nobody ticks once a second while nobody asks it,
// ten times while somebody does, or a hold is open, and never in two chains of ticks.
func TestAloneAndCalmIsIdle(t *testing.T) {
	w := newAlone(t, hundred)
	n := w.nodes["n1"]
	w.pass(3 * time.Second)
	if got := w.timers(10 * time.Second); got != 10 {
		t.Errorf("%d ticks in 10 s of calm, want 10", got)
	}
	w.pass(50 * time.Millisecond)
	w.take("n1", "hundred", "a") // in the middle of an idle time
	if got := w.timers(900 * time.Millisecond); got != 9 {
		t.Errorf("%d ticks in the 0.9 s after a check, want 9", got)
	}
	w.pass(3 * time.Second)

	id, _ := w.reserve("n1", "hundred", "b", 40, 2*time.Second)
	if got := w.timers(1900 * time.Millisecond); got != 19 {
		t.Errorf("%d ticks in the 1.9 s of a hold, want 19", got)
	}
	w.pass(200 * time.Millisecond)
	if n.Stats().RanOut.Load() != 1 {
		t.Error("a hold did not run out at the tick after its deadline")
	}
	if d := w.settleHold("n1", id, 1); d.Decision.Hold == limiter.HoldSettled {
		t.Errorf("settled after its deadline: %+v", d)
	}
}

// TestWakeLeavesOneChainOfTicks: a request at the moment of a tick does not make a second one
// begin.
func TestWakeLeavesOneChainOfTicks(t *testing.T) {
	w := newAlone(t, hundred)
	n := w.nodes["n1"]
	for range 5 {
		w.pass(3 * time.Second)
		if !n.pulse.idle.Load() {
			t.Fatal("it does not doze")
		}
		n.pulse.wake()
		n.tick() // which has waited for the lock
	}
	if got := w.timers(900 * time.Millisecond); got != 9 {
		t.Errorf("%d ticks in 0.9 s, want 9", got)
	}
}

// TestCalmAsksHalfAsOften: nodes of which nobody asks anything ask each other for signs of life
// every 400 ms, and every 200 ms else.
func TestCalmAsksHalfAsOften(t *testing.T) {
	w := newWorld(t, 3, hundred)
	w.pass(5 * time.Second)
	probes := func(d time.Duration) (sum int) {
		w.meet = func(c *Call, deliver func() *Answer) {
			if m := c.Ask.Move; m != nil && m.Sequence == 0 && m.ID == "n1" {
				sum++
			}
			c.Answer = deliver()
		}
		defer func() { w.meet = nil }()
		w.pass(d)
		return sum
	}
	if got := probes(4 * time.Second); got != 20 {
		t.Errorf("%d signs of life of two others asked for in 4 s of calm, want 20", got)
	}
	w.take("n1", "hundred", w.key("n1", 0))
	if got := probes(800 * time.Millisecond); got < 6 || got > 8 {
		t.Errorf("%d in the 0.8 s after a check, want 8, or less by one of each", got)
	}
}
