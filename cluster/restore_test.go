package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// disk is what a node has written, and when.
type disk struct {
	at      limiter.Instant
	entries []limiter.Entry
	holds   []HoldCopy
	head    FileHead
}

// save is what a node writes when it is stopped in order.
func (w *world) save(id string) (d disk) {
	table := w.nodes[id].Table()
	d.at, d.head = w.now, w.nodes[id].FileHead()
	d.head.Partial = false
	w.nodes[id].holder.book.Each(func(uint64) bool { return true }, func(_ uint64, h limiter.Hold) {
		d.holds = append(d.holds, HoldCopy{h, time.Duration(h.Deadline - w.now)})
	})
	for i := range table.Parts() {
		d.entries = append(d.entries, table.Save(w.now, i)...)
	}
	return d
}

// restart puts a node that knows nothing but what is on its disk in the place of one that is gone.
func (w *world) restart(id string, boot uint64, limits Limits, d disk) {
	w.t.Helper()
	w.restartUnder(0, id, boot, limits, d)
}

// restartUnder is restart of a node that draws a secret.
func (w *world) restartUnder(secret Secret, id string, boot uint64, limits Limits, d disk) {
	w.t.Helper()
	n := w.create(id, boot)
	n.SetLimits(limits)
	n.Membership().Agree(Trust{Secret: secret})
	if taken := n.restorer.Restore(time.Duration(w.now-d.at), d.entries,
		d.holds); taken != len(d.entries)+len(d.holds) {
		w.t.Errorf("%s: %d of %d entries and %d holds are restored", id, taken, len(d.entries),
			len(d.holds))
	}
	n.Resume(time.Duration(w.now-d.at), d.head)
}

// stopAll ends all nodes, and returns what their disks have.
func (w *world) stopAll() (disks map[string]disk, limits Limits) {
	disks, w.electors = make(map[string]disk), len(w.nodes)
	for id, n := range w.nodes {
		disks[id], limits = w.save(id), n.Limits()
		n.Stop()
		delete(w.nodes, id)
	}
	return disks, limits
}

// Promise: counters survive a restart of every node, and the time that it took has gone by for them
// as well.
func TestRestartOfAllKeepsEveryCount(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 2000
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	disks, limits := w.stopAll()
	w.pass(20 * time.Second)

	ms := w.members(3)
	for i := range ms {
		ms[i].Boot, ms[i].State = ms[i].Boot+10, StateJoining
		w.restart(ms[i].ID, ms[i].Boot, limits, disks[ms[i].ID])
	}
	w.show(ms, 0, "n1", "n2", "n3")
	for _, n := range w.nodes {
		n.Start()
	}
	w.pass(time.Second)
	w.wantOneHolderEach("after the restart")
	w.wantRemaining("after the restart", keys, 3, "n1", "n2", "n3")
	if d := w.check("n1", Item{
		Limit: "five", Key: "k7",
		Op: OpPeek,
	})[0]; d.Degraded || d.ResetAfter > 39*time.Second || d.ResetAfter < 37*time.Second {
		t.Errorf("of a window of a minute %v are left after 22 s: %+v", d.ResetAfter, d)
	}
	w.pass(40 * time.Second)
	w.wantRemaining("when the windows are over", keys, 5, "n1", "n2", "n3")
}

// Promise: what is forgotten is said. A node comes back with a file, while another one has been up
// since before the file was written. If that one dies, the file is all there is: it lacks what was
// charged meanwhile.
func TestWhatAFileSaysOfBeforeIsMarked(t *testing.T) {
	w := newWorld(t, 2, five)
	key, ms := w.key("n2", 0), w.members(2)
	w.take("n2", "five", key)
	w.pass(time.Second)
	d := w.save("n2")
	w.pass(time.Second)
	w.kill("n2")
	w.pass(3 * time.Second)
	w.take("n1", "five", key)

	ms[1].Boot += 10
	w.restart("n2", ms[1].Boot, w.limits, d)
	gone := w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.Sequence != 0 {
			c.Err = errSilent // the copies of n1 do not come
			return
		}
		gone(c, deliver)
	}
	w.show(ms, 0, "n1", "n2")
	w.nodes["n2"].Start()
	w.pass(time.Second)
	w.kill("n1")
	w.show(ms[1:], 0, "n2")
	w.pass(3 * time.Second)
	if d := w.take("n2", "five", key); !d.Degraded || d.Bound != 5 || d.Source != SourceOwner {
		t.Errorf("with a file of 5 s ago: %+v", d)
	}
}

