package cluster

import (
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Promise: a process that is killed soon after a cut has healed is known to be gone. It has opened
// a new stream since; what is left of the one before is a connection on which nothing comes any
// more, and the network may tell its end long after.
func TestStreamsThatWereGivenUp(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(up func() func())
		gone bool
	}{
		{"no stream", func(func() func()) {}, true},
		{"one that is open", func(up func() func()) { up() }, false},
		{"one that has ended", func(up func() func()) { up()() }, true},
		{"the one before hangs", func(up func() func()) { up(); up()() }, true},
		{"the one before ends late", func(up func() func()) { end := up(); up(); end() }, false},
		{"both have ended", func(up func() func()) {
			first, second := up(), up()
			first()
			second()
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, 1, five)
			table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
			n, err := New(Config{ID: "a", Boot: 1 << 20, Clock: w, Network: w, Table: table})
			if err != nil {
				t.Fatal(err)
			}
			b := ownership.Member{ID: "b", Boot: 2 << 20}
			n.Membership().AgreeWithin(ownership.First([]ownership.Member{
				{ID: "a", Boot: 1 << 20}, b,
			}))
			n.SetView(w.view("a", []Member{
				{ID: "a", Boot: 1 << 20, State: StateActive},
				{ID: "b", Boot: uint64(b.Boot), PeerAddr: "b", State: StateActive},
			}))
			w.now = w.now.Add(time.Second)
			row.do(func() func() { return n.Membership().LineUp(uint64(b.Boot)) })
			r := n.agreed.view.Load()
			n.agreed.isGone("b", r.peers[r.Find("b")].boot)
			// a pair goes on as one as soon as it knows
			if gone := !n.Agreed().Has(b.Boot); gone != row.gone {
				t.Errorf("b, whose address refuses, is gone: %v; want %v", gone, row.gone)
			}
		})
	}
}
