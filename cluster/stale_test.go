package cluster

import (
	"bytes"
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Promise: a message that begins copies and comes late, after another member has held the partition
// and has begun its own, changes nothing. A later holder's is taken, and so is that of one which
// holds the partition after a node that is no member any more.
func TestCopiesOfAnEarlierHolderComeLate(t *testing.T) {
	for _, c := range []struct {
		name  string
		gone  bool // the node that holds it
		later int64
		want  string // the node that the copy is of
	}{
		{"an earlier holder", false, -1, "n1"},
		{"a later holder", false, 1, "n3"},
		{"one that has heard of the same term", false, 0, "n3"},
		{"one that lacks the term of a node that is gone", true, -1, "n3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := founded(t, 3, copiesOf(2), five)
			key := w.key("n1", 0)
			w.take("n1", "five", key)
			w.pass(time.Second)
			n, late := w.nodes["n2"], w.nodes["n3"]
			hash := limiter.Hash(key)
			p := uint16(n.parts.partition(hash))
			pt := &n.parts.list[p]
			if pt.copyOf != w.nodes["n1"].boot || !pt.whole {
				t.Fatalf("n2 has a copy of boot %d, whole: %t", pt.copyOf, pt.whole)
			}
			if c.gone {
				pt.held.boot = 77
			}
			m := &Move{
				From: late.boot, To: n.boot, ID: "n3", Secret: n.view.Load().Secret,
				Term: uint64(int64(pt.held.term) + c.later),
			}
			m.Sequence, m.Begin, m.Lack.Of = 1<<40, []uint16{p}, []uint16{p}
			if a := n.intake.hear(w.now, n.view.Load(), m); a == nil || !a.Applied {
				t.Fatalf("it is answered by %+v", a)
			}
			if pt.copyOf != w.nodes[c.want].boot || pt.whole != (c.want == "n1") {
				t.Errorf("n2 has a copy of boot %d, whole: %t; want one of %s", pt.copyOf, pt.whole,
					c.want)
			}
			if lacks := n.parts.bereftAt[p].Load() != 0; lacks != (c.want == "n3") {
				t.Errorf("what n3 lacks is lacking at n2: %t", lacks)
			}
			if len(m.Begin) != 1 || len(m.Lack.Of) != 1 {
				t.Error("the message of the sender is changed")
			}
		})
	}
}

// Promise: a node that begins to hold a partition draws a term above that of its claim, or of the
// gift, so what an earlier holder has said is told apart from what it says.
func TestHoldersDrawATerm(t *testing.T) {
	w, _ := joinsThree(t, 1,
		func(_ *Node, _ *Move, deliver func() *Answer) *Answer { return deliver() })
	w.die("n1", w.members(4))
	w.pass(2 * time.Second)
	given, claimed := uint64(0), uint64(0)
	for id, n := range w.nodes {
		given, claimed = given+n.Stats().Received.Load(), claimed+n.Stats().Claimed.Load()
		for p := range n.parts.list {
			pt := &n.parts.list[p]
			if pt.state == partHeld && (pt.held.boot != n.boot || pt.held.term <= pt.term) {
				t.Errorf("%s holds %d under %+v; it was called free, or given, under %d",
					id, p, pt.held, pt.term)
			}
		}
	}
	if given == 0 || claimed == 0 {
		t.Errorf("%d partitions were given and %d claimed", given, claimed)
	}
}

