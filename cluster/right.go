package cluster

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"penstock/cluster/ownership"
)

// right is how a node stands to what members agree on, as all its other parts read it, without a
// lock.
type right struct {
	*self
	on     bool          // false: Views are given, and what they say holds
	until  atomic.Int64  // the node decides before this Instant only
	lapses atomic.Uint64 // how often it has had no right for a moment, or has given it up
	marked atomic.Bool   // another node may decide as well
	leaves atomic.Bool   // the node wishes to leave
	halted atomic.Bool   // the node has no timers any more
	// cut off from most of the others: this node decides nothing but by on_partition
	minority atomic.Bool
	entered  atomic.Bool // it has claimed what it should hold since it became a member
	roll     atomic.Pointer[roll]
}

// Deciding is Node.Deciding.
func (rt *right) Deciding() bool { return int64(rt.clock.Now()) < rt.until.Load() }

// Agreed is Node.Agreed.
func (rt *right) Agreed() *ownership.Configuration {
	if r := rt.roll.Load(); r.joined() {
		return r.config
	}
	return nil
}

// size is how many members there should be.
func (rt *right) size() int {
	if on := rt.roll.Load(); on != nil && on.config != nil {
		return len(on.config.Members) + len(on.config.Rivals)
	}
	return 0
}

// heirs is how many members keep a copy of each partition.
func (rt *right) heirs() int {
	if r := rt.roll.Load(); r != nil && r.config != nil {
		return r.config.Copies.Heirs()
	}
	return 1
}

// neverEnds is the right of a node with Views that are given.
const neverEnds = math.MaxInt64

// roll is a configuration, and how this node stands to it. It is immutable.
type roll struct {
	stage  ownership.Stage
	config *ownership.Configuration // nil before the first
	boot   ownership.Boot           // this node's
}

// joined reports whether the node is a member.
func (r *roll) joined() bool { return r != nil && r.stage == ownership.StageJoined }

// leaving reports whether the node is a member that leaves, by its own wish or the others'.
func (r *roll) leaving() bool {
	if !r.joined() {
		return false
	}
	m, _ := r.config.Member(r.boot)
	return m.Role == ownership.RoleLeaving
}

// hasLeft reports whether the node was a member, and has left as it wished to. It may go on for as
// long as its process is not stopped.
func (rt *right) hasLeft(r *roll) bool {
	return r != nil && r.stage == ownership.StageEnded && rt.leaves.Load()
}

// lonely reports whether the node is the only member. As such it may leave without being told so.
func (r *roll) lonely() bool { return r.joined() && len(r.config.Members) == 1 }

// epoch is that of the configuration installed.
func (r *roll) epoch() (e ownership.Epoch) {
	if r.joined() {
		e = r.config.Epoch
	}
	return e
}

// member is the member of an id, for a candidate in the configuration of the cluster that it asks.
func (r *roll) member(id string) (m ownership.Member, found bool) {
	if r == nil || r.config == nil {
		return m, false
	}
	i, found := slices.BinarySearchFunc(r.config.Members, id,
		func(m ownership.Member, id string) int {
			return strings.Compare(m.ID, id)
		})
	if found {
		m = r.config.Members[i]
	}
	return m, found
}

// known is the member or the rival of an id with that process.
func (r *roll) known(id string, process uint64) (m ownership.Member, found bool) {
	if m, found = r.member(id); found && SameProcess(m.Boot, process) {
		return m, true
	}
	if r == nil || r.config == nil {
		return m, false
	}
	for _, m := range r.config.Rivals {
		if m.ID == id && SameProcess(m.Boot, process) {
			return m, true
		}
	}
	return m, false
}

// has reports whether the process of some id and boot is a member.
func (r *roll) has(id string, process uint64) bool {
	m, found := r.member(id)
	return found && SameProcess(m.Boot, process)
}

// hasProcess reports whether some life of a process is a member.
func (r *roll) hasProcess(boot uint64) bool {
	return r.joined() && slices.ContainsFunc(r.config.Members,
		func(m ownership.Member) bool { return SameProcess(m.Boot, boot) })
}

// zoneOf is the zone of the member of an id; empty if it names none, or is not a member.
func (r *roll) zoneOf(id string) string {
	m, _ := r.member(id)
	return m.Zone
}

// stateOf is how a member stands that gossip says something of.
func (r *roll) stateOf(m *Member) State {
	if x, found := r.member(m.ID); found && SameProcess(x.Boot, m.Boot) {
		return stateOf(&x)
	}
	if m.State == StateLeaving {
		return StateLeaving
	}
	return StateJoining
}

func stateOf(x *ownership.Member) State {
	if x.Role == ownership.RoleLeaving {
		return StateLeaving
	}
	return StateActive
}
