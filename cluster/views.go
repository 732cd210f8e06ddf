package cluster

import (
	"slices"
	"sync/atomic"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// views make the View of what gossip names and what has been agreed. Guarded by partitions.mu.
type views struct {
	agreed *agreement

	hinted   atomic.Pointer[View]     // the members that gossip names
	reviewed *ownership.Configuration // that the View was made of last
	rings    func(ids []string) (*ring.Ring, error)
	secret   Secret // that keys lie under, as far as is known

	// before are the processes that gossip has called ACTIVE while this node was not a member.
	before []uint64
}

// noteLocked notes which members decide before this node is one of them.
func (vs *views) noteLocked(v *View) {
	if vs.reviewed != nil {
		return
	}
	for i := range v.Members {
		m := &v.Members[i]
		decides := i != v.Self && m.Role == RoleMember && m.State == StateActive
		if decides && !slices.Contains(vs.before, m.Boot) {
			vs.before = append(vs.before, m.Boot)
		}
	}
}

// SetView makes v the View of all requests that begin from now on.
// Where members agree it only says which nodes are there, and where: members and owners are agreed.
func (n *Node) SetView(v *View) {
	n.parts.mu.Lock()
	now := n.clock.Now()
	if n.right.on {
		n.views.noteLocked(v)
	}
	n.views.hinted.Store(v)
	n.reviewLocked(now)
	n.parts.mu.Unlock()
	n.Membership().electAnew()
	switch leaving := v.Me().State == StateLeaving; {
	case !n.right.on:
	case !leaving:
		n.Membership().Stay()
	case !n.right.leaves.Swap(true):
		n.agreed.agree(0, ownership.Leave{}, ownership.Poll{})
	}
}

// agreedAnew follows a configuration that was installed.
func (n *Node) agreedAnew(now limiter.Instant) {
	n.parts.mu.Lock()
	defer n.parts.mu.Unlock()
	n.reviewLocked(now)
}

// reviewLocked makes the View of what has been agreed, with what gossip says of where members are.
func (n *Node) reviewLocked(now limiter.Instant) {
	v, old := n.views.hinted.Load(), n.view.Load()
	if v == nil {
		return
	}
	if !n.right.on {
		n.setViewLocked(now, v.Under(n.views.secret))
		return
	}
	roll := n.right.roll.Load()
	if roll.joined() && roll.config != n.views.reviewed {
		n.parts.bereave(n.views.reviewed, roll.config)
		n.parts.succeed(n.views.before, roll)
		n.views.reviewed, n.views.before = roll.config, nil
	}
	if roll != nil && roll.config != nil {
		n.views.secret = roll.config.Secret
	}
	members := n.views.membersLocked(v, old, roll)
	if !slices.Equal(members, v.Members) {
		agreed, err := NewViewOn(n.id, members, func(ids []string) (*ring.Ring, error) {
			if old != nil && old.Ring != nil && slices.Equal(old.Ring.Members(), ids) {
				return old.Ring, nil
			}
			return n.views.rings(ids)
		})
		if err != nil {
			return // members that no ring can have
		}
		v = agreed
	}
	v = v.Under(n.views.secret)
	if old == nil || old.Secret != v.Secret || !slices.Equal(old.Members, v.Members) {
		n.setViewLocked(now, v)
	} else {
		old.beginLives(now, roll)
		n.claims.tendLocked() // what was not answered in the epoch before may be now
		n.copier.startPushesLocked()
	}
}

// membersLocked are the members of v as the configuration has them.
func (vs *views) membersLocked(v *View, old *route, roll *roll) []Member {
	members := slices.Clone(v.Members)
	if vs.agreed.hasLeft(roll) { // as an agent it goes by gossip, for it hears of no configuration
		return members
	}
	for i := range members {
		if m := &members[i]; m.Role == RoleMember &&
			(i != v.Self || m.State != StateLeaving || !roll.lonely()) {
			m.State, m.Zone = roll.stateOf(m), roll.zoneOf(m.ID)
		}
	}
	if roll == nil || roll.config == nil {
		return members
	}
	for i := range roll.config.Members {
		x := &roll.config.Members[i]
		switch k := v.Find(x.ID); {
		case k < 0:
			members = append(members, vs.unheardLocked(old, x))
		case !SameProcess(x.Boot, members[k].Boot): // gossip is late, or is ahead
			members[k] = vs.unheardLocked(old, x)
		}
	}
	return members
}

// unheardLocked is a member of the configuration of which gossip says nothing, as far as this node
// knows it.
func (vs *views) unheardLocked(old *route, x *ownership.Member) Member {
	if old != nil {
		i := old.Find(x.ID)
		if i >= 0 && SameProcess(x.Boot, old.Members[i].Boot) && old.Members[i].PeerAddr != "" {
			m := old.Members[i]
			m.State, m.Zone = stateOf(x), x.Zone
			return m
		}
	}
	a := vs.agreed
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, heard := a.seats[x.Boot]; heard {
		m := Member{ID: x.ID, Boot: s.process, PeerAddr: s.addr, State: stateOf(x), Zone: x.Zone}
		m.Features = OwnFeatures
		return m
	}
	return Member{
		ID: x.ID, Boot: uint64(x.Boot), State: stateOf(x), Zone: x.Zone,
		Features: OwnFeatures,
	}
}

// setViewLocked makes v the View of all requests that begin from now on.
func (n *Node) setViewLocked(now limiter.Instant, v *View) {
	n.pulse.wakeLocked()
	old := n.view.Load()
	r := routeOf(now, v, old)
	r.beginLives(now, n.right.roll.Load())
	if v.Me().State == StateLeaving && (old == nil || old.Me().State != StateLeaving) {
		n.awaits.beside = n.awaits.othersLocked(old)
	}
	n.copier.keepers.outboxes = slices.DeleteFunc(n.copier.keepers.outboxes,
		func(p *peer) bool { return !r.has(p) })
	n.intake.partFormerLocked(now, r, old)
	if n.restorer.movesLocked(old, v) {
		n.fenceLocked() // what was held, was held by the secret of before
		n.restorer.moveLocked(r)
		n.copier.forgetWaitingLocked()
	}
	n.view.Store(r)
	n.notices.partLocked(r)
	if n.parts.list == nil && v.Me().Role == RoleMember {
		n.parts.list = make([]part, ring.Partitions)
	}
	if old == nil {
		n.restorer.adoptLocked(v.Me().Role)
	}
	n.restorer.lackLocked(r)
	n.awaits.awaitLocked(now, r)
	if n.parts.list == nil {
		n.contacts.askPlacesLocked(now, r, old)
		return
	}
	n.copier.keepers.retargetLocked(now, r)
	if !n.right.on {
		n.parts.holdOwnLocked(now, r)
		return
	}
	n.contacts.countSilentLocked(now, r) // a member that has come may not be reached
	n.claims.tendLocked()
	n.copier.startPushesLocked()
}
