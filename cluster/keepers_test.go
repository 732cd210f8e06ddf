package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// founded is a world of k nodes with a configuration that is changed before it is theirs.
func founded(
	t testing.TB, k int, change func(*ownership.Configuration), specs ...limiter.Spec,
) *world {
	w := emptyWorld(t, limiter.TableConfig{Bytes: 4 << 20}, specs...)
	var members []ownership.Member
	for i := 1; i <= k; i++ {
		n := w.create(fmt.Sprintf("n%d", i), uint64(i))
		members = append(members, ownership.Member{ID: n.ID(), Boot: ownership.Boot(n.Boot())})
	}
	first := ownership.First(members)
	change(first)
	for i := 1; i <= k; i++ {
		w.nodes[fmt.Sprintf("n%d", i)].Membership().AgreeWithin(first)
	}
	for i := 1; i <= k; i++ {
		id := fmt.Sprintf("n%d", i)
		w.nodes[id].SetView(w.view(id, w.members(k)))
		w.nodes[id].Start()
	}
	w.Wait(w.now.Add(founding))
	return w
}

func copiesOf(heirs int) func(*ownership.Configuration) {
	return func(c *ownership.Configuration) { c.Copies = ownership.CopiesOf(heirs) }
}

// Promise: with so many copies so many nodes die at once besides an owner, and none of its counters
// is lost; with fewer, what is lost is marked, and nothing else.
func TestOwnerAndHeirsDieAtOnce(t *testing.T) {
	const keys = 200
	for copies := 0; copies <= 2; copies++ {
		for dead := 1; dead <= 2; dead++ {
			t.Run(fmt.Sprintf("%d copies, %d dead", copies, dead), func(t *testing.T) {
				w := founded(t, 5, copiesOf(copies), five)
				w.spend(keys, "n1", "n2", "n3", "n4", "n5")
				w.pass(time.Second)
				for i := range dead {
					w.kill(fmt.Sprintf("n%d", 5-i))
				}
				w.pass(4 * time.Second)
				w.wantOneHolderEach("after the deaths")
				lost := 0
				for i := range keys {
					d := w.check("n1", Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpPeek})[0]
					if d.Degraded != (d.Remaining == 5) || d.Degraded && d.Bound != 5 ||
						!d.Degraded && d.Remaining != 3 {
						t.Fatalf("key %d: %+v", i, d)
					}
					if d.Degraded {
						lost++
					}
				}
				if got := lost > 0; got != (dead > copies) {
					t.Errorf("%d keys are lost", lost)
				}
			})
		}
	}
}

// Promise: of two copies the newer one counts. What the first heir has not got when the owner dies,
// and the second has, is not lost, and the other way round.
func TestNewerOfTwoCopies(t *testing.T) {
	for _, deaf := range []int{0, 1} {
		w := founded(t, 5, copiesOf(2), five)
		w.pass(time.Second)
		key := w.key("n5", 0)
		w.take("n5", "five", key)
		w.pass(time.Second)
		pt := &w.nodes["n5"].parts.list[ring.Partition(limiter.Hash(key))]
		heir := [2]*peer{pt.to, pt.second.to}[deaf].id
		w.meet = func(c *Call, deliver func() *Answer) {
			if c.To.ID == heir && c.Ask.Move != nil && len(c.Ask.Move.Entries) > 0 {
				c.Err = errSilent
				return
			}
			c.Answer = deliver()
		}
		w.take("n5", "five", key)
		w.take("n5", "five", key)
		w.pass(150 * time.Millisecond)
		w.kill("n5")
		w.pass(4 * time.Second)
		if d := w.check("n1", Item{Limit: "five", Key: key, Op: OpPeek})[0]; d.Degraded ||
			d.Remaining != 2 {
			t.Errorf("copy %d is older: %+v; want 2 of 5 left", deaf, d)
		}
	}
}

// Promise: an heir with a copy as new as that of the other one takes over without waiting for it.
func TestEqualCopiesAreNotFetched(t *testing.T) {
	w := founded(t, 5, copiesOf(2), five)
	w.spend(100, "n1", "n2", "n3", "n4", "n5")
	w.pass(time.Second)
	w.kill("n5")
	lent := 0
	gone := w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil {
			lent += len(m.Lent)
		}
		gone(c, deliver)
	}
	w.pass(4 * time.Second)
	w.wantOneHolderEach("after the death")
	w.wantRemaining("after the death", 100, 3, "n1", "n2", "n3", "n4")
	if lent > 0 {
		t.Errorf("%d copies were fetched that the claimer had", lent)
	}
}

