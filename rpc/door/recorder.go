package door

import (
	"context"
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
	From string
}

// RecorderOf is that of the client of a call over gRPC.
func RecorderOf(ctx context.Context, log *audit.Log) Recorder {
	from := ""
	if p, ok := peer.FromContext(ctx); ok && log != nil {
		from = p.Addr.String()
	}
	return Recorder{log, access.Of(ctx), from}
}

// Recorder is that of a client.
func (c Caller) Recorder(log *audit.Log) Recorder {
	if c.Context != nil {
		return RecorderOf(c.Context, log)
	}
	return Recorder{log, c.Pass, c.Addr}
}

func (r Recorder) Add(e audit.Entry) {
	if r.Log == nil {
		return
	}
	e.Time, e.Who, e.From = time.Now(), r.Who.Shown(), r.From
	r.Log.Add(e)
}

// KeyCount is what an entry says of a counter.
type KeyCount struct {
	Remaining int64 `json:"remaining"`
	Reset     bool  `json:"reset,omitzero"` // after: the owner has done it
}

// Before looks at the keys that are to be reset; nil if nothing records it.
func (r Recorder) Before(n *cluster.Node, items []cluster.Item) []cluster.Decision {
	if r.Log == nil {
		return nil
	}
	peeks, out := make([]cluster.Item, len(items)), make([]cluster.Decision, len(items))
	for i := range items {
		peeks[i] = cluster.Item{
			Limit: items[i].Limit, Inline: items[i].Inline, Key: items[i].Key, Op: cluster.OpPeek,
		}
	}
	if n.Check(&cluster.Request{Items: peeks}, out) != nil {
		return nil // the reset says what is wrong
	}
	return out
}

// Resets records the items that were resets. before may be nil.
func (r Recorder) Resets(items []cluster.Item, before, after []cluster.Decision) {
	if r.Log == nil {
		return
	}
	for i := range items {
		it := &items[i]
		if it.Op != cluster.OpReset {
			continue
		}
		e := audit.Entry{Action: "reset", Target: it.Limit, Key: audit.HashKey(it.Key)}
		if it.Inline != nil {
			e.Target = it.Inline.Name
		}
		if before != nil {
			e.Before = KeyCount{Remaining: before[i].Remaining}
		}
		e.After = KeyCount{after[i].Remaining, after[i].Allowed}
		r.Add(e)
	}
}

// settles reports whether settlements by this client are recorded: one by the client that holds is
// no change of an administrator's.
func (r Recorder) settles() bool {
	if r.Log == nil || r.Who == nil {
		return false
	}
	c, err := r.Who.Client()
	return err == nil && c.Named() && c.May(access.Write) == nil
}

// BeforeSettlement looks at the key of a hold that is to be settled; nil if nothing records it.
func (r Recorder) BeforeSettlement(n *cluster.Node, it *cluster.Item) []cluster.Decision {
	if !r.settles() {
		return nil
	}
	return r.Before(n, []cluster.Item{*it})
}

// Settled records the settlement of a hold by an administrator. before may be nil: the key could
// not be looked at.
func (r Recorder) Settled(it *cluster.Item, before []cluster.Decision, d *cluster.Decision) {
	if !r.settles() {
		return
	}
	e := audit.Entry{
		Action: "settle", Target: it.Limit, Key: audit.HashKey(it.Key),
		After: KeyCount{Remaining: d.Remaining},
	}
	if it.Inline != nil {
		e.Target = it.Inline.Name
	}
	if before != nil {
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
