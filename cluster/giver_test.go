package cluster

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// joinsThree has n4 join three nodes with keys, and counts the entries of keys that it copies to
// others. They answer what it says as hear does.
func joinsThree(
	t *testing.T, keys int, hear func(to *Node, m *Move, deliver func() *Answer) *Answer,
) (w *world, sent int) {
	w = newWorld(t, 3, five)
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.ID == "n4" {
			sent += len(m.Entries)
			c.Answer = hear(w.nodes[c.To.ID], m, deliver)
			return
		}
		c.Answer = deliver()
	}
	w.start("n4", 4)
	w.show(w.members(4), 0, "n1", "n2", "n3", "n4")
	w.pass(3 * time.Second)
	w.meet = nil
	w.wantOneHolderEach("after the join")
	if c := w.nodes["n4"].Copies(); c.Held == 0 || c.Unreplicated > 0 {
		t.Errorf("the new node holds %d partitions, of which %d have no copy", c.Held,
			c.Unreplicated)
	}
	return w, sent
}

// Promise: a node that joins does not send back what it was given, and if it dies nothing is lost,
// neither what was charged before nor what it has charged itself.
func TestGiversKeepWhatTheyGave(t *testing.T) {
	const keys = 1000
	w, sent := joinsThree(t, keys,
		func(_ *Node, _ *Move, deliver func() *Answer) *Answer { return deliver() })
	if sent > 0 {
		t.Errorf("the new node has copied %d entries that nobody has charged", sent)
	}
	for i := range keys {
		w.take("n4", "five", fmt.Sprint("k", i))
	}
	w.pass(time.Second)
	w.die("n4", w.members(4))
	w.pass(2 * time.Second)
	w.wantRemaining("after the crash", keys, 2, "n1", "n2", "n3")
}

// Promise: a node that has given partitions away, and does not have all of them any more or is of a
// release that does not say so, is sent all.
func TestGiversThatHaveForgottenAreSentAll(t *testing.T) {
	const keys = 1000
	for _, c := range []struct {
		name string
		hear func(to *Node, m *Move, deliver func() *Answer) *Answer
	}{
		{"of an earlier release", func(_ *Node, _ *Move, deliver func() *Answer) *Answer {
			a := deliver()
			if a.Move != nil {
				a.Move.Whole = nil
			}
			return a
		}},
		{"forgotten", func(to *Node, m *Move, deliver func() *Answer) *Answer {
			to.parts.mu.Lock()
			for _, p := range m.Begin {
				if to.parts.list[p].gave {
					to.parts.forgetLocked(int(p))
				}
			}
			to.parts.mu.Unlock()
			return deliver()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, sent := joinsThree(t, keys, c.hear)
			if sent == 0 {
				t.Error("the new node has copied nothing")
			}
			w.die("n4", w.members(4))
			w.pass(2 * time.Second)
			w.wantRemaining("after the crash", keys, 3, "n1", "n2", "n3")
		})
	}
}

// Promise: a charge that comes between a gift and the answer of its giver is copied.
func TestChargesBeforeTheGiverAnswers(t *testing.T) {
	w := newWorld(t, 2, five)
	keys := make([]string, 200)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	w.spend(len(keys), "n1", "n2")
	w.pass(time.Second)
	held := func(key string) bool {
		return w.nodes["n3"].HoldsPartition(ring.Partition(limiter.Hash(key)))
	}
	var charged []string
	w.meet = func(c *Call, deliver func() *Answer) {
		m := c.Ask.Move
		if m != nil && m.ID == "n3" && len(m.Begin) > 0 {
			for _, key := range keys {
				if held(key) && !slices.Contains(charged, key) {
					charged = append(charged, key)
					w.take("n3", "five", key)
				}
			}
			w.pass(2 * tickEvery)
		}
		c.Answer = deliver()
	}
	w.start("n3", 3)
	w.show(w.members(3), 0, "n1", "n2", "n3")
	w.pass(2 * time.Second)
	w.meet = nil
	if len(charged) == 0 {
		t.Fatal("no key was charged")
	}
	w.die("n3", w.members(3))
	w.pass(2 * time.Second)
	for _, key := range charged {
		if got := w.remaining("n1", "five", key); got != 2 {
			t.Errorf("%s has %d left, want 2", key, got)
		}
	}
}

// Promise: what may be forgotten is marked. A copy of a gift counts as whole once the member that
// has got it begins to copy it back, but not if that member has claimed the partition since, or the
// giver was evicted: it may have decided on it while it did not tell the giver.
func TestGiftIsNoWholeCopyForEver(t *testing.T) {
	for _, c := range []struct{ claimed, evicted, whole bool }{
		{whole: true}, {claimed: true}, {evicted: true},
	} {
		w := founded(t, 3, copiesOf(1), five)
		n := w.nodes["n1"]
		r := n.view.Load()
		n.parts.mu.Lock()
		p := slices.IndexFunc(n.parts.list, func(pt part) bool { return pt.state < partHeld })
		pt := &n.parts.list[p]
		taker := r.peers[r.Find("n2")].boot
		pt.copyOf, pt.pure, pt.whole, pt.gave = taker, true, true, true
		n.parts.enterLocked(p, partCopied)
		if c.evicted {
			n.parts.mu.Unlock()
			n.agreed.boreEnd(ownership.Evicted)
			n.parts.mu.Lock()
		}
		if c.claimed {
			claim := claim{
				Move: &Move{From: taker, Term: pt.term + 1}, view: r,
				lives: func(uint64) bool { return true },
			}
			if s := n.claims.standOneLocked(&claim, uint16(p)); s != StandingFree {
				t.Errorf("the claim is answered with %d, want %d", s, StandingFree)
			}
		}
		n.intake.beginLocked(&inbox{}, &Move{
			From: taker, ID: "n2", Copying: Copying{Begin: []uint16{uint16(p)}},
		})
		if pt.whole != c.whole {
			t.Errorf("%+v: the copy is whole %t", c, pt.whole)
		}
		n.parts.mu.Unlock()
	}
}

