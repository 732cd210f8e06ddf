package cluster

import (
	"slices"
	"testing"
	"time"

	"penstock/cluster/ownership"
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

// signs counts the signs of life that n1 asks each other node for while d goes by.
func (w *world) signs(d time.Duration) map[string]int {
	asked := make(map[string]int)
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.Sequence == 0 && m.ID == "n1" {
			asked[c.To.ID]++
		}
		c.Answer = deliver()
	}
	defer func() { w.meet = nil }()
	w.pass(d)
	return asked
}

// TestVotersNeedNoSignsOfLife: a node asks no voter for a sign of life, busy or not, because each
// answers its renewals; another member it asks, once a second while nobody asks anything.
func TestVotersNeedNoSignsOfLife(t *testing.T) {
	w := newWorld(t, ownership.MaxVoters+2, hundred)
	w.pass(5 * time.Second)
	voters := w.nodes["n1"].Agreed().Voters
	check := func(when string, d time.Duration, least, most int) {
		t.Helper()
		asked := w.signs(d)
		for _, m := range w.nodes["n1"].Agreed().Members {
			got := asked[m.ID]
			switch {
			case m.ID == "n1":
			case slices.Contains(voters, m.Boot):
				if got != 0 {
					t.Errorf("%s, voter %s is asked for %d signs of life", when, m.ID, got)
				}
			case got < least || got > most:
				t.Errorf("%s, member %s is asked for %d signs of life, want %d to %d", when, m.ID,
					got, least, most)
			}
		}
	}
	check("in calm", 4*time.Second, 4, 4)
	w.take("n1", "hundred", w.key("n1", 0))
	check("after a check", 800*time.Millisecond, 3, 4)
}

// TestCalmMembersAreIdle: members that agree tick once a second while nobody asks anything, and
// poll the agreement when they renew their rights. A request, a call that fails, and news in the
// agreement end that.
func TestCalmMembersAreIdle(t *testing.T) {
	w := newWorld(t, 3, hundred)
	n := w.nodes["n1"]
	var polls int
	calm := func() {
		t.Helper()
		w.pass(3 * time.Second)
		if !n.pulse.idle.Load() {
			t.Fatal("n1 is not idle after 3 s of calm")
		}
	}
	calm()
	ticks, last := n.pulse.ticks, n.agreed.polled
	for range 10_000 {
		w.pass(time.Millisecond)
		if n.agreed.polled != last {
			polls, last = polls+1, n.agreed.polled
		}
	}
	if got := n.pulse.ticks - ticks; got != 10 || polls < 49 || polls > 70 {
		t.Errorf("%d ticks and %d polls in 10 s of calm, want 10 and some 50", got, polls)
	}

	w.pass(7 * time.Millisecond)
	w.take("n1", "hundred", w.key("n1", 0))
	if n.pulse.idle.Load() || n.agreed.polled != w.now {
		t.Error("a request is decided without a look at the agreement, or is not followed by ticks")
	}
	calm()
	w.meet = func(c *Call, _ func() *Answer) { c.Err = errSilent }
	w.pass(ownership.Default().Renew)
	if n.pulse.idle.Load() {
		t.Error("no call is answered, and n1 is idle")
	}
	w.meet = nil
	calm()
	n.agreed.agree(0, ownership.Leave{})
	if n.pulse.idle.Load() {
		t.Error("n1 is idle when it is to leave")
	}
}

// looks is a sense of whether the machine was suspended.
type looks func() bool

func (f looks) Suspended() bool { return f() }

// TestIdleTimeEndsAfterTheLook: until the agreement knows whether the machine was suspended, each
// request finds an idle node, and so looks itself before it is decided.
func TestIdleTimeEndsAfterTheLook(t *testing.T) {
	w := newWorld(t, 3, hundred)
	n := w.nodes["n1"]
	w.pass(3 * time.Second)
	var idle []bool // at each look
	n.agreed.suspends.clock = looks(func() bool {
		idle = append(idle, n.pulse.idle.Load())
		return false
	})
	w.take("n1", "hundred", w.key("n1", 0))
	if len(idle) == 0 || !idle[0] {
		t.Errorf("while it looked, the node was idle: %v; want true first", idle)
	}
}

// TestRenewalsAreNoAnswers: a member that renews along with another one does so by a call of its
// own. An answer may come too late, and the next renewal is due only a while later.
func TestRenewalsAreNoAnswers(t *testing.T) {
	w := newWorld(t, 2, hundred)
	w.pass(3 * time.Second)
	n1, n2 := w.nodes["n1"], w.nodes["n2"]
	for n2.agreed.polled.Add(185*time.Millisecond) > w.now { // an idle node polls when it renews
		w.pass(time.Millisecond)
	}
	renewals := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Ask.Words != nil && c.To.ID == "n1" && slices.ContainsFunc(c.Ask.Words.Said,
			isRenewal) {
			renewals++
		}
		c.Answer = deliver()
	}
	a, b := n1.agreed.state.Boot(), n2.agreed.state.Boot()
	answer := n2.agreed.hearWords(&Words{
		From: a, To: b, ID: "n1", Process: n1.boot, Said: []ownership.Message{ownership.Renew{
			Epoch: n2.agreed.state.Config().Epoch, Sent: ownership.Instant(w.now),
		}},
	}, a)
	if answer == nil || slices.ContainsFunc(answer.Said, isRenewal) {
		t.Errorf("n2 answers %+v, want an acknowledgement alone", answer)
	}
	if w.pass(time.Millisecond); renewals != 1 {
		t.Errorf("n2 makes %d calls to renew along, want 1", renewals)
	}
}

// TestIdleTimesAreTold: a program hears that its node is idle, and with the next request that it is
// not.
func TestIdleTimesAreTold(t *testing.T) {
	w := newWorld(t, 3, hundred)
	n := w.nodes["n1"]
	var told []bool
	n.pulse.onIdle = func(idle bool) { told = append(told, idle) }
	w.pass(5 * time.Second)
	if want := []bool{true}; !slices.Equal(told, want) {
		t.Fatalf("in 5 s without a request the program heard %v, want %v", told, want)
	}
	w.take("n1", "hundred", "a")
	w.settle()
	if want := []bool{true, false}; !slices.Equal(told, want) {
		t.Errorf("with a request it heard %v, want %v", told, want)
	}
}
