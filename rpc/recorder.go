package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/peer"

	"penstock/cluster"
	"penstock/rpc/access"
	"penstock/rpc/audit"
)

// recorder writes the changes of one client to the audit log.
type recorder struct {
	log  *audit.Log // nil: nothing is recorded
	who  *access.Ticket
	from string
}

// recorderOf is that of the client of a call over gRPC.
func recorderOf(ctx context.Context, log *audit.Log) recorder {
	from := ""
	if p, ok := peer.FromContext(ctx); ok && log != nil {
		from = p.Addr.String()
	}
	return recorder{log, access.Of(ctx), from}
}

// recorder is that of a client.
func (c caller) recorder(log *audit.Log) recorder {
	if c.ctx != nil {
		return recorderOf(c.ctx, log)
	}
	return recorder{log, c.client, c.addr}
}

func (r recorder) add(e audit.Entry) {
	if r.log == nil {
		return
	}
	e.Time, e.Who, e.From = time.Now(), r.who.Who(), r.from
	r.log.Add(e)
}

// keyCount is what an entry says of a counter.
type keyCount struct {
	Remaining int64 `json:"remaining"`
	Reset     bool  `json:"reset,omitzero"` // after: the owner has done it
}

// before looks at the keys that are to be reset; nil if nothing records it.
func (r recorder) before(n *cluster.Node, items []cluster.Item) []cluster.Decision {
	if r.log == nil {
		return nil
	}
	peeks, out := make([]cluster.Item, len(items)), make([]cluster.Decision, len(items))
	for i := range items {
		peeks[i] = cluster.Item{Limit: items[i].Limit, Inline: items[i].Inline, Key: items[i].Key, Op: cluster.OpPeek}
	}
	if n.Check(&cluster.Request{Items: peeks}, out) != nil {
		return nil // the reset says what is wrong
	}
	return out
}

// resets records the items that were resets. before may be nil.
func (r recorder) resets(items []cluster.Item, before, after []cluster.Decision) {
	if r.log == nil {
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
			e.Before = keyCount{Remaining: before[i].Remaining}
		}
		e.After = keyCount{after[i].Remaining, after[i].Allowed}
		r.add(e)
	}
}

// settled records the settlement of a hold by an administrator.
func (r recorder) settled(it *cluster.Item, d *cluster.Decision) {
	if r.log == nil || r.who == nil {
		return
	}
	if c, err := r.who.Client(); err != nil || !c.Named() || c.May(access.Write) != nil {
		return
	}
	target := it.Limit
	if it.Inline != nil {
		target = it.Inline.Name
	}
	r.add(audit.Entry{Action: "settle", Target: target, Key: audit.HashKey(it.Key), After: keyCount{Remaining: d.Remaining}})
}

// done records an action without a target that may fail.
func (r recorder) done(action string, err error) {
	e := audit.Entry{Action: action}
	if err != nil {
		e.Error = err.Error()
	}
	r.add(e)
}
