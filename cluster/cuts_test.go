package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// cutLines has nothing arrive between the two nodes of each line, written "n1 n2"; "n1>n2" is one
// way.
func (w *world) cutLines(lines ...string) {
	w.hearing(func(from, to string) bool {
		return !slices.ContainsFunc(lines, func(l string) bool {
			return l == from+">"+to || l == from+" "+to || l == to+" "+from
		})
	})
}

// Promise: whichever node is asked, the owner decides as long as one other member reaches both. The
// heir may be none, and so may the member after it.
func TestAnyMemberRelays(t *testing.T) {
	w := newWorld(t, 5, five)
	w.pass(time.Second)
	w.cutLines("n1 n2", "n2 n3")
	w.pass(4 * time.Second)
	heirs := map[string]bool{}
	for i := range 200 {
		key := w.key("n2", i)
		v := w.nodes["n1"].View()
		heirs[v.Members[v.heir(ring.Partition(limiter.Hash(key)))].ID] = true
		if d := w.take("n1", "five", key); d.Degraded || d.Owner != "n2" || d.Remaining != 4 {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
	if len(heirs) != 4 {
		t.Fatalf("heirs of these keys are %v; want all others", heirs)
	}
}

// Promise: a member that most others do not reach gives away what it holds, also to those, by way
// of another member; and it is not admitted again before it reaches most of them: else nobody would
// decide for what it should hold.
func TestWhoIsNotReachedGivesAllAway(t *testing.T) {
	w := newWorld(t, 4, five)
	const keys = 100
	w.spend(keys, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	n3 := w.nodes["n3"]
	held, given := n3.parts.Held(), n3.Stats().Given.Load()
	w.cutLines("n3>n1", "n3>n4")
	w.pass(4 * time.Second)
	if got := n3.Stats().Given.Load() - given; got != uint64(held) {
		t.Errorf("n3 has given %d of its %d partitions away", got, held)
	}
	for range 100 {
		w.pass(100 * time.Millisecond)
		w.wantOneHolderEach("while most do not reach n3")
		if len(w.nodes["n1"].right.Agreed().Members) != 3 {
			t.Fatal("n3 is admitted, and reaches one of three")
		}
	}
	w.wantRemaining("while most do not reach n3", keys, 3, "n1", "n2", "n4")
	w.meet = nil
	w.pass(8 * time.Second)
	w.wantOneHolderEach("after the heal")
	if n3.parts.Held() == 0 {
		t.Error("n3 has got nothing back")
	}
	w.wantRemaining("after the heal", keys, 3, "n1", "n2", "n3", "n4")
}

// Promise: a member that has left and come back is given what it should hold, also by one that it
// does not reach: that it leaves was said of the life before.
func TestWhoComesBackIsGivenItsShare(t *testing.T) {
	for _, giver := range []string{"n1", "n2", "n4"} {
		t.Run(fmt.Sprint("cut from ", giver), func(t *testing.T) {
			w := newWorld(t, 4, five)
			w.spend(100, "n1", "n2", "n3", "n4")
			w.pass(time.Second)
			w.cutLines("n3>n1", "n3>n4")
			w.pass(4 * time.Second)
			w.cutLines("n3 " + giver)
			w.pass(8 * time.Second)
			w.wantOneHolderEach("with one line cut")
			r := w.nodes["n3"].view.Load()
			for p := range w.nodes["n3"].parts.list {
				if r.owner(p) == r.Self && !w.nodes["n3"].parts.held[p].Load() {
					t.Fatalf("n3 owns partition %d, and does not hold it", p)
				}
			}
		})
	}
}
