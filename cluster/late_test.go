package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: an answer that leaves after the right that it was decided under is marked with the whole
// limit, for a client and for another node, and no other one is.
func TestAnswersThatLeaveLateAreMarked(t *testing.T) {
	for name, x := range map[string]struct {
		stopped time.Duration // while the other owner, or the heir, is asked
		late    bool
	}{
		"in time":         {0, false},
		"after the right": {2 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			sync := five
			sync.Name, sync.Sync = "sync", true
			w := newWorld(t, 3, five, sync)
			w.pass(time.Second)
			n, own, other := w.nodes["n1"], w.key("n1", 0), w.key("n2", 0)
			w.meet = func(c *Call, deliver func() *Answer) {
				if w.caller == "n1" &&
					(len(c.Ask.Items) > 0 || c.Ask.Move != nil && len(c.Ask.Move.Entries) > 0) {
					w.now = w.now.Add(x.stopped) // n1 stands still meanwhile, and so does all else
				}
				c.Answer = deliver()
			}
			out := w.check("n1", Item{Limit: "five", Key: own, Cost: 1},
				Item{Limit: "five", Key: other, Cost: 1})
			if d := out[0]; d.Source != SourceOwner || d.Degraded != x.late ||
				x.late && d.Bound != 5 {
				t.Errorf("to a client: %+v; late %t", d, x.late)
			}
			w.meet = nil
			w.pass(5 * time.Second)
			if !n.holder.Holds(limiter.Hash(own)) {
				t.Fatal("n1 holds its key no more")
			}
			w.meet = func(c *Call, deliver func() *Answer) {
				c.Answer = deliver()
				w.now = w.now.Add(x.stopped)
			}
			a := n.Deliver(&Ask{
				Hop: 1, Deadline: w.now.Add(time.Second),
				Items: []AskItem{{Limit: w.limits["sync"], Key: own, Cost: 1}},
			})
			if it := a.Items[0]; it.Status != StatusDone || it.Degraded != x.late ||
				x.late && it.Bound != 5 {
				t.Errorf("to another node: %+v; late %t", it, x.late)
			}
		})
	}
}

// Promise: a right that is renewed before its end goes on, however long a request takes.
func TestRenewedRightMarksNothing(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n := w.nodes["n1"]
	under := n.right.tenure(w.now)
	w.pass(3 * time.Second)
	if n.right.lapsedSince(under) {
		t.Error("the right was renewed all the time")
	}
	w.freeze("n1")
	w.pass(2 * time.Second)
	w.thaw("n1")
	w.pass(2 * time.Second)
	if !n.right.Deciding() || !n.right.lapsedSince(under) {
		t.Errorf("deciding %t; the node was stopped for two seconds, and has a new right",
			n.right.Deciding())
	}
}

// suspendedClock is a clock that does not see that the machine was suspended, and says so once.
type suspendedClock struct {
	hands
	was *bool
}

func (c suspendedClock) Suspended() bool {
	defer func() { *c.was = false }()
	return *c.was
}

// Promise: a machine that was suspended, which its clock has not seen, decides nothing before most
// voters have answered it anew.
func TestSuspendedMachineGivesUpItsRight(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n, was := w.nodes["n1"], false
	n.agreed.suspends.clock = suspendedClock{hands{w, "n1"}, &was}
	n.agreed.agree(0)
	if !n.right.Deciding() {
		t.Fatal("nothing has happened yet")
	}
	was = true
	w.meet = func(c *Call, _ func() *Answer) { c.Err = errSilent }
	n.agreed.agree(0)
	if n.right.Deciding() {
		t.Error("it was suspended, and goes on deciding")
	}
	w.meet = nil
	w.pass(time.Second)
	if !n.right.Deciding() {
		t.Error("it has its right no more, though all answer")
	}
}

// Promise: no more is admitted than the limit says. What a node has borrowed runs out at the holder
// of the key while the node's machine is suspended, which its clock does not see: the node spends
// nothing of it afterwards, and an agent does not either.
func TestSuspendedMachineSpendsNoLease(t *testing.T) {
	for _, role := range []Role{RoleMember, RoleAgent} {
		w := newWorld(t, 3, leased)
		ms := append(w.members(3), Member{ID: "n4", Boot: 4, Role: role, State: StateActive})
		w.start("n4", 4)
		if role == RoleAgent {
			w.nodes["n4"].agreed.on = false
		}
		w.show(ms, 0, "n1", "n2", "n3", "n4")
		w.pass(3 * time.Second)
		n, was := w.nodes["n4"], false
		key := w.key("n3", 0)
		for range 2000 {
			w.take("n4", "leased", key)
			w.pass(50 * time.Microsecond)
		}
		if d := w.take("n4", "leased", key); d.Source != SourceLease {
			t.Fatalf("role %v: nothing is borrowed: %+v", role, d)
		}
		n.agreed.suspends.clock = suspendedClock{hands{w, "n4"}, &was}
		was = true
		w.meet = func(c *Call, _ func() *Answer) { c.Err = errSilent }
		w.pass(tickEvery)
		if d := w.take("n4", "leased", key); was || d.Source == SourceLease {
			t.Errorf("role %v: it was suspended (looked %t), and spends what it had borrowed: %+v",
				role, !was, d)
		}
	}
}
