package cluster

import (
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Promise: a member that comes back as a new boot is known by the configuration that names it, also
// where gossip still tells of the boot before; and what was known of boots that are neither members
// nor known for anything else is forgotten with each configuration.
func TestConfigurationSaysWhichBoot(t *testing.T) {
	w := newWorld(t, 1, five)
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	n, err := New(Config{ID: "a", Boot: 1 << 20, Clock: w, Network: w, Table: table})
	if err != nil {
		t.Fatal(err)
	}
	me := ownership.Member{ID: "a", Boot: 1 << 20}
	before, after := ownership.Member{ID: "b", Boot: 2 << 20}, ownership.Member{
		ID:   "b",
		Boot: 3 << 20,
	}
	first := ownership.First([]ownership.Member{me, before})
	n.Membership().AgreeWithin(first)
	n.SetView(w.view("a", []Member{
		{ID: "a", Boot: uint64(me.Boot), State: StateActive},
		{ID: "b", Boot: uint64(before.Boot), PeerAddr: "old", State: StateActive},
	}))

	a := &n.agreed
	a.seats[after.Boot] = seat{"b", "new", uint64(after.Boot)}
	for i := range ownership.Boot(100) { // boots that were there once
		a.seats[1000+i], a.ended[1000+i] = seat{}, true
	}
	alone := &ownership.Configuration{
		Epoch: ownership.Epoch{Lineage: first.Epoch.Lineage, Number: 2}, Previous: first.Epoch,
		Members: []ownership.Member{me}, Voters: []ownership.Boot{me.Boot},
	}
	both := &ownership.Configuration{
		Epoch: ownership.Epoch{Lineage: first.Epoch.Lineage, Number: 3}, Previous: alone.Epoch,
		Members: []ownership.Member{me, after}, Voters: []ownership.Boot{me.Boot},
	}
	asks := ownership.Received{From: after.Boot, Message: ownership.Join{Member: after}}
	a.state.Step(ownership.Instant(w.now), asks)
	n.agreed.agree(0, ownership.Received{From: me.Boot, Message: ownership.Decided{Config: alone}})
	if len(a.seats) != 1 || len(a.ended) != 0 {
		t.Errorf("%d places and %d ends of lines are known of one candidate", len(a.seats),
			len(a.ended))
	}
	n.agreed.agree(0, ownership.Received{From: me.Boot, Message: ownership.Decided{Config: both}})
	v := n.View()
	if m := v.Members[v.Find("b")]; m.Boot != uint64(after.Boot) || m.PeerAddr != "new" ||
		m.State != StateActive {
		t.Errorf("b is %+v, and its new boot %d was heard at %q", m, after.Boot, "new")
	}
}

// Promise: the configuration alone says which member owns a key. A member that was admitted after
// the death of another one's boot before, and so has not seen it, takes no part of the new boot's
// from gossip that still tells of the old one.
func TestNewcomerBelievesTheConfiguration(t *testing.T) {
	w := newWorld(t, 1, five)
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	n, err := New(Config{ID: "a", Boot: 1 << 20, Clock: w, Network: w, Table: table})
	if err != nil {
		t.Fatal(err)
	}
	me, b := ownership.Member{ID: "a", Boot: 1 << 20}, ownership.Member{ID: "b", Boot: 3 << 20}
	n.Membership().AgreeWithin(ownership.First([]ownership.Member{me, b}))
	n.SetView(w.view("a", []Member{
		{ID: "a", Boot: uint64(me.Boot), State: StateActive},
		{ID: "b", Boot: 2 << 20, PeerAddr: "old", State: StateActive},
	}))
	v := n.View()
	if m := v.Members[v.Find("b")]; m.Boot != uint64(b.Boot) || m.State != StateActive ||
		v.Active() != 2 {
		t.Errorf("b is %+v, and %d are in the ring; want its boot %d and 2", m, v.Active(), b.Boot)
	}
	n.agreed.hearWords(&Words{
		From: b.Boot, To: me.Boot, ID: "b", Addr: "new",
		Process: uint64(b.Boot),
	}, 0)
	if m := n.View().Members[n.View().Find("b")]; m.PeerAddr != "new" {
		t.Errorf("b has been heard at %q, and is thought to be at %q", "new", m.PeerAddr)
	}
}

// Promise: a node that was refused its name asks again, for the one that was admitted under it may
// be leaving; one that has closed meanwhile does not.
func TestRefusedNameIsAskedForAgain(t *testing.T) {
	for _, closes := range []bool{false, true} {
		w := newWorld(t, 1, five)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
		n, err := New(Config{ID: "a", Boot: 1 << 20, Clock: w, Network: w, Table: table})
		if err != nil {
			t.Fatal(err)
		}
		other := ownership.Member{ID: "b", Boot: 2 << 20}
		c := ownership.First([]ownership.Member{{ID: "a", Boot: 1 << 20}, other})
		n.Membership().AgreeWithin(c)
		n.SetView(w.view("a", []Member{
			{ID: "a", Boot: 1 << 20, State: StateActive},
			{ID: "b", Boot: uint64(other.Boot), State: StateActive},
		}))
		state := func() *ownership.State { return n.agreed.state }
		n.agreed.agree(0,
			ownership.Received{From: other.Boot, Message: ownership.Missed{Epoch: c.Epoch}})
		evicted := state().Boot()
		n.agreed.agree(0,
			ownership.Received{From: other.Boot, Message: ownership.Refuse{Holder: 3 << 20}})
		if got := state().Stage(); got != ownership.StageEnded {
			t.Fatalf("refused, and %v", got)
		}
		if closes {
			n.Membership().Close()
		}
		w.pass(nameAgain + time.Second)
		if asks := state().Stage() == ownership.StageCandidate &&
			state().Boot() != evicted; asks == closes {
			t.Errorf("closed: %t; after %v it is %v", closes, nameAgain, state().Stage())
		}
	}
}
