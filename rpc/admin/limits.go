package admin

import (
	"context"
	"net/http"

	"google.golang.org/grpc/codes"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/audit"
	"penstock/rpc/door"
	"penstock/rpc/notation"
)

// recordLimit records that a limit was put or deleted; nil: there is none.
func recordLimit(r door.Recorder, action, name string, before, after *limiter.Limit) {
	e := audit.Entry{Action: action, Target: name}
	if before != nil {
		e.Before = newRecordedLimit(&before.Spec)
	}
	if after != nil {
		e.After = newRecordedLimit(&after.Spec)
	}
	r.Add(e)
}

// recordedLimit is a limit as records of changes have it.
type recordedLimit struct {
	notation.LimitJSON
	notation.WordsJSON
}

func newRecordedLimit(s *limiter.Spec) recordedLimit {
	return recordedLimit{notation.NewLimitJSON(s), notation.NewWordsJSON(s)}
}

// ErrNobodyElse says that a node cannot be drained.
var ErrNobodyElse error = &door.Fault{
	Code: codes.FailedPrecondition, Status: http.StatusConflict,
	Text: "drain: no other member is there to take over what this node holds",
}

// Drain takes the node out.
func (a *Service) Drain(
	ctx context.Context,
	_ *penstockv1.DrainRequest,
) (*penstockv1.DrainResponse, error) {
	if err := DrainNode(ctx, door.RecorderOf(ctx, a.audit), a.drain); err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.DrainResponse{Node: a.node.ID()}, nil
}

// DrainNode takes a node out by how, which may be nil, and records it.
func DrainNode(ctx context.Context, rec door.Recorder, how func(context.Context) error) error {
	if how == nil {
		return ErrNobodyElse
	}
	err := how(ctx)
	rec.Done("drain", err)
	return err
}

// Recover has the node go on without the voters that it has lost.
func (a *Service) Recover(
	ctx context.Context,
	_ *penstockv1.RecoverRequest,
) (*penstockv1.RecoverResponse, error) {
	if err := RecoverNode(door.RecorderOf(ctx, a.audit), a.node); err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.RecoverResponse{Node: a.node.ID()}, nil
}

// RecoverNode has the node go on without the voters that it has lost, and records it.
func RecoverNode(rec door.Recorder, n *cluster.Node) error {
	err := n.Membership().Recover()
	rec.Done("recover", err)
	return err
}
