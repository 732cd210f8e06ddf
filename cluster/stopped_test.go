package cluster

import (
	"testing"
	"time"
)

// Promise: an owner that was paused never serves stale. What it was told before, when it asked who holds what it should, says nothing
// when it goes on: others may have been told the same since.
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

// Promise: one node decides. Who was declared dead by mistake, or just before it goes on, holds what it has, and has been given, until it
// has heard so; others hear that it lives, and take nothing over.
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

	// But as soon as it is silent for as long as contact lasts, or nobody listens at its address, they do not wait.
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