// Promise: what is forgotten is said. The file of a node that was not stopped in order lacks what
// was charged later, so all decisions are marked until a window has passed.
func TestRestartAfterACrashIsMarked(t *testing.T) {
	for _, crashed := range []string{"n1", "n3"} {
		w := newWorld(t, 3, five)
		w.spend(300, "n1", "n2", "n3")
		w.pass(time.Second)
		disks, limits := w.stopAll()
		d := disks[crashed]
		d.head.Partial = true
		disks[crashed] = d
		w.pass(5 * time.Second)
		w.comeBack(disks, limits)
		w.wantBound(crashed+" has crashed", 300, 3, 5)
		w.pass(time.Minute)
		w.wantBound("a window later", 300, 5, 0)
	}
}

// Promise: … also by a node that is alone.
func TestAloneAfterACrashIsMarked(t *testing.T) {
	for _, partial := range []bool{false, true} {
		w := newAlone(t, five)
		w.take("n1", "five", "k")
		d := w.save("n1")
		d.head.Partial = partial
		w.nodes["n1"].Stop()
		n := w.create("n1", 11)
		n.Restore(0, d.entries, nil)
		n.Resume(0, d.head)
		n.SetView(w.view("n1", []Member{{ID: "n1", Boot: 11, State: StateActive}}))
		n.Start()
		if d := w.take("n1", "five", "k"); d.Remaining != 3 || d.Degraded != partial {
			t.Errorf("partial %t: %+v", partial, d)
		}
	}
}

// Promise: … also if all nodes are stopped in order before that.
func TestMarksOutliveARestart(t *testing.T) {
	w := newWorld(t, 3, five)
	w.spend(300, "n1", "n2", "n3")
	w.pass(time.Second)
	w.kill("n2")
	w.kill("n3") // of some keys the one was the owner and the other one the heir
	w.show(w.members(1), 0, "n1")
	w.pass(5 * time.Second)
	disks, limits := w.stopAll()
	w.meet = nil
	w.pass(5 * time.Second)
	for _, id := range []string{"n2", "n3"} {
		disks[id] = disk{at: w.now}
	}
	w.comeBack(disks, limits)
	marked := 0
	for i := range 300 {
		d := w.check("n1", Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpPeek})[0]
		switch {
		case d.Degraded && d.Bound == 5 && d.Owner != "" && d.Source != SourceFallback:
			marked++
		case d.Degraded, d.Remaining != 3: // n1 had a whole copy
			t.Errorf("key %d: %+v", i, d)
		}
	}
	if marked < 60 || marked > 180 {
		t.Errorf("%d of 300 keys are marked, where two of three nodes had died", marked)
	}
	w.pass(time.Minute)
	w.wantBound("a window later", 300, 5, 0)
}

// Promise: … also if the node hears only later where its cluster places keys. Under another secret
// partitions have other keys, so all are marked.
func TestMarksAwaitTheSecret(t *testing.T) {
	for _, secret := range []Secret{7, 8} {
		w := emptyWorld(t, limiter.TableConfig{Bytes: 4 << 20}, five)
		n := w.create("n1", 1)
		n.Membership().Agree(Trust{})
		n.Resume(time.Second, FileHead{Secret: 7, Lack: []Lack{{Of: []uint16{5, 9}}}})
		view := w.view("n1", w.members(1))
		n.SetView(view)
		n.views.secret = secret
		n.SetView(view)
		for p := range ring.Partitions {
			lacks := n.parts.bereftAt[p].Load() != 0 && n.parts.list[p].state == partCopied
			if lacks != (secret == 7 && (p == 5 || p == 9)) {
				t.Fatalf("under the secret %d partition %d lacks counters: %t", secret, p, lacks)
			}
		}
		if n.parts.gone != (secret == 8) {
			t.Errorf("under the secret %d what begins is marked: %t", secret, n.parts.gone)
		}
	}
}

