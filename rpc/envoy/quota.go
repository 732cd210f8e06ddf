package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/rpc/access"
	"penstock/rpc/door"
)

// The rate limit quota service is the other way round: an Envoy decides by itself, and says from
// time to time what it has done. What it may do for a bucket is lent to it: a lease is a hold
// (cluster.OpReserve) on the key of the bucket's limit.
//
//	A report comes: what was admitted counts against the leases that the bucket has, the oldest
//	first. What goes beyond them (an Envoy without a lease admits by its own
//	no_assignment_behavior) is charged as it is.
//	The bucket wants a lease, because the last one nears its end or is nearly spent: as much as it
//	will use by its rate, or half of what there is, if that is less. The Envoy gets a token bucket
//	that is full once and never refilled.
//	A lease is settled with the first report that was surely sent after its end: the Envoy does
//	not use it any more, and has said what it used. Until then all of it counts as spent, also
//	while a new one is on its way to the Envoy: so all Envoys together never have more than the
//	limit.
//	The Envoy says nothing more: its leases run out by themselves, and count as used.

const (
	leaseAtMost  = 10 * time.Second
	leaseAtLeast = time.Second
	leaseLongest = time.Minute // also for Envoys that report seldom
	// leaseSlack is what a message takes from or to an Envoy, at most.
	leaseSlack = time.Second
	// idleReports is how many reports in a row may say that nothing came, before the bucket is let
	// go.
	idleReports = 6
	maxBuckets  = 4096 // of one stream
	askWithin   = 250 * time.Millisecond
)

// lease is an amount lent to an Envoy for one bucket.
type lease struct {
	id    cluster.ID
	limit *limiter.Limit
	units int64
	used  int64           // of what has been reported
	since int64           // all that was reported since it was lent
	ends  limiter.Instant // for the Envoy, at the latest
}

// bucket is what a stream knows of one of its buckets.
type bucket struct {
	key    string // of the counter
	leases []*lease
	idle   int // reports without any request, in a row
	heard  limiter.Instant
}

// quotas is one stream: all is done by the goroutine that serves it.
type quotas struct {
	door    *Door
	who     *access.Ticket
	mark    uint64 // of the client, for its holds
	domain  string
	buckets map[string]*bucket // by the text of their ids
}

// quotas is a new stream with the context ctx.
func (d *Door) quotas(ctx context.Context) *quotas {
	from := door.Caller{Context: ctx}
	return &quotas{
		door: d, who: from.Ticket(), mark: from.Mark(d.node.ID()), buckets: map[string]*bucket{},
	}
}

