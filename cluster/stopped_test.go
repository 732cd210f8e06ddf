package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: an owner that was paused never serves stale. What it was told before, when it asked who
// holds what it should, says nothing when it goes on: others may have been told the same since.
func TestClaimOfWhoWasStoppedIsOld(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 100
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	n2 := w.nodes["n2"]
	claims, stopped := 0, false
	w.meet = func(c *Call, deliver func() *Answer) {
		if stopped && c.To.ID == "n2" {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
		if m := c.Ask.Move; m == nil || m.ID != "n2" || len(m.Claim) == 0 {
			return
		}
		if claims++; claims != 2 { // both have said that they hold nothing of it
			return
		}
		n2.mu.Lock()
		stopTick := n2.stopTick
		n2.mu.Unlock()
		stopTick()
		stopped = true
		w.pass(goneAfter + time.Second)
		stopped = false
		n2.tick() // the first that it does when it goes on
	}
	n2.fence()
	n2.mu.Lock()
	n2.tendLocked()
	n2.mu.Unlock()
	w.settle()
	if claims < 2 {
		t.Fatalf("%d claims", claims)
	}
	if _, many := w.holders(); many > 0 {
		t.Errorf("%d partitions have two holders when n2 goes on", many)
	}
	w.pass(2 * time.Second)
	w.wantOneHolderEach("after it went on")
	w.wantRemaining("after it went on", keys, 3, "n1", "n2", "n3")
}

// Promise: one node decides. Who was declared dead by mistake, or just before it goes on, holds
// what it has, and has been given, until it has heard so; others hear that it lives, and take
// nothing over.
func TestWhoIsDeclaredDeadAndLivesGoesOn(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 100
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	ms := w.members(3)
	held := w.nodes["n2"].Held()
	w.show([]Member{ms[0], ms[2]}, 20*time.Millisecond, "n1", "n3")
	for range 60 {
		w.pass(50 * time.Millisecond)
		if _, many := w.holders(); many > 0 {
			t.Fatalf("%d partitions have two holders", many)
		}
	}
	if got := w.nodes["n2"].Held(); got != held {
		t.Errorf("who lives holds %d partitions of %d", got, held)
	}
	w.show(ms, 20*time.Millisecond, "n1", "n3")
	w.pass(2 * time.Second)
	w.wantOneHolderEach("when it is there again")
	w.wantRemaining("when it is there again", keys, 3, "n1", "n2", "n3")

	// But as soon as it is silent for as long as contact lasts, or nobody listens at its address,
	// they do not wait.
	for _, err := range []error{errSilent, ErrGone} {
		w.meet = func(c *Call, deliver func() *Answer) {
			if c.To.ID == "n2" || c.Ask.Move != nil && c.Ask.Move.ID == "n2" {
				c.Err = err
				return
			}
			c.Answer = deliver()
		}
		waits := 100 * time.Millisecond
		if err == errSilent {
			waits = contactLasts + tickEvery
		}
		w.show([]Member{ms[0], ms[2]}, 0, "n1", "n3")
		w.pass(waits)
		if held := w.nodes["n1"].Held() + w.nodes["n3"].Held(); held != 4093 {
			t.Errorf("%v: the others hold %d partitions after %v", err, held, waits)
		}
		w.meet = nil
		w.show(ms, 0, "n1", "n3")
		w.pass(3 * time.Second)
		w.wantOneHolderEach("when it is there again")
	}
}

// Promise: an owner that was paused never serves stale. What somebody gave it before may be another
// one's by now, also if it reads so only when it goes on: it takes nothing from who has not
// answered it since.
func TestGiftFromBeforeAPauseIsOld(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n2 := w.nodes["n2"]
	n2.mu.Lock()
	stopTick := n2.stopTick
	n2.mu.Unlock()
	stopTick()
	w.hearing(func(from, to string) bool { return to != "n2" && from != "n2" })
	mine := n2.View()
	var gift []uint16
	for p := range 4093 {
		if mine.owner(p) == mine.Self {
			gift = append(gift, uint16(p))
		}
	}
	w.pass(3 * time.Second)
	w.meet = nil
	n2.tick() // the first that it does when it goes on
	give := func(sequence, term uint64) *MoveAnswer {
		m := &Move{From: w.nodes["n1"].boot, To: n2.boot, ID: "n1", Term: term, Sequence: sequence, Gift: gift}
		return n2.Deliver(&Ask{Hop: 1, Deadline: w.now.Add(time.Second), Move: m}).Move
	}
	if a := give(1<<40, 1<<40); a == nil || !a.Applied || len(a.Refused) != len(gift) || n2.Held() > 0 {
		t.Errorf("a gift of %d from before the pause: applied %t, and n2 holds %d", len(gift), a != nil && a.Applied, n2.Held())
	}
	w.pass(2 * time.Second)
	w.wantOneHolderEach("after it went on")
	n2.fence()
	if a := give(1<<40+1, 1<<41); a == nil || len(a.Refused) > 0 { // n1 has answered meanwhile
		t.Errorf("a gift from after the pause: %d of %d are refused", len(a.Refused), len(gift))
	}
}

// Promise: one node decides, whatever order the news comes in. Who hears somebody claim of whom its
// View does not know takes nothing over from who is gone: that one may have it.
func TestClaimerHearsWhomItDoesNotKnow(t *testing.T) {
	w := newWorld(t, 1, five)
	ms := w.members(3)
	const keys = 100
	w.spend(keys, "n1")
	w.start("n3", 3)
	w.show([]Member{ms[0], ms[2]}, 0, "n3", "n1")
	w.pass(time.Second)
	w.start("n2", 2)
	w.show(ms, 0, "n2", "n1") // n3 has not heard of it
	w.pass(freshLasts + time.Second)
	if w.nodes["n2"].Held() == 0 {
		t.Fatal("n2 holds nothing, so there is nothing to take")
	}
	delete(w.nodes, "n1")
	for range 60 {
		w.pass(50 * time.Millisecond)
		if _, many := w.holders(); many > 0 {
			t.Fatalf("%d partitions have two holders", many)
		}
	}
	w.show(ms, 0, "n3")
	w.pass(2 * time.Second)
	w.wantOneHolderEach("when all know all")
	w.wantRemaining("when all know all", keys, 3, "n2", "n3")
}

// Promise: the minority decides by on_partition. Who learns of members that it does not reach
// notices at once, and not with its next tick.
func TestViewMakesAMinority(t *testing.T) {
	w := newWorld(t, 2, five)
	ms := w.members(5)
	for i := range ms[2:] {
		ms[2+i].State = StateJoining
		w.start(ms[2+i].ID, ms[2+i].Boot)
	}
	w.show(ms, 0, "n1", "n2", "n3", "n4", "n5")
	w.pass(3 * time.Second)
	w.hearing(func(from, to string) bool { return from < "n3" == (to < "n3") })
	w.pass(3 * time.Second)
	if held := w.nodes["n1"].Held() + w.nodes["n2"].Held(); held != 4093 {
		t.Fatalf("the two that there are hold %d partitions", held)
	}
	w.nodes["n2"].SetView(w.view("n2", w.members(5)))
	if held := w.nodes["n2"].Held(); held != 0 {
		t.Errorf("one who reaches one of four others holds %d partitions", held)
	}
}

// Promise: a node that leaves takes no count along. Who has stopped takes in no copies, which it
// would not write down any more, and says so to who sends them.
func TestWhoHasStoppedTakesNothingIn(t *testing.T) {
	w := newWorld(t, 2, five)
	w.pass(time.Second)
	n2 := w.nodes["n2"]
	l := n2.Limits()["five"]
	key := w.key("n2", 0)
	w.take("n1", "five", key)
	e := n2.table.Entry(w.now, l, key, limiter.Hash(key))
	e.Key = key
	n2.Stop()
	for _, m := range []Move{
		{Sequence: 1 << 40, Begin: []uint16{7}, Entries: []limiter.Entry{e}},
		{Entries: []limiter.Entry{e}},
	} {
		m.From, m.To, m.ID = w.nodes["n1"].boot, n2.boot, "n1"
		before := n2.stats.Copied.Load()
		a := n2.Deliver(&Ask{Hop: 1, Deadline: w.now.Add(time.Second), Move: &m})
		if a.Move != nil && a.Move.Applied || n2.stats.Copied.Load() != before {
			t.Errorf("sequence %d: %+v, and %d copies", m.Sequence, a.Move, n2.stats.Copied.Load()-before)
		}
	}
}
