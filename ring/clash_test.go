package ring

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// clashingIDs are two ids with the same first point on the circle. XXH64 adds the words 1 and 5 of
// a text of 64 bytes to one of its four sums: so one can be chosen to make up for the other.
func clashingIDs() []string {
	const prime1, prime2 = 0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f
	inverse := uint64(1) // of prime2
	for range 6 {
		inverse *= 2 - prime2*inverse
	}
	of := func(word uint64) string {
		text := []byte("0:")
		for range 62 {
			text = append(text, 'x')
		}
		sum := bits.RotateLeft64(prime2+word*prime2, 31) * prime1
		binary.LittleEndian.PutUint64(text[8:], word)
		binary.LittleEndian.PutUint64(text[40:], -sum*inverse)
		return string(text[2:])
	}
	return []string{of(1), of(2)}
}

// The promise: where points of two members fall together, heirs are those that the library names.
func TestPointsThatFallTogether(t *testing.T) {
	ids := clashingIDs()
	if xxhash.Sum64String("0:"+ids[0]) != xxhash.Sum64String("0:"+ids[1]) {
		t.Fatal("the ids do not clash")
	}
	ids = append(ids, "a", "b")
	slices.Sort(ids)
	if !newCircle(ids).clashes {
		t.Error("the circle does not say that two of its points are one")
	}
	sameSecondHeirs(t, mustNew(t, ids))
}

// The promise: all second heirs are those that the library names, with the circle and without.
func TestSecondHeirsAreTheLibrarys(t *testing.T) {
	r, clashing := mustNew(t, numbered(5)), mustNew(t, numbered(5))
	clashing.circle = func() *circle { return &circle{members: 5, clashes: true} }
	sameSecondHeirs(t, r)
	sameSecondHeirs(t, clashing)
}

// The promise: without a third member there is no second heir, and without another one no heir.
func TestTooFewForHeirs(t *testing.T) {
	for members := 1; members <= 2; members++ {
		r := mustNew(t, numbered(members))
		for p := range Partitions {
			if _, ok := r.Heir(p); ok != (members > 1) {
				t.Fatalf("of %d members: an heir of %d: %v", members, p, ok)
			}
			if second, ok := r.SecondHeir(p); ok {
				t.Fatalf("of %d members %d is the second heir of %d", members, second, p)
			}
		}
	}
}

// The promise: the first call places what later calls look up.
func TestLaterHeirsAreLookups(t *testing.T) {
	r := mustNew(t, numbered(5))
	if n := testing.AllocsPerRun(10, func() { r.Heir(7); r.SecondHeir(7) }); n != 0 {
		t.Errorf("the heirs of a partition take %v allocations once they are placed", n)
	}
}

// sameSecondHeirs asks the library for each pair of an owner and an heir.
func sameSecondHeirs(t *testing.T, r *Ring) {
	t.Helper()
	without := map[[2]int]*[Partitions]uint16{}
	for p := range Partitions {
		heir, _ := r.Heir(p)
		gone := [2]int{r.Owner(p), heir}
		if without[gone] == nil {
			without[gone] = new([Partitions]uint16)
			rest := slices.DeleteFunc(slices.Clone(r.ids), func(id string) bool {
				return id == r.ids[gone[0]] || id == r.ids[gone[1]]
			})
			if err := fill(without[gone], rest); err != nil {
				t.Fatal(err)
			}
			for p, o := range without[gone] {
				i, _ := r.Index(rest[o])
				without[gone][p] = uint16(i)
			}
		}
		if second, ok := r.SecondHeir(p); !ok || second != int(without[gone][p]) {
			t.Fatalf("the second heir of %d is %d (%v), and by the library %d", p, second, ok,
				without[gone][p])
		}
	}
}

// The promise: a secret moves no key under a running cluster: nodes of two releases must agree on
// the partition of each key, and on the hash of the ring. No figure may change.
func TestGoldenSecrets(t *testing.T) {
	r := mustNew(t, []string{"node-1", "node-2", "node-3"})
	got := ""
	for _, secret := range []uint64{1, 2, 3, 1 << 63, 0xfeedfacecafebeef} {
		got += fmt.Sprintf("%016x:", r.HashUnder(secret))
		for _, hash := range []uint64{0, 1, 17, 1 << 40, 0x0123456789abcdef} {
			got += fmt.Sprint(" ", PartitionUnder(secret, hash))
		}
		got += "\n"
	}
	if want := goldenSecrets; got != want {
		t.Errorf("secrets make\n%swant\n%s", got, want)
	}
}

const goldenSecrets = `540f324894ca11e8: 0 3293 3211 2106 4025
8bb880aaaa1528a6: 3580 2428 1883 3319 3517
f78351aa0e697d70: 3512 2306 1712 2952 3004
ebfc4d200cfa9e8a: 350 3720 2804 3425 1151
c3cadd2193559cd1: 2567 925 3587 3401 3183
`
