package admin

import (
	"fmt"
	"slices"
	"time"

	"penstock/cluster"
	penstockv1 "penstock/proto/penstock/v1"
)

// Roster knows of members what a View does not say. It may be asked at any time.
type Roster interface {
	// Version is that of the program of m; empty if it is not known.
	Version(m cluster.Member) string
	// Failed lists the members that have failed lately and have not come back, oldest first.
	Failed() []FailedMember
}

// FailedMember is a member that has gone without a goodbye.
type FailedMember struct {
	cluster.Member               // as it was last seen
	Ago            time.Duration // since its failure was noticed
}

// stateFailed is the state of such a member. It is in no View, so it is none of cluster's states.
const stateFailed = "failed"

// MemberJSON is a node as /v1/members shows it.
type MemberJSON struct {
	Name     string   `json:"name"`
	State    string   `json:"state"`
	Role     string   `json:"role"`
	Version  string   `json:"version,omitempty"` // of its program
	Peer     string   `json:"peer_address,omitempty"`
	GRPC     string   `json:"grpc_address,omitempty"`
	HTTP     string   `json:"http_address,omitempty"`
	Boot     string   `json:"boot"`
	Features []string `json:"features,omitempty"`
	Limits   string   `json:"limits,omitempty"` // hash
	Self     bool     `json:"self"`

	Zone      string `json:"zone,omitempty"`          // empty: it names none
	FailedAgo *int64 `json:"failed_ago_ms,omitempty"` // of one that has failed
}

// KnownMember is a member with what is shown of it.
type KnownMember struct {
	cluster.Member
	state, version, limits string
	self                   bool
	failedAgo              *int64 // milliseconds; of one that has failed
}

// KnownMembers are the members of v, and after them those that have failed lately. r may be nil.
func KnownMembers(n *cluster.Node, v *cluster.View, r Roster) (list []KnownMember) {
	var failed []FailedMember
	if r != nil {
		failed = r.Failed()
	}
	for i, m := range v.Members {
		if m.State == cluster.StateJoining && slices.ContainsFunc(failed,
			func(f FailedMember) bool { return f.ID == m.ID && f.Boot == m.Boot }) {
			continue // below: gossip has not missed it yet
		}
		k := KnownMember{
			Member: m,
			state:  m.State.String(),
			limits: limitsHash(n, v, i),
			self:   i == v.Self,
		}
		if r != nil {
			k.version = r.Version(m)
		}
		list = append(list, k)
	}
	for _, f := range failed {
		if slices.ContainsFunc(list, func(k KnownMember) bool { return k.ID == f.ID }) {
			continue // it is just coming back
		}
		ago := f.Ago.Milliseconds()
		list = append(list, KnownMember{
			Member: f.Member, state: stateFailed, version: r.Version(f.Member),
			limits: hashText(f.Limits), failedAgo: &ago,
		})
	}
	return list
}

// JSON is the member as pages show it.
func (k *KnownMember) JSON() MemberJSON {
	return MemberJSON{
		Name: k.ID, State: k.state, Role: k.Role.String(), Version: k.version, Peer: k.PeerAddr,
		GRPC: k.GRPCAddr, HTTP: k.HTTPAddr,
		Boot: fmt.Sprintf("%016x", k.Boot), Features: k.Features.Names(),
		Limits: k.limits, Self: k.self, FailedAgo: k.failedAgo, Zone: k.Zone,
	}
}

// Message is the member as calls name it.
func (k *KnownMember) Message() *penstockv1.Member {
	return &penstockv1.Member{
		Name: k.ID, State: k.state, Role: k.Role.String(), Version: k.version,
		PeerAddress: k.PeerAddr, GrpcAddress: k.GRPCAddr,
		HttpAddress: k.HTTPAddr, Boot: k.Boot, Self: k.self, Limits: k.limits,
		FailedAgoMs: k.failedAgo, Zone: k.Zone,
	}
}

// EpochOf is the number of the list of members that a node goes by; 0: it goes by none.
func EpochOf(n *cluster.Node) uint64 {
	if c := n.Agreed(); c != nil {
		return c.Epoch.Number
	}
	return 0
}
