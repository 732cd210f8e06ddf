package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: agents may come and go freely. One that has asked nothing for long asks as if it had.
func TestAgentAsksAfterALongSilence(t *testing.T) {
	w := newWorld(t, 2, five)
	ms := append(w.members(2), Member{ID: "sidecar", Boot: 9, Role: RoleAgent, State: StateActive})
	w.create("sidecar", 9).Start()
	w.show(ms, 0, "n1", "n2", "sidecar")
	w.pass(10 * time.Second)
	for i := range 20 {
		if d := w.take("sidecar", "five", w.key("n1", i)); d.Degraded || d.Owner != "n1" {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
}

// Promise: a node that leaves takes no count along. A partition that it is just giving away is
// still its own, and if the receiver is gone, or refuses, the node goes on with it.
func TestGiftThatDoesNotArriveComesBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		meets func(c *Call)
	}{
		{"not sent", func(c *Call) { c.Err = ErrUnsent }},
		{"refused", func(c *Call) {
			c.Answer = &Answer{Move: &MoveAnswer{
				Applied: true,
				Refused: c.Ask.Move.Gift,
			}}
		}},
	} {
		w := newWorld(t, 2, five)
		const keys = 300
		w.spend(keys, "n1", "n2")
		w.pass(time.Second)
		total, owed, claimed := w.nodes["n2"].parts.Held(), 0, w.claimed()
		w.meet = func(call *Call, deliver func() *Answer) {
			if m := call.Ask.Move; m != nil && len(m.Gift) > 0 {
				owed = w.nodes["n2"].parts.Held()
				c.meets(call)
				return
			}
			call.Answer = deliver()
		}
		ms := w.members(2)
		ms[1].State = StateLeaving
		w.show(ms, 0, "n1", "n2")
		w.pass(500 * time.Millisecond)
		if held := w.nodes["n2"].parts.Held(); owed != total+1 || held != total+1 ||
			w.claimed() != claimed { // one more until it has left
			t.Errorf("%s: the leaving node has %d partitions on its hands while a gift is under "+
				"way and %d later, want %d", c.name, owed, held, total)
		}
		w.meet = nil
		w.pass(time.Second)
		w.wantOneHolderEach(c.name)
		w.wantRemaining(c.name, keys, 3, "n1", "n2")
	}
}

// Promise: a node that leaves takes no count along. A node that has given it something, and hears
// late that it was taken, keeps the copies that have come back from there meanwhile: it gets the
// rest with the gift, and no more.
func TestCopiesOvertakeWhatConfirmsAGift(t *testing.T) {
	w := newWorld(t, 2, five)
	const keys = 300
	w.spend(keys, "n1", "n2")
	w.pass(time.Second)
	w.start("n3", 3)
	silent := true
	w.meet = func(c *Call, deliver func() *Answer) {
		c.Answer = deliver()
		if m := c.Ask.Move; silent && m != nil && len(m.Gift) > 0 && c.To.ID == "n3" {
			c.Err = errSilent
		}
	}
	ms := w.members(3)
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(500 * time.Millisecond)
	if w.nodes["n3"].parts.Held() == 0 {
		t.Fatal("n3 has got nothing")
	}
	ms[2].State = StateLeaving
	w.show(ms, 0, "n1", "n2")
	silent = false
	w.pass(time.Second)
	w.show(ms, 0, "n3") // as the last to hear
	w.pass(2 * time.Second)
	w.wantOneHolderEach("when n3 leaves")
	if n := w.nodes["n3"].parts.Held(); n != 0 {
		t.Errorf("n3 leaves, and holds %d partitions", n)
	}
	w.wantRemaining("when n3 leaves", keys, 3, "n1", "n2")
}

// Promise: a node that joins changes no count. Copies of a holder that lives are not lent to a
// claimer: they would be merged with what the holder gives, which is newer.
func TestCopiesOfALivingHolderAreNotLent(t *testing.T) {
	spec := five
	spec.Name, spec.Per, spec.Anchor = "five", time.Hour, limiter.FirstHit
	w := newWorld(t, 3, spec)
	const keys = 600
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second) // copies
	w.start("n4", 4)
	lent := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil {
			lent += len(m.Lent)
		}
		c.Answer = deliver()
	}
	w.show(w.members(4), 0, "n4") // it claims before anybody has heard that it is there
	w.show(w.members(4), 100*time.Millisecond, "n1", "n2", "n3")
	w.pass(2 * time.Second)
	if lent > 0 {
		t.Errorf("%d copies were lent", lent)
	}
	w.wantOneHolderEach("after the join")
	w.wantRemaining("after the join", keys, 3, "n1", "n2", "n3", "n4")
}

// Promise: a node that joins, no request failed. An asker that has not heard of the new owner is
// told which one that is.
func TestStrangerIsAskedWhoOwnsTheKey(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3")
	w.start("n4", 4)
	w.show(w.members(4), 0, "n4", "n1", "n2") // n3 has not heard of it
	w.pass(2 * time.Second)
	if w.nodes["n4"].parts.Held() == 0 {
		t.Fatal("n4 holds nothing, so there is nothing to ask it for")
	}
	w.wantRemaining("at who knows nothing of the owner", keys, 3, "n3")

	ms := w.members(4)
	ms[3].Boot = 14
	w.kill("n4")
	w.start("n4", 14)
	w.show(ms, 0, "n4", "n1", "n2", "n3")
	w.pass(2 * time.Second)
	w.nodes["n3"].SetView(w.view("n3", w.members(4))) // old news: it believes in the boot before
	w.wantRemaining("at who knows an older boot of the owner", keys, 3, "n3")
}

// A node that was met on the way may be asked again as all others.
func TestAnotherIsWhoWasMet(t *testing.T) {
	w := newWorld(t, 2, five)
	n := w.nodes["n1"]
	r := n.forwarder.meet(w.now, n.view.Load(), []Member{{ID: "stranger", Boot: 9}})
	if got := r.another(1); got != 2 {
		t.Errorf("after n2: %d, want the stranger", got)
	}
	if got := r.another(2); got != 1 {
		t.Errorf("after the stranger: %d, want n2", got)
	}
}

// Promise: what failed where a member is not says nothing of where it is. A node may hear from the
// others that a new process is a member before gossip says where it is reached.
func TestAnAddressThatBecomesKnownIsTried(t *testing.T) {
	route := func(old *route, addr string) *route {
		v, err := NewView("n1", []Member{
			{ID: "n1", Boot: 1, State: StateActive},
			{ID: "n2", Boot: 2, State: StateActive, PeerAddr: addr},
		})
		if err != nil {
			t.Fatal(err)
		}
		return routeOf(0, v, old)
	}
	r := route(nil, "")
	r.peers[1].Trip(0)
	if r = route(r, ""); !r.peers[1].Open(0) {
		t.Error("a peer that does not answer is asked in a new View")
	}
	if r = route(r, "n2:1"); r.peers[1].Open(0) {
		t.Error("a peer is not asked where it is, since it was not known where that is")
	}
	r.peers[1].Trip(0)
	if r = route(r, "n2:1"); !r.peers[1].Open(0) {
		t.Error("a peer that does not answer where it is is asked in a new View")
	}
}
