package client

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
)

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

var (
	errClosed = status.Error(codes.Canceled, "client: it is closed")
	errBroke  = status.Error(codes.Unavailable,
		"client: the connection broke, and it was too late to ask again")
)

func newTakes(c penstockv1.RateLimiterClient, to *targets) *takes {
	t := &takes{
		client: c, targets: to, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		sent: map[uint64][]*take{},
	}
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
		return status.Errorf(codes.ResourceExhausted,
			"client: %d takes wait already; the node answers too slowly", len(t.waiting))
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
			err = status.Error(codes.Internal,
				"client: the node's answer is not a message of this protocol")
			break
		}
		t.receive(response, &known)
	}
	if errors.Is(err, io.EOF) { // the other end has ended it, a proxy perhaps
		err = status.Error(codes.Unavailable, "client: the stream has ended before the answer")
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

// join makes one request of the waiting takes; nil if there are none. A take that was sent before
// may have waited for a stream until its owner has forgotten its id: it is not sent again.
func (t *takes) join() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	joined := make([]*take, 0, min(len(t.waiting), maxJoined))
	now := time.Now()
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
		if one.again && now.Sub(one.sent) > repeatWithin {
			one.finish(Decision{}, errBroke)
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
	if out.err != nil && len(joined) > 1 && aboutATake(out.err) {
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
			t.targets.heard(&d)
			one.finish(d, nil)
		default:
			one.finish(Decision{}, status.Errorf(codes.Internal,
				"client: the node answered %d of %d takes", i, len(joined)))
		}
	}
}

// aboutATake reports whether a request was refused because of what one of its takes asks for, and
// not because of its caller, its time, or all that the node has to do: of that, many requests
// instead of one would only be more.
func aboutATake(err error) bool {
	switch status.Code(err) {
	case codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled,
		codes.Unauthenticated:
		return false
	}
	return true
}

// repeat queues the unanswered takes of a broken stream again, once.
func (t *takes) repeat(err error) {
	var failed []*take
	t.mu.Lock()
	for tag, joined := range t.sent {
		delete(t.sent, tag)
		t.targets.answered.Add(1)
		for _, one := range joined {
			if one.again || time.Since(one.sent) > repeatWithin || t.ctx.Err() != nil ||
				status.Code(err) != codes.Unavailable {
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
