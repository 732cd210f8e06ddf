package cluster

import "testing"

// TestStatesOfAPartition: what other goroutines read of a partition follows from its state, and a
// partition that is held is given or lost before it is forgotten.
func TestStatesOfAPartition(t *testing.T) {
	all := []partState{partNone, partCopied, partHeld, partGiving}
	for _, from := range all {
		for _, to := range all {
			ps := partitions{self: new(self), list: make([]part, 1)}
			ps.enterLocked(0, partHeld) // from which there is a way to all but none
			if from == partNone {
				ps.enterLocked(0, partCopied)
			}
			ps.enterLocked(0, from)
			refused := func() (refused bool) {
				defer func() { refused = recover() != nil }()
				ps.enterLocked(0, to)
				return false
			}()
			if illegal := to == partGiving && from != partHeld ||
				to == partNone && from == partHeld; refused != illegal {
				t.Errorf("from %v to %v: refused: %t", from, to, refused)
			}
			if refused {
				continue
			}
			held, kept := ps.held[0].Load(), ps.kept[0].Load()
			if held != (to == partHeld) || kept != (to != partNone) {
				t.Errorf("from %v to %v: held %t, kept %t", from, to, held, kept)
			}
			if n, given := ps.n.Load(), ps.given.Load(); (n == 1) != held ||
				(given == 1) != (to == partGiving) {
				t.Errorf("from %v to %v: %d are held, %d given", from, to, n, given)
			}
		}
	}
}