// Promise: the copies of a partition lie in other zones than its owner, and in two of them if there
// are, as long as there are others; with one zone or none they lie where they always did.
func TestZones(t *testing.T) {
	for _, row := range []struct {
		zones  string // of n1 …
		copies int
	}{
		{"aab", 1},
		{"aabb", 1},
		{"aabbc", 2},
		{"abc", 2},
		{"aaab", 2},
		{"aaaa", 1},
		{"aaaa", 2},
		{"....", 1},
		{"..aa", 1},
	} {
		zoneOf := func(i int) string {
			if row.zones[i] == '.' {
				return ""
			}
			return row.zones[i : i+1]
		}
		w := founded(t, len(row.zones), func(c *ownership.Configuration) {
			copiesOf(row.copies)(c)
			for i := range c.Members {
				c.Members[i].Zone = zoneOf(i)
			}
		}, five)
		w.pass(2 * time.Second)
		all := map[string]bool{}
		for i := range row.zones {
			all[zoneOf(i)] = true
		}
		if delete(all, ""); len(all) == 0 {
			all[""] = true
		}
		var kept [8]int
		for _, n := range w.nodes {
			r := n.view.Load()
			me := r.Me().Zone
			for p := range n.parts.list {
				if !n.parts.HoldsPartition(p) {
					continue
				}
				pt := &n.parts.list[p]
				if c := n.copier.Copies(); c.Short != 0 || c.Unreplicated != 0 {
					t.Fatalf("%s: %+v", row.zones, c)
				}
				in := map[string]bool{}
				for _, s := range []*slot{&pt.slot, &pt.second} {
					if s.to != nil {
						in[s.to.member.Load().Zone] = true
						kept[r.Find(s.to.id)]++
					}
				}
				delete(in, me)
				delete(in, "") // it may be the same one
				want := min(row.copies, len(all)-1)
				if me == "" {
					want = len(in)
				}
				if len(in) != want {
					t.Fatalf("%s: partition %d of %s in %q has copies in %d other zones, want %d",
						row.zones, p, n.ID(), me, len(in), want)
				}
				if (len(all) == 1 || me == "") && pt.to != r.peers[r.heir(p)] {
					t.Fatalf("%s: partition %d is copied to %s", row.zones, p, pt.to.id)
				}
			}
		}
		if row.zones == "aabb" && (kept[2] < ring.Partitions/6 || kept[3] < ring.Partitions/6) {
			t.Errorf("members keep %v copies", kept)
		}
	}
}

// inZones puts each member into the zone that has its letter.
func inZones(letters string) func(c *ownership.Configuration) {
	return func(c *ownership.Configuration) {
		for i := range c.Members {
			c.Members[i].Zone = letters[i : i+1]
		}
	}
}

// Promise: when a whole zone dies, nothing is lost, also of partitions that had their heir in it.
func TestZoneDies(t *testing.T) {
	w := founded(t, 5, inZones("abcaa"), five)
	w.spend(200, "n1", "n2", "n3", "n4", "n5")
	w.pass(time.Second)
	w.kill("n5")
	w.kill("n4")
	w.pass(4 * time.Second)
	w.wantOneHolderEach("after the zone's death")
	w.wantRemaining("after the zone's death", 200, 3, "n1", "n2", "n3")
}

