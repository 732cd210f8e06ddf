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
	Allowed    bool
	Limit      int64         // the most that can be admitted at once
	Remaining  int64         // units that could still be admitted
	RetryAfter time.Duration // smallest wait after which the same cost is admitted; -1 if it was admitted, or never
	ResetAfter time.Duration // wait until the key is as new
	Delay      time.Duration // how long an admitted caller must wait before it goes on
	LimitName  string        // the limit that decided
	Owner      string        // id of the node that owns the key
	Source     string        // who decided: owner, forwarded, replica, lease, denied-cache, fallback, or client if no node answered
	Degraded   bool          // decided under less than the full promise
	Bound      int64         // if degraded: the most that the cluster may admit beyond the limit meanwhile; -1 is unbounded
	Shadow     bool          // the limit refused, but only says so here
	Drained    int64         // what a refused Request with Drain has taken along
	Session    time.Time     // when the session of the key began, of a limit with sessions; else zero
	Restarted  bool          // the key begins anew: it has counters under a limit of this name with another algorithm or period
	Override   string        // pattern of the override that decided; "" if it was the limit itself
}

// Take charges key cost units of the named limit. A cost of 0 reports the state, a negative one gives back. If no node
// answers, it is Config.OnError that does.
func (c *Client) Take(ctx context.Context, limit, key string, cost int64) (Decision, error) {
	return c.Do(ctx, Request{Limit: limit, Key: key, Cost: cost})
}

// Request is a Take with all that it may ask for. Limits that do not have what is asked refuse it with INVALID_ARGUMENT.
type Request struct {
	Limit, Key string
	Cost       int64
	Report     bool      // what was spent already: never refused, leaves a debt of at most the limit's max_debt
	Drain      bool      // if it is refused, it takes all there is; not for a limit with count_rejected
	Strict     bool      // for a token bucket anchored at the first hit: if it leaves the bucket empty, the refill is put off
	At         time.Time // for a limit with client_time: when it happened, in milliseconds; zero: now, by the owner's clock
}

// Do is Take for a Request.
func (c *Client) Do(ctx context.Context, r Request) (Decision, error) {
	lends := c.leases != nil && ctx.Err() == nil && leasable(&r)
	if lends {
		if d, decided := c.leases.decide(&r); decided {
			return d, nil
		}
	}
	var sent limiter.Instant
	if lends {
		sent = c.now()
	}
	d, err := c.take(ctx, r)
	if err != nil {
		return c.fallback.take(err, r)
	}
	if lends {
		c.leases.heard(sent, &r, &d)
	}
	return d, nil
}

func (c *Client) take(ctx context.Context, r Request) (Decision, error) {
	if !utf8.ValidString(r.Limit) { // the protocol has no place for it, and others travel along
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
	if ctx.Done() == nil { // a receive alone takes a third of a select
		<-t.done
		return t.told()
	}
	select {
	case <-t.done:
		return t.told()
	case <-ctx.Done():
		t.gone.Store(true) // and nobody uses it again
		return Decision{}, status.FromContextError(ctx.Err()).Err()
	}
}

// take is one Take on its way.
type take struct {
	item     []byte // as the protocol has it
	deadline time.Time
	timed    bool        // takes has to look whether the deadline has come: its caller does not
	gone     atomic.Bool // nobody waits for it any longer, or it was told that the deadline has come
	alone    bool        // sent without others, because it was in a request that was refused
	again    bool        // sent a second time, because the stream broke
	sent     time.Time

	done     chan struct{} // gets a token when decision or err is set
	decision Decision
	err      error
}

// idle are takes that are on their way no more: a channel costs more than an answer.
var idle = sync.Pool{New: func() any { return &take{done: make(chan struct{}, 1)} }}

// finish tells the caller, unless it is gone.
func (t *take) finish(d Decision, err error) {
	if !t.gone.Load() {
		t.tell(d, err)
	}
}

func (t *take) tell(d Decision, err error) {
	t.decision, t.err = d, err
	t.done <- struct{}{}
}

// told is what the caller was told. Nobody uses t any more, but who gets it from idle.
func (t *take) told() (Decision, error) {
	d, err := t.decision, t.err
	if !t.gone.Load() { // else takes still has it
		t.alone, t.again, t.decision, t.err = false, false, Decision{}, nil
		idle.Put(t)
	}
	return d, err
}

// takes shares one stream among all takes. Two goroutines work while there is a stream: run opens it and reads, write
// writes what waits; between streams there is run alone, and before the first take none.
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
	expiry  *time.Timer // runs expire, if it is armed
	armed   bool
}

const (
	// maxJoined is how many takes travel in one request; a node accepts 1000.
	maxJoined = 500
	// maxWaiting is how many takes may wait to be sent.
	maxWaiting = 1 << 16
	// expireEvery is how often it looks at most whether deadlines have come: it looks at all takes that are on their way.
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

// expire tells those whose callers look at no clock that their deadline has come, and comes again when the next one's does. A timer for each
// would cost more than all else that a take does.
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
				one.gone.Store(true) // nobody else tells its caller anything
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

// converse serves one stream. An error says that there was none.
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

// write sends what waits until the stream ends. It lets callers that are ready run once before it looks, so that their
// takes join.
func (t *takes) write(ctx context.Context, stream penstockv1.RateLimiter_CheckStreamClient) {
	for {
		runtime.Gosched()
		for in := t.join(); in != nil; in = t.join() {
			if stream.SendMsg(&in) != nil {
				return // the reader learns why, and repeats what was not answered
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

// join makes one request of what waits; nil if nothing does.
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
		// One bad take has spoilt the request, and nothing was charged: send each by itself.
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

// repeat puts the takes back that a broken stream has left without an answer, once.
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
