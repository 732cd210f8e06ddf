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

// leases decide in this process on frequently requested keys, of limits with consistency leased
// (Config.Leases). A lease is a hold, as a Reservation is. limiter.Lease says when it is requested,
// how large it is and when it ends, as it does between nodes. Reserved units count as spent in the
// cluster, so nothing is admitted twice.
//
//	in use        at 80 % spent, and before it ends, the next lease is requested; then the first
//	              is settled
//	not needed    settled after a tick without a request, and by Close
//	client gone   expires in the cluster, and is charged in full
//	suspended     a machine that was suspended uses none of before: they have expired in the
//	              cluster, though this clock stood still
//
// Denials are not cached here: a key that is refused a lease is asked for each time, and the nodes
// cache the denials.
type leases struct {
	client *Client
	holder string
	// whether the machine was suspended since it was asked for that last
	suspended func() bool
	ctx       context.Context // of all messages
	cancel    context.CancelFunc
	ended     chan struct{} // closed by close
	work      sync.WaitGroup

	mu      sync.Mutex // guards all below
	closed  bool
	tending bool // the goroutine of tend is running
	limits  map[string]*leasedLimit
	count   int             // keys of all limits
	lookAt  limiter.Instant // when suspended is called again
	naps    int             // times that the machine was suspended
	// recent is the key that was asked for last, nil if it is forgotten: one that is asked for
	// again and again need not be looked for
	recent *lease
}

// leasedLimit is what is known of one limit. Guarded by leases.mu. Two maps by one string each are
// faster than one map by two strings.
type leasedLimit struct {
	keys    map[string]*lease
	refused limiter.Instant // the limit grants no leases; when to ask for one again
}

type leaseKey struct{ limit, key string }

// lease is one key. Guarded by leases.mu.
type lease struct {
	leaseKey
	limiter.Lease
	of     *leasedLimit // has it among its keys
	id     string       // of the lease; empty if there is none
	asking bool         // a request for a lease is under way
	last   Decision     // the last answer of the cluster
}

const (
	// leaseTick is the interval in which requests and spent units of a key are counted.
	leaseTick = 100 * time.Millisecond
	// leaseSlack is how much longer a lease lasts in the cluster than here: two clocks do not run
	// equally fast.
	leaseSlack = limiter.LeaseTTL / 50
	// leaseKeys bounds the keys that are counted. For further keys the cluster is asked.
	leaseKeys = 1 << 16
	// leaseRefused is the pause before a limit that refused a lease is asked for one again.
	leaseRefused = time.Minute
	// leaseAgain is the pause before a failed settlement is sent again.
	leaseAgain = 50 * time.Millisecond
	// leaseLook is how often it is found out, at most, whether the machine was suspended: that
	// takes longer than a decision.
	leaseLook = 5 * time.Millisecond
)

func newLeases(c *Client) *leases {
	l := &leases{
		client: c, holder: fmt.Sprintf("client %x", c.origin), ended: make(chan struct{}),
		limits: make(map[string]*leasedLimit), suspended: c.fallback.clock.Suspended,
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// close settles all leases, and waits for that at most DefaultTimeout.
func (s *leases) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.ended)
	}
	for _, limit := range s.limits {
		for _, l := range limit.keys {
			s.retireLocked(l)
		}
	}
	s.mu.Unlock()
	giveUp := time.AfterFunc(DefaultTimeout, s.cancel)
	s.work.Wait()
	giveUp.Stop()
	s.cancel()
}

// leasable reports whether a lease can serve r: r asks for units and has no other option.
func leasable(r *Request) bool {
	return r.Cost > 0 && !r.Report && !r.Drain && !r.Strict && r.At.IsZero() && r.Plan == ""
}

// decide decides on r, which must be leasable, into d, if there is a lease for it.
func (s *leases) decide(r *Request, d *Decision) (decided bool) {
	now := s.client.now()
	var x limiter.Decision
	s.mu.Lock()
	if now >= s.lookAt {
		s.lookLocked(now)
	}
	if l := s.findLocked(now, r); l != nil {
		var ask bool
		if decided, ask = l.Decide(now, r.Cost, l.last.Limit, &x); ask && !l.asking {
			s.askLocked(l)
		}
		if decided {
			d.LimitName, d.Owner, d.Override = l.last.LimitName, l.last.Owner, l.last.Override
		}
	}
	s.mu.Unlock()
	if decided {
		d.Allowed, d.Limit, d.Remaining = x.Allowed, x.Limit, x.Remaining
		d.RetryAfter, d.ResetAfter, d.Source = x.RetryAfter, x.ResetAfter, "lease"
	}
	return decided
}

// lookLocked ends all leases if the machine was suspended.
func (s *leases) lookLocked(now limiter.Instant) {
	s.lookAt = now.Add(leaseLook)
	if !s.suspended() {
		return
	}
	s.naps++
	for _, limit := range s.limits {
		for _, l := range limit.keys {
			l.Until = napped(now)
			s.retireLocked(l)
		}
	}
}

// napped is the end of a lease from before the machine was suspended: so long ago that its
// settlement is said once.
func napped(now limiter.Instant) limiter.Instant { return now.Add(-2 * limiter.LeaseTTL) }

