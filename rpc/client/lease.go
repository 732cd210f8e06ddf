package client

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
)

// leases decide in this process on the keys that it asks for often, of limits with consistency leased (Config.Leases). A lease
// is a hold as a Reservation is one, and limiter.Lease says when it is asked for, how it is sized and when it ends; that is
// what nodes do among each other as well. What is set aside counts as spent in the cluster, so nothing is admitted twice.
//
//	in use        by 80 % spent, and before its end, the next one is asked for; then the first is settled with what was used.
//	not needed    after a tick without a request it is settled, and at Close.
//	client gone   it runs out in the cluster, and is charged in full.
//
// Denials are never remembered here: who is refused a lease asks for each request, and the nodes remember them.
type leases struct {
	client *Client
	holder string
	ctx    context.Context // of all messages
	cancel context.CancelFunc
	ended  chan struct{} // closed by close
	work   sync.WaitGroup

	mu      sync.Mutex // guards all below
	closed  bool
	tending bool // the goroutine that ticks is there
	keys    map[leaseKey]*lease
	refused map[string]limiter.Instant // limits that lend nothing, and when they are asked again
}

type leaseKey struct{ limit, key string }

// lease is one key. Guarded by leases.mu.
type lease struct {
	leaseKey
	limiter.Lease
	id     string   // of what is lent; empty if nothing is
	asking bool     // a message is under way
	last   Decision // what the cluster said last
}

const (
	// leaseTick is the measure of often, and of what is used.
	leaseTick = 100 * time.Millisecond
	// leaseSlack is how much longer a lease lasts in the cluster than here: two clocks do not run equally fast.
	leaseSlack = limiter.LeaseTTL / 50
	// leaseKeys bounds the keys that are counted. For more, the cluster is asked.
	leaseKeys = 1 << 16
	// leaseRefused is how long a limit is not asked again that lends nothing.
	leaseRefused = time.Minute
	// leaseAgain is how long after it failed a settlement is sent again.
	leaseAgain = 50 * time.Millisecond
)

func newLeases(c *Client) *leases {
	l := &leases{
		client: c, holder: fmt.Sprintf("client %x", c.origin), ended: make(chan struct{}),
		keys: make(map[leaseKey]*lease), refused: make(map[string]limiter.Instant),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// close gives all back, as far as somebody answers within DefaultTimeout.
func (s *leases) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.ended)
	}
	for _, l := range s.keys {
		s.retireLocked(l)
	}
	s.mu.Unlock()
	giveUp := time.AfterFunc(DefaultTimeout, s.cancel)
	s.work.Wait()
	giveUp.Stop()
	s.cancel()
}

// leasable reports whether r asks for nothing but units.
func leasable(r *Request) bool {
	return r.Cost > 0 && !r.Report && !r.Drain && !r.Strict && r.At.IsZero()
}

// decide decides on r, which is leasable, if there is a lease for that.
func (s *leases) decide(r *Request) (d Decision, decided bool) {
	now := s.client.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if until, found := s.refused[r.Limit]; s.closed || found && now < until {
		return d, false
	}
	l := s.keys[leaseKey{r.Limit, r.Key}]
	if l == nil {
		if len(s.keys) >= leaseKeys {
			return d, false
		}
		l = &lease{leaseKey: leaseKey{strings.Clone(r.Limit), strings.Clone(r.Key)}}
		s.keys[l.leaseKey] = l
		if !s.tending {
			s.tending = true
			s.work.Go(s.tend)
		}
	}
	var x limiter.Decision
	decided, ask := l.Decide(now, r.Cost, l.last.Limit, &x)
	if ask && !l.asking {
		s.askLocked(l)
	}
	if !decided {
		return d, false
	}
	return Decision{
		Allowed: x.Allowed, Limit: x.Limit, Remaining: x.Remaining, RetryAfter: x.RetryAfter, ResetAfter: x.ResetAfter,
		LimitName: l.last.LimitName, Owner: l.last.Owner, Override: l.last.Override, Source: "lease",
	}, true
}

