package cluster

import "penstock/limiter"

// route is a View with what this node remembers of each peer.
type route struct {
	*View
	peers []*peer // by index in Members; kept from View to View while the peer's boot lives
	// of them those with the role of a member, without this node; nodes begin with different ones
	members []*peer

	// not in the View, and met by one request on its way: their peers follow those of Members
	strangers []Member
}

// routeOf is the route of v. Peers of old are kept while their boots live; old may be nil.
func routeOf(now limiter.Instant, v *View, old *route) *route {
	r := &route{View: v, peers: make([]*peer, len(v.Members))}
	var before []Member
	if old != nil {
		before = old.Members
	}
	for i, k := 0, 0; i < len(v.Members); i++ { // both are sorted
		m := &v.Members[i]
		for k < len(before) && before[k].ID < m.ID {
			k++
		}
		if k < len(before) && before[k].ID == m.ID && before[k].Boot == m.Boot {
			r.peers[i] = old.peers[k]
			r.peers[i].member.Store(m)
			if before[k].PeerAddr != m.PeerAddr {
				r.peers[i].Succeed() // it was asked where it is not, or was not known to be
			}
		} else {
			r.peers[i] = newPeer(m, now)
		}
	}
	r.members = r.others()
	return r
}

// others are the peers that are members, from this node's place in the circle on: so they do not
// all ask the same one first.
func (r *route) others() (others []*peer) {
	for i := 1; i < len(r.peers); i++ {
		if k := (r.Self + i) % len(r.peers); r.Members[k].Role == RoleMember {
			others = append(others, r.peers[k])
		}
	}
	return others
}

// has reports whether p is a peer of this View.
func (r *route) has(p *peer) bool {
	i := r.Find(p.id)
	return i >= 0 && r.peers[i] == p
}

func (r *route) hasBoot(boot uint64) bool {
	for i := range r.Members {
		if r.Members[i].Boot == boot {
			return true
		}
	}
	return false
}

// member is the one that a target means.
func (r *route) member(target int) *Member {
	if target < len(r.Members) {
		return &r.Members[target]
	}
	return &r.strangers[target-len(r.Members)]
}

// findAny is the target that id names: the one that was met last if the View does not know it, or
// by a boot that is gone.
func (r *route) findAny(id string) int {
	t := r.Find(id)
	if t >= 0 && !r.peers[t].gone() {
		return t
	}
	for i := len(r.strangers) - 1; i >= 0; i-- {
		if r.strangers[i].ID == id {
			return len(r.Members) + i
		}
	}
	return t
}

// reaches reports whether the member of that id is one that is not gone.
func (r *route) reaches(id string) bool {
	i := r.Find(id)
	return i >= 0 && !r.peers[i].gone()
}

// should reports whether this node should hold a partition: as its owner, or as the heir of one
// that is gone.
func (r *route) should(p int) bool {
	owner := r.owner(p)
	return owner == r.Self || r.peers[owner].gone() && r.heir(p) == r.Self
}

// ownerBoot is the boot of the owner of the key with this hash, or 0 if no owner is there.
func (r *route) ownerBoot(hash uint64) uint64 {
	o := r.Owner(hash)
	if o < 0 || o == r.Self || r.peers[o].gone() {
		return 0
	}
	return r.Members[o].Boot
}

// another is the next member after t that is there, or nobodyYet.
func (r *route) another(t int) int {
	for range r.peers {
		t = (t + 1) % len(r.peers)
		if t != r.Self && r.member(t).Role == RoleMember && !r.peers[t].gone() {
			return t
		}
	}
	return nobodyYet
}

// elsewhereThan is another member than t, a different one from send to send.
func (r *route) elsewhereThan(t, hop int) int {
	for range hop {
		t = r.another(t)
	}
	return t
}

// relayers is how many members may be asked for what one of them holds that does not answer.
const relayers = 4

// relayer is a member that may reach target, after asked did not on the hop-th send; nobody if
// enough have been asked. One that is about to join is none yet. Where target itself was to be
// asked, each send begins with another member: one that does not reach target either may name this
// node, as its heir, and would be asked again and again.
func (r *route) relayer(now limiter.Instant, asked, target, hop int) int {
	if hop >= relayers {
		return nobody
	}
	t := asked
	if asked == target {
		t = r.elsewhereThan(t, hop)
	}
	for range r.peers {
		t = r.another(t)
		switch {
		case t == nobodyYet:
			return nobody
		case t == asked, t == target, r.peers[t].Open(now), r.member(t).State == StateJoining:
		default:
			return t
		}
	}
	return nobody
}

// third is a member besides the two that name each other, the turn-th; one of them if there is no
// other.
func (r *route) third(one, two, turn int) int {
	t := r.Self
	for range turn {
		for range 3 {
			if t = r.another(t); t != one && t != two {
				break
			}
		}
	}
	return t
}
