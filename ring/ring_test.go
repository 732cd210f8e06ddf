package ring

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// The promise: a table never changes under a running cluster. A change of one of these figures (by
// another version of the library, or another constant) splits every cluster during its upgrade, so
// Algorithm must change with it.
func TestGoldenTables(t *testing.T) {
	for _, row := range []struct {
		ids   []string
		hash  uint64
		table uint32 // CRC-32C of the owners, two bytes each, little endian
	}{
		{[]string{"node-1"}, 0x72bab62bb3d55828, 0x0f9c77b1},
		{[]string{"node-1", "node-2", "node-3"}, 0x7e408c4c9bdbb006, 0x5fbfc396},
		{
			[]string{"amber", "birch", "cedar", "delta", "ember", "fjord", "grove"},
			0x76be9d3ca2536d26, 0x87df5385,
		},
	} {
		r := mustNew(t, row.ids)
		if r.Hash() != row.hash || checksum(r) != row.table {
			t.Errorf("%v: hash %#x, table %#x; want %#x, %#x", row.ids, r.Hash(), checksum(r),
				row.hash, row.table)
		}
	}
}

// The promise: the version that the ring's hash speaks of is the one that computed the table. (A
// test binary carries no list of its modules, so this reads what decides it.)
func TestLibraryVersionIsTheOneRequired(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "\tgithub.com/buraksezer/consistent " +
		libraryVersion; !strings.Contains(string(mod), want) {
		t.Errorf("go.mod does not require %q, which Algorithm speaks of", strings.TrimSpace(want))
	}
	if strings.Contains(string(mod), "buraksezer/consistent =>") {
		t.Error("go.mod replaces buraksezer/consistent: Algorithm must say by what")
	}
}

// The promise: the order in which members became known does not matter, and the caller's slice
// stays its own.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := drawIDs(t)
		shuffled := rapid.Permutation(ids).Draw(t, "shuffled")
		asGiven := slices.Clone(shuffled)
		a, b := mustNew(t, ids), mustNew(t, shuffled)
		if a.Hash() != b.Hash() || a.owners != b.owners {
			t.Fatalf("%q and %q make different rings", ids, shuffled)
		}
		if !slices.Equal(shuffled, asGiven) {
			t.Fatalf("New has reordered its argument to %q", shuffled)
		}
		shuffled[0] = "changed afterwards"
		if !slices.Equal(a.Members(), b.Members()) || !slices.IsSorted(b.Members()) {
			t.Fatalf("members %q and %q", a.Members(), b.Members())
		}
	})
}

// The promise: every partition has an owner, and nobody owns more than 1.25 times the average.
func TestEveryPartitionIsOwnedAndNobodyOwnsTooMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := mustNew(t, drawIDs(t))
		owned := make([]int, len(r.Members()))
		for p := range Partitions {
			owned[r.Owner(p)]++ // panics if the owner is not a member
		}
		most := int(math.Ceil(float64(Partitions) / float64(len(owned)) * 1.25))
		if slices.Max(owned) > most {
			t.Fatalf("of %v partitions per member one has more than %d", owned, most)
		}
	})
}

// The promise: a join or a leave moves at most twice the partitions that it has to, and Moves says
// which.
func TestMovesAreFewAndComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := drawIDs(t)
		id := rapid.StringMatching(`stranger-[a-z]{1,8}`).Draw(t, "id")
		small, large := mustNew(t, ids), mustNew(t, append(ids, id))
		joined, left := Moves(small, large), Moves(large, small)
		if most := 2 * Partitions / (len(ids) + 1); len(joined) > most {
			t.Fatalf("joining %d members moves %d partitions, more than %d", len(ids), len(joined),
				most)
		}
		moved := 0
		for p := range Partitions {
			from, to := small.Members()[small.Owner(p)], large.Members()[large.Owner(p)]
			if from == to {
				continue
			}
			if joined[moved] != (Move{p, from, to}) || left[moved] != (Move{p, to, from}) {
				t.Fatalf("partition %d goes from %q to %q; Moves say %v, and back %v", p, from, to,
					joined[moved], left[moved])
			}
			moved++
		}
		if len(joined) != moved || len(left) != moved {
			t.Fatalf("%d partitions change hands; Moves say %d, and back %d", moved, len(joined),
				len(left))
		}
	})
}

