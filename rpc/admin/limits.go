package admin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/audit"
	"penstock/rpc/catalog"
	"penstock/rpc/door"
	"penstock/rpc/notation"
)

// recordLimit records that a limit was put or deleted; nil: there is none.
func recordLimit(
	r door.Recorder, action, name string, before, after *limiter.Limit, err error,
) {
	e := audit.Entry{Action: action, Target: name, Before: recorded(before), After: recorded(after)}
	if err != nil {
		e.Error = err.Error()
	}
	r.Add(e)
}

// recorded is a limit as records of changes have it: as in a file, with its overrides and its
// candidate. One of a file that is larger than any that is put has its rule, and a hash of all.
func recorded(l *limiter.Limit) any {
	if l == nil {
		return nil
	}
	text := catalog.Format(l)
	if len(text) <= catalog.MaxLimit {
		return json.RawMessage(text)
	}
	return struct {
		notation.LimitJSON
		Overrides int    `json:"overrides"`
		Hash      string `json:"sha256"`
	}{
		notation.NewLimitJSON(&l.Spec), len(l.Overrides()),
		fmt.Sprintf("%x", sha256.Sum256(text)),
	}
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
	if err := DrainNode(ctx, door.RecorderOf(ctx, a.Audit), a.Node, a.Config.Drain); err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.DrainResponse{Node: a.Node.ID()}, nil
}

// DrainNode takes a node out by how, which may be nil, and records it.
func DrainNode(
	ctx context.Context, rec door.Recorder, n *cluster.Node, how func(context.Context) error,
) error {
	if how == nil {
		return ErrNobodyElse
	}
	held := func() any { return map[string]int{"held": n.Held()} } // partitions
	before := held()
	err := how(ctx)
	rec.Done("drain", before, held(), err)
	return err
}

// Recover has the node go on without the voters that it has lost.
func (a *Service) Recover(
	ctx context.Context,
	_ *penstockv1.RecoverRequest,
) (*penstockv1.RecoverResponse, error) {
	if err := RecoverNode(door.RecorderOf(ctx, a.Audit), a.Node); err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.RecoverResponse{Node: a.Node.ID()}, nil
}

// recordedVoters are the voters on the list of members, and those of them that do not answer.
type recordedVoters struct {
	Voters []string `json:"voters"`
	Lost   []string `json:"lost,omitempty"`
}

// RecoverNode has the node go on without the voters that it has lost, and records it.
func RecoverNode(rec door.Recorder, n *cluster.Node) error {
	m := n.Membership()
	before := recordedVoters{Voters: m.Voters(), Lost: m.Lost()}
	err := m.Recover()
	rec.Done("recover", before, recordedVoters{Voters: m.Voters()}, err)
	return err
}