// findLocked is the key of r, which is counted from now on, or nil if the cluster has to be asked.
func (s *leases) findLocked(now limiter.Instant, r *Request) *lease {
	if l := s.recent; l != nil && l.key == r.Key && l.limit == r.Limit && !s.closed &&
		now >= l.of.refused {
		return l
	}
	limit := s.limits[r.Limit]
	if s.closed || limit != nil && now < limit.refused {
		return nil
	}
	if limit != nil {
		if l := limit.keys[r.Key]; l != nil {
			s.recent = l
			return l
		}
	}
	if s.count >= leaseKeys {
		return nil
	}
	l := &lease{leaseKey: leaseKey{strings.Clone(r.Limit), strings.Clone(r.Key)}}
	l.of = s.limitLocked(l.limit)
	l.of.keys[l.key] = l
	s.count++
	if !s.tending {
		s.tending = true
		s.work.Go(s.tend)
	}
	return l
}

// limitLocked is the limit of that name.
func (s *leases) limitLocked(name string) *leasedLimit {
	limit := s.limits[name]
	if limit == nil {
		limit = &leasedLimit{keys: make(map[string]*lease)}
		s.limits[name] = limit
	}
	return limit
}

// heard notes the cluster's answer to r. r was sent at sent.
func (s *leases) heard(sent limiter.Instant, r *Request, d *Decision) {
	if !d.Allowed || d.Degraded {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.limits[r.Limit]
	if limit == nil {
		return
	}
	if l := limit.keys[r.Key]; l != nil {
		l.last = *d
		l.Heard(sent, r.Cost, &limiter.Decision{
			Allowed: true, Remaining: d.Remaining,
			ResetAfter: d.ResetAfter,
		})
	}
}

func (s *leases) askLocked(l *lease) {
	l.asking = true
	want, naps := l.Want(), s.naps
	s.work.Go(func() { s.ask(l, want, naps) })
}

// ask requests a lease of want units. Until then the machine has been suspended so many times.
func (s *leases) ask(l *lease, want int64, naps int) {
	ctx, cancel := context.WithTimeout(s.ctx, limiter.LeaseTTL/2)
	defer cancel()
	in := &penstockv1.ReserveRequest{
		Items: []*penstockv1.Item{{
			Limit: l.limit, Key: []byte(l.key), Cost: &want,
			Id: s.client.nextID(),
		}},
		TtlMs: (limiter.LeaseTTL + leaseSlack).Milliseconds(), Holder: s.holder, Lease: true,
	}
	sent := s.client.now()
	out, err := s.client.limits.Reserve(ctx, in)
	hold := new(penstockv1.Hold)
	if err == nil && len(out.Holds) == 1 {
		hold = out.Holds[0]
	}

	now := s.client.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookLocked(now)
	l.asking = false
	switch status.Code(err) {
	case codes.OK, codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted,
		codes.Canceled:
	default:
		s.limitLocked(l.limit).refused = sent.Add(leaseRefused)
	}
	switch {
	case hold.Id != "" && s.naps != naps:
		s.settleLocked(l.leaseKey, hold.Id, 0, napped(now))
	case hold.Id != "" && (hold.Units <= 0 || s.closed):
		// a node that does not know leases has made a reservation
		if !s.closed && !hold.Decision.GetDegraded() {
			s.limitLocked(l.limit).refused = sent.Add(leaseRefused)
		}
		l.NotGranted(sent)
		s.settleLocked(l.leaseKey, hold.Id, 0, sent.Add(limiter.LeaseTTL))
	case hold.Id != "":
		s.retireLocked(l)
		l.id, l.last = hold.Id, decision(hold.Decision)
		l.Granted(sent, hold.Units, &limiter.Decision{
			Remaining:  l.last.Remaining,
			ResetAfter: l.last.ResetAfter,
		})
	default:
		l.NotGranted(sent)
		if l.Units == 0 { // it is better to charge the spent units than to keep them reserved
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

// settle reports the used units until a node accepts them or it is too late. If the hold is
// unknown, because its keeper died before it was copied, the used units are reported as a take.
// Long after its end it is unknown because it was charged in full and forgotten.
func (s *leases) settle(k leaseKey, id string, used int64, until limiter.Instant) {
	h := remoteHold{s.client, id, s.holder}
	for {
		ctx, cancel := context.WithTimeout(s.ctx, limiter.LeaseTTL/2)
		err := h.Settle(ctx, used)
		cancel()
		switch status.Code(err) {
		case codes.NotFound:
			if used > 0 && s.client.now() < until.Add(limiter.LeaseTTL) {
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

// tend renews and settles leases as long as there are keys.
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

// tick visits all keys, and reports whether there are any.
func (s *leases) tick(now limiter.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookLocked(now)
	for name, limit := range s.limits {
		for key, l := range limit.keys {
			if l.Ended(now) {
				s.retireLocked(l)
			}
			if l.id != "" && l.Ends(now) && !l.asking && !s.closed {
				s.askLocked(l)
			}
			if !l.asking && l.Forgotten() {
				delete(limit.keys, key)
				s.count--
				if s.recent == l {
					s.recent = nil
				}
			}
			l.Tick()
		}
		if len(limit.keys) == 0 && now >= limit.refused {
			delete(s.limits, name)
		}
	}
	s.tending = s.count > 0
	return s.tending
}