// StreamRateLimitQuotas lends to one Envoy until it hangs up.
func (d *Door) StreamRateLimitQuotas(
	stream quotav3.RateLimitQuotaService_StreamRateLimitQuotasServer,
) error {
	reports, ended := make(chan *quotav3.RateLimitQuotaUsageReports), make(chan error, 1)
	go func() {
		for {
			in, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case reports <- in:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	q := d.quotas(stream.Context())
	for {
		var in *quotav3.RateLimitQuotaUsageReports
		select {
		case in = <-reports:
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-d.ending:
			return status.Error(codes.Unavailable, "this node is stopping")
		}
		out, err := q.hear(in)
		if err != nil {
			d.failed.Add(1)
			return door.StatusError(err)
		}
		if len(out.GetBucketAction()) > 0 {
			if err := stream.Send(out); err != nil {
				return err
			}
		}
	}
}

// hear takes a report in, and answers with what is to be done about its buckets.
func (q *quotas) hear(
	in *quotav3.RateLimitQuotaUsageReports,
) (*quotav3.RateLimitQuotaResponse, error) {
	out := new(quotav3.RateLimitQuotaResponse)
	if err := q.who.May(access.Check); err != nil {
		return nil, err
	}
	limits := q.door.inForce.Load()
	switch {
	case limits == nil:
		return nil, door.Wrong("domain", "this node has no limits for "+
			"Envoys; start it with --envoy-config DIR")
	case q.domain == "" && in.Domain == "":
		return nil, door.Wrong("domain", "is empty in the first report of a stream")
	case q.domain != "" && in.Domain != "" && in.Domain != q.domain:
		return nil, door.Wrong("domain", "%.100q is not that of the first report, %.100q",
			in.Domain, q.domain)
	case len(in.BucketQuotaUsages) > cluster.MaxItems:
		return nil, door.Wrong("bucket_quota_usages", "has %d buckets; at most %d are accepted",
			len(in.BucketQuotaUsages), cluster.MaxItems)
	case in.Domain != "":
		q.domain = in.Domain
	}
	domain := limits.Domain(q.domain)
	if domain == nil {
		q.door.strangers.Add(1)
	}
	for i, u := range in.BucketQuotaUsages {
		if len(u.GetBucketId().GetBucket()) == 0 {
			return nil, door.Wrong(fmt.Sprintf("bucket_quota_usages[%d].bucket_id", i),
				"is empty")
		}
		action, err := q.report(domain, u)
		if err != nil {
			return nil, err
		}
		if action != nil {
			action.BucketId = u.BucketId
			out.BucketAction = append(out.BucketAction, action)
		}
	}
	return out, nil
}

// mayAsk is nil if the Envoy may ask about a key of its domain.
func (q *quotas) mayAsk(key string) error {
	c, err := q.who.Client()
	if err != nil {
		return err
	}
	return c.MayAsk(access.Ask{Limit: q.domain, Key: key})
}

// report is what becomes of one bucket; nil: it goes on as it is.
func (q *quotas) report(domain *policy.Domain,
	u *quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage,
) (*quotav3.RateLimitQuotaResponse_BucketAction, error) {
	var m policy.Match
	now := q.door.clock.Now()
	entries := entriesOf(u.BucketId)
	if domain != nil {
		m = domain.Match(entries)
	}
	name := fmt.Sprintf("%q", entries)
	if m.Rule == nil { // no limit: it need not tell of this bucket any more
		delete(q.buckets, name)
		return abandon(), nil
	}
	if m.Rule.Unlimited || m.Rule.Limit == nil {
		return assign(leaseLongest, blanket(withoutLimit(m.Rule))), nil
	}
	if err := q.mayAsk(m.Key); err != nil {
		return nil, err
	}
	b, err := q.bucket(name, now)
	if err != nil {
		return nil, err
	}
	b.key, b.heard = m.Key, now
	admitted, refused := count(u.NumRequestsAllowed), count(u.NumRequestsDenied)
	if b.idle++; admitted+refused > 0 {
		b.idle = 0
	}
	if more := b.use(admitted); more > 0 {
		q.charge(b, m.Rule.Limit, more)
	}
	q.settle(now, b)
	if m.Rule.Shadow {
		return assign(leaseLongest, blanket(typev3.RateLimitStrategy_ALLOW_ALL)), nil
	}
	if b.idle >= idleReports {
		if len(b.leases) > 0 {
			return nil, nil // it ends soon
		}
		delete(q.buckets, name)
		return abandon(), nil
	}
	every := min(u.TimeElapsed.AsDuration(), limiter.MaxTTL) // twice that is an int64 too
	lasts := leaseOf(m.Rule.Limit.Per, every)
	if !b.wants(now, lasts) {
		return nil, nil
	}
	return q.lend(now, b, m.Rule.Limit, lasts, every, admitted+refused), nil
}

// withoutLimit is what a rule says that has nothing to count: 0 requests are refused, unless the
// rule only shows what it would do.
func withoutLimit(r *policy.Rule) typev3.RateLimitStrategy_BlanketRule {
	if r.Unlimited || r.Shadow {
		return typev3.RateLimitStrategy_ALLOW_ALL
	}
	return typev3.RateLimitStrategy_DENY_ALL
}

// bucket is the one of that name, which is new if there was none.
func (q *quotas) bucket(name string, now limiter.Instant) (*bucket, error) {
	if b := q.buckets[name]; b != nil {
		return b, nil
	}
	if !q.room(now) {
		return nil, door.Wrong("bucket_quota_usages", "name more than %d buckets on one stream",
			maxBuckets)
	}
	b := new(bucket)
	q.buckets[name] = b
	return b, nil
}

// entriesOf are the pairs of a bucket's id in the order of their keys, in which files nest them.
func entriesOf(id *quotav3.BucketId) (entries []policy.Entry) {
	for k, v := range id.GetBucket() {
		entries = append(entries, policy.Entry{Key: k, Value: v})
	}
	slices.SortFunc(entries, func(a, b policy.Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries
}

// count bounds what an Envoy says.
func count(n uint64) int64 { return int64(min(n, limiter.MaxLimit)) }

// lend opens a lease for a bucket that reports so often, and to which so many requests came
// meanwhile; or tells the Envoy to refuse until there is something to lend again.
func (q *quotas) lend(now limiter.Instant, b *bucket, l *limiter.Limit, lasts, every time.Duration,
	came int64,
) *quotav3.RateLimitQuotaResponse_BucketAction {
	state, ok := q.check(&cluster.Item{Inline: l, Key: b.key, Op: cluster.OpPeek})
	if !ok {
		return nil // the Envoy goes on with what it has, and then by its own rule
	}
	units := min(needs(came, every, lasts), (state.Remaining+1)/2)
	if units >= 1 {
		hold := cluster.Item{
			Inline: l, Key: b.key, Cost: units, Op: cluster.OpReserve,
			Hold: &cluster.HoldTerms{
				TTL:    min(limiter.MaxTTL, lasts+3*leaseSlack+2*max(0, every)),
				Holder: "envoy", Client: q.mark,
			},
		}
		got, ok := q.check(&hold)
		if !ok {
			return nil
		}
		if got.Allowed && got.Hold == limiter.HoldOpen {
			q.door.leases.Add(1)
			b.leases = append(b.leases, &lease{
				id: hold.ID, limit: l, units: units,
				ends: now.Add(lasts + leaseSlack),
			})
			return assign(lasts, tokens(units, uint64(q.door.leases.Load())))
		}
		state = got
	}
	if b.lives(now) {
		return nil
	}
	return assign(min(lasts, max(leaseAtLeast/2, state.ResetAfter)),
		blanket(typev3.RateLimitStrategy_DENY_ALL))
}

// settle ends the leases that are spent, or that had ended before the report of now was sent: what
// was used is charged, the rest released.
func (q *quotas) settle(now limiter.Instant, b *bucket) {
	b.leases = slices.DeleteFunc(b.leases, func(l *lease) bool {
		if now < l.ends.Add(leaseSlack) && l.used < l.units {
			return false
		}
		q.check(&cluster.Item{
			Inline: l.limit, Key: b.key, Cost: l.used, Op: cluster.OpSettle,
			Hold: &cluster.HoldTerms{ID: l.id, Holder: "envoy"},
		})
		return true
	})
}

// room reports whether there is room for a bucket, if need be by forgetting those that nothing is
// said of any more.
func (q *quotas) room(now limiter.Instant) bool {
	if len(q.buckets) >= maxBuckets {
		maps.DeleteFunc(q.buckets, func(_ string, b *bucket) bool {
			return now > b.heard.Add(2*leaseLongest)
		})
	}
	return len(q.buckets) < maxBuckets
}

// charge charges what an Envoy has admitted without a lease.
func (q *quotas) charge(b *bucket, l *limiter.Limit, n int64) {
	q.check(&cluster.Item{Inline: l, Key: b.key, Cost: n, Terms: cluster.Terms{Report: true}})
}

// check asks the node about one item, and names its hold. A fallback is no answer: what nobody has
// counted cannot be lent.
func (q *quotas) check(it *cluster.Item) (cluster.Decision, bool) {
	var out [1]cluster.Decision
	r := cluster.Request{Items: []cluster.Item{*it}, Deadline: q.door.clock.Now().Add(askWithin)}
	err := q.door.node.Check(&r, out[:])
	if err == nil {
		it.ID = out[0].ID
	}
	if err != nil || out[0].Source == cluster.SourceFallback {
		q.door.failed.Add(1)
		return out[0], false
	}
	return out[0], true
}