// Promise: … also if one of them comes back without its disk: it may have known more than others.
func TestALostDiskIsMarked(t *testing.T) {
	for _, lost := range []string{"", "n1", "n3"} {
		w := newWorld(t, 3, five)
		w.spend(300, "n1", "n2", "n3")
		w.pass(time.Second)
		disks, limits := w.stopAll()
		delete(disks, lost)
		w.pass(5 * time.Second)
		w.comeBack(disks, limits)
		bound := int64(5)
		if lost == "" {
			bound = 0
		}
		w.wantBound("without the disk of "+lost, 300, 3, bound)
	}
}

// Promise: owner crashes: nothing is forgotten but what its last tick would have copied, with any
// number of copies left. What a node brings along from its file, and all know already, has no copy
// begin anew.
func TestAFileThatSaysNothingNewCostsNoCopy(t *testing.T) {
	w := founded(t, 5, copiesOf(2), five)
	w.spend(3000, "n1", "n2", "n3", "n4", "n5")
	w.pass(time.Second)
	d, ms := w.save("n2"), w.members(5)
	w.kill("n2")
	w.show([]Member{ms[0], ms[2], ms[3], ms[4]}, 0, "n1", "n3", "n4", "n5")
	w.pass(3 * time.Second)
	ms[1].Boot += 10
	w.restart("n2", ms[1].Boot, w.limits, d)
	w.show(ms, 0, "n1", "n2", "n3", "n4", "n5")
	w.nodes["n2"].Start()
	for back := w.now; w.now < back.Add(time.Second); w.pass(2 * time.Millisecond) {
		for id, n := range w.nodes {
			if c := n.Copies(); c.Unreplicated > 0 {
				t.Fatalf("%v after n2 is back %s holds %d partitions of which nobody has a copy",
					time.Duration(w.now-back), id, c.Unreplicated)
			}
		}
	}
	if w.nodes["n2"].parts.Held() == 0 {
		t.Error("n2 has got nothing back")
	}
}

// comeBack starts three nodes with what their disks have, if they have one.
func (w *world) comeBack(disks map[string]disk, limits Limits) {
	ms := w.members(3)
	for i := range ms {
		ms[i].Boot, ms[i].State = ms[i].Boot+10, StateJoining
		if d, has := disks[ms[i].ID]; has {
			w.restart(ms[i].ID, ms[i].Boot, limits, d)
		} else {
			n := w.create(ms[i].ID, ms[i].Boot)
			n.SetLimits(limits)
			n.Membership().Agree(Trust{})
		}
	}
	w.show(ms, 0, "n1", "n2", "n3")
	for _, n := range w.nodes {
		n.Start()
	}
	w.pass(time.Second)
	w.wantOneHolderEach("after the restart")
}

// wantBound looks what is left of each key, and with which bound; 0: none.
func (w *world) wantBound(when string, keys int, left, bound int64) {
	w.t.Helper()
	for i := range keys {
		d := w.check(fmt.Sprintf("n%d", i%3+1),
			Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpPeek})[0]
		if d.Remaining != left || d.Degraded != (bound > 0) || d.Bound != bound ||
			d.Source == SourceFallback {
			w.t.Fatalf("%s: key %d: %+v", when, i, d)
		}
	}
}

// Promise: … also if one disk alone knows all: it stays with it until somebody decides.
func TestWhatADiskKnowsStaysUntilSomebodyDecides(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 1000
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	disks, limits := w.stopAll()
	all := disks["n1"]
	for _, d := range disks {
		all.entries = append(all.entries, d.entries...)
	}
	ms := w.members(3)
	for i := range ms {
		ms[i].Boot, ms[i].State = ms[i].Boot+10, StateJoining
	}
	w.restart("n1", 11, limits, all)
	w.show(ms[:1], 0, "n1")
	w.nodes["n1"].Start()
	w.pass(time.Second)
	for _, m := range ms[1:] {
		w.restart(m.ID, m.Boot, limits, disk{at: w.now})
	}
	w.show(ms, 0, "n2", "n3", "n1")
	w.nodes["n2"].Start()
	w.nodes["n3"].Start()
	w.pass(time.Second)
	w.wantRemaining("when another one decides", keys, 3, "n1", "n2", "n3")
}

