package admin

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/audit"
	"penstock/rpc/door"
	"penstock/rpc/notation"
)

// Credit gives units back to a key, on an operator's word, and records it.
func (a *Service) Credit(
	ctx context.Context, in *penstockv1.CreditRequest,
) (*penstockv1.CreditResponse, error) {
	if in.Units < 1 || in.Units > limiter.MaxLimit {
		return nil, door.StatusError(door.Wrong("units", "is %d; 1 to %d are accepted", in.Units,
			int64(limiter.MaxLimit)))
	}
	item := cluster.Item{Limit: in.Limit, Key: string(in.Key)}
	look := item
	look.Op, item.Cost = cluster.OpPeek, -in.Units
	before, after := make([]cluster.Decision, 1), make([]cluster.Decision, 1)
	if err := a.Node.Check(&cluster.Request{Items: []cluster.Item{look}}, before); err != nil {
		return nil, door.StatusError(err)
	}
	if err := a.Node.Check(&cluster.Request{Items: []cluster.Item{item}}, after); err != nil {
		return nil, door.StatusError(err)
	}
	e := audit.Entry{
		Action: "credit", Target: in.Limit, Key: audit.HashKey(item.Key), Units: in.Units,
		Before: door.KeyCount{
			Remaining: before[0].Remaining,
		}, After: door.KeyCount{Remaining: after[0].Remaining},
	}
	var err error
	if d := &after[0]; d.Source == cluster.SourceFallback {
		err = status.Error(codes.Unavailable, door.Unreached(d).Error())
		e.After, e.Error = nil, err.Error() // the owner may have heard of it all the same
	}
	if door.RecorderOf(ctx, a.Audit).Add(e); err != nil {
		return nil, err
	}
	return &penstockv1.CreditResponse{Decision: notation.Decisions(after)[0]}, nil
}
