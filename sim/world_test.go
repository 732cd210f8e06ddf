package sim

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// stage is a world in which only what a test says happens: n machines with right clocks, a
// millisecond apart, and one limit, "five": 5 a minute.
func stage(t *testing.T, n int, more ...func(*plan)) *world {
	t.Helper()
	p := &plan{
		seed: 1, sky: outage, machines: make([]machinePlan, n), sweepEvery: 10 * time.Second,
		weather: weather{near: time.Millisecond, far: time.Millisecond, inOrder: true},
		limits: []rule{{Spec: limiter.Spec{
			Name: "five", Algorithm: limiter.FixedWindow,
			Anchor: limiter.FirstHit, Limit: 5, Per: time.Minute,
		}}},
		traffic: traffic{keys: 1},
	}
	for i := range p.machines {
		p.machines[i].clock.start = 1_700_000_000_000_000_000
	}
	for _, change := range more {
		change(p)
	}
	return newWorld(p, nil)
}

// play lets the world happen, and fails the test if a promise was broken in it.
func (w *world) play(t *testing.T) {
	t.Helper()
	w.run()
	if f := w.judge.failure; f != nil {
		t.Fatalf("%s (%s): %s", f.Promise, f.Says, f.Detail)
	}
}

// key is one that the i-th machine owns.
func (w *world) key(i int) string {
	for k := 0; ; k++ {
		if key := fmt.Sprintf("key-%d", k); w.owner(key) == w.machines[i] {
			return key
		}
	}
}

// asks has a client ask the i-th machine at some time to take one unit of key, and keeps what it
// hears.
func (w *world) asks(at time.Duration, i int, key string, patience time.Duration) *heardAnswer {
	a := &heardAnswer{at: -1}
	w.at(at, func() {
		r := &request{
			items: []cluster.Item{{Limit: "five", Key: key, Cost: 1}}, patience: patience,
			open: 1,
		}
		w.judge.posed(r)
		m := w.machines[i]
		p := m.process
		inner := p.door
		p.door = disguise{
			door: inner,
			check: func(d door, q *cluster.Request, out []cluster.Decision) error {
				err := inner.Check(q, out)
				a.at, a.Decision = w.now, out[0]
				return err
			},
		}
		w.callers.visit(m, r, false)
		p.door = inner
	})
	return a
}

type heardAnswer struct {
	at time.Duration // -1: the client never heard
	cluster.Decision
}

func TestCallTakesThereAndBack(t *testing.T) {
	w := stage(t, 2)
	a := w.asks(time.Second, 0, w.key(1), time.Second)
	w.play(t)
	if a.at != time.Second+2*time.Millisecond || !a.Allowed || a.Source != cluster.SourceForwarded {
		t.Errorf("heard at %v: %+v; want an answer of the owner after 2 ms", a.at, a.Decision)
	}
}

// calls records how the calls of a node end.
type calls struct {
	cluster.Network
	world *world
	ended []ended
}

type ended struct {
	at  time.Duration
	err error
}

func (c *calls) Call(cs []cluster.Call) {
	c.Network.Call(cs)
	for i := range cs {
		c.ended = append(c.ended, ended{c.world.now, cs[i].Err})
	}
}

// call sends one Ask from the first machine to the second, directly, and returns how it ends.
func call(w *world, at, patience time.Duration) *calls {
	p, to := w.machines[0].process, w.machines[1]
	c := &calls{Network: p, world: w}
	ask := &cluster.Ask{
		Hop: 1,
		Items: []cluster.AskItem{{
			Limit: w.named["five"], Key: w.key(1), Cost: 1,
			ID: cluster.ID{Origin: 7, Sequence: uint64(at)},
		}},
	}
	member := cluster.Member{ID: to.id, Boot: to.process.boot}
	w.judge.account("five", w.key(1))
	w.at(at, func() {
		w.tasks.start(p, doing(func() {
			c.Call([]cluster.Call{{To: member, Ask: ask, Deadline: p.Now().Add(patience)}})
		}))
	})
	return c
}

