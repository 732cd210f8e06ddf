package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/audit"
	"penstock/rpc/door"
)

// limitMessage is s as inlineSpec reads it.
func limitMessage(s *limiter.Spec) *penstockv1.InlineLimit {
	out := &penstockv1.InlineLimit{
		Name: s.Name, Algorithm: penstockv1.Algorithm(s.Algorithm), Limit: s.Limit, PerMs: s.Per.Milliseconds(), Burst: s.Burst,
		CountRejected: s.CountRejected, OnError: penstockv1.OnError(s.OnError) + 1, MinGapMs: s.MinGap.Milliseconds(),
		Refill: s.Refill, Strict: s.Strict, Drain: s.Drain, Buckets: int32(s.Buckets), Lenient: s.Lenient, ClientTime: s.ClientTime,
		Sessions: s.Sessions, Calendar: penstockv1.Calendar(s.Calendar), TimeZone: s.TimeZone, MaxDebt: s.MaxDebt,
		Consistency: penstockv1.Consistency(
			s.Consistency,
		) + 1, Sync: s.Sync, OnPartition: penstockv1.OnPartition(s.OnPartition) + 1,
		OnDeny: penstockv1.OnDeny(
			s.OnDeny,
		) + 1, DryRun: s.DryRun, Unsettled: penstockv1.Unsettled(s.Unsettled) + 1,
	}
	if s.Anchor != limiter.DefaultAnchor(s.Algorithm) {
		out.Anchor = penstockv1.Anchor(s.Anchor) + 1
	}
	if s.Calendar != 0 {
		out.PerMs = 0
	}
	return out
}

// newInlineJSON is s as inlineJSON.spec reads it.
func newInlineJSON(s *limiter.Spec) inlineJSON {
	out := inlineJSON{
		Name: s.Name, Algorithm: s.Algorithm.String(), Limit: s.Limit, Per: perText(s.Per), Burst: s.Burst, CountRejected: s.CountRejected,
		Refill: s.Refill, Strict: s.Strict, Drain: s.Drain, Buckets: s.Buckets, Lenient: s.Lenient, ClientTime: s.ClientTime, Sessions: s.Sessions,
		TimeZone: s.TimeZone, MaxDebt: s.MaxDebt, DryRun: s.DryRun,
		OnError: inlineWords["on_error"][s.OnError], Consistency: inlineWords["consistency"][s.Consistency],
		OnPartition: inlineWords["on_partition"][s.OnPartition], OnDeny: inlineWords["on_deny"][s.OnDeny], Unsettled: inlineWords["unsettled"][s.Unsettled],
	}
	if s.Calendar != 0 {
		out.Per = s.Calendar.String()
	}
	if s.Anchor != limiter.DefaultAnchor(s.Algorithm) {
		out.Anchor = map[limiter.Anchor]string{limiter.Epoch: "epoch", limiter.FirstHit: "first_hit"}[s.Anchor]
	}
	if s.MinGap != 0 {
		out.MinGap = perText(s.MinGap)
	}
	if s.Sync {
		out.Replication = "sync"
	}
	return out
}

// perText is d as limiter.ParsePer reads it.
func perText(d time.Duration) string {
	if d%time.Second != 0 {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return d.String()
}

// putLimit gives the node a limit of that name, with a candidate if tried is not nil.
func putLimit(
	n *cluster.Node,
	rec door.Recorder,
	s limiter.Spec,
	tried *limiter.Spec,
) (replaced bool, err error) {
	if s.Name == "" {
		return false, &cluster.InputError{
			Field:  "limit.name",
			Reason: "is missing; give the limit a name",
		}
	}
	if limiter.IsCandidateName(s.Name) {
		return false, &cluster.InputError{
			Field: "limit.name", Reason: fmt.Sprintf("%q is the name of a candidate's counters; choose another one", s.Name),
		}
	}
	l, err := limiter.New(s)
	if err == nil && tried != nil {
		l, err = l.WithCandidate(*tried)
		err = underCandidate(err)
	}
	var spec *limiter.SpecError
	if errors.As(err, &spec) {
		return false, &cluster.InputError{Field: "limit." + spec.Field, Reason: spec.Reason}
	}
	if err != nil {
		return false, err
	}
	before := n.Limits()[s.Name]
	if replaced, err = n.PutLimit(l); err == nil {
		recordLimit(rec, "put limit", s.Name, before, l)
	}
	return replaced, err
}

// recordLimit records that a limit was put or deleted; nil: there is none.
func recordLimit(r door.Recorder, action, name string, before, after *limiter.Limit) {
	e := audit.Entry{Action: action, Target: name}
	if before != nil {
		e.Before = newInlineJSON(&before.Spec)
	}
	if after != nil {
		e.After = newInlineJSON(&after.Spec)
	}
	r.Add(e)
}

// deleteLimit takes a limit away that putLimit has given.
func deleteLimit(n *cluster.Node, rec door.Recorder, name string) error {
	before := n.Limits()[name]
	err := n.DeleteLimit(name)
	if err == nil {
		recordLimit(rec, "delete limit", name, before, n.Limits()[name])
	}
	return err
}

// Limits lists the named limits.
func (a *admin) Limits(
	context.Context,
	*penstockv1.LimitsRequest,
) (*penstockv1.LimitsResponse, error) {
	out := &penstockv1.LimitsResponse{Node: a.node.ID()}
	limits, tallies := a.node.Limits(), a.node.Stats().Candidates()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		l := limits[name]
		out.Limits = append(out.Limits, &penstockv1.NamedLimit{
			Limit: limitMessage(
				&l.Spec,
			), Put: a.node.IsPut(name), Overrides: int32(len(l.Overrides())),
			Candidate: candidateMessage(l, tallies[name]),
		})
	}
	return out, nil
}

