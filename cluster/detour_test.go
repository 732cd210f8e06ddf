package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// cutPair has nothing arrive that a sends to b, or the other way round.
func (w *world) cutPair(a, b string) {
	w.hearing(func(from, to string) bool {
		return !(from == a && to == b || from == b && to == a)
	})
}

// loseOf ends a node while two others do not reach each other.
func (w *world) loseOf(id, a, b string) {
	w.cutPair(a, b)
	w.loseInCuts(id)
}

// loseInCuts ends a node, whatever is cut: its address refuses connections from now on.
func (w *world) loseInCuts(id string) {
	w.nodes[id].Stop()
	delete(w.nodes, id)
	cut := w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		if n := w.nodes[c.To.ID]; n == nil || n.Boot() != c.To.Boot {
			c.Err = errors.Join(ErrUnsent, ErrGone)
			return
		}
		cut(c, deliver)
	}
}

// Promise: a node that dies is replaced while two others do not reach each other, and nothing is
// forgotten: what these two have to say to each other goes by way of a third one.
func TestDeathBesideACutLine(t *testing.T) {
	for _, c := range []struct {
		members int
		dies    string
		cut     time.Duration // before the death
	}{
		{4, "n1", 3 * time.Second},
		{4, "n1", 0},
		{4, "n4", 3 * time.Second},
		{5, "n1", 3 * time.Second},
		{5, "n1", 0},
		{5, "n5", 3 * time.Second},
	} {
		t.Run(fmt.Sprintf("%s of %d after %v", c.dies, c.members, c.cut), func(t *testing.T) {
			w := newWorld(t, c.members, five)
			const keys = 100
			all := []string{"n1", "n2", "n3", "n4", "n5"}[:c.members]
			w.spend(keys, all...)
			w.pass(time.Second)
			w.cutPair("n2", "n3")
			w.pass(c.cut)
			w.wantOneHolderEach("while a line is cut")
			w.loseOf(c.dies, "n2", "n3")
			w.pass(5 * time.Second)
			w.wantOneHolderEach("five seconds after the death")
			var left []string
			for _, id := range all {
				if id != c.dies && id != "n2" && id != "n3" {
					left = append(left, id)
				}
			}
			w.wantRemaining("five seconds after the death", keys, 3, left...)
			if w.nodes["n2"].Stats().Detours.Load() == 0 {
				t.Error("n2 has sent nothing by way of another node")
			}
		})
	}
}

// unhear has a node have heard nothing of another one for long.
func (w *world) unhear(at, of string) {
	r := w.nodes[at].view.Load()
	r.peers[r.Find(of)].mute.Store(int64(w.now.Add(-2 * detourAfter)))
}

// Promise: members claim from all others while they are a chain, n3–n2–n1–n4: the two ends reach
// each other by way of both others.
func TestClaimsAlongAChain(t *testing.T) {
	w := newWorld(t, 4, five)
	w.pass(time.Second)
	apart := [][2]string{{"n3", "n1"}, {"n3", "n4"}, {"n2", "n4"}}
	w.hearing(func(from, to string) bool {
		return !slices.Contains(apart, [2]string{from, to}) &&
			!slices.Contains(apart, [2]string{to, from})
	})
	for _, x := range apart { // as a second later: their rights last for half of that
		w.unhear(x[0], x[1])
		w.unhear(x[1], x[0])
	}
	for _, ends := range [][2]string{{"n3", "n4"}, {"n4", "n3"}} {
		n := w.nodes[ends[0]]
		r := n.view.Load()
		to := r.Members[r.Find(ends[1])]
		calls := []Call{{
			To: to, Deadline: w.now.Add(time.Second),
			Ask: &Ask{
				Hop: 1, Deadline: w.now.Add(time.Second),
				Move: &Move{
					From: n.boot, To: to.Boot, ID: n.id, Addr: n.id, Epoch: n.Agreed().Epoch,
					Claiming: Claiming{Claim: []uint16{1}},
				},
			},
		}}
		n.contacts.Call(calls)
		if c := &calls[0]; c.Err != nil || c.Answer.Move == nil ||
			len(c.Answer.Move.Standings) != 1 {
			t.Errorf("%s claims from %s: %v, %+v", ends[0], ends[1], c.Err, c.Answer)
		}
	}
}

