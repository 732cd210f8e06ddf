package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: a machine that falls silent is replaced within seconds, also if it was about to be given
// partitions, and however long gossip goes on naming it.
func TestGiftToWhoIsEvicted(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && c.To.ID == "n4" && len(m.Gift) > 0 {
			w.freeze("n4")
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	w.start("n4", 4)
	w.show(w.members(4), 0, "n1", "n2", "n3", "n4")
	w.pass(3 * time.Second)
	if !w.frozen["n4"] || len(w.nodes["n1"].Membership().Voters()) != 3 {
		t.Fatal("n4 was given nothing, or is a member still")
	}
	if none, many := w.holders(); none+many > 0 {
		t.Errorf("%d partitions are held by nobody, %d by several", none, many)
	}
	w.wantRemaining("without n4", keys, 3, "n1", "n2", "n3")
	w.thaw("n4")
	w.meet = nil
	w.pass(5 * time.Second)
	w.wantOneHolderEach("after n4 has gone on")
	w.wantRemaining("after n4 has gone on", keys, 3, "n1", "n2", "n3", "n4")
}

// Promise: every partition has a holder again. A member that has read a file, and has a copy of the
// same partition besides, does not wait for the holder of before, which lives and holds nothing.
func TestFileBesideTheCopyOfALivingMember(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n1, n3 := w.nodes["n1"], w.nodes["n3"]
	p := n3.partition(limiter.Hash(w.key("n3", 0)))
	n1.parts.mu.Lock()
	n1.restorer.adoptOneLocked(p, true)
	n1.parts.list[p].copyOf = w.nodes["n2"].boot
	n1.parts.mu.Unlock()
	n3.parts.mu.Lock()
	n3.parts.dropLocked(p)
	n3.claims.tendLocked()
	n3.parts.mu.Unlock()
	w.pass(2 * time.Second)
	w.wantOneHolderEach("two seconds later")
	if n1.parts.list[p].restored {
		t.Error("the holder has not got what was in the file")
	}
}

// Promise: every node restarts, and 0 counts are lost. What a member has from a file it keeps until
// the holder has got it, also if the holder begins a copy there meanwhile and ends it, or dies.
func TestFileOutlivesACopy(t *testing.T) {
	for what, ends := range map[string]func(n *Node, p int, holder uint64){
		"ended": func(n *Node, p int, holder uint64) {
			m := &Move{From: holder, Copying: Copying{End: []uint16{uint16(p)}}}
			n.intake.endLocked(new(inbox), m)
		},
		"its holder is gone for long": func(n *Node, p int, _ uint64) {
			n.parts.list[p].lost = 1
			n.parts.tidyLocked(n.clock.Now().Add(2 * copyLives))
		},
	} {
		w := newWorld(t, 3, five)
		w.pass(time.Second)
		n1, n3, key := w.nodes["n1"], w.nodes["n3"], w.key("n3", 0)
		hash := limiter.Hash(key)
		p := n3.partition(hash)
		n1.parts.mu.Lock()
		file := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
		file.Take(w.now, n1.Limits()["five"], key, hash, 2)
		for i := range file.Parts() {
			for _, e := range file.Save(w.now, i) {
				n1.Table().Import(w.now, &e, false)
			}
		}
		n1.restorer.adoptOneLocked(p, true)
		n1.parts.list[p].copyOf = n3.boot
		ends(n1, p, n3.boot)
		n1.parts.mu.Unlock()
		w.pass(2 * time.Second)
		if d := w.check("n2", Item{Limit: "five", Key: key, Op: OpPeek})[0]; d.Remaining != 3 {
			t.Errorf("%s: %d of 5 remain, want 3", what, d.Remaining)
		}
	}
}

// Promise: a node that leaves takes no count along. A copy that was lent to a member which has died
// since is still needed by the next one that claims the partition.
func TestWhoLeavesKeepsWhatItLentToTheDead(t *testing.T) {
	for _, c := range []struct {
		of, lentTo uint64
		want       bool
	}{
		{99, 0, false}, {99, 98, false}, {99, 3, true}, {3, 0, false}, {3, 2, false}, {1, 0, true},
	} {
		t.Run(fmt.Sprintf("of %d, lent to %d", c.of, c.lentTo), func(t *testing.T) {
			w := newWorld(t, 3, five)
			n := w.nodes["n1"]
			n.parts.mu.Lock()
			for p := range n.parts.list {
				n.parts.dropLocked(p)
				n.parts.list[p].copyOf = 0
			}
			n.parts.list[7].copyOf, n.parts.list[7].lentTo = c.of, c.lentTo
			n.parts.mu.Unlock()
			if got := n.parts.emptied(); got != c.want {
				t.Errorf("it may leave %t, want %t", got, c.want)
			}
		})
	}
}

// Promise: owner and its heir fail: what is lost is marked. A node that leaves has said before to
// all that answer which copies end: else one of those would be taken for whole later.
func TestWhoLeavesHasSaidWhichCopiesEnd(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n := w.nodes["n1"]
	r := n.view.Load()
	p, end := r.peers[r.Find("n2")], Copying{End: []uint16{7}}
	for what, c := range map[string]struct {
		ends func(o *outbox)
		want bool
	}{
		"nothing ends":    {func(*outbox) {}, true},
		"to be said":      {func(o *outbox) { o.ended = end.End }, false},
		"not answered":    {func(o *outbox) { o.last = &Move{Copying: end} }, false},
		"nobody is there": {func(o *outbox) { o.ended, p.silent = end.End, true }, true},
	} {
		n.parts.mu.Lock()
		o := n.copier.keepers.outboxLocked(p)
		o.ended, o.last, p.silent = nil, nil, false
		c.ends(o)
		n.parts.mu.Unlock()
		if got := n.copier.keepers.endsAreHeard(); got != c.want {
			t.Errorf("%s: it may leave %t, want %t", what, got, c.want)
		}
	}
	n.parts.mu.Lock()
	p.out.ended, p.out.last, p.silent = nil, nil, false
	n.parts.mu.Unlock()

	ms := w.members(3)
	ms[0].State = StateLeaving
	w.show(ms, 0, "n1", "n2", "n3")
	for range 2000 {
		if w.pass(time.Millisecond); n.parts.emptied() {
			break
		}
	}
	member := func() bool { return n.right.roll.Load().joined() }
	if !member() {
		t.Fatal("it has left at once")
	}
	n.parts.mu.Lock()
	p.out.ended, p.out.busy = end.End, true // nothing is said to n2 for a while
	n.parts.mu.Unlock()
	if w.pass(300 * time.Millisecond); !member() {
		t.Error("it has left, and n2 has not heard which copies end")
	}
	n.parts.mu.Lock()
	p.out.busy = false
	n.parts.mu.Unlock()
	if w.pass(2 * time.Second); member() {
		t.Error("it does not leave when n2 has heard it")
	}
}

// Promise: a node that leaves does so as soon as it is not needed any more. The member that it has
// copies of may have lost its right for a moment, and hold the same partitions again: it says that
// these copies end, although the next ones go elsewhere, or nowhere.
func TestWhoLeavesIsNotKeptByCopiesFromBefore(t *testing.T) {
	for nodes := 2; nodes <= 3; nodes++ {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			w := newWorld(t, nodes, five)
			ids := []string{"n1", "n2", "n3"}[:nodes]
			w.spend(100, ids...)
			w.pass(time.Second)
			n1, ms, ready := w.nodes["n1"], w.members(nodes), false
			w.meet = func(c *Call, deliver func() *Answer) {
				m := c.Ask.Move
				if m != nil && m.ID == "n1" && (m.Sequence != 0 || len(m.Claim) > 0 && !ready) {
					c.Err = errSilent
					return
				}
				c.Answer = deliver()
			}
			n1.parts.mu.Lock()
			n1.fenceLocked()
			n1.parts.mu.Unlock()
			ms[1].State = StateLeaving
			w.show(ms, 0, ids...)
			w.pass(50 * time.Millisecond) // n1 hears that n2 leaves before it holds anything again
			for ready = true; n1.parts.n.Load() == 0; {
				w.pass(time.Millisecond)
			}
			w.meet = nil
			w.leaves("n2")
			w.pass(time.Second)
			w.wantOneHolderEach("after it has gone")
			w.wantRemaining("after it has gone", 100, 3, "n1")
		})
	}
}
