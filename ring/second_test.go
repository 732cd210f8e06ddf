package ring

import (
	"testing"

	"pgregory.net/rapid"
)

// The promise: the second heir of a partition is exactly its owner once its owner and its heir are
// gone, whether the circle or the library places it.
func TestSecondHeirIsTheOwnerWithoutBoth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := drawIDs(t)
		r := mustNew(t, ids)
		if rapid.Bool().Draw(t, "clashes") {
			r.circle = func() *circle { return &circle{members: len(ids), clashes: true} }
		}
		p := rapid.IntRange(0, Partitions-1).Draw(t, "partition")
		second, ok := r.SecondHeir(p)
		if len(ids) < 3 {
			if ok {
				t.Fatalf("of %d members, %d is a second heir", len(ids), second)
			}
			return
		}
		heir, _ := r.Heir(p)
		rest, err := r.Without(r.Members()[r.Owner(p)])
		if err != nil {
			t.Fatal(err)
		}
		if rest, err = rest.Without(r.Members()[heir]); err != nil {
			t.Fatal(err)
		}
		if want := rest.Members()[rest.Owner(p)]; !ok || r.Members()[second] != want {
			t.Fatalf("the second heir of %d is %d (%v), want %q", p, second, ok, want)
		}
	})
}

func BenchmarkSecondHeirs(b *testing.B) {
	r := mustNew(b, numbered(64)) // a member owns about as many partitions as it has heirs
	for b.Loop() {
		r.seconds = seconds{}
		for p := range Partitions {
			if r.Owner(p) == 32 {
				r.SecondHeir(p)
			}
		}
	}
}
