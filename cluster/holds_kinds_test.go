package cluster

import "testing"

// Promise: the parts of takes from several owners are counted as such while they are open,
// whichever bits the ID of the take has.
func TestTakesAreCountedAsTakes(t *testing.T) {
	for _, id := range []ID{{}, {Origin: 5, Sequence: 1}, {Origin: holdOrigin | 5, Sequence: 1}} {
		w := newWorld(t, 3, hundred)
		first := of(60, w.key("n1", 0))
		first.ID = id
		if _, all := w.takeAll("n1", first, of(50, w.key("n2", 0)), of(40, w.key("n3", 0))); !all {
			t.Fatalf("%x is refused", id)
		}
		for name, n := range w.nodes {
			if got, want := n.HoldCounts(), (HoldCounts{Takes: 1}); got != want {
				t.Errorf("%x: %s counts %+v, want %+v", id, name, got, want)
			}
		}
	}
}