// Promise: a message for a member that nobody reaches goes by way of two others and no further, and
// by way of no more than one at a time.
func TestMessagesDoNotGoRound(t *testing.T) {
	w := newWorld(t, 6, five)
	w.pass(time.Second)
	for _, id := range []string{"n1", "n2", "n3", "n4", "n5"} {
		w.unhear(id, "n6")
	}
	n1 := w.nodes["n1"]
	r := n1.view.Load()
	to := r.Members[r.Find("n6")]
	var way []string
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Ask.For == to.Boot {
			way = append(way, w.caller+" to "+c.To.ID)
		}
		c.Answer = deliver()
	}
	calls := []Call{{
		To: to, Deadline: w.now.Add(time.Second),
		Ask: &Ask{
			Hop: 1, Deadline: w.now.Add(time.Second),
			Move: &Move{From: n1.boot, To: to.Boot, ID: "n1", Addr: "n1"},
		},
	}}
	n1.contacts.Call(calls)
	if calls[0].Err == nil || len(way) != passers {
		t.Errorf("a message to n6 went %v, and ended with %v", way, calls[0].Err)
	}
}

// Promise: an answer that a member has passed on says nothing about that member: it does not leave
// because the one that has answered leaves, and is not cut off because that one is.
func TestWhatIsPassedOnSaysNothingOfTheThird(t *testing.T) {
	w := newWorld(t, 4, five)
	w.pass(time.Second)
	w.cutPair("n2", "n3")
	w.pass(3 * time.Second)
	n2 := w.nodes["n2"]
	r := n2.view.Load()
	to, before := r.Members[r.Find("n3")], n2.Stats().Detours.Load()
	cut := w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		if cut(c, deliver); c.Err == nil && c.To.ID == "n3" {
			c.Answer.Leaving, c.Answer.CutOff = true, true
		}
	}
	calls := []Call{{
		To: to, Deadline: w.now.Add(time.Second),
		Ask: &Ask{
			Hop: 1, Deadline: w.now.Add(time.Second),
			Move: &Move{From: n2.boot, To: to.Boot, ID: "n2", Addr: "n2"},
		},
	}}
	n2.contacts.Call(calls)
	if calls[0].Err != nil || n2.Stats().Detours.Load() == before || !calls[0].Answer.Leaving {
		t.Fatalf("nothing was passed on: %+v", calls[0])
	}
	for _, id := range []string{"n1", "n4"} {
		if p := r.peers[r.Find(id)]; p.leaves.Load() || p.missed.Load() != 0 {
			t.Errorf("%s leaves: %t, is missed since %d", id, p.leaves.Load(), p.missed.Load())
		}
	}
}

// Promise: nobody speaks in the name of a member that this node reaches. What another one has
// passed on is believed of a member that does not answer, and of no other.
func TestWhatIsPassedOnIsBelievedOfTheSilentAlone(t *testing.T) {
	w := newWorld(t, 4, five)
	w.pass(time.Second)
	n2, n3 := w.nodes["n2"], w.nodes["n3"]
	passedOn := func() *Answer {
		return n3.Deliver(&Ask{
			Hop: 2, Deadline: w.now.Add(time.Second), For: n3.boot,
			Move: &Move{From: n2.boot, To: n3.boot, ID: "n2", Addr: "n2"},
		})
	}
	if a := passedOn(); a.Move != nil {
		t.Errorf("n3 reaches n2, and believes what another one says in its name: %+v", a.Move)
	}
	w.cutPair("n2", "n3")
	w.pass(2 * time.Second)
	if passedOn().Move == nil {
		t.Error("n3 does not reach n2, and does not hear it by way of another one")
	}
}
