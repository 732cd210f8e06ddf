package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: what an owner has admitted is not forgotten when it dies, for its heir has a copy. A
// member that was cut off, and says late that it begins to copy what it held before, does not have
// the heir take its own copy for that.
func TestCopiesThatAnEvictedMemberBegins(t *testing.T) {
	w := newWorld(t, 4, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	isolated, healed, dead := false, false, ""
	w.meet = func(c *Call, deliver func() *Answer) {
		from, to, m := w.caller, c.To.ID, c.Ask.Move
		begins := from == "n1" && to == "n3" && m != nil && len(m.Begin) > 0
		isolated = isolated || begins // it does so since it does not reach n2, their heir
		cut := from == "n2" || to == "n2" || isolated
		switch {
		case from == dead || to == dead:
			c.Err = errSilent
			return
		case !healed && cut && (from == "n1" || to == "n1"):
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
		if healed && dead == "" && from == "n1" && to == "n3" {
			dead = "n2" // which holds these now, and copies them to n3 and n4
			w.freeze(dead)
		}
	}
	w.pass(5 * time.Second)
	for i := range keys {
		if d := w.take("n3", "five", fmt.Sprint("k", i)); d.Degraded || d.Remaining != 2 {
			t.Fatalf("key %d without n1: %+v", i, d)
		}
	}
	w.pass(time.Second)
	healed = true
	w.pass(5 * time.Second)
	if dead == "" || w.nodes["n1"].parts.Held() == 0 {
		t.Fatal("n2 has not died, or n1 has got nothing back")
	}
	w.wantRemaining("after n2 has died", keys, 2, "n1", "n3", "n4")
}

// Promise: what one member has of a partition that has lost its holder the next one gets. It may be
// one that was to hear just now that it need not keep its copy any more.
func TestLentToWhoWasToForget(t *testing.T) {
	const keys = 300
	ring := newWorld(t, 3, five).nodes["n1"]
	for i := range keys {
		p := ring.partition(limiter.Hash(fmt.Sprint("k", i)))
		if i%4 > 0 || !ring.HoldsPartition(p) {
			continue
		}
		w := newWorld(t, 3, five)
		w.spend(keys, "n1", "n2", "n3")
		w.pass(time.Second)
		n := w.nodes["n1"]
		n.parts.mu.Lock()
		pt := &n.parts.list[p]
		to := pt.to
		n.copier.keepers.endLocked(to, uint16(p))
		n.parts.enterLocked(p, partCopied)
		pt.copyOf, pt.slot = 99, slot{} // another one has held it since, and is gone
		c := claim{
			Move: &Move{From: to.boot, Term: pt.term + 1}, view: n.view.Load(), claimer: to,
			lives: func(uint64) bool { return false },
		}
		n.claims.standOneLocked(&c, uint16(p))
		n.copier.startPushesLocked()
		n.parts.mu.Unlock()
		w.settle()
		if got := &w.nodes[to.id].parts.list[p]; pt.lentTo != to.boot || got.state != partCopied {
			t.Fatalf("key %d: lent to boot %d, which has %v of it", i, pt.lentTo, got.state)
		}
	}
}

// Promise: what may be forgotten is marked until a window has passed. Of what several members lend
// the latest loss counts, in whatever order they come.
func TestLossesOfSeveralLenders(t *testing.T) {
	for _, ages := range [][]time.Duration{{5, 50}, {50, 5}} {
		w := newWorld(t, 3, five)
		n := w.nodes["n1"]
		n.parts.mu.Lock()
		p := slices.IndexFunc(n.parts.list, func(pt part) bool { return pt.state < partHeld })
		of := []uint16{uint16(p)}
		for _, age := range ages {
			n.parts.hearLacking(w.now, &Move{Copying: Copying{
				Lent: of, Lack: Lack{of, age * time.Second},
			}})
		}
		n.parts.mu.Unlock()
		lost := limiter.Instant(n.parts.bereftAt[p].Load())
		if age := time.Duration(w.now - lost); age != 5*time.Second {
			t.Errorf("%v: the last loss was %v ago, want 5s", ages, age)
		}
	}
}
