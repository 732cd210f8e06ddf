package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"penstock/ring"
)

// Promise: in a partition, the minority side goes by on_partition, and one node decides. A node
// that joins the minority, and can only have heard of its members, takes nothing over; nor does it
// make a majority of those that are cut off.
func TestNewcomersMakeNoMajority(t *testing.T) {
	for _, c := range []struct {
		name    string
		members int
		cutOff  []string      // the others go on
		comes   int           // how many join the members that are cut off
		joins   time.Duration // how long each is JOINING
	}{
		{"two of five, and one comes", 5, []string{"n4", "n5"}, 1, 0},
		{"two of four, and one comes slowly", 4, []string{"n3", "n4"}, 1, 2 * time.Second},
		{"one of three, and three come", 3, []string{"n3"}, 3, 0},
		{"one of three, and one comes slowly", 3, []string{"n3"}, 1, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.members, five)
			const keys = 100
			all := []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"}
			w.spend(keys, all[:c.members]...)
			w.pass(10 * time.Second)
			ms := w.members(c.members + c.comes)
			goesOn := c.members - len(c.cutOff)
			side := func(id string) bool { return id <= all[goesOn-1] }
			w.hearing(func(from, to string) bool { return side(from) == side(to) })
			w.pass(4 * time.Second)
			w.show(ms[:goesOn], 0, all[:goesOn]...) // declared dead by both sides
			w.show(ms[goesOn:c.members], 0, c.cutOff...)
			for i := c.members; i < len(ms); i++ {
				ms[i].State = StateJoining
				w.start(all[i], uint64(i+1))
				w.show(ms[goesOn:i+1], 0, all[goesOn:i+1]...)
				// after two seconds it takes the others for gone, for they say that they are cut
				// off
				w.pass(c.joins)
				ms[i].State = StateActive
				w.show(ms[goesOn:i+1], 0, all[goesOn:i+1]...)
				w.pass(time.Second)
			}
			for range 100 {
				w.pass(100 * time.Millisecond)
				for _, id := range all[goesOn:len(ms)] {
					if w.nodes[id].right.Deciding() {
						t.Fatalf("%s decides", id)
					}
				}
			}
			if none, many := w.holders(); none+many > 0 {
				t.Errorf("%d partitions have no holder, and %d have two", none, many)
			}
			w.meet = nil
			w.show(ms, 0, all[:len(ms)]...)
			w.pass(5 * time.Second)
			w.wantOneHolderEach("after the heal")
		})
	}
}

// Promise: in a partition, one node decides. A node that comes at the same moment as another one,
// and has heard of that one only, takes nothing over when the two are cut off from the others, of
// which the other has heard.
func TestTwoComeAndAreCutOff(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 100
	w.spend(keys, "n1", "n2", "n3")
	w.pass(10 * time.Second)
	side := func(id string) bool { return id <= "n3" }
	w.hearing(func(from, to string) bool { return side(from) == side(to) })
	ms := w.members(5)
	w.start("n4", 4)
	w.start("n5", 5)
	w.show(ms, 0, "n4")
	w.show(ms[3:], 0, "n5")
	for range 200 {
		w.pass(100 * time.Millisecond)
		if n4, n5 := w.nodes["n4"].parts.Held(), w.nodes["n5"].parts.Held(); n4+n5 > 0 {
			t.Fatalf("n4 holds %d partitions, n5 %d", n4, n5)
		}
	}
	w.meet = nil
	w.show(ms, 0, "n1", "n2", "n3", "n4", "n5")
	w.pass(5 * time.Second)
	w.wantOneHolderEach("after the heal")
}

// Promise: a node that is killed is replaced at once, also while its cluster is so young that all
// are new to each other.
func TestAYoungClusterBearsACrash(t *testing.T) {
	for _, dies := range []string{"n1", "n2", "n3"} {
		t.Run(dies, func(t *testing.T) {
			w := newWorld(t, 1, five)
			ms := w.members(3)
			for _, id := range []string{"n2", "n3"} {
				for i := range ms {
					if ms[i].ID == id {
						w.start(id, ms[i].Boot)
						w.show(ms[i:i+1], 0, id)
					}
				}
			}
			w.show(ms[:2], 0, "n1", "n2")
			w.pass(300 * time.Millisecond)
			w.show(ms, 0, "n1", "n2", "n3")
			w.pass(time.Second)
			w.kill(dies)
			w.pass(3 * time.Second)
			none, many := w.holders()
			if none+many > 0 {
				t.Errorf("%d partitions have no holder, and %d have two", none, many)
			}
			for id, n := range w.nodes {
				if id != dies && n.right.minority.Load() {
					t.Errorf("%s takes itself for cut off", id)
				}
			}
		})
	}
}

