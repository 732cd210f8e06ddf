package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"penstock/ring"
)

// inRing are the ids of the members that own keys, in their order, but for some.
func inRing(members []Member, but ...string) (ids []string) {
	for _, m := range members {
		if m.State == StateActive && m.Role == RoleMember && !slices.Contains(but, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// ownerOf is the id of the owner of a partition in a ring of these ids alone; "" of none.
func ownerOf(t *testing.T, ids []string, partition int) string {
	if len(ids) == 0 {
		return ""
	}
	r, err := ring.New(ids)
	if err != nil {
		t.Fatal(err)
	}
	return ids[r.Owner(partition)]
}

// seeds is how many a test takes that draws n: a fifth of them with -short. The race
// detector multiplies the time, and has nothing to find where all is one goroutine's.
func seeds(n int) uint64 {
	if testing.Short() {
		n = (n + 4) / 5
	}
	return uint64(n)
}

// Promise: in the eyes of each member, the ring has the active members and no others; the owner of
// a partition is that of a ring of these alone, its heir that of a ring without the owner, and its
// second heir that of a ring without both.
func TestViewsInPlainWords(t *testing.T) {
	for seed := range seeds(60) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var members []Member
		for i := range 1 + draw.IntN(6) {
			members = append(members, Member{
				ID: fmt.Sprint("n", i), Role: Role(draw.IntN(4) / 3),
				State: []State{StateJoining, StateActive, StateActive, StateLeaving}[draw.IntN(4)],
			})
		}
		draw.Shuffle(len(members), func(i, j int) {
			members[i], members[j] = members[j], members[i]
		})
		first, err := NewView(members[0].ID, members)
		if err != nil {
			t.Fatal(err)
		}
		active := inRing(members)
		for _, self := range members {
			v, err := first.SeenBy(self.ID)
			if err != nil || v.Me() != self || v.Active() != len(active) {
				t.Fatalf("seed %d: %+v sees %d in the ring, of %v: %v", seed, v.Me(), v.Active(),
					active, err)
			}
			name := func(i int) string {
				if i < 0 {
					return ""
				}
				return v.Members[i].ID
			}
			for _, p := range []int{0, draw.IntN(ring.Partitions), ring.Partitions - 1} {
				var hash uint64
				for v.Partition(hash) != p {
					hash = draw.Uint64()
				}
				owner := ownerOf(t, active, p)
				heir := ownerOf(t, inRing(members, owner), p)
				second := ownerOf(t, inRing(members, owner, heir), p)
				got := []string{name(v.Owner(hash)), name(v.heir(p)), name(v.secondHeir(p))}
				if want := []string{owner, heir, second}; !slices.Equal(got, want) {
					t.Fatalf("seed %d: %d lies with %q, want %q, of %v", seed, p, got, want, active)
				}
				if v.Owns(hash) != (owner == self.ID) {
					t.Fatalf("seed %d: %s owns what lies with %s: %t", seed, self.ID, owner,
						v.Owns(hash))
				}
			}
		}
	}
}