// Promise: … in whatever order they come back: the first one decides from what it has, and
// gets the rest.
func TestRestartOneByOneKeepsEveryCount(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 1000
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	disks, limits := w.stopAll()

	ms := w.members(3)
	var ids []string
	for i := range ms {
		ms[i].Boot, ms[i].State = ms[i].Boot+10, StateJoining
		w.restart(ms[i].ID, ms[i].Boot, limits, disks[ms[i].ID])
		ids = append(ids, ms[i].ID)
		w.show(ms[:i+1], 0, ids...)
		w.nodes[ms[i].ID].Start()
		w.pass(time.Second)
	}
	w.wantOneHolderEach("when all are back")
	w.wantRemaining("when all are back", keys, 3, "n1", "n2", "n3")
	for id, n := range w.nodes {
		for p := range n.parts.list {
			if n.parts.list[p].restored {
				t.Fatalf("%s still keeps partition %d from its disk, which %s holds", id, p,
					ms[n.View().owner(p)].ID)
			}
		}
	}
}

// Promise: an old file gives nothing back, and takes no right to decide away from the holder.
func TestRestoredCopyIsMerged(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 1000
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	old, limits := w.save("n2"), w.nodes["n2"].Limits()
	w.nodes["n2"].Stop()
	delete(w.nodes, "n2")
	w.meet = func(c *Call, deliver func() *Answer) {
		if w.nodes[c.To.ID] == nil {
			c.Err = ErrGone
			return
		}
		c.Answer = deliver()
	}
	w.pass(3 * time.Second)
	for i := range keys { // two more of each, that the file does not know
		d := w.check([]string{"n1", "n3"}[i%2],
			Item{Limit: "five", Key: fmt.Sprint("k", i), Cost: 2})[0]
		if d.Degraded || d.Remaining != 1 {
			t.Fatalf("key %d while n2 is away: %+v", i, d)
		}
	}
	ms := w.members(3)
	ms[1].Boot = 12
	w.restart("n2", 12, limits, old)
	w.show(ms, 100*time.Millisecond, "n1", "n2", "n3")
	w.nodes["n2"].Start()
	w.pass(2 * time.Second)
	w.wantOneHolderEach("when n2 is back")
	w.wantRemaining("when n2 is back", keys, 1, "n1", "n2", "n3")
}

// Promise: nobody is denied for longer than the limit says. Entries of a file that are returned in
// many messages are as old as they are when the last one comes.
func TestWhatIsReturnedIsAsOldAsItIs(t *testing.T) {
	w := newWorld(t, 2, five)
	const keys = 1000
	w.spend(keys, "n1", "n2")
	ends := w.now.Add(five.Per)
	w.pass(time.Second)
	disks, limits := w.stopAll()
	ms := w.members(2)
	ms[0].Boot, ms[1].Boot = 11, 12
	w.restart("n1", 11, limits, disk{at: w.now})
	w.show(ms[:1], 0, "n1")
	w.nodes["n1"].Start()
	w.pass(time.Second)
	n2, err := New(Config{
		ID: "n2", Boot: 12, Clock: hands{w, "n2"}, Network: hands{w, "n2"},
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20, Shards: 1}),
	})
	if err != nil {
		t.Fatal(err)
	}
	n2.SetLimits(limits)
	n2.Membership().Agree(Trust{})
	n2.restorer.Restore(time.Duration(w.now-disks["n2"].at), disks["n2"].entries, nil)
	w.nodes["n2"] = n2
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.ID == "n2" && m.Sequence == 0 && len(m.Entries) > 0 {
			w.pass(50 * time.Millisecond)
		}
		c.Answer = deliver()
	}
	w.show(ms, 0, "n1", "n2")
	n2.Start()
	w.pass(3 * time.Second)
	w.wantOneHolderEach("when n2 is back")
	w.wantRemaining("when n2 is back", keys, 3, "n1", "n2")
	for i := range keys {
		d := w.check("n1", Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpPeek})[0]
		// the way of one message
		if late := time.Duration(w.now.Add(d.ResetAfter) - ends); late > 50*time.Millisecond {
			t.Fatalf("of key %d, which %s holds, the window ends %v late", i, d.Owner, late)
		}
	}
}