// Promise: a member that claims what it has no copy of waits until it has taken in what others lend
// it, however long that is on its way: they call it free no sooner. Where their answers are lost
// they do so as soon as the claimer says that it has heard.
func TestLentLate(t *testing.T) {
	for _, late := range []bool{true, false} {
		t.Run(fmt.Sprintf("the message, and not the answer: %t", late), func(t *testing.T) {
			w := founded(t, 5, inZones("abcaa"), five)
			w.spend(200, "n1", "n2", "n3", "n4", "n5")
			w.pass(time.Second)
			w.kill("n5")
			w.kill("n4")
			lent, meet := 0, w.meet
			w.meet = func(c *Call, deliver func() *Answer) {
				lends := c.Ask.Move != nil && len(c.Ask.Move.Lent) > 0
				if lends && late {
					w.pass(moveTimeout - time.Millisecond)
				}
				meet(c, deliver)
				if lends {
					if lent++; !late && lent <= 4 {
						c.Answer, c.Err = nil, errSilent
					}
				}
			}
			if late {
				w.pass(4 * time.Second)
			} else {
				w.pass(200 * time.Millisecond) // 140 ms, and 380 if it is not said
			}
			if lent == 0 {
				t.Error("nothing was lent")
			}
			w.wantOneHolderEach("after the zone's death")
			w.wantRemaining("after the zone's death", 200, 3, "n1", "n2", "n3")
		})
	}
}

// Promise: as long as no more die at once than there are copies, and all have come back before,
// nothing is marked: also a partition without a key is lent to each member that claims it, so that
// one knows that there is none.
func TestPairsDieByTurns(t *testing.T) {
	const zones = "abcabc"
	w := founded(t, len(zones), func(c *ownership.Configuration) {
		copiesOf(2)(c)
		inZones(zones)(c)
	}, five)
	w.pass(time.Second)
	ms := w.members(len(zones))
	pairs := [][2]int{{4, 0}, {2, 5}, {2, 5}, {4, 3}, {2, 5}, {5, 1}, {2, 5}}
	if testing.Short() {
		pairs = pairs[:2]
	}
	for _, pair := range pairs {
		for _, i := range pair {
			w.kill(ms[i].ID)
		}
		w.pass(4 * time.Second)
		w.wantOneHolderEach("after the deaths")
		for _, i := range pair {
			ms[i].Boot += 16
			n := w.create(ms[i].ID, ms[i].Boot)
			n.Membership().Agree(Trust{Zone: zones[i : i+1]})
			n.Start()
			there := slices.DeleteFunc(slices.Clone(ms), func(m Member) bool {
				return w.nodes[m.ID] == nil
			})
			for _, m := range there {
				w.show(there, 0, m.ID)
			}
			w.pass(2 * time.Second)
		}
	}
	for id, n := range w.nodes {
		if marked := n.stats.Bereft.Load(); marked > 0 {
			t.Errorf("%s marks %d partitions, of which nothing was lost", id, marked)
		}
	}
}

// Promise: a limit of synchronous replication with two heirs waits for both, and needs one.
func TestSyncWaitsForBothHeirs(t *testing.T) {
	spec := five
	spec.Name, spec.Sync = "sync", true
	w := founded(t, 4, copiesOf(2), spec)
	w.pass(time.Second)
	key := w.key("n1", 0)
	pt := &w.nodes["n1"].parts.list[ring.Partition(limiter.Hash(key))]
	for silent := 0; silent <= 2; silent++ {
		deaf := map[string]bool{}
		for _, s := range []*slot{&pt.slot, &pt.second}[:silent] {
			deaf[s.to.id] = true
		}
		told := 0
		w.meet = func(c *Call, deliver func() *Answer) {
			if c.Ask.Move != nil && len(c.Ask.Move.Entries) > 0 && c.Ask.Move.Sequence == 0 {
				if deaf[c.To.ID] {
					c.Err = errSilent
					return
				}
				told++
			}
			c.Answer = deliver()
		}
		if d := w.take("n1", "sync", key); told != 2-silent || !d.Allowed ||
			d.Degraded != (silent == 2) {
			t.Errorf("%d heirs are silent: %d were told, %+v", silent, told, d)
		}
		w.meet = nil
		w.pass(300 * time.Millisecond)
	}
}

