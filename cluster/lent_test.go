package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// Promise: when faults are over every partition is held again. A node with a copy of a holder that
// lives, if it has never heard that the copy is not continued, leaves it to the holder to say
// whether it holds it; also if he had something of the partition before, and has merged the copy
// with that.
func TestForgottenCopyIsInNobodysWay(t *testing.T) {
	for name, merged := range map[string]bool{"a copy": false, "a copy that was merged": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, five)
			const keys = 600
			w.spend(keys, "n1", "n2", "n3")
			w.pass(time.Second) // copies
			for p := range w.nodes["n2"].parts.list {
				w.nodes["n2"].parts.list[p].pure = !merged
			}
			ms := w.members(4)
			// n2 is declared dead, and with it goes what n1 would have to tell it.
			w.show([]Member{ms[0], ms[2]}, 0, "n1")
			w.start("n4", 4)
			w.show(ms, 0, "n1", "n2", "n3")
			w.nodes["n1"].Relinquish() // it lends what it would have given
			w.show(ms, 0, "n4")
			w.pass(3 * time.Second)
			w.wantOneHolderEach("when n4 has come")
			w.wantRemaining("when n4 has come", keys, 3, "n1", "n2", "n3", "n4")
		})
	}
}

// Promise: what an owner gave back is not forgotten with it. What an heir has lent to it, when it
// came anew, is not merged with what it says since: it has had all of that.
func TestWhatWasLentIsReplaced(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.take("n2", "five", key)
	w.pass(time.Second)
	w.kill("n2")
	w.start("n2", 12)
	ms := w.members(3)
	ms[1].Boot = 12
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(time.Second)
	if d := w.check("n2", Item{Limit: "five", Key: key, Cost: 3})[0]; d.Source != SourceOwner ||
		d.Remaining != 1 {
		t.Fatalf("n2, which has come back: %+v", d)
	}
	w.pass(time.Second)
	w.check("n2", Item{Limit: "five", Key: key, Cost: -4})
	w.pass(time.Second)
	w.kill("n2")
	w.show(append(ms[:1:1], ms[2]), 0, "n1", "n3")
	w.pass(time.Second)
	if left := w.remaining("n1", "five", key); left != 5 {
		t.Errorf("%d of 5 are left, all of which were given back", left)
	}
}

// Promise: what was given back or reset is not charged again by an heir. What becomes as good as
// never seen while its copy is to begin once more has no entry that a look through the table finds.
func TestWhatIsGivenBackBeforeALookIsCopied(t *testing.T) {
	for name, back := range map[string]Item{
		"given back": {Cost: -3}, "reset": {Op: OpReset},
	} {
		for _, waits := range []bool{false, true} { // for the peer, which has to be copied to anew
			t.Run(fmt.Sprintf("%s, and has waited: %v", name, waits), func(t *testing.T) {
				w := newWorld(t, 3, five)
				key := w.key("n1", 0)
				n, p := w.nodes["n1"], ring.Partition(limiter.Hash(key))
				w.check("n1", Item{Limit: "five", Key: key, Cost: 3})
				w.pass(time.Second)
				again := func() {
					n.parts.mu.Lock()
					defer n.parts.mu.Unlock()
					if waits {
						n.copier.collectLocked(w.now)
						n.copier.copyAnewLocked(n.parts.list[p].to)
					} else {
						n.copier.keepers.copyLentLocked([]uint16{uint16(p)})
					}
				}
				heir := n.parts.list[p].to.id
				back.Limit, back.Key = "five", key
				if !waits {
					again()
				}
				w.check("n1", back)
				if waits {
					again()
				}
				w.pass(time.Second)
				w.kill("n1")
				w.pass(time.Second)
				if left := w.remaining(heir, "five", key); left != 5 {
					t.Errorf("%d of 5 are left, and nothing is charged", left)
				}
			})
		}
	}
}