// Promise: the majority of a cluster goes on when it is cut in two, also while it is so young that
// all are new to each other.
func TestAYoungClusterBearsACut(t *testing.T) {
	w := newWorld(t, 1, five)
	all := []string{"n1", "n2", "n3", "n4", "n5"}
	ms := w.members(5)
	for i := 1; i < 5; i++ {
		w.start(all[i], ms[i].Boot)
		w.show(ms[i:i+1], 0, all[i])
		w.show(ms[:i+1], 10*time.Millisecond, all[:i+1]...)
	}
	w.pass(time.Second)
	side := func(id string) bool { return id < "n3" }
	w.hearing(func(from, to string) bool { return side(from) == side(to) })
	w.pass(4 * time.Second)
	w.wantOneHolderEach("after the cut")
	for _, id := range all {
		if got := w.nodes[id].right.minority.Load(); got != side(id) {
			t.Errorf("%s takes itself for cut off: %t", id, got)
		}
	}
}

// Promise: in a partition, one node decides. A node that comes back after a crash, is JOINING when
// a part is cut off, and then ACTIVE in the eyes of one side only, makes no second majority: the
// other side misses it.
func TestWhoComesBackMakesNoSecondMajority(t *testing.T) {
	for _, c := range []struct {
		name   string
		vanish bool // the Views had lost it in between
	}{
		{"who comes back", false},
		{"who was declared dead and comes back", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 5, five)
			ms := w.members(5)
			w.pass(time.Second)
			w.kill("n5")
			if c.vanish {
				w.show(ms[:4], 0, "n1", "n2", "n3", "n4")
			}
			w.pass(time.Second)
			ms[4].Boot, ms[4].State = 15, StateJoining
			w.start("n5", 15)
			w.show(ms, 0, "n5", "n1", "n2", "n3", "n4")
			w.pass(8 * time.Second)
			side := func(id string) bool { return id < "n3" }
			w.hearing(func(from, to string) bool { return side(from) == side(to) })
			w.pass(200 * time.Millisecond)
			ms[4].State = StateActive
			w.show(ms, 0, "n3", "n4", "n5")
			for range 80 {
				w.pass(100 * time.Millisecond)
				if _, many := w.holders(); many > 0 {
					t.Fatalf("%d partitions are held by several", many)
				}
			}
			for _, id := range []string{"n3", "n4", "n5"} {
				if !w.nodes[id].right.Deciding() {
					t.Errorf("%s takes itself for cut off", id)
				}
			}
			for _, id := range []string{"n1", "n2"} {
				if w.nodes[id].right.Deciding() {
					t.Errorf("%s goes on", id)
				}
			}
			w.meet = nil
			w.show(ms, 0, "n1", "n2")
			w.pass(5 * time.Second)
			w.wantOneHolderEach("after the heal")
		})
	}
}

// Promise: in a partition, one node decides. A newcomer takes itself for a vote, and nobody else
// does: it takes over nothing while those that would give it the majority say that they are cut
// off, also when they have just been found to be alive.
func TestANewcomerBelievesWhoIsCutOff(t *testing.T) {
	w := newWorld(t, 4, five)
	ms := w.members(5)
	w.pass(10 * time.Second)
	side := func(id string) bool { return id < "n3" }
	w.hearing(func(from, to string) bool { return side(from) == side(to) })
	w.pass(2 * time.Second)
	w.start("n5", 5)
	w.show(ms, 0, "n5", "n3", "n4")
	w.pass(500 * time.Millisecond)
	w.show(ms[2:], 0, "n5", "n3", "n4") // n1 and n2 are declared dead
	for range 100 {
		w.pass(50 * time.Millisecond)
		if _, many := w.holders(); many > 0 {
			t.Fatalf("%d partitions are held by several", many)
		}
	}
}

// Promise: a node that comes back counts with those that it meets first: they know each other.
func TestWhoComesBackCountsWhomItMeets(t *testing.T) {
	w := newWorld(t, 5, five)
	all := []string{"n1", "n2", "n3", "n4", "n5"}
	w.pass(10 * time.Second)
	ms := w.members(5)
	ms[3].State = StateLeaving
	w.show(ms, 0, all...)
	w.pass(time.Second)
	w.kill("n4")
	others := append(ms[:3:3], ms[4])
	w.show(others, 0, "n1", "n2", "n3", "n5")
	ms[3].Boot, ms[3].State = 14, StateJoining
	w.start("n4", 14)
	w.show(ms[3:4], 0, "n4")
	w.show(ms, 0, all...)
	ms[3].State = StateActive
	w.show(ms, 0, all...)
	w.pass(time.Second)
	w.kill("n1")
	w.kill("n2")
	w.pass(3 * time.Second)
	if w.nodes["n4"].right.minority.Load() {
		t.Error("n4 takes itself for cut off, with two others of the five")
	}
}