// Promise: copies that were lent before another member has held the partition come too late: they
// make no copy whole, and change none.
func TestCopiesThatWereLentComeLate(t *testing.T) {
	w := founded(t, 3, copiesOf(2), five)
	key := w.key("n2", 0)
	w.take("n2", "five", key)
	n, late, hash := w.nodes["n2"], w.nodes["n3"], limiter.Hash(key)
	p := uint16(n.parts.partition(hash))
	pt, l := &n.parts.list[p], (*n.limits.Load())["five"]
	knows := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	for range 3 {
		knows.Take(w.now, l, key, hash, 1)
	}
	// n2 should hold it, n1 does, and has begun to copy it to n2
	n.parts.enterLocked(int(p), partCopied)
	pt.copyOf, pt.whole, pt.mixed = w.nodes["n1"].boot, false, false
	pt.held = heldLast{boot: pt.copyOf, term: n.parts.term}
	before := n.holder.table.Entry(w.now, l, key, hash)
	for _, later := range []uint64{0, 1} {
		m := &Move{
			From: late.boot, To: n.boot, ID: "n3", Secret: n.view.Load().Secret,
			Term: pt.held.term - 1 + later,
		}
		m.Sequence, m.Lent, m.Whole = 1<<40+later, []uint16{p}, []uint16{p}
		m.Entries = []limiter.Entry{knows.Entry(w.now, l, key, hash)}
		if a := n.intake.hear(w.now, n.view.Load(), m); a == nil || !a.Applied {
			t.Fatalf("it is answered by %+v", a)
		}
		after, fresh := n.holder.table.Entry(w.now, l, key, hash), later == 1
		if changed := !bytes.Equal(before.State, after.State); pt.whole != fresh ||
			pt.mixed != fresh || changed != fresh {
			t.Errorf("the copy is whole: %t, mixed: %t, changed: %t; the message is fresh: %t",
				pt.whole, pt.mixed, changed, fresh)
		}
	}
}

// Promise: a message with a gift begins no copies, for it names the term of the gift.
func TestAGiftBeginsNoCopies(t *testing.T) {
	w := founded(t, 2, func(*ownership.Configuration) {}, five)
	n := w.nodes["n1"]
	n.parts.mu.Lock()
	defer n.parts.mu.Unlock()
	r := n.view.Load()
	p := r.peers[r.Find("n2")]
	o := n.copier.keepers.outboxLocked(p)
	*o = outbox{gift: []uint16{1}, news: news{begun: []uint16{2}}, term: 1}
	if m := n.copier.composeLocked(w.now, r, p); m == nil || len(m.Begin) != 1 || len(m.Gift) > 0 {
		t.Fatalf("the first message: %+v", m)
	}
	o.last = nil
	if m := n.copier.composeLocked(w.now, r, p); m == nil || len(m.Gift) != 1 || m.Term != 1 {
		t.Errorf("the second message: %+v", m)
	}
}

// Promise: a giver that hears first from the member to which its taker has given the partition on
// keeps that one's copy, though the answer to its own gift comes later. A message of a member that
// has held the partition before says nothing of the gift.
func TestGivenOnBeforeTheAnswer(t *testing.T) {
	for _, c := range []struct {
		name  string
		later int64
		sent  bool
		taken bool
	}{
		{"given on", 1, true, true},
		{"begun before", 0, true, false},
		{"the gift is not sent yet", 1, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := founded(t, 3, copiesOf(2), five)
			n, next := w.nodes["n1"], w.nodes["n3"]
			p := uint16(n.parts.partition(limiter.Hash(w.key("n1", 0))))
			pt, r := &n.parts.list[p], n.view.Load()
			n.parts.enterLocked(int(p), partGiving)
			pt.slot = slot{to: r.peers[r.Find("n2")], copied: copyTaken}
			gift := &Move{Term: n.parts.nextTermLocked()}
			if gift.Gift = []uint16{p}; !c.sent {
				gift.Gift = nil
			}
			n.copier.keepers.outboxLocked(pt.to).last = gift
			pt.hint = "n2"
			m := &Move{
				From: next.boot, To: n.boot, ID: "n3", Secret: r.Secret,
				Term: uint64(int64(gift.Term) + c.later),
			}
			m.Sequence, m.Begin, m.Whole = 1<<40, []uint16{p}, []uint16{p}
			m.Complete = true
			if a := n.intake.hear(w.now, r, m); a == nil || !a.Applied || len(a.Whole) > 0 {
				t.Fatalf("it is answered by %+v", a)
			}
			// now the answer of n2, and the end of the copy that n2 had begun
			m2 := &Move{Term: gift.Term, Giving: gift.Giving}
			n.parts.mu.Lock()
			n.copier.takenLocked(w.now, r.peers[r.Find("n2")], m2, &MoveAnswer{Whole: m2.Gift})
			n.parts.mu.Unlock()
			from := "n3"
			if !c.taken {
				from = "n2"
			}
			if want := c.taken || c.sent; want && pt.copyOf != w.nodes[from].boot ||
				(pt.state == partGiving) != !c.sent {
				t.Errorf("the partition is %v, of boot %d, at last", pt.state, pt.copyOf)
			}
		})
	}
}
