package sim

import (
	"slices"
	"testing"

	"penstock/limiter"
)

// Promise of the kind: a liar speaks of keys that it neither owns nor is one of the two to own next
// in any ring of its world, clients ask for these alone, and it is silent while members change.
func TestLiarSpeaksOfKeysOfOthers(t *testing.T) {
	said := 0
	for i := range uint64(6) {
		p := draw(LateKindSeeds + i)
		g, id := p.liar, machineID(p.liar.node)
		if !slices.Equal(p.demands[0].among, g.keys) || len(g.keys) < 20 {
			t.Errorf("world %d: %d keys, and clients ask for others", i, len(g.keys))
		}
		for absent := range p.machines {
			if absent == g.node {
				continue
			}
			var ids []string
			for k := range p.machines {
				if k != absent {
					ids = append(ids, machineID(k))
				}
			}
			for _, key := range g.keys {
				ring, k := placed(ids), p.partition(limiter.Hash(key))
				for next := range 3 {
					owner := ring.ownerOf(k)
					if owner == id {
						t.Fatalf("world %d: the liar is owner %d of %s", i, next, key)
					}
					ring = placed(slices.DeleteFunc(slices.Clone(ring.ids), func(o string) bool {
						return o == owner
					}))
				}
			}
		}
		for _, f := range p.faults {
			if f.node == g.node {
				t.Errorf("world %d: the liar %s", i, kindNames[f.kind])
			}
			if slices.ContainsFunc(g.lies, func(l lie) bool {
				return l.at >= f.at && l.at < f.at+p.settles()
			}) {
				t.Errorf("world %d: a lie within %v of %s at %v", i, p.settles(), kindNames[f.kind],
					f.at)
			}
		}
		said += len(g.lies)
	}
	if said < 600 {
		t.Errorf("%d lies in all", said)
	}
}

// Promise: keys of others do not suffer from a member that lies.
func TestWorldsOfALiar(t *testing.T) {
	t.Parallel()
	n := uint64(12)
	if testing.Short() {
		n = 3
	}
	for i := range n {
		w := newWorld(draw(LateKindSeeds+i), nil)
		w.run()
		if f := w.judge.failure; f != nil {
			t.Errorf("world %d: %s at %.3f s: %s", i, f.Promise, f.AtMS/1000, f.Detail)
		}
	}
}
