package rpc

import (
	"context"
	"fmt"
	"net/http"
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
		Name: s.Name, Algorithm: penstockv1.Algorithm(s.Algorithm), Limit: s.Limit,
		PerMs: s.Per.Milliseconds(), Burst: s.Burst,
		CountRejected: s.CountRejected, OnError: penstockv1.OnError(s.OnError) + 1,
		MinGapMs: s.MinGap.Milliseconds(),
		Refill:   s.Refill, Strict: s.Strict, Drain: s.Drain, Buckets: int32(s.Buckets),
		Lenient: s.Lenient, ClientTime: s.ClientTime,
		Sessions: s.Sessions, Calendar: penstockv1.Calendar(s.Calendar), TimeZone: s.TimeZone,
		MaxDebt: s.MaxDebt,
		Consistency: penstockv1.Consistency(
			s.Consistency,
		) + 1, Sync: s.Sync, OnPartition: penstockv1.OnPartition(s.OnPartition) + 1,
		OnDeny: penstockv1.OnDeny(
			s.OnDeny,
		) + 1, DryRun: s.DryRun, Unsettled: penstockv1.Unsettled(s.Unsettled) + 1,
		SpreadPercent: int32(s.Answers.Spread), Tag: s.Answers.Tag, Tier: int32(s.Answers.Tier),
		MaxDelayMs: s.MaxDelay.Milliseconds(),
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
		Name: s.Name, Algorithm: s.Algorithm.String(), Limit: s.Limit, Per: perText(s.Per),
		Burst: s.Burst, CountRejected: s.CountRejected,
		Refill: s.Refill, Strict: s.Strict, Drain: s.Drain, Buckets: s.Buckets, Lenient: s.Lenient,
		ClientTime: s.ClientTime, Sessions: s.Sessions,
		TimeZone: s.TimeZone, MaxDebt: s.MaxDebt, DryRun: s.DryRun,
		OnError:     inlineWords["on_error"][s.OnError],
		Consistency: inlineWords["consistency"][s.Consistency],
		OnPartition: inlineWords["on_partition"][s.OnPartition],
		OnDeny:      inlineWords["on_deny"][s.OnDeny],
		Unsettled:   inlineWords["unsettled"][s.Unsettled],
	}
	if s.Calendar != 0 {
		out.Per = s.Calendar.String()
	}
	if s.Anchor != limiter.DefaultAnchor(s.Algorithm) {
		out.Anchor = map[limiter.Anchor]string{
			limiter.Epoch:    "epoch",
			limiter.FirstHit: "first_hit",
		}[s.Anchor]
	}
	if s.MinGap != 0 {
		out.MinGap = perText(s.MinGap)
	}
	if s.MaxDelay != 0 {
		out.MaxDelay = perText(s.MaxDelay)
	}
	if s.Sync {
		out.Replication = "sync"
	}
	if s.Answers.Spread != 0 {
		out.Spread = fmt.Sprintf("%d%%", s.Answers.Spread)
	}
	out.Tag, out.Tier = s.Answers.Tag, s.Answers.Tier
	return out
}

// perText is d as limiter.ParsePer reads it.
func perText(d time.Duration) string {
	if d%time.Second != 0 {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return d.String()
}

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

// adminDone says that something has been done at one node.
type adminDone struct {
	Node string `json:"node"`
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
