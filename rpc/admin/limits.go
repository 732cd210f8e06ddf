package rpc

import (
	"context"
	"net/http"

	"google.golang.org/grpc/codes"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/audit"
	"penstock/rpc/door"
)

// recordLimit records that a limit was put or deleted; nil: there is none.
func recordLimit(r door.Recorder, action, name string, before, after *limiter.Limit) {
	e := audit.Entry{Action: action, Target: name}
	if before != nil {
		e.Before = recordedLimit{newInlineJSON(&before.Spec), newWordsJSON(&before.Spec)}
	}
	if after != nil {
		e.After = recordedLimit{newInlineJSON(&after.Spec), newWordsJSON(&after.Spec)}
	}
	r.Add(e)
}

// recordedLimit is a limit as records of changes have it.
type recordedLimit struct {
	inlineJSON
	wordsJSON
}

// ErrNobodyElse says that a node cannot be drained.
var ErrNobodyElse error = &door.Fault{
	Code: codes.FailedPrecondition, Status: http.StatusConflict,
	Text: "drain: no other member is there to take over what this node holds",
}

// Drain takes the node out.
func (a *admin) Drain(
	ctx context.Context,
	_ *penstockv1.DrainRequest,
) (*penstockv1.DrainResponse, error) {
	if err := drained(ctx, door.RecorderOf(ctx, a.audit), a.drain); err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.DrainResponse{Node: a.node.ID()}, nil
}

// drained calls how, which may be nil.
func drained(ctx context.Context, rec door.Recorder, how func(context.Context) error) error {
	if how == nil {
		return ErrNobodyElse
	}
	err := how(ctx)
	rec.Done("drain", err)
	return err
}

// Recover has the node go on without the voters that it has lost.
func (a *admin) Recover(
	ctx context.Context,
	_ *penstockv1.RecoverRequest,
) (*penstockv1.RecoverResponse, error) {
	if err := recovered(door.RecorderOf(ctx, a.audit), a.node); err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.RecoverResponse{Node: a.node.ID()}, nil
}

func recovered(rec door.Recorder, n *cluster.Node) error {
	err := n.Membership().Recover()
	rec.Done("recover", err)
	return err
}