func TestMovesFromAndToNobody(t *testing.T) {
	r := mustNew(t, []string{"a", "b"})
	if moves := Moves(r, mustNew(t, []string{"b", "a"})); len(moves) != 0 {
		t.Errorf("the same members: %d moves", len(moves))
	}
	for _, row := range []struct {
		before, after *Ring
	}{{nil, r}, {r, nil}} {
		moves := Moves(row.before, row.after)
		if len(moves) != Partitions {
			t.Errorf("%d moves, want all %d", len(moves), Partitions)
		}
		for _, m := range moves {
			if owner := r.Members()[r.Owner(m.Partition)]; m.From+m.To != owner ||
				(row.before == nil) != (m.From == "") {
				t.Fatalf("%+v, but the owner is %q", m, owner)
			}
		}
	}
	if moves := Moves(nil, nil); len(moves) != 0 {
		t.Errorf("nobody to nobody: %d moves", len(moves))
	}
}

// The promise: the heir of a partition is exactly its owner once its owner is gone.
func TestHeirIsTheOwnerWithoutTheOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := drawIDs(t)
		r := mustNew(t, ids)
		gone := rapid.IntRange(0, len(ids)-1).Draw(t, "gone")
		if len(ids) == 1 {
			if heir, ok := r.Heir(0); ok {
				t.Fatalf("alone, yet %d inherits", heir)
			}
			return
		}
		rest, err := r.Without(r.Members()[gone])
		if err != nil {
			t.Fatal(err)
		}
		if fresh := mustNew(t, rest.Members()); fresh.Hash() != rest.Hash() ||
			fresh.owners != rest.owners {
			t.Fatalf("Without(%q) is not the ring of who remains", r.Members()[gone])
		}
		for p := range Partitions {
			if r.Owner(p) != gone {
				continue
			}
			heir, ok := r.Heir(p)
			if want := rest.Members()[rest.Owner(p)]; !ok || r.Members()[heir] != want {
				t.Fatalf("heir of %d is %d (%v), want %q", p, heir, ok, want)
			}
		}
	})
}

// The promise: a Ring is safe for concurrent use although heirs are worked out late. Meant for
// -race.
func TestHeirsAreSafeForConcurrentUse(t *testing.T) {
	r := mustNew(t, []string{"a", "b", "c", "d"})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for p := range Partitions {
				if heir, ok := r.Heir(p); !ok || heir == r.Owner(p) {
					t.Errorf("heir of %d is %d (%v), its owner %d", p, heir, ok, r.Owner(p))
					return
				}
			}
		})
	}
	wg.Wait()
}

// The promise: rings of different members have different hashes, also where the ids run together.
func TestHashTellsMembersApart(t *testing.T) {
	seen := map[uint64][]string{}
	for _, ids := range [][]string{
		{"a"},
		{"b"},
		{"ab"},
		{"a", "b"},
		{"a", "bc"},
		{"ab", "c"},
		{"a", "b", "c"},
		{"a\x01b"},
	} {
		h := mustNew(t, ids).Hash()
		if other, ok := seen[h]; ok || h == 0 {
			t.Errorf("%q has the hash %#x, as has %q", ids, h, other)
		}
		seen[h] = ids
	}
}

func TestIndex(t *testing.T) {
	r := mustNew(t, []string{"c", "a", "b"})
	for i, id := range []string{"a", "b", "c"} {
		if got, ok := r.Index(id); got != i || !ok {
			t.Errorf("Index(%q) = %d, %v", id, got, ok)
		}
	}
	if _, ok := r.Index("d"); ok {
		t.Error(`Index("d") says that d is a member`)
	}
}

func TestPartition(t *testing.T) {
	for _, row := range []struct {
		hash uint64
		want int
	}{{0, 0}, {4092, 4092}, {4093, 0}, {math.MaxUint64, int(uint64(math.MaxUint64) % 4093)}} {
		if got := Partition(row.hash); got != row.want {
			t.Errorf("Partition(%d) = %d, want %d", row.hash, got, row.want)
		}
	}
}

// The promise: bad input is an error that says what is wrong, never a panic or a hang.
func TestBadInput(t *testing.T) {
	for _, row := range []struct {
		ids  []string
		want string
	}{
		{nil, "no members"},
		{[]string{""}, "empty id"},
		{[]string{"a", ""}, "empty id"},
		{[]string{"a", "b", "a"}, `"a" is given twice`},
		{[]string{strings.Repeat("x", MaxID+1)}, "256 bytes, at most 255"},
		{numbered(MaxMembers + 1), "1025 members, at most 1024"},
		{make([]string, 1<<20), "1048576 members"},
	} {
		r, err := New(row.ids)
		if r != nil || err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("New of %d ids: %v; want an error with %q", len(row.ids), err, row.want)
		}
	}
	mustNew(t, []string{strings.Repeat("x", MaxID)})
	r := mustNew(t, []string{"a"})
	for id, want := range map[string]string{"a": "the only member", "b": "not one of"} {
		if rest, err := r.Without(id); rest != nil || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("Without(%q): %v; want an error with %q", id, err, want)
		}
	}
}

