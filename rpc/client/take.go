package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
)

// Decision is the answer to a Take.
type Decision struct {
	Allowed   bool
	Limit     int64 // the most that can be admitted at once
	Remaining int64 // units that could still be admitted
	// smallest wait after which the same cost is admitted; -1 if it was admitted, or never
	RetryAfter time.Duration
	ResetAfter time.Duration // wait until the key is as if never used
	// how long an admitted caller must wait before it goes on; of a refused Request with MaxDelay,
	// how long it would have to wait
	Delay     time.Duration
	LimitName string // the limit that decided
	Owner     string // id of the node that owns the key
	// where it was decided: owner, forwarded, replica, lease, denied-cache, fallback, or client if
	// no node answered
	Source   string
	Degraded bool // decided under less than the full promise
	// if degraded: the most that the cluster may admit beyond the limit meanwhile; -1 is unbounded
	Bound   int64
	Shadow  bool  // the limit refused, but is in shadow mode, so the request is admitted
	Drained int64 // units that a refused Request with Drain took
	// when the session of the key began, of a limit with sessions; else zero
	Session time.Time
	// the key's counters were reset: those found had another algorithm or period
	Restarted bool
	Override  string // pattern of the override that decided; "" if it was the limit itself
	// Tag and Tier mark a request that the limit refuses and that goes on nevertheless (on_deny:
	// tag, deprioritize): handlers may treat it worse. Else "" and 0.
	Tag    string
	Tier   int
	Denial Denial // what to answer over HTTP if it was denied
}

// Denial is what a limit says over HTTP when it refuses. A zero field is the server's choice.
type Denial struct {
	Status            int
	ContentType, Body string
}

// Take charges key cost units of the named limit. A cost of 0 reports the state, a negative one
// refunds. If no node answers, Config.OnError decides.
func (c *Client) Take(
	ctx context.Context, limit, key string, cost int64,
) (d Decision, err error) {
	err = c.do(ctx, &Request{Limit: limit, Key: key, Cost: cost}, &d)
	return d, err
}

// Request is a Take with all options. A limit that does not support an option refuses it with
// INVALID_ARGUMENT.
type Request struct {
	Limit, Key string
	Cost       int64
	// units already spent: never refused, leaves a debt of at most the limit's max_debt
	Report bool
	Drain  bool // if refused, take all that is left; not for a limit with count_rejected
	// for a token bucket anchored at the first hit: if it leaves the bucket empty, the refill is
	// put off
	Strict bool
	// for a limit with client_time: when it happened, in milliseconds; zero: now, by the owner's
	// clock
	At time.Time
	// the longest Decision.Delay that the caller bears, at most an hour, in whole milliseconds: a
	// request that would be delayed for longer is refused, and charges nothing. Zero: as long as
	// the limit says; below zero: none, so the request is admitted at once or refused
	MaxDelay time.Duration
	// the plan of the key, of a limit that has plans; "": none is named
	Plan string
}

// maxDelayMs is MaxDelay as the protocol has it, rounded down; ok is false if it says nothing.
func (r *Request) maxDelayMs() (ms int64, ok bool) {
	return max(0, r.MaxDelay.Milliseconds()), r.MaxDelay != 0
}

// sendable reports why r, the i-th of a message, cannot travel in it: the protocol cannot encode
// it, or it is longer than nodes accept. It would spoil the other requests of the message, which
// may then be more than a node reads.
func (r *Request) sendable(i int) error {
	field, text, most := "key", r.Key, limiter.MaxKey
	switch {
	case len(r.Limit) > limiter.MaxName, !utf8.ValidString(r.Limit):
		field, text, most = "limit", r.Limit, limiter.MaxName
	case len(r.Plan) > limiter.MaxPlan, !utf8.ValidString(r.Plan):
		field, text, most = "plan", r.Plan, limiter.MaxPlan
	case len(r.Key) <= limiter.MaxKey:
		return nil
	}
	if len(text) > most {
		return status.Errorf(codes.InvalidArgument,
			"items[%d].%s: has %d bytes; at most %d are accepted", i, field, len(text), most)
	}
	return status.Errorf(codes.InvalidArgument, "items[%d].%s: %q is not UTF-8", i, field, text)
}