// Promise: reservations, permits and leases survive a restart of every node, with their deadlines,
// in whatever order nodes come back and however long all were away.
func TestRestartOfAllKeepsHolds(t *testing.T) {
	permits := limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency, Limit: 5,
		Per: time.Hour,
	}
	for _, away := range []time.Duration{5 * time.Second, 5 * time.Minute} {
		w := newWorld(t, 3, hundred, permits)
		var keys []string
		var longs, shorts, passes []Item
		for i := range 30 {
			key := w.key(fmt.Sprintf("n%d", i%3+1), i/3)
			w.check("n1", of(10, key))
			long, _ := w.reserve("n1", "hundred", key, 40, time.Hour)
			short, _ := w.reserve("n2", "hundred", key, 20, away-time.Second)
			pass, _ := w.reserve("n3", "permits", key, 2, time.Hour)
			keys, longs, shorts, passes = append(keys, key), append(longs, long), append(shorts,
				short), append(passes, pass)
		}
		lone := w.key("n3", 20) // nothing was charged to it
		single, _ := w.reserve("n1", "hundred", lone, 30, time.Hour)
		w.pass(500 * time.Millisecond)
		disks, limits := w.stopAll()
		w.pass(away)

		ms, ids := w.members(3), []string{}
		for i := range ms {
			ms[i].Boot += 10
			w.restart(ms[i].ID, ms[i].Boot, limits, disks[ms[i].ID])
			ids = append(ids, ms[i].ID)
			w.show(ms[:i+1], 0, ids...)
			w.nodes[ms[i].ID].Start()
			w.pass(2 * time.Second)
		}
		for i, key := range keys {
			if got := w.remaining("n1", "hundred",
				key); got != 30 { // 10 charged, 20 ran out, 40 open
				t.Fatalf("after %v: %d remain of %s, want 30", away, got, key)
			}
			if got := w.remaining("n1", "permits", key); got != 3 {
				t.Fatalf("after %v: %d permits remain of %s, want 3", away, got, key)
			}
			if d := w.settleHold(ids[i%3], longs[i], 15); d.Decision.Hold != limiter.HoldSettled ||
				d.Remaining != 55 {
				t.Fatalf("%+v", d)
			}
			if d := w.settleHold(ids[i%3], shorts[i], 15); d.Decision.Hold != limiter.HoldRanOut {
				t.Fatalf("%+v", d)
			}
			if d := w.settleHold(ids[i%3], passes[i], 0); d.Decision.Hold != limiter.HoldSettled ||
				d.Remaining != 5 {
				t.Fatalf("%+v", d)
			}
		}
		if d := w.settleHold("n1", single, 1); d.Decision.Hold != limiter.HoldSettled ||
			d.Remaining != 99 {
			t.Errorf("%+v", d)
		}
	}
}

// Promise: a node that comes back with a file while others went on brings nothing back that has
// ended meanwhile.
func TestRestoredHoldsThatHaveEndedStayEnded(t *testing.T) {
	for _, away := range []time.Duration{5 * time.Second, 5 * time.Minute} {
		if testing.Short() && away > time.Minute {
			break // the race detector takes minutes for that
		}
		w := newWorld(t, 3, hundred)
		var keys []string
		var holds []Item
		for i := range 30 {
			key := w.key(fmt.Sprintf("n%d", i%3+1), i/3)
			it, _ := w.reserve("n1", "hundred", key, 40, time.Hour)
			w.reserve("n1", "hundred", key, 10, time.Hour)
			keys, holds = append(keys, key), append(holds, it)
		}
		w.pass(time.Second)
		old, limits := w.save("n2"), w.nodes["n2"].Limits()
		w.nodes["n2"].Stop()
		delete(w.nodes, "n2")
		w.meet = func(c *Call, deliver func() *Answer) {
			if w.nodes[c.To.ID] == nil {
				c.Err = ErrGone
				return
			}
			c.Answer = deliver()
		}
		w.pass(2 * time.Second)
		for _, it := range holds {
			if d := w.settleHold("n1", it, 1); d.Decision.Hold != limiter.HoldSettled {
				t.Fatalf("%+v", d)
			}
		}
		w.pass(away)
		ms := w.members(3)
		ms[1].Boot = 12
		w.restart("n2", 12, limits, old)
		w.show(ms, 100*time.Millisecond, "n1", "n2", "n3")
		w.nodes["n2"].Start()
		w.pass(3 * time.Second)
		for i, key := range keys {
			if got := w.remaining(fmt.Sprintf("n%d", i%3+1), "hundred",
				key); got != 89 { // 1 charged, 10 open
				t.Fatalf("away for %v: %d remain of %s, want 89", away, got, key)
			}
		}
	}
}

