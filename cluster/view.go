package cluster

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"penstock/ring"
)

// Role says what a node may do with keys.
type Role uint8

const (
	RoleMember Role = iota // owns keys
	RoleAgent              // owns none: forwards, and may come and go freely (sidecars)
)

func (r Role) String() string {
	if r == RoleAgent {
		return "agent"
	}
	return "member"
}

// State is where a node stands in its life. Only ACTIVE members are in the ring.
type State uint8

const (
	StateJoining State = iota // known to others, owns nothing yet
	StateActive               // in the ring
	StateLeaving              // out of the ring, still answering
)

func (s State) String() string {
	switch s {
	case StateJoining:
		return "joining"
	case StateActive:
		return "active"
	case StateLeaving:
		return "leaving"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Member is one node as the others see it.
type Member struct {
	ID       string // stable over restarts; the ring knows nodes by it
	Boot     uint64 // drawn at every start: another boot has lost the memory of the one before
	PeerAddr string // host:port of its peer door
	GRPCAddr string // host:port of its client gRPC door, for people and clients; may be empty
	HTTPAddr string // the same for HTTP
	Role     Role
	State    State
	Features Features // what its release understands beyond the first one's
	Limits   uint64   // Node.LimitsHash of its limits; 0 if its release does not say
	Zone     string   // as the configuration has it; empty if it names none
}

// Features are bits of what a node understands beyond the first release of the protocol. Members of
// two releases live in one cluster while it is updated; a node that lacks a bit is asked for
// nothing of it.
type Features uint64

const (
	FeatureRelay Features = 1 << iota // sends on what its asker cannot bring itself (Ask.Relay)
	// keeps holds: reservations, permits, leases, takes of several owners
	FeatureHolds
	FeatureSecret // places keys under the secret of its cluster

	OwnFeatures = FeatureRelay | FeatureHolds | FeatureSecret // of this release
)

// Names are the features that this release knows, for people.
func (f Features) Names() (names []string) {
	if f&FeatureRelay != 0 {
		names = append(names, "relay")
	}
	if f&FeatureHolds != 0 {
		names = append(names, "holds")
	}
	if f&FeatureSecret != 0 {
		names = append(names, "secret")
	}
	return names
}

// View has the nodes that are there, and the owners of all keys, at one instant, as one node sees
// them. It is immutable: a request is served from beginning to end under the View it began with.
type View struct {
	Self    int        // index of this node in Members
	Members []Member   // sorted by ID, all states and roles
	Ring    *ring.Ring // of the ACTIVE members; nil if there is none
	// Secret is that of the cluster, as far as this node knows it: keys lie under it. See Under.
	Secret Secret

	hash   uint64 // of Ring and Secret
	owners []int  // index in Ring.Members → index in Members
	// this node's index in Ring.Members, or -1: compared with an owner to know "is it me"
	mine int
}

// NewView builds the View of the node self. Members may come in any order; ids must differ and self
// must be one of them.
func NewView(self string, members []Member) (*View, error) {
	return NewViewOn(self, members, ring.New)
}

// NewViewOn is NewView with rings from a cache: to build one takes long, and the same members often
// come back.
func NewViewOn(
	self string, members []Member, rings func(ids []string) (*ring.Ring, error),
) (*View, error) {
	v := &View{Members: slices.Clone(members), Self: -1, mine: -1}
	slices.SortFunc(v.Members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	var ids []string
	for i, m := range v.Members {
		if i > 0 && v.Members[i-1].ID == m.ID {
			return nil, fmt.Errorf("cluster: view of %q names the member %q twice", self, m.ID)
		}
		if m.ID == self {
			v.Self = i
		}
		if m.State == StateActive && m.Role == RoleMember {
			if m.ID == self {
				v.mine = len(ids)
			}
			ids = append(ids, m.ID)
			v.owners = append(v.owners, i)
		}
	}
	if v.Self < 0 {
		return nil, fmt.Errorf("cluster: view of %q does not contain it", self)
	}
	if len(ids) == 0 {
		return v, nil
	}
	r, err := rings(ids)
	if err != nil {
		return nil, fmt.Errorf("cluster: view of %q: %w", self, err)
	}
	v.Ring, v.hash = r, r.Hash()
	return v, nil
}

// Under is the same View with keys that lie under a secret.
func (v *View) Under(s Secret) *View {
	if v.Secret == s {
		return v
	}
	under := *v
	under.Secret = s
	if v.Ring != nil {
		under.hash = v.Ring.HashUnder(uint64(s))
	}
	return &under
}

// Me is this node's own entry.
func (v *View) Me() Member { return v.Members[v.Self] }

// RingHash identifies the ring and the secret; two nodes with the same hash agree on every owner.
// 0 = no ring.
func (v *View) RingHash() uint64 { return v.hash }

// understandsSecret reports whether all other members place keys under a secret.
func (v *View) understandsSecret() bool {
	return !slices.ContainsFunc(v.Members, func(m Member) bool {
		return m.ID != v.Me().ID && m.Role == RoleMember && m.Features&FeatureSecret == 0
	})
}

// Partition is the partition of the key with this hash.
func (v *View) Partition(hash uint64) int { return ring.PartitionUnder(uint64(v.Secret), hash) }

// Owner is the index in Members of the owner of the key with this hash, or -1 if there are no
// owners.
func (v *View) Owner(hash uint64) int {
	if v.Ring == nil {
		return -1
	}
	return v.owners[v.Ring.Owner(v.Partition(hash))]
}

// Owns reports whether this node owns the key with this hash.
func (v *View) Owns(hash uint64) bool {
	return v.mine >= 0 && v.Ring.Owner(v.Partition(hash)) == v.mine
}

// owner is the index in Members of the owner of a partition. There must be a Ring.
func (v *View) owner(partition int) int { return v.owners[v.Ring.Owner(partition)] }

// heir is the index in Members of the node that owns the partition once its owner is gone, or -1.
func (v *View) heir(partition int) int {
	if v.Ring == nil {
		return -1
	}
	if h, ok := v.Ring.Heir(partition); ok {
		return v.owners[h]
	}
	return -1
}

// secondHeir is the index in Members of the node that owns the partition once its owner and its
// heir are gone, or -1.
func (v *View) secondHeir(partition int) int {
	if v.Ring == nil {
		return -1
	}
	if h, ok := v.Ring.SecondHeir(partition); ok {
		return v.owners[h]
	}
	return -1
}

// Active is the number of members in the ring.
func (v *View) Active() int { return len(v.owners) }

// Find returns the index in Members of the node id, or -1.
func (v *View) Find(id string) int {
	i := sort.Search(len(v.Members), func(i int) bool { return v.Members[i].ID >= id })
	if i == len(v.Members) || v.Members[i].ID != id {
		return -1
	}
	return i
}

// SeenBy is the same View in the eyes of another of its members. It shares all else, so many nodes
// in one process need not each have the same members in memory.
func (v *View) SeenBy(self string) (*View, error) {
	i := v.Find(self)
	if i < 0 {
		return nil, fmt.Errorf("cluster: view of %q does not contain it", self)
	}
	seen := *v
	seen.Self, seen.mine = i, slices.Index(v.owners, i)
	return &seen, nil
}
