// Package envoy is a door for Envoy proxies: the rate limit service envoy.service.ratelimit.v3,
// with the configuration files of envoyproxy/ratelimit, which it replaces. Follow one request:
//
//  1. An Envoy sends a domain and descriptors, lists of keys and values. The files in force
//     (package policy) say which limit each descriptor meets; ask (question.go) makes a question of
//     that, or knows the answer without asking: no limit, no bound, a limit of 0.
//  2. All questions become one cluster.Request, with a deadline that leaves an Envoy time to hear
//     the answer, and the node decides them like those of any other door.
//  3. The decisions become statuses, in the order of the descriptors, and one code for all of them
//     (answer.go).
//
// Envoys that decide by themselves get leases instead: envoy.service.rate_limit_quota.v3
// (quota.go).
//
// POST /json asks the same in proto3 JSON (json.go). What is counted is shown as metrics
// (tally.go).
package envoy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/rpc/access"
	"penstock/rpc/audit"
	"penstock/rpc/door"
)

// within is how long a check may take. An Envoy waits 20 ms for an answer unless it is told
// otherwise, and then passes the request unasked; an owner that hangs must not cost more than that,
// so that on_error decides and not the Envoy.
const within = 12 * time.Millisecond

// Door is the service. It answers with an error until Set gives it limits.
type Door struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	quotav3.UnimplementedRateLimitQuotaServiceServer
	node    *cluster.Node
	clock   cluster.Clock
	inlines *door.Inlines // limits of descriptors that bring their own
	inForce atomic.Pointer[inForce]

	strangers atomic.Uint64 // requests of a domain that no file has
	failed    atomic.Uint64 // requests answered with an error
	leases    atomic.Uint64 // lent to Envoys that decide by themselves (quota.go)

	seconds prometheus.Observer // of requests; nil: they are not measured
	audit   *audit.Log          // of refunds; nil: nothing is recorded

	ending <-chan struct{} // closed when streams shall end; nil: never

	mu      sync.RWMutex // guards tallies
	tallies map[series]*tally
}

// inForce are the limits of all files, and where what they decide is counted.
type inForce struct {
	*policy.Envoy
	tallies []*tally // by Rule.Number
}

// New makes a door to a node; clock is the node's. It shares inlines, the limits that requests
// bring along, with the node's other doors; nil: it has its own.
func New(node *cluster.Node, clock cluster.Clock, inlines *door.Inlines) *Door {
	if inlines == nil {
		inlines = &door.Inlines{Node: node}
	}
	return &Door{node: node, clock: clock, inlines: inlines, tallies: map[series]*tally{}}
}

// Set puts limits in force for all requests that begin from now on.
func (d *Door) Set(limits *policy.Envoy) {
	d.inForce.Store(&inForce{limits, d.renewTallies(limits)})
}

// Measure has o be told how long each request took, in seconds. Call it before the door is opened.
func (d *Door) Measure(o prometheus.Observer) { d.seconds = o }

// Record has log know what Envoys give back. Call it before the door is opened.
func (d *Door) Record(log *audit.Log) { d.audit = log }

// Register adds the services to a server; their streams end when ending is closed.
func (d *Door) Register(s grpc.ServiceRegistrar, ending <-chan struct{}) {
	d.ending = ending
	ratelimitv3.RegisterRateLimitServiceServer(s, d)
	quotav3.RegisterRateLimitQuotaServiceServer(s, d)
}

// ShouldRateLimit says whether a request may pass.
func (d *Door) ShouldRateLimit(ctx context.Context,
	in *ratelimitv3.RateLimitRequest,
) (*ratelimitv3.RateLimitResponse, error) {
	out, err := d.decide(ctx, in)
	if err != nil {
		return nil, door.StatusError(err)
	}
	return out, nil
}