// PutLimit makes or replaces one.
func (a *admin) PutLimit(
	ctx context.Context,
	in *penstockv1.PutLimitRequest,
) (*penstockv1.PutLimitResponse, error) {
	if in.Limit == nil {
		return nil, door.StatusError(&cluster.InputError{Field: "limit", Reason: "is missing"})
	}
	var tried *limiter.Spec
	if in.Candidate != nil {
		s := inlineSpec(in.Candidate)
		tried = &s
	}
	replaced, err := putLimit(a.node, door.RecorderOf(ctx, a.audit), inlineSpec(in.Limit), tried)
	if err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.PutLimitResponse{Node: a.node.ID(), Replaced: replaced}, nil
}

// DeleteLimit takes one away.
func (a *admin) DeleteLimit(
	ctx context.Context,
	in *penstockv1.DeleteLimitRequest,
) (*penstockv1.DeleteLimitResponse, error) {
	if err := deleteLimit(a.node, door.RecorderOf(ctx, a.audit), in.Name); err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.DeleteLimitResponse{Node: a.node.ID()}, nil
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

// namedLimits are the limits of a node.
type namedLimits struct {
	Node   string       `json:"node"`
	Limits []namedLimit `json:"limits"`
}

type namedLimit struct {
	inlineJSON
	Put       bool `json:"put"` // by hand, and not by a file
	Overrides int  `json:"overrides"`

	Candidate *candidateJSON `json:"candidate,omitempty"`
}

// adminDone says that something has been done at one node.
type adminDone struct {
	Node     string `json:"node"`
	Replaced bool   `json:"replaced,omitzero"`
}

// limits is GET /v1/limits.
func (w *web) limits(rw http.ResponseWriter, _ *http.Request) {
	out, tallies := namedLimits{
		Node:   w.Node.ID(),
		Limits: []namedLimit{},
	}, w.Node.Stats().
		Candidates()
	limits := w.Node.Limits()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		l := limits[name]
		out.Limits = append(out.Limits, namedLimit{
			newInlineJSON(
				&l.Spec,
			), w.Node.IsPut(name), len(l.Overrides()), newCandidateJSON(l, tallies[name]),
		})
	}
	writeJSON(rw, http.StatusOK, out)
}

// putLimit is PUT /v1/limits: the body is the limit, in the words of the limits' files.
func (w *web) putLimit(rw http.ResponseWriter, r *http.Request) {
	in, err := readJSON[putJSON](
		rw,
		r,
		"a limit has the fields that it has in a file, but for overrides",
	)
	var replaced bool
	if err == nil {
		var s limiter.Spec
		var tried *limiter.Spec
		if s, err = in.spec(); err == nil {
			tried, err = in.candidate()
		}
		var spec *limiter.SpecError
		if errors.As(err, &spec) {
			err = &cluster.InputError{Field: "limit." + spec.Field, Reason: spec.Reason}
		}
		if err == nil {
			replaced, err = putLimit(w.Node, w.recorder(r), s, tried)
		}
	}
	if err != nil {
		writeFault(rw, bodyFault(err, false))
		return
	}
	writeJSON(rw, http.StatusOK, adminDone{w.Node.ID(), replaced})
}

// limitNamed is a page ?name= that changes the limit of that name.
func (w *web) limitNamed(change func(*cluster.Node, door.Recorder, string) error) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		q, f := readQuery(r, "name")
		if f != nil {
			writeFault(rw, *f)
			return
		}
		if err := change(w.Node, w.recorder(r), q["name"]); err != nil {
			writeFault(rw, door.Explain(err))
			return
		}
		writeJSON(rw, http.StatusOK, adminDone{Node: w.Node.ID()})
	}
}

// recoverPage is POST /v1/recover.
func (w *web) recoverPage(rw http.ResponseWriter, r *http.Request) {
	if err := recovered(w.recorder(r), w.Node); err != nil {
		writeFault(rw, door.Explain(err))
		return
	}
	writeJSON(rw, http.StatusOK, adminDone{Node: w.Node.ID()})
}

// drainPage is POST /v1/drain.
func (w *web) drainPage(rw http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout-time.Second)
	defer cancel()
	if err := drained(ctx, w.recorder(r), w.Drain); err != nil {
		writeFault(rw, door.Explain(err))
		return
	}
	writeJSON(rw, http.StatusOK, adminDone{Node: w.Node.ID()})
}
