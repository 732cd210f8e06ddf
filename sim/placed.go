package sim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/ring"

	"github.com/cespare/xxhash/v2"
)

// Rules of the product in the words of the judges: which member owns a key, which one comes after
// it, which limit a key is under. A judge that called the product for them would share its
// mistakes. Like the reference they are written for the eye and not for speed.
//
// The partition of a key is not among them (plan.partition): it is no rule but a figure, which
// tests of ring compare with golden ones.

// placement says which of some members owns each partition: consistent hashing with bounded loads,
// as docs/design.md has it.
type placement struct {
	ids   []string // sorted
	owner [ring.Partitions]uint16
}

// placed is the placement among these members; nil if there are none. It depends on ids alone, so
// placements are kept for all worlds.
func placed(ids []string) *placement {
	if len(ids) == 0 {
		return nil
	}
	ids = slices.Sorted(slices.Values(ids))
	name := strings.Join(ids, " ")
	placementsMu.Lock()
	defer placementsMu.Unlock()
	p := placements[name]
	if p == nil {
		if len(placements) == mostPlacements {
			clear(placements)
		}
		p = newPlacement(ids)
		placements[name] = p
	}
	return p
}

// mostPlacements is how many are kept.
const mostPlacements = 1 << 10

var (
	placementsMu sync.Mutex // guards below: worlds of different seeds run at the same time
	placements   = make(map[string]*placement)
)

// newPlacement sends each partition around the circle of the members' points, to the first member
// after it that has room: of five quarters of its part.
func newPlacement(ids []string) *placement {
	const pointsOfEach = 100
	memberAt := make(map[uint64]int)
	var points []uint64
	for i, id := range ids {
		for k := range pointsOfEach {
			point := xxhash.Sum64String(fmt.Sprint(k, ":", id))
			memberAt[point], points = i, append(points, point)
		}
	}
	slices.Sort(points)
	room := make([]int, len(ids))
	for i := range room { // rounded up
		room[i] = (5*ring.Partitions + 4*len(ids) - 1) / (4 * len(ids))
	}
	p := &placement{ids: ids}
	for k := range p.owner {
		at := xxhash.Sum64(binary.LittleEndian.AppendUint64(nil, uint64(k)))
		i := sort.Search(len(points), func(i int) bool { return points[i] >= at })
		for room[memberAt[points[i%len(points)]]] == 0 {
			i++
		}
		member := memberAt[points[i%len(points)]]
		p.owner[k] = uint16(member)
		room[member]--
	}
	return p
}

// ownerOf is the id of the member that owns a partition; empty if there are no members.
func (p *placement) ownerOf(partition int) string {
	if p == nil {
		return ""
	}
	return p.ids[p.owner[partition]]
}

// heirOf is the id of the member that owns a partition if its owner goes; empty if it is alone.
func (p *placement) heirOf(partition int) string {
	owner := p.ownerOf(partition)
	return placed(slices.DeleteFunc(slices.Clone(p.ids), func(id string) bool {
		return id == owner
	})).ownerOf(partition)
}

// owners are the ids of the members of v that own keys.
func owners(v *cluster.View) (ids []string) {
	for _, m := range v.Members {
		if m.Role == cluster.RoleMember && m.State == cluster.StateActive {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// ownerIn is the id of the owner of a key in the eyes of a node that has this View; empty if it
// knows of none.
func (j *common) ownerIn(v *cluster.View, a *account) string {
	p, found := j.placements[v]
	if !found {
		if len(j.placements) == mostPlacements {
			clear(j.placements)
		}
		p = placed(owners(v))
		j.placements[v] = p
	}
	return p.ownerOf(j.world.plan.partition(a.hash))
}

// specOf is what a limit says of a key: what it says of all keys, but for what the first exception
// that means this key says otherwise.
func (j *common) specOf(name, key string) *limiter.Spec {
	w := j.world
	s := w.named[name].Spec
	i := slices.IndexFunc(w.plan.except[name], func(o limiter.Override) bool {
		return o.Plan == "" && means(o.Key, key)
	})
	if i < 0 {
		return &w.named[name].Spec
	}
	o := w.plan.except[name][i]
	if o.Unlimited {
		return &limiter.Spec{
			Name: name, Algorithm: limiter.FixedWindow, Per: s.Per, Limit: limiter.MaxLimit,
			Unlimited: true,
		}
	}
	s.Limit, s.Burst = cmp.Or(o.Limit, s.Limit), cmp.Or(o.Burst, s.Burst)
	s.Refill = cmp.Or(o.Refill, s.Refill)
	return &s
}

// means reports whether the pattern of an exception means a key: as a network, in which the key is
// an address, or as text with stars.
func means(pattern, key string) bool {
	network, err := netip.ParsePrefix(pattern)
	if addr, bad := netip.ParseAddr(pattern); bad == nil {
		network, err = addr.Unmap().Prefix(addr.Unmap().BitLen())
	}
	if err == nil {
		addr, err := netip.ParseAddr(key)
		return err == nil && network.Contains(addr.Unmap().WithZone(""))
	}
	var expression strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '*':
			expression.WriteString(".*")
			continue
		case c == '\\':
			i++
		}
		expression.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
	}
	return regexp.MustCompile("(?s)^" + expression.String() + "$").MatchString(key)
}
