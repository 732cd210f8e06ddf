package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// disk is what a node has written, and when.
type disk struct {
	at      limiter.Instant
	entries []limiter.Entry
}

func (w *world) save(id string) (d disk) {
	table := w.nodes[id].Table()
	d.at = w.now
	for i := range table.Parts() {
		d.entries = append(d.entries, table.Save(w.now, i)...)
	}
	return d
}

// restart puts a node that knows nothing but what is on its disk in the place of one that is gone.
func (w *world) restart(id string, boot uint64, limits Limits, d disk) {
	w.t.Helper()
	n, err := New(Config{ID: id, Boot: boot, Clock: w, Network: w, Table: limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20})})
	if err != nil {
		w.t.Fatal(err)
	}
	n.SetLimits(limits)
	if taken := n.Restore(time.Duration(w.now-d.at), d.entries); taken != len(d.entries) {
		w.t.Errorf("%s: %d of %d entries are restored", id, taken, len(d.entries))
	}
	w.nodes[id] = n
}

// stopAll ends all nodes, and returns what their disks have.
func (w *world) stopAll() (disks map[string]disk, limits Limits) {
	disks = make(map[string]disk)
	for id, n := range w.nodes {
		disks[id], limits = w.save(id), n.Limits()
		n.Stop()
		delete(w.nodes, id)
	}
	return disks, limits
}

// Promise: counters survive a restart of every node, and the time that it took has gone by for them as well.
func TestRestartOfAllKeepsEveryCount(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 2000
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	disks, limits := w.stopAll()
	w.pass(20 * time.Second)

	ms := w.members(3)
	for i := range ms {
		ms[i].Boot += 10
		w.restart(ms[i].ID, ms[i].Boot, limits, disks[ms[i].ID])
	}
	w.show(ms, 0, "n1", "n2", "n3")
	for _, n := range w.nodes {
		n.Start()
	}
	w.pass(time.Second)
	w.wantOneHolderEach("after the restart")
	w.wantRemaining("after the restart", keys, 3, "n1", "n2", "n3")
	if d := w.check("n1", Item{Limit: "five", Key: "k7", Op: OpPeek})[0]; d.ResetAfter > 39*time.Second || d.ResetAfter < 37*time.Second {
		t.Errorf("of a window of a minute %v are left after 22 s", d.ResetAfter)
	}
	w.pass(40 * time.Second)
	w.wantRemaining("when the windows are over", keys, 5, "n1", "n2", "n3")
}

// Promise: … in whatever order they come back: who is there first decides from what it has, and gets the rest.
func TestRestartOneByOneKeepsEveryCount(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 1000
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	disks, limits := w.stopAll()

	ms := w.members(3)
	var ids []string
	for i := range ms {
		ms[i].Boot += 10
		w.restart(ms[i].ID, ms[i].Boot, limits, disks[ms[i].ID])
		ids = append(ids, ms[i].ID)
		w.show(ms[:i+1], 0, ids...)
		w.nodes[ms[i].ID].Start()
		w.pass(time.Second)
	}
	w.wantOneHolderEach("when all are back")
	w.wantRemaining("when all are back", keys, 3, "n1", "n2", "n3")
	for id, n := range w.nodes {
		for p := range n.parts {
			if n.parts[p].restored {
				t.Fatalf("%s still keeps partition %d from its disk, which %s holds", id, p, ms[n.View().owner(p)].ID)
			}
		}
	}
}

// Promise: an old file gives nothing back, and takes no right to decide away from who has it.
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
		d := w.check([]string{"n1", "n3"}[i%2], Item{Limit: "five", Key: fmt.Sprint("k", i), Cost: 2})[0]
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
