package door

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/peer"

	"penstock/cluster"
	"penstock/rpc/access"
	"penstock/rpc/audit"
)

// Recorder writes the changes of one client to the audit log.
type Recorder struct {
	Log  *audit.Log // nil: nothing is recorded
	Who  *access.Ticket
	From string          // empty: as Call says
	Call context.Context // of gRPC; else nil
}

// RecorderOf is that of the client of a call over gRPC.
func RecorderOf(ctx context.Context, log *audit.Log) Recorder {
	return Recorder{Log: log, Who: access.Of(ctx), Call: ctx}
}

// Recorder is that of a client.
func (c Caller) Recorder(log *audit.Log) Recorder {
	if c.Context != nil {
		return RecorderOf(c.Context, log)
	}
	return Recorder{Log: log, Who: c.Pass, From: cmp.Or(c.Remote, c.Addr)}
}

func (r Recorder) Add(e audit.Entry) {
	if r.Log == nil {
		return
	}
	e.Time, e.Who, e.From = time.Now(), r.Who.Shown(), r.From
	if r.Call != nil {
		e.From = addressOf(r.Call)
	}
	r.Log.Add(e)
}

// addressOf is the other end of the connection of a call over gRPC.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// KeyCount is what an entry says of a counter.
type KeyCount struct {
	Remaining int64 `json:"remaining"`
	Reset     bool  `json:"reset,omitzero"`  // after: the owner has done it
	TTL       int64 `json:"ttl_ms,omitzero"` // after: so long the hold was extended
}

// GivesBack reports whether one of items has a negative cost, which is recorded when it is charged.
// Of items without one it looks at their costs alone.
func GivesBack(items []cluster.Item) bool {
	for i := range items {
		if items[i].Cost < 0 && items[i].Op == cluster.OpTake {
			return true
		}
	}
	return false
}

// Check has n decide on request, of which the client may ask all, and records what it resets and
// gives back.
func (r Recorder) Check(n Decider, request *cluster.Request, out []cluster.Decision) error {
	before := r.Before(n, request.Items)
	err := n.Check(request, out)
	if err == nil {
		r.Changes(request, before, out)
	}
	return err
}

// records reports whether a change that it makes is recorded. Refunds are traffic of clients: they
// are only where the operator has given the audit log a file, and never fill the program's log.
func (r Recorder) records(it *cluster.Item) bool {
	switch {
	case r.Log == nil || it.Op == cluster.OpPeek:
		return false
	case it.Op == cluster.OpTake:
		return it.Cost < 0 && r.Log.HasFile()
	}
	return true
}

// Before looks at the keys that items are to change; nil if nothing records it. A look is no span.
func (r Recorder) Before(n Decider, items []cluster.Item) []cluster.Decision {
	var peeks []cluster.Item
	for i := range items {
		if it := &items[i]; r.records(it) {
			peeks = append(peeks, cluster.Item{
				Limit: it.Limit, Inline: it.Inline, Key: it.Key, Plan: it.Plan, Op: cluster.OpPeek,
			})
		}
	}
	if len(peeks) == 0 {
		return nil
	}
	if in, ok := n.(interface{ Untraced() *cluster.Node }); ok {
		n = in.Untraced()
	}
	seen, out := make([]cluster.Decision, len(peeks)), make([]cluster.Decision, len(items))
	if n.Check(&cluster.Request{Items: peeks}, seen) != nil {
		return nil // the change says what is wrong
	}
	for i := range items {
		if r.records(&items[i]) {
			out[i], seen = seen[0], seen[1:]
		}
	}
	return out
}

// Changes records the items of request that were resets, and those that have given back. before may
// be nil.
func (r Recorder) Changes(request *cluster.Request, before, after []cluster.Decision) {
	for i := range request.Items {
		it, d := &request.Items[i], &after[i]
		var e audit.Entry
		switch {
		case !r.records(it):
			continue
		case it.Op == cluster.OpReset:
			e = entryOf("reset", it)
			e.After = KeyCount{Remaining: d.Remaining, Reset: d.Allowed}
		case it.Op != cluster.OpTake:
			continue
		case d.Source == cluster.SourceFallback:
			e = entryOf("refund", it)
			e.Units, e.Error = -it.Cost, Unreached(d).Error()
		case d.Allowed && (!request.Atomic || cluster.VerdictOf(after).Allowed):
			e = entryOf("refund", it)
			e.Units, e.After = -it.Cost, KeyCount{Remaining: d.Remaining}
		default: // it was refused
			continue
		}
		if before != nil {
			e.Before = KeyCount{Remaining: before[i].Remaining}
		}
		r.Add(e)
	}
}

// entryOf is an entry about the key of it.
func entryOf(action string, it *cluster.Item) audit.Entry {
	e := audit.Entry{Action: action, Target: it.Limit, Key: audit.HashKey(it.Key)}
	if it.Inline != nil {
		e.Target = it.Inline.Name
	}
	return e
}

// Unreached is an error about a change that the owner of a key has not answered, and may have made.
func Unreached(d *cluster.Decision) error {
	return fmt.Errorf("%s, which owns the key, cannot be reached; look at the key before you try "+
		"again", d.Owner)
}

// atHolds reports whether what this client does to holds is recorded: what the client that holds
// does is no change of an administrator's.
func (r Recorder) atHolds() bool {
	if r.Log == nil || r.Who == nil {
		return false
	}
	c, err := r.Who.Client()
	return err == nil && c.Named() && c.May(access.Write) == nil
}

// BeforeHold looks at the key of a hold that is to be settled or extended; nil if nothing records
// it.
func (r Recorder) BeforeHold(n *cluster.Node, it *cluster.Item) []cluster.Decision {
	if !r.atHolds() {
		return nil
	}
	return r.Before(n, []cluster.Item{*it})
}

// AtHold records that an administrator has settled or extended a hold, as it says. before may be
// nil: the key could not be looked at.
func (r Recorder) AtHold(it *cluster.Item, before []cluster.Decision, d *cluster.Decision) {
	if !r.atHolds() {
		return
	}
	e, after := entryOf("settle", it), KeyCount{Remaining: d.Remaining}
	if it.Op == cluster.OpExtend {
		e.Action, after.TTL = "extend", Millis(it.Hold.TTL)
	}
	if e.After = after; before != nil {
		e.Before = KeyCount{Remaining: before[0].Remaining}
	}
	r.Add(e)
}

// Done records an action without a target that may fail.
func (r Recorder) Done(action string, before, after any, err error) {
	e := audit.Entry{Action: action, Before: before, After: after}
	if err != nil {
		e.Error = err.Error()
	}
	r.Add(e)
}