// Promise: in a partition, one node decides. A node that is leaving, and is cut off with one that
// stays from the others, is missed by none: it does not go on when those take over what it holds.
// Nor does the one that stays with it, also if it has not heard so from its View.
func TestWhoLeavesIsNoVote(t *testing.T) {
	for name, told := range map[string][]string{
		"all know":               {"n1", "n2", "n3", "n4"},
		"n1 is told by n4 alone": {"n2", "n3", "n4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, five)
			w.spend(100, "n1", "n2", "n3", "n4")
			w.pass(10 * time.Second)
			side := func(id string) bool { return id == "n1" || id == "n4" }
			w.hearing(func(from, to string) bool { return side(from) == side(to) })
			ms := w.members(4)
			ms[3].State = StateLeaving
			w.show(ms, 0, told...)
			for range 80 {
				w.pass(50 * time.Millisecond)
				if _, many := w.holders(); many > 0 {
					t.Fatalf("%d partitions have two holders", many)
				}
			}
			if n := w.nodes["n2"].parts.Held() + w.nodes["n3"].parts.Held(); n != ring.Partitions {
				t.Errorf("two of the three that stay hold %d partitions of %d", n, ring.Partitions)
			}
		})
	}
}

// Promise: an answer that may not be the only one says so. Of a cluster of two that is cut both go
// on, and mark what they decide. A node that comes to one of them waits until it is whole: the
// other one would know nothing of a majority with it.
func TestWhoComesToARivalWaits(t *testing.T) {
	w := newWorld(t, 2, five)
	ms := w.members(3)
	w.pass(time.Second)
	side := map[string]bool{"n2": true}
	w.hearing(func(from, to string) bool { return side[from] == side[to] })
	w.pass(4 * time.Second)
	w.show(ms[:1], 0, "n1")
	w.show(ms[1:2], 0, "n2")
	w.start("n3", 3)
	w.show([]Member{ms[0], ms[2]}, 0, "n3", "n1")
	for range 10 {
		w.pass(time.Second)
		w.wantMarked("n3 has come", true, "n1", "n2")
		if w.nodes["n3"].right.Deciding() {
			t.Fatal("who has come decides")
		}
	}
	w.meet = nil
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(5 * time.Second)
	w.wantOneHolderEach("after the heal")
	w.wantMarked("after the heal", false, "n1", "n2", "n3")
	if w.nodes["n3"].parts.Held() == 0 {
		t.Error("who has come holds nothing")
	}
}

// Promise: of a cluster of two that is cut both mark what they decide, until the other one is back,
// or its process is gone. It is seen to be gone also after gossip has given it up. From then on
// nothing is marked, and newcomers are admitted.
func TestRivalIsSeenToBeGone(t *testing.T) {
	for name, gossipKnows := range map[string]bool{
		"gossip knows it": true, "gossip has given it up": false,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, five)
			ms := w.members(3)
			w.pass(time.Second)
			w.freeze("n2")
			w.pass(4 * time.Second)
			w.wantMarked("n2 is silent", true, "n1")
			if !gossipKnows {
				w.show(ms[:1], 0, "n1")
			}
			w.thaw("n2")
			w.kill("n2")
			w.pass(5 * time.Second)
			w.wantMarked("n2 is gone", false, "n1")
			w.start("n3", 3)
			w.show([]Member{ms[0], ms[2]}, 0, "n1", "n3")
			w.pass(3 * time.Second)
			w.wantMarked("n3 has come", false, "n1", "n3")
			if w.nodes["n3"].parts.Held() == 0 {
				t.Error("who has come holds nothing")
			}
		})
	}
}

// wantMarked demands that what ids answer is less than the full promise, or that nothing is.
func (w *world) wantMarked(when string, want bool, ids ...string) {
	w.t.Helper()
	for i := range 30 {
		for _, id := range ids {
			if d := w.check(id, Item{
				Limit: "five", Key: fmt.Sprint("k", i),
				Op: OpPeek,
			})[0]; d.Degraded != want || d.Source == SourceFallback {
				w.t.Fatalf("%s: key %d at %s: %+v", when, i, id, d)
			}
		}
	}
}

// Promise: an operator's word founds no second cluster beside one that is there. A node that waits
// to be admitted is not recovered as long as gossip knows members, also if it hears none of them by
// its peer address; once they are gone, it is.
func TestWaitingNodeIsNotRecoveredBesideMembers(t *testing.T) {
	w := newWorld(t, 3, five)
	ms := w.members(4)
	ms[3].State = StateJoining
	w.hearing(func(from, to string) bool { return from != "n4" && to != "n4" })
	w.start("n4", 4)
	w.show(ms, 0, "n1", "n2", "n3", "n4")
	w.pass(5 * time.Second)
	n4 := w.nodes["n4"]
	if err := n4.Membership().Recover(); !errors.Is(err, ErrMajority) || n4.Agreed() != nil {
		t.Errorf("members are known: %v, and it is a member of %v", err, n4.Agreed())
	}
	w.show(ms[3:], 0, "n4")
	w.pass(5 * time.Second)
	if err := n4.Membership().Recover(); err != nil || n4.Agreed() == nil {
		t.Errorf("nobody is left: %v, and it is a member of %v", err, n4.Agreed())
	}
}
