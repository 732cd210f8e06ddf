package sim

import (
	"testing"
	"time"

	"penstock/cluster"
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