// decide is every request of this door: questions, Node.Check, answers.
func (d *Door) decide(ctx context.Context,
	in *ratelimitv3.RateLimitRequest,
) (*ratelimitv3.RateLimitResponse, error) {
	if d.seconds != nil {
		defer func(began time.Time) { d.seconds.Observe(time.Since(began).Seconds()) }(time.Now())
	}
	limits := d.inForce.Load()
	err := access.Of(ctx).May(access.Check) // also if nothing limits what is asked for
	if err == nil {
		err = check(limits, in)
	}
	if err != nil {
		d.failed.Add(1)
		return nil, err
	}
	domain := limits.Domain(in.Domain)
	if domain == nil {
		d.strangers.Add(1)
		return unlimited(len(in.Descriptors)), nil
	}
	questions, err := ask(domain, in)
	if err == nil {
		err = permit(access.Of(ctx), in.Domain, questions)
	}
	if err == nil {
		err = d.bring(ctx, questions)
	}
	if err != nil {
		d.failed.Add(1)
		return nil, err
	}
	now := d.clock.Now()
	request := gather(questions, domain.Atomic)
	request.Deadline = deadline(ctx, now)
	decisions := make([]cluster.Decision, len(request.Items))
	if len(request.Items) > 0 {
		if err := d.charge(ctx, request, decisions); err != nil {
			d.failed.Add(1)
			return nil, err
		}
	}
	if domain.Atomic && !request.Atomic { // only looked up: what they would leave is there still
		showUncharged(request.Items, decisions)
	}
	for i := range questions {
		questions[i].decide(now, decisions)
		d.count(limits, domain, &questions[i])
	}
	return answer(domain, in, questions), nil
}

// charge asks the node for request, and records what that gives back.
func (d *Door) charge(
	ctx context.Context, request *cluster.Request, out []cluster.Decision,
) error {
	if door.GivesBack(request.Items) {
		return door.RecorderOf(ctx, d.audit).Check(d.node, request, out)
	}
	return d.node.Check(request, out)
}

// showUncharged has decisions that were only looked up show what is left: neither their costs were
// charged, nor did those that are refused drain anything.
func showUncharged(items []cluster.Item, decisions []cluster.Decision) {
	for i := range decisions {
		d := &decisions[i]
		if cost := items[i].Cost; cost > 0 && d.Allowed {
			d.Remaining += cost
		}
		d.Remaining, d.Drained = d.Remaining+d.Drained, 0
	}
}

// permit is nil if the client of t may ask all questions. Limits of files go by the name of their
// domain.
func permit(t *access.Ticket, domain string, questions []question) error {
	c, err := t.Client()
	if err != nil {
		return err
	}
	for i := range questions {
		q := &questions[i]
		a := access.Ask{Limit: domain, Inline: q.brought, Key: q.Key}
		if q.brought {
			a.Domain = domain // it may share the counters of a limit of the files
		}
		if q.hits < 0 {
			a.Act = access.GiveBack
		}
		if err := c.MayAsk(a); q.limit != nil && err != nil {
			return err
		}
	}
	return nil
}

// bring counts the limits that descriptors bring along among those of their client.
func (d *Door) bring(ctx context.Context, questions []question) (err error) {
	for i := range questions {
		if q := &questions[i]; q.brought && q.limit != nil {
			if q.limit, err = d.inlines.BringCall(ctx, q.limit.Spec); err != nil {
				return err
			}
		}
	}
	return nil
}

// check refuses what is not a request.
func check(limits *inForce, in *ratelimitv3.RateLimitRequest) error {
	switch n := len(in.Descriptors); {
	case limits == nil:
		return door.Wrong("domain", "this node has no limits for Envoys; "+
			"start it with --envoy-config DIR")
	case in.Domain == "":
		return door.Wrong("domain", "is empty")
	case n == 0 || n > cluster.MaxItems:
		return door.Wrong("descriptors", "has %d descriptors; 1 to %d are accepted", n,
			cluster.MaxItems)
	}
	return nil
}

// deadline is when the node must have decided: within the door's own bound, or earlier if the
// client waits for less.
func deadline(ctx context.Context, now limiter.Instant) limiter.Instant {
	left := within
	if t, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(t)*3/5) // the rest is for the way back
	}
	return now.Add(left)
}