func TestCallToADeadPeerIsUnsent(t *testing.T) {
	w := stage(t, 2)
	c := call(w, time.Second, time.Second)
	w.at(0, w.machines[1].crash)
	w.play(t)
	if len(c.ended) != 1 || !errors.Is(c.ended[0].err, cluster.ErrUnsent) ||
		c.ended[0].at != time.Second+2*time.Millisecond {
		t.Errorf("ended %+v; want ErrUnsent after 2 ms", c.ended)
	}
}

func TestCallToAPeerThatRestartedIsUnsent(t *testing.T) {
	w := stage(t, 2)
	c := call(w, time.Second, time.Second)
	w.at(0, func() { w.machines[1].crash(); w.machines[1].start() })
	w.play(t)
	if len(c.ended) != 1 || !errors.Is(c.ended[0].err, cluster.ErrUnsent) {
		t.Errorf("ended %+v; want ErrUnsent: the process that was meant is gone", c.ended)
	}
}

func TestLostMessagesEndTheCallAtItsDeadline(t *testing.T) {
	for _, way := range [][2]int{{0, 1}, {1, 0}} {
		t.Run(fmt.Sprintf("from %d to %d", way[0], way[1]), func(t *testing.T) {
			w := stage(t, 2)
			c := call(w, time.Second, 300*time.Millisecond)
			w.cutOff(w.machines[way[0]], w.machines[way[1]])
			w.play(t)
			if len(c.ended) != 1 || c.ended[0].err == nil ||
				errors.Is(c.ended[0].err, cluster.ErrUnsent) ||
				c.ended[0].at != 1300*time.Millisecond {
				t.Errorf("ended %+v; want an error that leaves open what happened, after 300 ms",
					c.ended)
			}
		})
	}
}

// A peer that has acted on one copy of an Ask and dies before the other comes has not "surely not
// acted".
func TestCallThatWasActedOnIsNotUnsent(t *testing.T) {
	w := stage(t, 2, func(p *plan) { p.weather.twice = 1 })
	asker, owner := w.machines[0], w.machines[1]
	c := call(w, time.Second, time.Second)
	w.cutOff(owner, asker) // the answer gets lost
	owner.process.door = disguise{
		door: owner.process.door,
		deliver: func(d door, a *cluster.Ask) *cluster.Answer {
			if len(a.Items) > 0 {
				w.at(w.now, func() {
					if owner.process != nil {
						owner.crash()
						w.mend(owner, asker)
					}
				})
			}
			return d.Deliver(a)
		},
	}
	// so that the copies do not come together
	w.plan.weather.mean, w.plan.weather.far, w.plan.weather.inOrder = time.Millisecond,
		5*time.Millisecond, false
	w.play(t)
	if len(c.ended) != 1 || !errors.Is(c.ended[0].err, errBroken) {
		t.Errorf("ended %+v; want an error that leaves open what happened", c.ended)
	}
}

func TestFrameIsOverwritten(t *testing.T) {
	w := stage(t, 2)
	key, lent := w.key(1), ""
	p := w.machines[1].process
	p.door = disguise{door: p.door, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
		if len(a.Items) == 0 {
			return d.Deliver(a)
		}
		if lent = a.Items[0].Key; lent != key || a.Items[0].Limit == w.named["five"] {
			t.Errorf("lent %q, or the asker's own limit; want %q, and a limit made anew", lent, key)
		}
		return d.Deliver(a)
	}}
	w.asks(0, 0, key, time.Second)
	w.play(t)
	if lent == key || len(lent) != len(key) {
		t.Errorf("the key reads %q after the frame is gone", lent)
	}
}

// Both nodes lose their memory, one after the other, so no node is left that knows.
func TestCrashesForgetAndLeaveNobodyWaiting(t *testing.T) {
	w := stage(t, 2)
	key := w.key(1)
	before := w.asks(0, 0, key, time.Second)
	cutShort := w.asks(time.Second, 0, key, time.Second)
	w.at(time.Second+time.Millisecond/2, func() { w.strike(fault{kind: crashes, node: 0}) })
	w.at(2*time.Second, func() { w.strike(fault{kind: crashes, node: 1}) })
	w.at(3*time.Second, func() { w.strike(fault{kind: boots, node: 0}) })
	alone := w.asks(4*time.Second, 0, key, time.Second)
	w.at(5*time.Second, func() { w.strike(fault{kind: boots, node: 1}) })
	after := w.asks(8*time.Second, 0, key, time.Second)
	w.play(t)
	if before.Remaining != 4 || cutShort.at != -1 {
		t.Errorf("before: %d left; asked a node that died: heard at %v; want 4, -1",
			before.Remaining, cutShort.at)
	}
	if alone.Remaining != 4 || alone.Source != cluster.SourceFallback || !alone.Degraded {
		t.Errorf("while only one is there, which knows nothing and nobody: %+v; want 4 left, by "+
			"its share", alone.Decision)
	}
	if after.Remaining != 3 || after.Degraded {
		t.Errorf("when both are there again: %+v; want 3 left", after.Decision)
	}
}

