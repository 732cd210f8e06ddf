package admin

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/audit"
	"penstock/rpc/catalog"
	"penstock/rpc/door"
	"penstock/rpc/history"
)

// Config makes penstock.v1.Admin. Node is required, and so is Catalog for calls about limits.
type Config struct {
	Node     *cluster.Node
	Drain    func(context.Context) error // nil: the node cannot be drained
	Audit    *audit.Log                  // nil: nothing is recorded
	Roster   Roster                      // nil: versions and failed members are not known
	Catalog  *catalog.Catalog
	Recorder *history.Recorder // nil: it is not known which keys are asked for
}

// Service is penstock.v1.Admin.
type Service struct {
	penstockv1.UnimplementedAdminServer
	Config
}

// New makes the service.
func New(c Config) *Service { return &Service{Config: c} }

// Members lists the nodes that this node knows, and those that have failed lately.
func (a *Service) Members(context.Context,
	*penstockv1.MembersRequest,
) (*penstockv1.MembersResponse, error) {
	v := a.Node.View()
	if v == nil {
		return nil, door.StatusError(cluster.ErrNoView)
	}
	out := &penstockv1.MembersResponse{Ring: RingName(v), LimitsDisagreeing: Disagreeing(a.Node)}
	for _, k := range KnownMembers(a.Node, v, a.Roster) {
		out.Members = append(out.Members, k.Message())
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

// Disagreeing are the names of the members with other limits than n.
func Disagreeing(n *cluster.Node) []string {
	names := []string{}
	for _, m := range n.Disagreeing() {
		names = append(names, m.ID)
	}
	return names
}

// Ring names the owner and the heir of a key.
func (a *Service) Ring(_ context.Context,
	in *penstockv1.RingRequest,
) (*penstockv1.RingResponse, error) {
	if len(in.Key) < cluster.MinKey || len(in.Key) > cluster.MaxKey {
		return nil, status.Errorf(codes.InvalidArgument, "key: has %d bytes; %d to %d are accepted",
			len(in.Key), cluster.MinKey, cluster.MaxKey)
	}
	v := a.Node.View()
	if v == nil {
		return nil, door.StatusError(cluster.ErrNoView)
	}
	p := Locate(v, string(in.Key))
	return &penstockv1.RingResponse{
		Owner: p.Owner, Heir: p.Heir, Partition: int32(p.Partition),
		Ring: RingName(v),
	}, nil
}

// Place is where a key lives.
type Place struct {
	Partition   int
	Owner, Heir string // empty if there is none
}

// Locate finds where a key lives.
func Locate(v *cluster.View, key string) Place {
	hash := limiter.Hash(key)
	p := Place{Partition: v.Partition(hash)}
	if v.Ring == nil {
		return p
	}
	names := v.Ring.Members()
	p.Owner = names[v.Ring.Owner(p.Partition)]
	if heir, ok := v.Ring.Heir(p.Partition); ok {
		p.Heir = names[heir]
	}
	return p
}

// RingName is the hash of v's ring, as people and doors write it.
func RingName(v *cluster.View) string { return fmt.Sprintf("%016x", v.RingHash()) }