// The promise: with either way of placing, the table is the library's.
func TestCircleIsTheLibrarys(t *testing.T) {
	same := func(t interface {
		Helper()
		Fatalf(string, ...any)
	}, ids []string,
	) {
		t.Helper()
		var own, library [Partitions]uint16
		if err := newCircle(ids).place(&own, nobody, nobody); err != nil {
			t.Fatalf("%v", err)
		}
		if err := fill(&library, ids); err != nil || own != library {
			t.Fatalf("the circle of %d members %.100q and the library differ: %v", len(ids), ids,
				err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ids := drawIDs(t)
		slices.Sort(ids)
		same(t, ids)
	})
	sizes := []int{1, 2, 3, 4, 5, 7, 33, 100}
	if !testing.Short() {
		sizes = append(sizes, 256)
	}
	for _, n := range sizes {
		same(t, numbered(n))
	}
	for _, row := range []struct { // made by the library alone, once: it takes long
		members int
		table   uint32
	}{{512, 0x9493391a}, {MaxMembers, 0x0ef1df7b}} {
		if r := mustNew(t, numbered(row.members)); checksum(r) != row.table {
			t.Errorf("%d members: table %#x, want the library's, %#x", row.members, checksum(r),
				row.table)
		}
	}
}

// The promise: a member that is left out leaves what the library makes of the others, whether or
// not points fall together.
func TestCircleWithoutOne(t *testing.T) {
	ids := numbered(12)
	r := mustNew(t, ids)
	for gone := range ids {
		var library, own [Partitions]uint16
		if err := fill(&library, slices.Delete(slices.Clone(ids), gone, gone+1)); err != nil {
			t.Fatal(err)
		}
		for p, o := range library {
			if int(o) >= gone {
				library[p]++
			}
		}
		if err := r.circle().place(&own, gone, nobody); err != nil || own != library {
			t.Fatalf("without %s the circle and the library differ: %v", ids[gone], err)
		}
	}
	clashing := mustNew(t, ids)
	clashing.circle = func() *circle { return &circle{members: 12, clashes: true} }
	for p := range Partitions {
		a, _ := r.Heir(p)
		if b, ok := clashing.Heir(p); !ok || a != b {
			t.Fatalf("heir of %d is %d, and by the library %d", p, a, b)
		}
	}
}

// The promise: the library's panic becomes an error. No valid input makes it panic, so this passes
// what New refuses.
func TestPanicOfTheLibraryIsAnError(t *testing.T) {
	var owners [Partitions]uint16
	err := fill(&owners, nil)
	if err == nil || !strings.Contains(err.Error(), "gave up on 0 members") {
		t.Errorf("fill without members: %v", err)
	}
}

func BenchmarkOwner(b *testing.B) {
	r := mustNew(b, numbered(10))
	b.ReportAllocs()
	hash, sum := uint64(1), 0
	for b.Loop() {
		hash = hash*6364136223846793005 + 1442695040888963407
		sum += r.Owner(Partition(hash))
	}
	if sum < 0 {
		b.Fatal("negative owner")
	}
}

func BenchmarkHeirs(b *testing.B) {
	for _, n := range []int{3, 10, 100, MaxMembers} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			r := mustNew(b, numbered(n))
			for b.Loop() {
				r.inherit(n / 2)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{3, 10, 50, 100, MaxMembers} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			ids := numbered(n)
			for b.Loop() {
				mustNew(b, ids)
			}
		})
	}
}

func checksum(r *Ring) uint32 {
	b := make([]byte, 0, 2*Partitions)
	for _, o := range r.owners {
		b = binary.LittleEndian.AppendUint16(b, o)
	}
	return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
}

func drawIDs(t *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.-]{1,20}`), 1, 24,
		rapid.ID[string]).Draw(t, "ids")
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("node-%04d", i)
	}
	return ids
}

func mustNew(t interface {
	Helper()
	Fatal(...any)
}, ids []string,
) *Ring {
	t.Helper()
	r, err := New(ids)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