// Promise: owner crashes: no more is forgotten than what its last tick would have copied. What is
// lent to a holder has all of the partition copied once more, and that waits while a look through
// the table is under way: until then the heir hears what changes, and that its copy is not whole.
func TestChangesDoNotWaitForTheNextLook(t *testing.T) {
	w := newWorldOf(t, wide, 2, five)
	w.spend(1200, "n1", "n2")
	w.pass(time.Second)
	n, key := w.nodes["n1"], w.key("n1", 0)
	p := ring.Partition(limiter.Hash(key))
	n.parts.mu.Lock()
	n.copier.copyAnewLocked(n.parts.list[p].to)
	n.parts.list[p].copied = copyTaken // the look is for all others
	n.parts.mu.Unlock()
	said := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.ID == "n1" && m.Sequence != 0 {
			if said++; said > 4 {
				c.Err = errSilent
				return
			}
			if said == 2 {
				n.parts.mu.Lock()
				n.copier.keepers.copyLentLocked([]uint16{uint16(p)})
				n.parts.mu.Unlock()
				w.take("n1", "five", key)
				w.pass(2 * tickEvery)
			}
		}
		c.Answer = deliver()
	}
	w.pass(300 * time.Millisecond)
	w.meet = nil
	w.kill("n1")
	w.pass(3 * time.Second)
	if d := w.take("n2", "five", key); d.Remaining != 3 || !d.Degraded {
		t.Errorf("after the death of the owner: %+v", d)
	}
}

// The last node that was lent a partition keeps it, although another one says only now that it has
// got it before.
func TestLateAnswerOfWhoWasLentBefore(t *testing.T) {
	w := newWorld(t, 3)
	n := w.nodes["n1"]
	var k int
	for !n.parts.HoldsPartition(k) {
		k++
	}
	n.Relinquish()
	v, pt := n.view.Load(), &n.parts.list[k]
	first, last := v.peers[v.Find("n2")], v.peers[v.Find("n3")]
	pt.lentTo = last.boot
	n.copier.endFormerLocked(last, []uint16{uint16(k)})
	n.copier.endFormerLocked(first, []uint16{uint16(k)})
	if pt.former != last {
		t.Error("n3 is not who has it")
	}
	if o := n.copier.keepers.outboxLocked(last); len(o.ended) > 0 {
		t.Errorf("n3 is told that %v are not copied to it any more", o.ended)
	}
	if o := n.copier.keepers.outboxLocked(first); len(o.ended) == 0 {
		t.Error("n2 is not told that its copy is out of date")
	}
}

// Promise: what has been charged to a replicated limit is told to all, also by a message with a
// gift that has to be taken back.
func TestUnsentGiftTakesNoChargesAlong(t *testing.T) {
	spec := five
	spec.Name, spec.Limit, spec.Consistency = "everywhere", 1000, limiter.Replicated
	w := newWorld(t, 3, spec)
	w.pass(time.Second)
	w.start("n4", 4)
	unsent, late := 0, 0
	w.meet = func(c *Call, deliver func() *Answer) {
		m := c.Ask.Move
		switch {
		case m == nil || m.From != 1 || m.Sequence == 0 || c.To.ID != "n4":
			c.Answer = deliver()
		case late == 0: // copies are under way until there are charges, and then all may be given
			late++
			w.pass(150 * time.Millisecond)
			c.Answer = deliver()
		case len(m.Gift) > 0 && len(m.Charges) > 0 && unsent == 0:
			unsent++
			c.Err = ErrUnsent
		default:
			c.Answer = deliver()
		}
	}
	const taken = 10
	for range taken {
		w.take("n1", "everywhere", "key")
	}
	w.show(w.members(4), 0, "n4", "n1", "n2", "n3")
	w.pass(2 * time.Second)
	if unsent == 0 {
		t.Fatal("no gift and charges went together")
	}
	for _, id := range []string{"n2", "n3", "n4"} {
		if got := w.remaining(id, "everywhere", "key"); got != 1000-taken {
			t.Errorf("%s: %d remain, want %d", id, got, 1000-taken)
		}
	}
}