// heard notes what the cluster has answered to r, which was sent at sent.
func (s *leases) heard(sent limiter.Instant, r *Request, d *Decision) {
	if !d.Allowed || d.Degraded {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.keys[leaseKey{r.Limit, r.Key}]; l != nil {
		l.last = *d
		l.Heard(sent, r.Cost, &limiter.Decision{Allowed: true, Remaining: d.Remaining, ResetAfter: d.ResetAfter})
	}
}

func (s *leases) askLocked(l *lease) {
	l.asking = true
	want := l.Want()
	s.work.Go(func() { s.ask(l, want) })
}

// ask asks for a lease of want units.
func (s *leases) ask(l *lease, want int64) {
	ctx, cancel := context.WithTimeout(s.ctx, limiter.LeaseTTL/2)
	defer cancel()
	in := &penstockv1.ReserveRequest{
		Items: []*penstockv1.Item{{Limit: l.limit, Key: []byte(l.key), Cost: &want, Id: s.client.nextID()}},
		TtlMs: (limiter.LeaseTTL + leaseSlack).Milliseconds(), Holder: s.holder, Lease: true,
	}
	sent := s.client.now()
	var out *penstockv1.ReserveResponse
	err := s.client.twice(ctx, func(ctx context.Context) (err error) {
		out, err = s.client.limits.Reserve(ctx, in)
		return err
	})
	hold := new(penstockv1.Hold)
	if err == nil && len(out.Holds) == 1 {
		hold = out.Holds[0]
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	l.asking = false
	switch status.Code(err) {
	case codes.OK, codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Canceled:
	default:
		s.refused[l.limit] = sent.Add(leaseRefused)
	}
	switch {
	case hold.Id != "" && (hold.Units <= 0 || s.closed):
		if !s.closed && !hold.Decision.GetDegraded() { // a node that does not know leases has made a reservation
			s.refused[l.limit] = sent.Add(leaseRefused)
		}
		l.NotGranted(sent)
		s.settleLocked(l.leaseKey, hold.Id, 0, sent.Add(limiter.LeaseTTL))
	case hold.Id != "":
		s.retireLocked(l)
		l.id, l.last = hold.Id, decision(hold.Decision)
		l.Granted(sent, hold.Units, &limiter.Decision{Remaining: l.last.Remaining, ResetAfter: l.last.ResetAfter})
	default:
		l.NotGranted(sent)
		if l.Units == 0 { // what was spent is better charged than set aside
			s.retireLocked(l)
		}
	}
}

// retireLocked settles the lease in use.
func (s *leases) retireLocked(l *lease) {
	if l.id != "" {
		s.settleLocked(l.leaseKey, l.id, l.Size-l.Units, l.Until)
	}
	l.id, l.Lent = "", limiter.Lent{}
}

func (s *leases) settleLocked(k leaseKey, id string, used int64, until limiter.Instant) {
	s.work.Go(func() { s.settle(k, id, used, until) })
}

// settle says what was used, until somebody hears it or it does not help any more. What was used of a hold that nobody knows
// any more, because who did died before its heir had heard of it, is reported.
func (s *leases) settle(k leaseKey, id string, used int64, until limiter.Instant) {
	h := remoteHold{s.client, id, s.holder}
	for {
		ctx, cancel := context.WithTimeout(s.ctx, limiter.LeaseTTL/2)
		err := h.Settle(ctx, used)
		cancel()
		switch status.Code(err) {
		case codes.NotFound:
			if used > 0 {
				s.client.take(s.ctx, Request{Limit: k.limit, Key: k.key, Cost: used, Report: true})
			}
			return
		case codes.Unavailable, codes.DeadlineExceeded:
		default:
			return
		}
		if s.client.now() >= until.Add(limiter.LeaseTTL) || sleep(s.ctx, leaseAgain) != nil {
			return
		}
	}
}

// tend renews and gives back, as long as there are keys.
func (s *leases) tend() {
	ticker := time.NewTicker(leaseTick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.ended:
			return
		}
		if !s.tick(s.client.now()) {
			return
		}
	}
}

// tick looks at all keys, and reports whether there are any.
func (s *leases) tick(now limiter.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for limit, until := range s.refused {
		if now >= until {
			delete(s.refused, limit)
		}
	}
	for k, l := range s.keys {
		if l.Ended(now) {
			s.retireLocked(l)
		}
		if l.id != "" && l.Ends(now) && !l.asking && !s.closed {
			s.askLocked(l)
		}
		if !l.asking && l.Forgotten() {
			delete(s.keys, k)
		}
		l.Tick()
	}
	s.tending = len(s.keys) > 0
	return s.tending
}