// Promise: an heir that does not answer counts as none, and another member gets the copy.
func TestSilentHeirIsCounted(t *testing.T) {
	w := founded(t, 3, copiesOf(2), five)
	w.pass(time.Second)
	if c := w.nodes["n1"].copier.Copies(); c.Short != 0 || c.Kept == 0 || c.Heirs != 2 {
		t.Fatalf("at rest: %+v", c)
	}
	cut := true
	w.meet = func(c *Call, deliver func() *Answer) {
		from := w.caller
		if cut && (from == "n1" && c.To.ID == "n2" || from == "n2" && c.To.ID == "n1") {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	w.pass(heirAnswers + 700*time.Millisecond)
	if c := w.nodes["n1"].copier.Copies(); c.Short != c.Held || c.Unreplicated != 0 || c.Held == 0 {
		t.Errorf("one of two heirs is silent: %+v", c)
	}
}

// Promise: beside a release that does not say how far its copies are, nothing is lost: they are
// fetched, also by one that has as much.
func TestCopiesOfAnEarlierRelease(t *testing.T) {
	w := founded(t, 5, copiesOf(2), five)
	earlier := func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil {
			own := *m
			own.Pass, own.Complete, own.Known = 0, false, nil
			c.Ask.Move = &own
		}
		c.Answer = deliver()
	}
	w.meet = earlier
	w.spend(100, "n1", "n2", "n3", "n4", "n5")
	w.pass(time.Second)
	w.kill("n5")
	w.kill("n4")
	gone := w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		gone(c, func() *Answer { earlier(c, deliver); return c.Answer })
	}
	w.pass(4 * time.Second)
	w.wantOneHolderEach("after the deaths")
	w.wantRemaining("after the deaths", 100, 3, "n1", "n2", "n3")
}

// Promise: no member keeps a copy that gets no changes any more, after members have come and gone:
// nor does one that has given a partition away to a member of its own zone, and owns it next, also
// if what that says later comes before the answer to the gift.
func TestNoCopyIsLeftBehind(t *testing.T) {
	for _, zones := range []string{"", "abca", "aaba"} {
		for copies := range 3 {
			for _, late := range []time.Duration{0, 150 * time.Millisecond} {
				t.Run(fmt.Sprintf("%d copies, zones %s, late %v", copies, zones, late),
					func(t *testing.T) { testNoCopyIsLeftBehind(t, copies, zones, late) })
			}
		}
	}
}

func testNoCopyIsLeftBehind(t *testing.T, copies int, zones string, late time.Duration) {
	w := founded(t, 3, func(c *ownership.Configuration) {
		copiesOf(copies)(c)
		for i := range min(len(c.Members), len(zones)) {
			c.Members[i].Zone = zones[i : i+1]
		}
	}, five)
	w.spend(100, "n1", "n2", "n3")
	w.pass(time.Second)
	n4 := w.create("n4", 4)
	n4.Membership().Agree(Trust{Zone: zones[max(0, len(zones)-1):]})
	n4.Start()
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Answer = deliver(); c.Ask.Move != nil && len(c.Ask.Move.Gift) > 0 {
			w.pass(late)
		}
	}
	w.show(w.members(4), 0, "n1", "n2", "n3", "n4")
	w.pass(3 * time.Second)
	w.wantOneHolderEach("after the join")
	byBoot := map[uint64]*Node{}
	for _, n := range w.nodes {
		byBoot[n.boot] = n
	}
	for _, n := range w.nodes {
		left := 0
		for p := range n.parts.list {
			of := byBoot[n.parts.list[p].copyOf]
			if of == nil || of == n {
				continue
			}
			pt := &of.parts.list[p]
			if s := pt.slotOf(of.view.Load().peers[of.view.Load().Find(n.id)],
				true); !of.parts.HoldsPartition(p) || s == nil || s.copied != copyTaken {
				left++
			}
		}
		if left > 0 {
			t.Errorf("%d copies: %s keeps %d copies that it gets no changes of", copies, n.id,
				left)
		}
	}
}

// Promise: a copy that ends before its beginning was said is not begun: to end it would end that of
// the next holder.
func TestWhatEndsBeforeItHasBegunIsNotBegun(t *testing.T) {
	w := founded(t, 3, copiesOf(1), five)
	n := w.nodes["n1"]
	p := n.view.Load().peers[n.view.Load().Find("n2")]
	n.parts.mu.Lock()
	defer n.parts.mu.Unlock()
	o := n.copier.keepers.outboxLocked(p)
	o.begin([]uint16{7, 8})
	n.copier.keepers.endLocked(p, 7)
	if len(o.begun) != 1 || o.begun[0] != 8 || !slices.Contains(o.ended, 7) {
		t.Errorf("%v begin, and %v end; want 8, and 7", o.begun, o.ended)
	}
}