// Promise: of a node that leaves no count is lost, also if the member that it has given its keys to
// dies before another one has copies: the giver keeps them until then, and does not stay longer.
func TestWhoLeavesKeepsWhatItGave(t *testing.T) {
	for _, d := range []time.Duration{0, 200 * time.Millisecond} {
		t.Run(fmt.Sprint(d), func(t *testing.T) { testWhoLeavesKeepsWhatItGave(t, d) })
	}
	// on one processor a table is looked through sooner, and what is to be copied waits to be sent
	t.Run("on one processor", func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		testWhoLeavesKeepsWhatItGave(t, 0)
	})
}

func testWhoLeavesKeepsWhatItGave(t *testing.T, d time.Duration) {
	w := newWorld(t, 4, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	n4, ms := w.nodes["n4"], w.members(4)
	ms[3].State = StateLeaving
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.ID == "n1" && m.Sequence != 0 && c.To.ID != "n4" {
			c.Err = errSilent // n1 dies before it gets copies to another member
			return
		}
		c.Answer = deliver()
	}
	w.show(ms, 0, "n1", "n2", "n3", "n4")
	for n4.parts.n.Load()+n4.parts.given.Load() > 0 {
		w.pass(time.Millisecond)
	}
	w.pass(d)
	w.kill("n1")
	w.leaves("n4")
	w.pass(3 * time.Second)
	w.wantOneHolderEach("after both have gone")
	w.wantRemaining("after both have gone", keys, 3, "n2", "n3")
}

// Promise: a node leaves as soon as it is not needed any more. The member that it has given its
// keys to may say so before it is heard that it has taken them.
func TestWhoLeavesHearsThatItIsNotNeeded(t *testing.T) {
	w := newWorld(t, 4, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	ms, again := w.members(4), map[uint64]bool{}
	ms[3].State = StateLeaving
	w.meet = func(c *Call, deliver func() *Answer) {
		a := deliver()
		if m := c.Ask.Move; m != nil && m.ID == "n4" && len(m.Gift) > 0 && !again[m.Sequence] {
			again[m.Sequence] = true
			w.pass(moveTimeout)
			c.Err = errSilent // the answer is lost, and the gift is sent again
			return
		}
		c.Answer = a
	}
	w.show(ms, 0, "n1", "n2", "n3", "n4")
	w.leaves("n4")
	w.pass(3 * time.Second)
	w.wantOneHolderEach("after it has gone")
	w.wantRemaining("after it has gone", keys, 3, "n1", "n2", "n3")
}

// leaves waits until a node may end that has begun to leave, and ends it.
func (w *world) leaves(id string) {
	w.t.Helper()
	for left := w.now; w.nodes[id].Held() > 0; w.pass(10 * time.Millisecond) {
		if w.now > left.Add(5*time.Second) {
			w.t.Fatalf("%s does not leave: %s", id, w.held())
		}
	}
	w.kill(id)
}

// Promise: a copy that gets no changes any more is not kept. A taker of a gift may end the giver's
// copy before the giver has heard its answer, also where the giver owns the partition next; an end
// by another member says nothing of it.
func TestEndBeforeTheAnswerToAGift(t *testing.T) {
	for _, c := range []struct {
		owner string // of the partition: n1 gives it
		by    uint64
		whole bool // the taker has asked n1 to keep it
		want  partState
	}{
		{"n1", 2, true, partNone},
		{"n1", 3, true, partCopied},
		{"n2", 2, true, partNone},
		{"n2", 2, false, partNone},
		{"n2", 3, false, partCopied},
	} {
		w := newWorld(t, 3, five)
		w.pass(time.Second)
		n := w.nodes["n1"]
		p, r := n.partition(limiter.Hash(w.key(c.owner, 0))), n.view.Load()
		for i := 1; c.owner != "n1" && !r.keeps(p, 1); i++ {
			p = n.partition(limiter.Hash(w.key(c.owner, i)))
		}
		pt, list := &n.parts.list[p], []uint16{uint16(p)}
		n.parts.mu.Lock()
		taker := r.peers[r.Find("n2")]
		n.copier.keepers.outboxLocked(taker)
		n.parts.enterLocked(p, partHeld)
		pt.to, pt.hint = taker, taker.id
		n.parts.enterLocked(p, partGiving)
		n.intake.endLocked(new(inbox), &Move{From: c.by, Copying: Copying{End: list}})
		gift, answer := &Move{Giving: Giving{Gift: list}}, &MoveAnswer{}
		if c.whole {
			answer.Whole = list
		}
		n.copier.takenLocked(w.now, taker, gift, answer)
		n.parts.mu.Unlock()
		if pt.state != c.want {
			t.Errorf("%+v: it is %v", c, pt.state)
		}
	}
}
