package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// deafen has nothing arrive at a node that others send, but for the calls of friends: neither what
// they ask nor what they answer. What it says arrives.
func (w *world) deafen(id string, friends ...string) {
	w.hearing(func(from, to string) bool {
		for _, f := range friends {
			if from == f {
				return true
			}
		}
		return to != id || from == id
	})
}

// hearing has those messages arrive for which ok says so.
func (w *world) hearing(ok func(from, to string) bool) {
	w.meet = func(c *Call, deliver func() *Answer) {
		from := w.caller
		if !ok(from, c.To.ID) {
			c.Err = errSilent
			return
		}
		if c.Answer = deliver(); !ok(c.To.ID, from) {
			c.Answer, c.Err = nil, errSilent
		}
	}
}

// Promise: the majority keeps its full limit. A node that hears none, or too few, stops deciding;
// that others hear it say so does not keep them from taking over, and nobody decides twice.
func TestHeirsOfWhoIsCutOffOneWay(t *testing.T) {
	for _, c := range []struct {
		name    string
		members int
		friends []string
	}{{"hears nobody", 3, nil}, {"hears one of five", 5, []string{"n2"}}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.members, five)
			const keys = 100
			all := []string{"n1", "n2", "n3", "n4", "n5"}[:c.members]
			w.spend(keys, all...)
			w.pass(time.Second)
			w.deafen("n1", c.friends...)
			for range 100 {
				w.pass(50 * time.Millisecond)
				if _, many := w.holders(); many > 0 {
					t.Fatalf("%d partitions have two holders", many)
				}
			}
			if w.nodes["n1"].right.Deciding() {
				t.Error("who is cut off decides")
			}
			w.wantOneHolderEach("five seconds after the cut")
			w.meet = nil
			w.pass(8 * time.Second)
			w.wantOneHolderEach("after the heal")
			if w.nodes["n1"].parts.Held() == 0 {
				t.Error("who was cut off has got nothing back")
			}
			w.wantRemaining("after the heal", keys, 3, all...)
		})
	}
}

// Promise: a node that reaches most of the members that are left is one of them again. It hears two
// of five others, and was evicted. Then one of the five dies, of which gossip does not tell it yet,
// and which it does not hear either.
func TestCandidateCountsNoDeadMember(t *testing.T) {
	w := newWorld(t, 6, five)
	w.pass(time.Second)
	w.deafen("n6", "n2", "n3")
	w.pass(5 * time.Second)
	if n := w.nodes["n6"]; n.right.Deciding() || n.agreed.Agreed() != nil {
		t.Fatal("a node that reaches two of five others is a member")
	}
	w.nodes["n4"].Stop()
	delete(w.nodes, "n4")
	meet := w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		switch {
		case c.To.ID != "n4":
			meet(c, deliver)
		case w.caller == "n6":
			c.Err = errSilent
		default:
			c.Err = fmt.Errorf("%w, %w", ErrUnsent, ErrGone)
		}
	}
	w.pass(time.Second)
	if !w.nodes["n6"].right.Deciding() {
		t.Error("a node that reaches two of four others does not decide")
	}
	w.wantOneHolderEach("after the death")
}

// Promise: a cluster of which everybody was cut off from everybody goes on by itself.
func TestAllWereCutOff(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 100
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	w.hearing(func(from, to string) bool { return false })
	w.pass(5 * time.Second)
	if none, _ := w.holders(); none != 4093 {
		t.Fatalf("%d of 4093 partitions are held by nobody", none)
	}
	w.meet = nil
	w.pass(3 * time.Second)
	w.wantOneHolderEach("after the heal")
	w.wantRemaining("after the heal", keys, 3, "n1", "n2", "n3")
}

// Promise: nobody is denied what the model would grant. A copy that is sent again arrives with the
// times that are right then; so does what is left of a hold.
func TestLateCopiesArriveWithTheirAge(t *testing.T) {
	drain := limiter.Spec{Name: "five", Algorithm: limiter.GCRA, Limit: 10, Per: 10 * time.Second}
	w := newWorld(t, 2, drain)
	w.pass(time.Second)
	key := w.key("n1", 0)
	w.hearing(func(from, to string) bool { return from == to })
	id := ID{Origin: 7, Sequence: 7}
	w.check("n1", Item{Limit: "five", Key: key, Cost: 8})
	w.check("n1", Item{
		Limit: "five", Key: key, Cost: 1, Op: OpReserve, ID: id,
		Hold: &HoldTerms{TTL: time.Minute},
	})
	w.pass(time.Second) // it is sent again and again
	w.meet = nil
	w.pass(3 * time.Second)
	l := w.nodes["n1"].Limits()["five"]
	here, there := w.nodes["n1"].holder.table.Entry(w.now, l, key,
		limiter.Hash(key)), w.nodes["n2"].holder.table.Entry(w.now, l, key, limiter.Hash(key))
	if string(here.State) != string(there.State) {
		t.Errorf("%s: %x, its copy %x", key, here.State, there.State)
	}
	held, _ := w.nodes["n1"].holder.book.Get(limiter.HoldID(id))
	copied, found := w.nodes["n2"].holder.book.Get(limiter.HoldID(id))
	if !found || held.Deadline != copied.Deadline {
		t.Errorf("the hold ends at %d, its copy at %d (found %t)", held.Deadline, copied.Deadline,
			found)
	}
}