// Promise: a node that is left alone, for the processes of all others are gone, goes on, and marks
// what it decides of keys of which it has no copy.
func TestWhoIsLeftAloneMarks(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 100
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	n, copied := w.nodes["n1"], map[int]bool{}
	for i := range keys {
		copied[i] = n.parts.list[ring.Partition(limiter.Hash(fmt.Sprint("k", i)))].whole
	}
	w.kill("n2")
	w.kill("n3")
	w.pass(3 * time.Second)
	w.wantOneHolderEach("when it is alone")
	for i := range keys {
		d := w.check("n1", Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpPeek})[0]
		if copied[i] && (d.Degraded || d.Remaining != 3) ||
			!copied[i] && (!d.Degraded || d.Bound != 5) {
			t.Errorf("key %d, of which it has a copy: %t: %+v", i, copied[i], d)
		}
	}
}

// Promise: nothing that was charged is forgotten because somebody else has a smaller count. What
// two have had on their disks is merged, and stays so when one of them goes on copying.
func TestWhatIsMergedIsNotReplaced(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	hash := limiter.Hash(key)
	r := w.nodes["n2"].view.Load()
	heir := r.Members[r.heir(ring.Partition(hash))]
	id := "n1"
	if heir.ID == "n1" {
		id = "n3"
	}
	n := w.nodes[id]
	l := n.Limits()["five"]
	entries := func(table *limiter.Table) (list []limiter.Entry) {
		for part := range table.Parts() {
			table.Scan(w.now, part, func(h uint64) bool { return h == hash },
				func(_ uint64, e limiter.Entry) { list = append(list, e) })
		}
		return list
	}
	charged := func(cost int64) []limiter.Entry {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
		table.Do(w.now, l, key, hash, limiter.Request{Cost: cost})
		return entries(table)
	}
	for _, m := range []Move{
		{From: 2, ID: "n2", Copying: Copying{Entries: charged(1)}},
		{From: heir.Boot, ID: heir.ID, Copying: Copying{Entries: charged(3)}},
		{From: 2, ID: "n2", Copying: Copying{Entries: charged(2), Sequence: 1 << 40}},
	} {
		m.To = n.boot
		if a := n.intake.hear(w.now, n.view.Load(), &m); a == nil || !a.Applied {
			t.Fatalf("%+v is not taken in: %+v", m, a)
		}
	}
	if got, want := entries(n.holder.table), charged(3); len(got) != 1 ||
		!bytes.Equal(got[0].State, want[0].State) {
		t.Errorf("its table has %+v, want %+v", got, want)
	}
}