// Do is Take for a Request.
func (c *Client) Do(ctx context.Context, r Request) (d Decision, err error) {
	err = c.do(ctx, &r, &d)
	return d, err
}

// do decides on r into d, which is zero. Both are large: where a key is leased, copies of them are
// a part of the time that can be seen.
func (c *Client) do(ctx context.Context, r *Request, d *Decision) (err error) {
	lends := c.leases != nil && ctx.Err() == nil && leasable(r)
	if lends && c.leases.decide(r, d) {
		return nil
	}
	var sent limiter.Instant
	if lends {
		sent = c.now()
	}
	if *d, err = c.take(ctx, *r); err != nil {
		*d, err = c.fallback.take(ctx, err, *r)
		return err
	}
	if lends {
		c.leases.heard(sent, r, d)
	}
	return nil
}

func (c *Client) take(ctx context.Context, r Request) (Decision, error) {
	if err := r.sendable(0); err != nil {
		return Decision{}, err
	}
	t := idle.Get().(*take)
	var limited bool
	if t.deadline, limited = ctx.Deadline(); !limited {
		t.deadline = time.Now().Add(DefaultTimeout)
	}
	t.timed = !limited
	t.item = appendItem(t.item[:0], &r, c.origin, c.sequence.Add(1))
	if err := c.takes.post(t); err != nil {
		t.finish(Decision{}, err)
	}
	if ctx.Done() == nil { // a receive alone takes a third of the time of a select
		<-t.done
		return t.told()
	}
	select {
	case <-t.done:
		return t.told()
	case <-ctx.Done():
		t.gone.Store(true) // t does not go back to idle
		return Decision{}, status.FromContextError(ctx.Err()).Err()
	}
}

// take is one Take under way.
type take struct {
	item     []byte // encoded for the protocol
	deadline time.Time
	timed    bool        // its caller does not watch the deadline, so expire does
	gone     atomic.Bool // its caller has returned, or was told that the deadline has come
	alone    bool        // sent without others, because it was in a request that was refused
	again    bool        // sent a second time, because the stream broke
	sent     time.Time

	done     chan struct{} // gets a token when decision or err is set
	decision Decision
	err      error
}

// idle holds finished takes for reuse: a channel costs more than an answer.
var idle = sync.Pool{New: func() any { return &take{done: make(chan struct{}, 1)} }}

// finish gives the caller its answer, unless it has returned.
func (t *take) finish(d Decision, err error) {
	if !t.gone.Load() {
		t.tell(d, err)
	}
}

func (t *take) tell(d Decision, err error) {
	t.decision, t.err = d, err
	t.done <- struct{}{}
}

// told returns the answer, and puts t back into idle: the caller must not use t afterwards.
func (t *take) told() (Decision, error) {
	d, err := t.decision, t.err
	if !t.gone.Load() { // else takes still refers to it
		t.alone, t.again, t.decision, t.err = false, false, Decision{}, nil
		idle.Put(t)
	}
	return d, err
}

func decision(d *penstockv1.Decision) Decision {
	if d == nil { // no node of this release leaves it out
		d = new(penstockv1.Decision)
	}
	out := Decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
		RetryAfter: duration(d.RetryAfterMs), ResetAfter: duration(d.ResetAfterMs),
		Delay:     duration(d.DelayMs),
		LimitName: d.LimitName, Owner: d.Owner, Source: sourceText(d.Source),
		Degraded: d.Degraded, Bound: d.Bound, Shadow: d.Shadow, Drained: d.Drained,
		Restarted: d.Restarted, Override: d.Override, Tag: d.Tag, Tier: int(d.Tier),
		Denial: Denial{
			Status: int(d.Denial.GetStatus()), ContentType: d.Denial.GetContentType(),
			Body: d.Denial.GetBody(),
		},
	}
	if d.SessionMs != 0 {
		out.Session = time.UnixMilli(d.SessionMs)
	}
	return out
}

func duration(ms int64) time.Duration {
	if ms < 0 {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}