// Promise: … also if the disk of the owner is lost: its heir's brings them back.
func TestHeirsDiskBringsHoldsBack(t *testing.T) {
	w := newWorld(t, 3, hundred)
	var keys []string
	for i := range 20 {
		keys = append(keys, w.key("n2", i))
		w.reserve("n1", "hundred", keys[i], 40, time.Hour)
	}
	w.pass(500 * time.Millisecond)
	disks, limits := w.stopAll()
	disks["n2"] = disk{at: w.now}
	w.pass(5 * time.Minute)
	ms, ids := w.members(3), []string{}
	for i, k := range []int{1, 0, 2} {
		ms[k].Boot += 10
		w.restart(ms[k].ID, ms[k].Boot, limits, disks[ms[k].ID])
		ids = append(ids, ms[k].ID)
		w.show([][]Member{{ms[1]}, {ms[0], ms[1]}, ms}[i], 0, ids...)
		w.nodes[ms[k].ID].Start()
		w.pass(2 * time.Second)
	}
	for _, key := range keys {
		if got := w.remaining("n1", "hundred", key); got != 60 {
			t.Errorf("%d remain of %s, want 60", got, key)
		}
	}
}

// Promise: an owner and its heir that die together and come back soon with their files know what
// was open.
func TestOwnerAndHeirComeBackWithHolds(t *testing.T) {
	w := newWorld(t, 3, hundred)
	var keys []string
	for i := range 40 {
		keys = append(keys, w.key("n2", i))
		w.reserve("n1", "hundred", keys[i], 40, time.Hour)
	}
	w.pass(500 * time.Millisecond)
	disks, limits := map[string]disk{"n2": w.save("n2"), "n3": w.save("n3")}, w.nodes["n1"].Limits()
	for id := range disks {
		w.nodes[id].Stop()
		delete(w.nodes, id)
	}
	w.meet = func(c *Call, deliver func() *Answer) {
		if w.nodes[c.To.ID] == nil {
			c.Err = ErrGone
			return
		}
		c.Answer = deliver()
	}
	w.pass(5 * time.Second)
	ms := w.members(3)
	for i, k := range []int{1, 2} {
		ms[k].Boot += 10
		w.restart(ms[k].ID, ms[k].Boot, limits, disks[ms[k].ID])
		w.show(ms, 0, []string{"n1", "n2", "n3"}[:i+2]...)
		w.nodes[ms[k].ID].Start()
		w.pass(3 * time.Second)
	}
	for _, key := range keys {
		if got := w.remaining("n1", "hundred", key); got != 60 {
			t.Errorf("%d remain of %s, want 60", got, key)
		}
	}
}

// A node that comes back as an agent keeps nothing.
func TestAgentsKeepNoHolds(t *testing.T) {
	w := newWorld(t, 1, hundred)
	w.reserve("n1", "hundred", "key", 40, time.Hour)
	disks, limits := w.stopAll()
	ms := w.members(1)
	ms[0].Role = RoleAgent
	w.restart("n1", 1, limits, disks["n1"])
	w.show(ms, 0, "n1")
	if n := w.nodes["n1"].holder.book.Len(); n != 0 {
		t.Errorf("an agent has %d holds", n)
	}
}

// Promise: every node restarts: 0 lost, and nothing is marked. A member that was replaced before is
// awaited by no file, though gossip may name it still.
func TestFilesNameNoMemberThatWasReplaced(t *testing.T) {
	w := founded(t, 4, copiesOf(1), five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	w.kill("n4") // and no view says so
	w.pass(time.Second)
	for id, n := range w.nodes {
		if ids := n.FileHead().Others; slices.Contains(ids, "n4") {
			t.Errorf("the file of %s names %v", id, ids)
		}
	}
}
