package cluster

import "penstock/limiter"

// Observer is shown answers at this node's doors, for pages and lists. It is asked about every
// item, so Wants must cost nothing much. Its methods are called from many goroutines at once, after
// the decision, and before the client has it.
type Observer interface {
	// Wants reports whether the answer about a key is to be shown. hash is limiter.Hash of the key.
	Wants(now limiter.Instant, hash uint64) bool
	// Saw is shown an answer.
	Saw(o Observed)
	// NewlyDenied is shown, without being asked, the key of each check that a limit has admitted
	// and its candidate refuses. key is valid until it returns.
	NewlyDenied(limit string, candidate *limiter.Limit, key string)
}

// Observed is an answer to one item.
type Observed struct {
	At         limiter.Instant // of the question
	Hash       uint64          // of the key
	Limit      *limiter.Limit  // that decided
	Key        string          // valid until Saw returns
	Op         Op
	Cost       int64
	Allowed    bool
	Beyond     bool // the limit refuses, and the client is told yes: nothing is charged
	Degraded   bool
	Remaining  int64
	RetryAfter int64 // nanoseconds; less than 0: never
	ResetAfter int64 // nanoseconds
	Owner      string
	Source     Source
}

// SetObserver has o observe the node. It is called once, before the first check.
func (s *self) SetObserver(o Observer) { s.observer = o }

// show shows the answers of a request to the observer.
func (s *self) show(now limiter.Instant, b *batch, out []Decision) {
	for i := range b.items {
		it, d := &b.items[i], &out[i]
		candidate := it.tally != nil && it.tally.apart
		if candidate || it.spared || it.Op == OpPeek || !s.observer.Wants(now, it.hash) {
			continue
		}
		s.observer.Saw(Observed{
			At: now, Hash: it.hash, Limit: d.Rule, Key: it.Key, Op: it.Op, Cost: it.Cost,
			Allowed: d.Allowed, Beyond: d.overruled(), Degraded: d.Degraded, Remaining: d.Remaining,
			RetryAfter: int64(d.RetryAfter), ResetAfter: int64(d.ResetAfter),
			Owner: d.Owner, Source: d.Source,
		})
	}
}

// showNewlyDenied shows the observer a key that a candidate refuses, and its limit does not.
func (s *self) showNewlyDenied(o *offer, key string) {
	if s.observer != nil {
		s.observer.NewlyDenied(o.limit, o.to.limit, key)
	}
}