// Promise: what is given back is told to heirs, also to one that hears only later that the copy of
// the holder before has ended. What the new holder says after all of its copy has come replaces
// what is known; what came before that, or from others since, or is from a file, is merged.
func TestChangesAfterAWholeCopyReplaceWhatWasMerged(t *testing.T) {
	for _, x := range []struct {
		name                     string
		whole, ends, lends, file bool
		want                     int64 // charged in the end; 3 were before, and 1 is now
	}{
		{"all has come", true, false, false, false, 1},
		{"some has come", false, false, false, false, 3},
		{"the copy has ended since", true, true, false, false, 3},
		{"another one has lent its copy since", true, false, true, false, 3},
		{"it is from a file as well", true, false, false, true, 3},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, 3, five)
			n, key := w.nodes["n1"], w.key("n2", 0)
			hash := limiter.Hash(key)
			p, l := uint16(ring.Partition(hash)), n.Limits()["five"]
			n.parts.mu.Lock()
			n.parts.list[p] = part{}
			n.parts.mu.Unlock()
			charged := func(cost int64) []limiter.Entry {
				table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
				table.Do(w.now, l, key, hash, limiter.Request{Cost: cost})
				return []limiter.Entry{table.Entry(w.now, l, key, hash)}
			}
			sequence := uint64(1 << 40)
			say := func(id string, boot uint64, c Copying) {
				sequence++
				c.Sequence = sequence
				m := Move{From: boot, ID: id, To: n.boot, Copying: c}
				if a := n.intake.hear(w.now, n.view.Load(), &m); a == nil || !a.Applied {
					t.Fatalf("%+v is not taken in: %+v", m, a)
				}
			}
			begun := Copying{Begin: []uint16{p}, Entries: charged(2)}
			if x.whole {
				begun.Whole = begun.Begin
			}
			say("n3", 3, Copying{Begin: []uint16{p}, Whole: []uint16{p}, Entries: charged(3)})
			say("n2", 2, begun)
			if x.ends {
				say("n2", 2, Copying{End: []uint16{p}})
			}
			if x.ends || x.lends {
				say("n3", 3, Copying{Entries: charged(3)})
			}
			n.parts.mu.Lock()
			n.parts.list[p].restored = x.file
			n.parts.mu.Unlock()
			say("n2", 2, Copying{Entries: charged(1)})
			got := n.holder.table.Entry(w.now, l, key, hash).State
			if want := charged(x.want)[0].State; !bytes.Equal(got, want) {
				t.Errorf("its table has %x, want %x, which is %d charged", got, want, x.want)
			}
		})
	}
}

// Promise: permits are not forgotten unmarked. A lent copy of a partition that has open permits and
// no counters is kept until the claimer holds the partition.
func TestPermitsThatAreLentAreKept(t *testing.T) {
	w := newWorld(t, 3, hundred)
	w.pass(time.Second)
	n1, n2 := w.nodes["n1"], w.nodes["n2"]
	n1.parts.mu.Lock()
	defer n1.parts.mu.Unlock()
	key := ""
	for i := 0; key == ""; i++ {
		k := fmt.Sprint("k", i)
		if n1.parts.list[ring.Partition(limiter.Hash(k))].state == partNone {
			key = k
		}
	}
	p := uint16(ring.Partition(limiter.Hash(key)))
	hold := limiter.Hold{
		ID:    limiter.HoldID{Origin: 1, Sequence: 2},
		Limit: (*n1.inForce.Load())[hundred.Name].limit, Key: key, Units: 3,
		Deadline: w.now.Add(time.Minute), State: limiter.HoldOpen,
	}
	m := Move{From: n2.boot, To: n1.boot, ID: "n2", Copying: Copying{
		Sequence: 1 << 40, Lent: []uint16{p}, Whole: []uint16{p},
		Holds: []HoldCopy{{Hold: hold, Left: time.Minute}},
	}}
	n1.intake.applyLocked(n1.view.Load(), w.now, &m, new(MoveAnswer))
	n1.holder.tendHoldsLocked(w.now, holdsKeptTicks)
	if h, found := n1.holder.book.Get(hold.ID); !found || h.Units != 3 {
		t.Errorf("of a permit that was lent is kept: %t, %+v", found, h)
	}
}

// Promise: a copy ends once. Its entries and holds that still wait for the member which is told so
// are not sent any more.
func TestWhatWaitsOfAnEndedCopyIsDropped(t *testing.T) {
	held := func(key string) limiter.Hold { return limiter.Hold{Key: key} }
	o := outbox{changes: changes{
		pending: []waitingEntry{{Entry: limiter.Entry{Key: "a"}}, {Entry: limiter.Entry{Key: "b"}}},
		opened:  []limiter.Hold{held("a"), held("b")},
		settled: []limiter.Hold{held("b"), held("a")},
	}}
	o.dropEnded([]uint16{7}, func(hash uint64) int {
		if hash == limiter.Hash("a") {
			return 7
		}
		return 8
	})
	if len(o.pending) != 1 || o.pending[0].Key != "b" || len(o.opened) != 1 ||
		o.opened[0].Key != "b" || len(o.settled) != 1 || o.settled[0].Key != "b" {
		t.Errorf("left are %v, %v and %v, want what is of b", o.pending, o.opened, o.settled)
	}
}

