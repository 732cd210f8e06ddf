package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/limiter"
)

// revival is a cluster of three of which all nodes were stopped, each with what it alone had
// counted on its disk, and what clients are told while they come back.
type revival struct {
	*world
	disks    map[string]disk
	limits   Limits
	back     []Member
	keys     int
	admitted []int64 // of each key, before and since
}

const revivedKeys = 300

func newRevival(t *testing.T) *revival {
	w := newWorld(t, 3, hundred)
	r := &revival{world: w, keys: revivedKeys, admitted: make([]int64, revivedKeys)}
	for i := range r.keys {
		d := w.check(fmt.Sprintf("n%d", i%3+1),
			Item{Limit: "hundred", Key: fmt.Sprint("k", i), Cost: 20})[0]
		if !d.Allowed || d.Degraded {
			t.Fatalf("key %d: %+v", i, d)
		}
		r.admitted[i] = 20
	}
	r.disks, r.limits = w.stopAll() // before any heir has heard
	return r
}

// deal gives what the disks have to any of them, as partitions that have moved do.
func (r *revival) deal(dice *rand.Rand) {
	ids := []string{"n1", "n2", "n3"}
	dealt := make(map[string][]limiter.Entry)
	for _, id := range ids {
		for _, e := range r.disks[id].entries {
			to := ids[dice.IntN(3)]
			dealt[to] = append(dealt[to], e)
		}
	}
	for id, d := range r.disks {
		d.entries = dealt[id]
		r.disks[id] = d
	}
}

// boot has a node come back with its disk. Nobody knows it yet, and it knows only the others that
// are there already.
func (r *revival) boot(id string) {
	for _, m := range r.members(3) {
		if m.ID == id {
			m.Boot, m.State = m.Boot+10, StateJoining
			r.back = append(r.back, m)
			r.restart(id, m.Boot, r.limits, r.disks[id])
		}
	}
	r.show(r.back, 0, id)
	r.nodes[id].Start()
}

// ask takes one unit of every key at a node.
func (r *revival) ask(id string) {
	var items []Item
	for i := range r.keys {
		items = append(items, Item{Limit: "hundred", Key: fmt.Sprint("k", i), Cost: 1})
	}
	for i, d := range r.check(id, items...) {
		if d.Allowed {
			r.admitted[i]++
		}
	}
}

// want looks whether all that clients were told to have is charged.
func (r *revival) want(when string) {
	r.t.Helper()
	r.wantOneHolderEach(when)
	wrong := 0
	for i, n := range r.admitted {
		d := r.check(fmt.Sprintf("n%d", i%3+1),
			Item{Limit: "hundred", Key: fmt.Sprint("k", i), Op: OpPeek})[0]
		if d.Degraded || d.Remaining != 100-n {
			if wrong++; wrong <= 3 {
				r.t.Errorf("%s: of key %d %d units were admitted: %+v", when, i, n, d)
			}
		}
	}
	if wrong > 0 {
		r.t.Errorf("%s: %d of %d keys are wrong", when, wrong, r.keys)
	}
}

// Promise: counters survive a restart of every node, in whatever order they come back: what is
// admitted until all are there is charged beside what their disks have, and not instead of it.
func TestWhoComesBackFirstWaitsForTheOthersDisks(t *testing.T) {
	for _, first := range []string{"n1", "n2", "n3"} {
		r := newRevival(t)
		r.pass(2 * time.Second)
		r.boot(first)
		r.ask(first)
		r.pass(300 * time.Millisecond)
		r.ask(first)
		for _, id := range []string{"n1", "n2", "n3"} {
			if id != first {
				r.pass(time.Second)
				r.boot(id)
				r.ask(id)
				r.show(r.back, 100*time.Millisecond, first)
				r.ask(first)
			}
		}
		r.show(r.back, 0, "n1", "n2", "n3")
		r.ask(first)
		r.pass(5 * time.Second)
		r.want(first + " came back first")
	}
}

