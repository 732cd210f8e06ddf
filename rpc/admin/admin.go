package rpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/ring"
	"penstock/rpc/audit"
	"penstock/rpc/catalog"
	"penstock/rpc/door"
	"penstock/rpc/history"
)

// adminConfig makes penstock.v1.Admin. Node is required, and so is Catalog for calls about limits.
type adminConfig struct {
	Node     *cluster.Node
	Drain    func(context.Context) error // nil: the node cannot be drained
	Audit    *audit.Log                  // nil: nothing is recorded
	Roster   Roster                      // nil: versions and failed members are not known
	Catalog  *catalog.Catalog
	Recorder *history.Recorder // nil: it is not known which keys are asked for
}

// admin is penstock.v1.Admin.
type admin struct {
	penstockv1.UnimplementedAdminServer
	node     *cluster.Node
	drain    func(context.Context) error
	audit    *audit.Log
	roster   Roster
	catalog  *catalog.Catalog
	recorder *history.Recorder
}

func newAdmin(c adminConfig) *admin {
	return &admin{
		node: c.Node, drain: c.Drain, audit: c.Audit,
		roster: c.Roster, catalog: c.Catalog, recorder: c.Recorder,
	}
}

// Members lists the nodes that this node knows, and those that have failed lately.
func (a *admin) Members(context.Context,
	*penstockv1.MembersRequest,
) (*penstockv1.MembersResponse, error) {
	v := a.node.View()
	if v == nil {
		return nil, door.StatusError(cluster.ErrNoView)
	}
	out := &penstockv1.MembersResponse{Ring: ringName(v), LimitsDisagreeing: disagreeing(a.node)}
	for _, k := range knownMembers(a.node, v, a.roster) {
		out.Members = append(out.Members, k.message())
	}
	return out, nil
}

// limitsHash is the hash of the limits of the i-th member of v, as people and doors write it; empty
// if that does not say.
func limitsHash(n *cluster.Node, v *cluster.View, i int) string {
	hash := v.Members[i].Limits
	if i == v.Self {
		hash = n.LimitsHash() // a View may be a moment older
	}
	return hashText(hash)
}

// hashText is a hash of limits as people and doors write it; empty if there is none.
func hashText(hash uint64) string {
	if hash == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", hash)
}

// disagreeing are the names of the members with other limits than n.
func disagreeing(n *cluster.Node) []string {
	names := []string{}
	for _, m := range n.Disagreeing() {
		names = append(names, m.ID)
	}
	return names
}

// Ring names the owner and the heir of a key.
func (a *admin) Ring(_ context.Context,
	in *penstockv1.RingRequest,
) (*penstockv1.RingResponse, error) {
	if len(in.Key) < cluster.MinKey || len(in.Key) > cluster.MaxKey {
		return nil, status.Errorf(codes.InvalidArgument, "key: has %d bytes; %d to %d are accepted",
			len(in.Key), cluster.MinKey, cluster.MaxKey)
	}
	v := a.node.View()
	if v == nil {
		return nil, door.StatusError(cluster.ErrNoView)
	}
	p := locate(v, string(in.Key))
	return &penstockv1.RingResponse{
		Owner: p.owner, Heir: p.heir, Partition: int32(p.partition),
		Ring: ringName(v),
	}, nil
}

// place is where a key lives.
type place struct {
	partition   int
	owner, heir string // empty if there is none
}

func locate(v *cluster.View, key string) place {
	hash := limiter.Hash(key)
	p := place{partition: ring.Partition(hash)}
	if v.Ring == nil {
		return p
	}
	names := v.Ring.Members()
	p.owner = names[v.Ring.Owner(p.partition)]
	if heir, ok := v.Ring.Heir(p.partition); ok {
		p.heir = names[heir]
	}
	return p
}

// ringName is the hash of v's ring, as people and doors write it.
func ringName(v *cluster.View) string { return fmt.Sprintf("%016x", v.RingHash()) }
