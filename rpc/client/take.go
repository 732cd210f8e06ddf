package client

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
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
	Delay      time.Duration // how long an admitted caller must wait before it goes on
	LimitName  string        // the limit that decided
	Owner      string        // id of the node that owns the key
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
}

// Take charges key cost units of the named limit. A cost of 0 reports the state, a negative one
// refunds. If no node answers, Config.OnError decides.
func (c *Client) Take(ctx context.Context, limit, key string, cost int64) (Decision, error) {
	return c.Do(ctx, Request{Limit: limit, Key: key, Cost: cost})
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
}

// Do is Take for a Request.
func (c *Client) Do(ctx context.Context, r Request) (d Decision, err error) {
	lends := c.leases != nil && ctx.Err() == nil && leasable(&r)
	if lends && c.leases.decide(&r, &d) {
		return d, nil
	}
	var sent limiter.Instant
	if lends {
		sent = c.now()
	}
	d, err = c.take(ctx, r)
	if err != nil {
		return c.fallback.take(err, r)
	}
	if lends {
		c.leases.heard(sent, &r, &d)
	}
	return d, nil
}

func (c *Client) take(ctx context.Context, r Request) (Decision, error) {
	// the protocol cannot encode it, and it would spoil the other takes of the message
	if !utf8.ValidString(r.Limit) {
		return Decision{}, status.Errorf(codes.InvalidArgument, "items[0].limit: %q is no UTF-8", r.Limit)
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

// takes shares one stream among all takes. While there is a stream, two goroutines work: run opens
// it and reads, write sends the waiting takes. Between streams there is only run, and before the
// first take neither.
type takes struct {
	client  penstockv1.RateLimiterClient
	targets *targets
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	wake    chan struct{} // holds a token if something waits
	ended   chan struct{} // closed when run has returned

	mu      sync.Mutex // guards all below
	started bool
	waiting []*take
	sent    map[uint64][]*take // requests without an answer, by tag
	tag     uint64
	expiry  *time.Timer // runs expire
	armed   bool
}

const (
	// maxJoined is how many takes travel in one request; a node accepts 1000.
	maxJoined = 500
	// maxWaiting is how many takes may wait to be sent.
	maxWaiting = 1 << 16
	// expireEvery is the shortest interval between two runs of expire: each looks at all takes
	// under way.
	expireEvery = 5 * time.Millisecond
)

var errClosed = status.Error(codes.Canceled, "client: it is closed")

func newTakes(c penstockv1.RateLimiterClient, to *targets) *takes {
	t := &takes{client: c, targets: to, wake: make(chan struct{}, 1), ended: make(chan struct{}), sent: map[uint64][]*take{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

func (t *takes) close() {
	t.mu.Lock()
	started := t.started
	t.cancel() // from here on post refuses
	if t.expiry != nil {
		t.expiry.Stop()
	}
	t.mu.Unlock()
	if started {
		<-t.ended
	}
}

func (t *takes) post(one *take) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ctx.Err() != nil:
		return errClosed
	case len(t.waiting) >= maxWaiting:
		return status.Errorf(codes.ResourceExhausted, "client: %d takes wait already; the node answers too slowly", len(t.waiting))
	}
	if !t.started {
		t.started = true
		go t.run()
	}
	t.waiting = append(t.waiting, one)
	if len(t.waiting) == 1 {
		t.wakeUp()
	}
	if one.timed && !t.armed {
		t.arm(DefaultTimeout)
	}
	return nil
}

func (t *takes) arm(d time.Duration) {
	if t.armed = true; t.expiry == nil {
		t.expiry = time.AfterFunc(d, t.expire)
	} else {
		t.expiry.Reset(d)
	}
}

// expire answers the callers that watch no clock when their deadline has come, and runs again at
// the next deadline. A timer for each would cost more than the rest of a take.
func (t *takes) expire() {
	var late []*take
	var next time.Time
	t.mu.Lock()
	now := time.Now()
	look := func(all []*take) {
		for _, one := range all {
			switch {
			case !one.timed || one.gone.Load():
			case !one.deadline.After(now):
				one.gone.Store(true) // no other answer reaches its caller
				late = append(late, one)
			case next.IsZero() || one.deadline.Before(next):
				next = one.deadline
			}
		}
	}
	look(t.waiting)
	for _, joined := range t.sent {
		look(joined)
	}
	if t.armed = false; !next.IsZero() && t.ctx.Err() == nil {
		t.arm(max(next.Sub(now), expireEvery))
	}
	t.mu.Unlock()
	for _, one := range late {
		one.tell(Decision{}, status.FromContextError(context.DeadlineExceeded).Err())
	}
}

func (t *takes) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run opens a stream when something waits, and serves it to its end.
func (t *takes) run() {
	defer close(t.ended)
	for {
		select {
		case <-t.wake:
		case <-t.ctx.Done():
			t.failAll(errClosed)
			return
		}
		if err := t.converse(); err != nil {
			t.failAll(err)
		}
	}
}

// converse serves one stream. An error means that no stream was opened.
func (t *takes) converse() error {
	ctx, hangUp := context.WithCancel(t.ctx)
	defer hangUp()
	stream, err := t.client.CheckStream(ctx, grpc.ForceCodecV2(bytesCodec{}))
	if err != nil {
		return err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		t.write(ctx, stream)
	}()
	var known names
	var out []byte
	for {
		if err = stream.RecvMsg(&out); err != nil {
			break
		}
		response, ok := readResponse(out)
		if !ok {
			err = status.Error(codes.Internal, "client: the node's answer is no message of this protocol")
			break
		}
		t.receive(response, &known)
	}
	hangUp()
	<-written
	t.repeat(err)
	return nil
}

// write sends the waiting takes until the stream ends. Before it looks, it lets callers that are
// ready run once, so that their takes join.
func (t *takes) write(ctx context.Context, stream penstockv1.RateLimiter_CheckStreamClient) {
	for {
		runtime.Gosched()
		for in := t.join(); in != nil; in = t.join() {
			if stream.SendMsg(&in) != nil {
				return // the reader gets the reason, and repeats the unanswered takes
			}
			runtime.Gosched()
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}
	}
}

// join makes one request of the waiting takes; nil if there are none.
func (t *takes) join() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	joined := make([]*take, 0, min(len(t.waiting), maxJoined))
	var latest time.Time
	n := 0
	for ; n < len(t.waiting) && len(joined) < maxJoined; n++ {
		one := t.waiting[n]
		if one.alone && len(joined) > 0 {
			break
		}
		if one.gone.Load() {
			continue
		}
		if one.deadline.After(latest) {
			latest = one.deadline
		}
		joined = append(joined, one)
		if one.alone {
			n++
			break
		}
	}
	rest := copy(t.waiting, t.waiting[n:])
	clear(t.waiting[rest:])
	t.waiting = t.waiting[:rest]
	if len(joined) == 0 {
		return nil
	}
	t.tag++
	t.sent[t.tag] = joined
	t.targets.begin()
	now := time.Now()
	for _, one := range joined {
		one.sent = now
	}
	return streamRequest(t.tag, joined, latest.Sub(now))
}

// receive hands the decisions of one request to their callers.
func (t *takes) receive(out streamResponse, known *names) {
	t.mu.Lock()
	joined, found := t.sent[out.tag]
	if found {
		t.targets.answered.Add(1)
	}
	delete(t.sent, out.tag)
	if out.err != nil && len(joined) > 1 {
		// One bad take had the whole request refused, and nothing was charged: send each by itself.
		for _, one := range joined {
			one.alone = true
		}
		t.waiting = append(t.waiting, joined...)
		t.wakeUp()
		joined = nil
	}
	t.mu.Unlock()
	for i, one := range joined {
		var d Decision
		switch {
		case out.err != nil:
			one.finish(Decision{}, out.err)
		case out.next(&d, known):
			one.finish(d, nil)
		default:
			one.finish(Decision{}, status.Errorf(codes.Internal, "client: the node answered %d of %d takes", i, len(joined)))
		}
	}
}

// repeat queues the unanswered takes of a broken stream again, once.
func (t *takes) repeat(err error) {
	var failed []*take
	t.mu.Lock()
	for tag, joined := range t.sent {
		delete(t.sent, tag)
		t.targets.answered.Add(1)
		for _, one := range joined {
			if one.again || time.Since(one.sent) > repeatWithin || t.ctx.Err() != nil || status.Code(err) != codes.Unavailable {
				failed = append(failed, one)
			} else {
				one.again = true
				t.waiting = append(t.waiting, one)
			}
		}
	}
	if len(t.waiting) > 0 {
		t.wakeUp()
	}
	t.mu.Unlock()
	for _, one := range failed {
		one.finish(Decision{}, err)
	}
}

func (t *takes) failAll(err error) {
	t.mu.Lock()
	failed := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	for _, one := range failed {
		one.finish(Decision{}, err)
	}
}

func decision(d *penstockv1.Decision) Decision {
	out := Decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
		RetryAfter: duration(d.RetryAfterMs), ResetAfter: duration(d.ResetAfterMs), Delay: duration(d.DelayMs),
		LimitName: d.LimitName, Owner: d.Owner, Source: sourceText(d.Source),
		Degraded: d.Degraded, Bound: d.Bound, Shadow: d.Shadow, Drained: d.Drained, Restarted: d.Restarted, Override: d.Override,
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