// Promise: an owner crashes, and what it had counted some time ago is still counted.
func TestHeirsGoOnAfterACrash(t *testing.T) {
	w := stage(t, 3)
	key := w.key(1)
	before := w.asks(0, 0, key, time.Second)
	w.at(time.Second, func() { w.strike(fault{kind: crashes, node: 1}) })
	at := w.asks(time.Second+10*time.Millisecond, 0, key, time.Second)
	w.play(t)
	if before.Remaining != 4 || at.Remaining != 3 || at.Degraded || at.at > 1260*time.Millisecond {
		t.Errorf("%d left, then at %v: %+v; want 4, and within 250 ms 3 by the heir",
			before.Remaining, at.at, at.Decision)
	}
}

func TestFreezeDelaysAndForgetsNothing(t *testing.T) {
	w := stage(t, 2)
	key := w.key(1)
	w.at(0, w.machines[1].freeze)
	w.at(300*time.Millisecond, w.machines[1].thaw)
	a := w.asks(100*time.Millisecond, 0, key, time.Second)
	b := w.asks(time.Second, 0, key, time.Second)
	w.play(t)
	if a.at < 301*time.Millisecond || a.at > 350*time.Millisecond || a.Remaining != 4 ||
		a.Degraded || b.Remaining != 3 {
		t.Errorf("heard at %v: %+v, then %d left; want the owner's answer after 300 ms, 4 left, "+
			"then 3", a.at, a.Decision, b.Remaining)
	}
}

// Promise: a request delivered twice or retried: 0 extra charges. A node that froze in the middle
// of a call must not repeat the take when it wakes up: its owner has forgotten by then that it was
// charged.
func TestFrozenAskerDoesNotRepeatTooLate(t *testing.T) {
	w := stage(t, 2)
	key := w.key(1)
	w.cutOff(w.machines[1], w.machines[0]) // the take is charged, the answer gets lost
	a := w.asks(0, 0, key, 10*time.Second)
	w.at(100*time.Millisecond, w.machines[0].freeze)
	w.at(time.Second, func() { w.mend(w.machines[1], w.machines[0]) })
	w.at(5*time.Second, w.machines[0].thaw)
	w.play(t)
	if !a.Degraded {
		t.Errorf("heard %+v; want a decision without the owner", a.Decision)
	}
}

func TestLetterThatWaitedTooLongChargesNothing(t *testing.T) {
	w := stage(t, 2)
	w.at(0, w.machines[1].freeze)
	w.at(5*time.Second, w.machines[1].thaw)
	for i := range 20 {
		w.asks(time.Duration(i)*10*time.Millisecond, 0, w.key(1), time.Second)
	}
	w.play(t)
	expired := w.machines[1].process.node.Stats().Expired.Load()
	if expired == 0 {
		t.Error("no ask expired at a node that was frozen for longer than anybody waited")
	}
}

func TestViewsComeWhenTheWorldSaysSo(t *testing.T) {
	w := stage(t, 3)
	for _, m := range w.machines {
		v := m.process.node.View()
		if v.Me().ID != m.id || v.Active() != 3 ||
			v.RingHash() != w.machines[0].process.node.View().RingHash() {
			t.Errorf("%s sees %d active members, and itself as %s", m.id, v.Active(), v.Me().ID)
		}
		for _, o := range v.Members {
			if o.Boot != w.byID[o.ID].process.boot {
				t.Errorf("%s knows %s by another boot", m.id, o.ID)
			}
		}
	}
}
