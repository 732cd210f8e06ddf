package sim

import (
	"math/rand/v2"
	"testing"

	"penstock/cluster"
)

// What is put under an ID is found until it is removed, whatever else comes and goes: as a map of
// Go has it.
func TestByID(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	var got byID[int]
	want := make(map[cluster.ID]*int)
	for n := range 200_000 {
		id := cluster.ID{Origin: dice.Uint64N(3), Sequence: dice.Uint64N(600)}
		switch dice.IntN(3) {
		case 0:
			got.remove(id)
			delete(want, id)
		case 1:
			x := &n
			got.put(id, x)
			want[id] = x
		default:
			if got.get(id) != want[id] {
				t.Fatalf("step %d: %v has %v, want %v", n, id, got.get(id), want[id])
			}
		}
		if got.n != len(want) {
			t.Fatalf("step %d: %d are there, want %d", n, got.n, len(want))
		}
	}
}
