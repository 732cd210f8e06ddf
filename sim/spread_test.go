package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// What a judge keeps follows what is under way, not what was: worlds may last for days.
func TestGrantsAreForgotten(t *testing.T) {
	g := newGrants()
	id := func(i int) cluster.ID { return cluster.ID{Origin: clientOrigin, Sequence: uint64(i)} }
	const asked = 10_000
	for i := range asked {
		g.add(id(i), time.Duration(i)*time.Second, true)
		if !g.allowed(id(i)) || i > 60 && !g.allowed(id(i-60)) {
			t.Fatalf("after %d s: what was granted in the last minute is not known any more", i)
		}
	}
	if most := int(grantsLast/time.Second) + 1; len(g.answers) > most || len(g.order) > most {
		t.Errorf("%d answers and %d IDs are kept, want %d at most", len(g.answers), len(g.order),
			most)
	}
}

// A node that decides a request item by item says so by the ID of a hold, whichever bits its boot,
// or the client, has in the ID of the take.
func TestDecidedApart(t *testing.T) {
	const node, mate = 1 << 63, 1 << 60
	client := cluster.ID{Origin: clientOrigin, Sequence: 7}
	for _, x := range []struct {
		name         string
		boot         uint64
		first, asked cluster.ID // of the first item, and of this one
		origin       uint64     // of the decision's ID; 0: it has none
		apart        bool
	}{
		{"not decided yet", holdOrigin | 5, cluster.ID{}, cluster.ID{}, 0, false},
		{"drawn", 5, cluster.ID{}, cluster.ID{}, node | 5, false},
		{"drawn, a mate", 5, cluster.ID{}, cluster.ID{}, node | 5 | mate, false},
		{"drawn, a hold", 5, cluster.ID{}, cluster.ID{}, node | 5 | mate | holdOrigin, true},
		{"drawn", holdOrigin | 5, cluster.ID{}, cluster.ID{}, node | holdOrigin | 5, false},
		{"drawn, a hold", holdOrigin | 5, cluster.ID{}, cluster.ID{}, node | 5, true},
		{"a client's", holdOrigin | 5, client, client, clientOrigin, false},
		{"a client's, a hold", 5, client, client, node | clientOrigin | holdOrigin, true},
		{
			"mate of a client's", holdOrigin | 5, client,
			cluster.ID{},
			clientOrigin | mate,
			false,
		},
		{
			"mate of a client's, a hold", holdOrigin | 5, client,
			cluster.ID{},
			node | clientOrigin | mate | holdOrigin, true,
		},
	} {
		h := &hearing{
			process: &process{boot: x.boot}, out: make([]cluster.Decision, 2),
			request: &request{items: []cluster.Item{{ID: x.first}, {ID: x.asked}}},
		}
		if h.out[1].ID.Origin = x.origin; h.namesHold(1) != x.apart {
			t.Errorf("%s, boot %x: told apart %v, want %v", x.name, x.boot, !x.apart, x.apart)
		}
	}
}

// A take that is refused because of what others have set aside is tried again, under the complement
// of its number. A request that is sent on, or sent once more, is not tried again.
func TestTriesAgain(t *testing.T) {
	reserve := func(sequence uint64) []cluster.AskItem {
		return []cluster.AskItem{{
			Op: cluster.OpReserve, ID: cluster.ID{Origin: 5, Sequence: sequence},
			Hold: &cluster.HoldTerms{Charge: true},
		}}
	}
	settle := []cluster.AskItem{{Op: cluster.OpSettle, ID: cluster.ID{Sequence: ^uint64(7)}}}
	var h hearing
	for _, items := range [][]cluster.AskItem{reserve(7), reserve(8), reserve(7), settle} {
		if h.setsAside(items); h.again {
			t.Fatalf("%+v counts as a second try", items)
		}
	}
	if h.setsAside(reserve(^uint64(8))); !h.again {
		t.Error("a second try is not seen")
	}
}

// A count that nothing is set aside of any more has left what its owner said, and what that one had
// counted: all that it has set aside up to the item that it speaks of, but for items that were
// charged before; of items that it only looks at, all if it says yes, and nothing if it says no.
func TestAside(t *testing.T) {
	a := &account{spec: &limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 3}}
	for _, x := range []struct {
		name     string
		setAside []uint64 // the numbers of the items
		charged  uint64   // the number of one that its owner remembers as charged
		allowed  [2]bool
		want     int64 // more than the owner said of the second item, which costs 2 after 1
	}{
		{"set aside", []uint64{1, 2}, 0, [2]bool{true, true}, 3},
		{"set aside, the second refused", []uint64{1, 2}, 0, [2]bool{true, false}, 1},
		{"set aside, both refused", []uint64{1, 2}, 0, [2]bool{}, 0},
		{"set aside, the first charged before", []uint64{1, 2}, 1, [2]bool{true, true}, 2},
		{"set aside, the second charged before", []uint64{1, 2}, 2, [2]bool{true, true}, 1},
		{"looked at", nil, 0, [2]bool{true, true}, 3},
		{"looked at, the second refused", nil, 0, [2]bool{true, false}, 0},
		{"looked at, the first refused", nil, 0, [2]bool{false, true}, 3},
	} {
		h := &hearing{
			request: &request{terms: []term{{account: a}, {account: a}}}, setAside: x.setAside,
			items: []cluster.Item{
				{Cost: 1, ID: cluster.ID{Sequence: 1}}, {Cost: 2, ID: cluster.ID{Sequence: 2}},
			},
			out: make([]cluster.Decision, 2),
		}
		for i := range h.out {
			h.out[i].Source, h.out[i].Allowed = cluster.SourceForwarded, x.allowed[i]
		}
		charged := func(id cluster.ID) bool { return id.Sequence == x.charged }
		if got := h.aside(1, charged); got != x.want {
			t.Errorf("%s: %d more are left, want %d", x.name, got, x.want)
		}
	}
}