// Promise: … in whatever order they hear of each other.
func TestDisksOfAllAreHeardInAnyOrder(t *testing.T) {
	for seed := range seeds(40) {
		dice := rand.New(rand.NewPCG(seed, 0))
		r := newRevival(t)
		r.deal(dice)
		ids := []string{"n1", "n2", "n3"}
		dice.Shuffle(3, func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
		late := func(most time.Duration) time.Duration {
			return time.Duration(dice.Int64N(int64(most)))
		}
		for n, id := range ids {
			r.pass(late(2 * time.Second))
			r.boot(id)
			for _, other := range ids[:n+1] {
				seen := r.back
				// news may come in any order: a node that knows more than is said here keeps that
				r.AfterFunc(late(time.Second), func() {
					if len(r.nodes[other].View().Members) < len(seen) {
						r.show(seen, 0, other)
					}
				})
			}
			for range dice.IntN(4) {
				r.pass(late(200 * time.Millisecond))
				r.ask(ids[dice.IntN(n+1)])
			}
		}
		for range 4 {
			r.pass(late(300 * time.Millisecond))
			r.ask(ids[dice.IntN(3)])
		}
		r.pass(5 * time.Second)
		r.want(fmt.Sprint("seed ", seed, ", ", ids))
		if t.Failed() {
			return
		}
	}
}

// A member that does not come back is waited for so long and no longer, and a node does not wait if
// its cluster was not down.
func TestAwaitEnds(t *testing.T) {
	r := newRevival(t)
	r.electors = 1
	r.boot("n1")
	r.pass(awaitLasts - 300*time.Millisecond)
	if d := r.take("n1", "hundred", "k0"); !d.Degraded || r.nodes["n1"].parts.Held() > 0 {
		t.Errorf("while the others are awaited n1 holds %d partitions: %+v",
			r.nodes["n1"].parts.Held(), d)
	}
	r.pass(500 * time.Millisecond)
	if d := r.take("n1", "hundred", "k0"); !d.Degraded || d.Bound != 100 ||
		d.Source != SourceOwner || r.nodes["n1"].parts.Held() != 4093 {
		t.Errorf("then n1 holds %d partitions, and others may have known more: %+v",
			r.nodes["n1"].parts.Held(), d)
	}

	d := r.disks["n2"]
	d.at, d.head.Others = r.now, []string{"n1", "n2", "n9"} // n9 has left since
	r.disks["n2"] = d
	r.pass(time.Second)
	r.boot("n2")
	r.show(r.back, 0, "n1")
	r.pass(time.Second)
	if r.nodes["n2"].awaits.lacking.Load() || r.nodes["n2"].parts.Held() == 0 {
		t.Errorf("n2 holds %d partitions, and n1 was there all the time",
			r.nodes["n2"].parts.Held())
	}
}

// Promise: owner crashes: right again at once. A node that has come back with a file does not wait
// for a member of before that dies then, if the cluster was not down: members that were all started
// anew since the file was written, one after the other, go on from each other.
func TestClusterThatWasNotDownIsNotAwaited(t *testing.T) {
	w := newWorld(t, 4, five)
	ms := w.members(4)
	w.pass(time.Second)
	d, limits := w.save("n4"), w.nodes["n4"].Limits()
	w.kill("n4")
	w.show(ms[:3], 0, "n1", "n2", "n3")
	w.pass(2 * time.Second)
	for i, id := range []string{"n1", "n2", "n3"} {
		w.kill(id)
		w.pass(time.Second)
		ms[i].Boot += 10
		w.start(id, ms[i].Boot)
		w.show(ms[:3], 0, "n1", "n2", "n3")
		w.pass(2 * time.Second)
	}
	w.wantOneHolderEach("before n4 is back")
	ms[3].Boot += 10
	w.restart("n4", ms[3].Boot, limits, d)
	w.nodes["n4"].Start()
	w.show(ms, 0, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	w.wantOneHolderEach("when n4 is back")
	w.kill("n2")
	w.pass(time.Second)
	w.wantOneHolderEach("a second after n2 has died")
}

// A node goes on from members of its own cluster alone: others may stop before it is one of them.
func TestGoesOnFromMembersAlone(t *testing.T) {
	w := newWorld(t, 2, five)
	n, early := w.nodes["n1"], w.now-limiter.Instant(time.Hour)
	since := func() limiter.Instant { return limiter.Instant(n.parts.since.Load()) }
	began := since()
	if n.parts.goOnFrom(&peer{id: "n9", boot: 9}, early); since() != began {
		t.Error("it goes on from a node that is no member")
	}
	if n.parts.goOnFrom(&peer{id: "n2", boot: 2}, began+1); since() != began {
		t.Error("it goes on from later than its own start")
	}
	if n.parts.goOnFrom(&peer{id: "n2", boot: 2}, early); since() != early {
		t.Error("it does not go on from a member")
	}
}

// A file names all members that should be there; that of a leaving node those that should have been
// before: others that leave as well may be gone.
func TestFilesNameTheOthers(t *testing.T) {
	w := newWorld(t, 4, five)
	want := func(when, others string) {
		t.Helper()
		if got := fmt.Sprint(w.nodes["n1"].awaits.Others()); got != others {
			t.Errorf("%s: %s, want %s", when, got, others)
		}
	}
	ms := w.members(4)
	want("with four", "[n2 n3 n4]")
	w.show(ms[:3], 0, "n1")
	want("when n4 has vanished", "[n2 n3 n4]")
	ms[3].State = StateLeaving
	w.show(ms, 0, "n1")
	want("when n4 is leaving", "[n2 n3 n4]")
	ms[0].State, ms[2].State = StateLeaving, StateLeaving
	w.show(ms[:3], 0, "n1")
	want("when n1 is leaving", "[n2 n3 n4]")
	w.show(ms[:1], 0, "n1")
	want("when all others have left", "[n2 n3 n4]")
}

// A node that has not looked yet at what it has from a file calls nothing free.
func TestWhoHasNoViewPromisesNothing(t *testing.T) {
	w := newWorld(t, 2, five)
	n := w.start("n3", 3)
	n.awaits.Await(time.Second, []string{"n1", "n2"})
	a := n.Deliver(&Ask{
		Hop: 1, Deadline: w.now.Add(time.Second),
		Move: &Move{
			From: 1, To: 3, ID: "n1", Term: 1 << 30,
			Claiming: Claiming{Claim: []uint16{7}},
		},
	})
	if a.Move != nil && len(a.Move.Standings) > 0 && a.Move.Standings[0] != StandingBusy {
		t.Errorf("%+v", a.Move)
	}
}