// Promise: a member that claims a partition gets all that others have of it, also what comes to
// them while they lend it. What the claimer says itself it has.
func TestWhatComesWhileItIsLent(t *testing.T) {
	w := newWorld(t, 3, five)
	n := w.nodes["n1"]
	n.parts.mu.Lock()
	defer n.parts.mu.Unlock()
	r := n.view.Load()
	claimer, other := r.peers[r.Find("n2")], r.peers[r.Find("n3")]
	const p = 7
	for _, c := range []struct {
		by   uint64
		want copyState
	}{{claimer.boot, copyWhole}, {other.boot, copyAgain}} {
		n.parts.list[p] = part{slot: slot{claimer, copyWhole}, state: partCopied, whole: true}
		o := n.copier.keepers.outboxLocked(claimer)
		o.lent, o.whole, o.due = []uint16{p, p + 1}, []uint16{p, p + 1}, false
		n.copier.lendAgainLocked(p, c.by)
		pt, again := &n.parts.list[p], c.want == copyAgain
		if pt.to != claimer || pt.copied != c.want || o.due != again ||
			slices.Contains(o.lent, p) == again || slices.Contains(o.whole, p) == again ||
			!slices.Contains(o.lent, p+1) || !slices.Contains(o.whole, p+1) {
			t.Errorf("after what boot %d has said: %+v, %v is lent, %v whole, due %v", c.by, pt,
				o.lent, o.whole, o.due)
		}
		o.lent, o.whole = nil, nil
	}
}

// Promise: a node that goes on as a member after it was stopped marks nothing of what it held, if
// nobody has held that since. A member that has a whole copy says so: the heir, and one that has
// claimed it and was lent it. Another member is lent the copy with its entries.
func TestWhoHeldItLastHasAllOfIt(t *testing.T) {
	const p, held, other = 7, 2, 3 // boots of n2 and n3
	for _, c := range []struct {
		name string
		is   part
		by   uint64 // boot of the claimer
		want Standing
		has  copyState
	}{
		{
			"the heir's copy",
			part{copyOf: held, whole: true, state: partCopied},
			held, StandingBusy, copyWhole,
		},
		{"… that is not whole", part{copyOf: held, state: partCopied}, held, StandingFree, 0},
		{
			"… that the claimer was told of",
			part{copyOf: held, whole: true, lentTo: held, state: partCopied},
			held, StandingFree, 0,
		},
		{"a lent copy", part{lentOf: held, whole: true}, held, StandingBusy, copyWhole},
		{
			"… for another claimer",
			part{lentOf: held, whole: true},
			other, StandingBusy, copyWanted,
		},
		{"… that somebody has begun from", part{lentOf: held}, other, StandingFree, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3, five)
			n := w.nodes["n1"]
			n.parts.mu.Lock()
			defer n.parts.mu.Unlock()
			r, pt := n.view.Load(), &n.parts.list[p]
			*pt = c.is
			by := r.peers[c.by-1]
			got := n.claims.standLocked(w.now, r, by, &Move{
				From: c.by, ID: by.id, Term: n.parts.term + 1<<termBits,
				Epoch: n.right.roll.Load().epoch(), Claiming: Claiming{Claim: []uint16{p}},
			})
			lends := c.want == StandingBusy
			if got[0] != c.want || pt.to == by != lends || pt.copied != c.has || pt.whole != lends {
				t.Errorf("it says %v, and keeps %+v", got, pt)
			}
			if c.want != StandingBusy {
				return
			}
			known := n.parts.wholeOf([]uint16{p}, []uint16{p})
			of := (&Move{Claiming: Claiming{Known: known}}).lentOf()
			if len(known) != 1 || known[0].Of != held || of[p] != held {
				t.Errorf("it lends a copy of %v", known)
			}
		})
	}
}
