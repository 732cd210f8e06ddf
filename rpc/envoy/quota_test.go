package envoy

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/clock"
	"penstock/rpc/native"
)

const quotaLimits = `
domain: q
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: open, rate_limit: {unlimited: true}}
  - {key: shut, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: dry, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}
  - key: a
    descriptors:
      - {key: b, rate_limit: {unit: minute, requests_per_unit: 10}}
`

func quotaBucket(pairs ...string) *quotav3.BucketId {
	id := &quotav3.BucketId{Bucket: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		id.Bucket[pairs[i]] = pairs[i+1]
	}
	return id
}

func usage(id *quotav3.BucketId, every time.Duration, allowed,
	denied uint64,
) *quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage {
	return &quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: id, TimeElapsed: durationpb.New(every), NumRequestsAllowed: allowed,
		NumRequestsDenied: denied,
	}
}

// said is an action in a word: its strategy, or that the bucket is let go; for a token bucket its
// tokens.
func said(t *testing.T,
	a *quotav3.RateLimitQuotaResponse_BucketAction,
) (word string, tokens int64, lasts time.Duration) {
	t.Helper()
	if err := a.ValidateAll(); err != nil {
		t.Errorf("%v: %v", a, err)
	}
	if a.GetAbandonAction() != nil {
		return "abandon", 0, 0
	}
	x := a.GetQuotaAssignmentAction()
	lasts = x.AssignmentTimeToLive.AsDuration()
	if b := x.RateLimitStrategy.GetTokenBucket(); b != nil {
		if b.FillInterval.AsDuration() <= lasts {
			t.Errorf("%v is refilled while it lasts", a)
		}
		return "lease", int64(b.MaxTokens), lasts
	}
	blanket := x.RateLimitStrategy.Strategy.(*typev3.RateLimitStrategy_BlanketRule_)
	return blanket.BlanketRule.String(), 0, lasts
}

// Promise: each bucket gets what its limit is: a lease, all, nothing, or it is let go.
func TestQuotaStrategies(t *testing.T) {
	door, _ := alone(t, quotaLimits)
	q := &quotas{door: door, buckets: map[string]*bucket{}}
	for i, c := range []struct {
		id   *quotav3.BucketId
		want string
	}{
		{quotaBucket("user", "x"), "lease"},
		{quotaBucket("b", "2", "a", "1"), "lease"},
		{quotaBucket("open", "x"), "ALLOW_ALL"},
		{quotaBucket("dry", "x"), "ALLOW_ALL"},
		{quotaBucket("shut", "x"), "DENY_ALL"},
		{quotaBucket("nobody", "x"), "abandon"},
		{quotaBucket("a", "1"), "abandon"},
	} {
		in := &quotav3.RateLimitQuotaUsageReports{}
		in.BucketQuotaUsages = append(in.BucketQuotaUsages, usage(c.id, time.Second, 1, 0))
		if i == 0 {
			in.Domain = "q"
		}
		out, err := q.hear(in)
		if err != nil || len(out.BucketAction) != 1 {
			t.Fatalf("%v: %v, %v", c.id, out, err)
		}
		if word, _, _ := said(t, out.BucketAction[0]); word != c.want {
			t.Errorf("%v: %s, want %s", c.id, word, c.want)
		}
	}
}

// Promise: an Envoy gets a lease whatever it says of how long ago its last report was.
func TestQuotaAfterAnyTime(t *testing.T) {
	for _, elapsed := range []time.Duration{
		math.MinInt64, -1, 0, 1, time.Hour, 1 << 61, 1 << 62, math.MaxInt64,
	} {
		door, _ := alone(t, quotaLimits)
		q := &quotas{door: door, domain: "q", buckets: map[string]*bucket{}}
		out, err := q.hear(&quotav3.RateLimitQuotaUsageReports{
			BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
				usage(quotaBucket("user", "x"), elapsed, 1, 0),
			},
		})
		if err != nil || len(out.BucketAction) != 1 {
			t.Errorf("after %v: %v, %v", elapsed, out, err)
			continue
		}
		if word, _, _ := said(t, out.BucketAction[0]); word != "lease" {
			t.Errorf("after %v: %s", elapsed, word)
		}
	}
}

// Promise: an Envoy with as many holds open as a client may have gets no further lease, and is told
// to deny; another one gets its lease.
func TestQuotaHoldsAreBounded(t *testing.T) {
	door, _ := alone(t, quotaLimits)
	var limits []*limiter.Limit // one client may have half of the holds of each, and of all
	for i := range limiter.MaxHolds / limiter.MaxHoldsOfLimit {
		l, err := limiter.New(limiter.Spec{
			Name: fmt.Sprint("held ", i), Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, l)
	}
	from := func(address string) *quotas {
		at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
		return door.quotas(peer.NewContext(t.Context(), &peer.Peer{Addr: at}))
	}
	greedy := from("192.0.2.1:1")
	r, out := new(cluster.Request), make([]cluster.Decision, 1<<9)
	for i := range limiter.MaxHolds / 2 / len(out) {
		r.Items, r.Atomic, r.Deadline = r.Items[:0], true, 0
		for k := range out {
			r.Items = append(r.Items, cluster.Item{
				Inline: limits[i%len(limits)], Key: "k", Cost: 1, Op: cluster.OpReserve,
				ID: cluster.ID{Origin: 9, Sequence: uint64(i*len(out) + k + 1)},
				Hold: &cluster.HoldTerms{
					TTL: time.Hour, Holder: fmt.Sprint(i), Client: greedy.mark,
				},
			})
		}
		if err := door.node.Check(r, out); err != nil || out[0].Hold != limiter.HoldOpen {
			t.Fatalf("%+v, %v", out[0], err)
		}
	}
	for _, c := range []struct {
		address, want string
	}{{"192.0.2.1:2", "DENY_ALL"}, {"192.0.2.2:1", "lease"}} {
		got, err := from(c.address).hear(&quotav3.RateLimitQuotaUsageReports{
			Domain: "q",
			BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
				usage(quotaBucket("user", "x"), time.Second, 1, 0),
			},
		})
		if err != nil || len(got.BucketAction) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		if word, _, _ := said(t, got.BucketAction[0]); word != c.want {
			t.Errorf("client %s: %s, want %s", c.address, word, c.want)
		}
	}
}

// pulse is a clock with timers that fire.
type pulse struct {
	hand
	due []*due
}

type due struct {
	at   time.Duration
	f    func()
	over bool
}

func (p *pulse) AfterFunc(d time.Duration, f func()) (stop func()) {
	x := &due{at: time.Duration(p.Now()) + d, f: f}
	p.due = append(p.due, x)
	return func() { x.over = true }
}

// pass lets time go by until now.
func (p *pulse) pass(now time.Duration) {
	p.set(now)
	for i := 0; i < len(p.due); i++ {
		if x := p.due[i]; !x.over && x.at <= now {
			x.over = true
			x.f()
		}
	}
	p.due = slices.DeleteFunc(p.due, func(x *due) bool { return x.over })
}

// ticking is a door to a node that is alone, with holds that run out.
func ticking(t *testing.T) (*Door, *pulse) {
	t.Helper()
	clock := new(pulse)
	door := newDoor(t, clock, &silent{clock: &clock.hand}, cluster.Member{
		ID: "n1", Boot: 1,
		State: cluster.StateActive,
	})
	door.node.Start()
	set(t, door, quotaLimits)
	return door, clock
}

// coming is a message on its way.
type coming struct {
	at     time.Duration
	action *quotav3.RateLimitQuotaResponse_BucketAction
}

// anEnvoy is an Envoy with one bucket: it spends what it was lent, and reports from time to time.
// Messages take their time.
type anEnvoy struct {
	q                *quotas
	user             string // in its bucket; empty: x
	tokens           int64
	until            time.Duration
	allowed, denied  uint64
	reported         time.Duration
	coming           []coming
	total            int64
	gone, sawRefusal bool
}

func (e *anEnvoy) request(now time.Duration) {
	if now < e.until && e.tokens > 0 {
		e.tokens--
		e.allowed++
		e.total++
		return
	}
	e.denied++ // no_assignment_behavior and expired_assignment_behavior: deny
}

func (e *anEnvoy) meet(t *testing.T, now time.Duration) {
	for len(e.coming) > 0 && now >= e.coming[0].at {
		word, tokens, lasts := said(t, e.coming[0].action)
		e.sawRefusal = e.sawRefusal || word == "DENY_ALL"
		e.tokens, e.until, e.coming = tokens, now+lasts, e.coming[1:]
	}
}

func (e *anEnvoy) report(t *testing.T, now, way time.Duration) {
	out, err := e.q.hear(&quotav3.RateLimitQuotaUsageReports{
		Domain: "q",
		BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			usage(quotaBucket("user", cmp.Or(e.user, "x")), now-e.reported, e.allowed, e.denied),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.allowed, e.denied, e.reported = 0, 0, now
	if len(out.BucketAction) > 0 {
		e.coming = append(e.coming, coming{now + way, out.BucketAction[0]})
	}
}

// Promise: whatever Envoys do with their leases, together they never admit more than the limit in
// its window, also if one of them dies; and if they go on asking, they get all of it.
func TestQuotaNeverExceedsTheLimit(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			draw := rand.New(rand.NewPCG(seed, 1))
			door, clock := ticking(t)
			envoys := make([]*anEnvoy, 1+draw.IntN(4))
			for i := range envoys {
				envoys[i] = &anEnvoy{q: &quotas{door: door, buckets: map[string]*bucket{}}}
			}
			dies := time.Duration(draw.IntN(3)) * 7 * time.Second // 0: nobody
			every, way := time.Duration(200+draw.IntN(3000))*time.Millisecond,
				time.Duration(draw.IntN(900))*time.Millisecond
			const step = 50 * time.Millisecond
			for now := step; now < 10*time.Minute; now += step {
				clock.pass(now)
				for i, e := range envoys {
					if e.gone = e.gone ||
						dies > 0 && i == 0 && now > dies && len(envoys) > 1; e.gone {
						continue
					}
					e.meet(t, now)
					for range draw.IntN(3) {
						e.request(now)
					}
					if now-e.reported >= every {
						e.report(t, now, way)
					}
				}
			}
			sum, refused := int64(0), false
			for _, e := range envoys {
				sum += e.total
				refused = refused || e.sawRefusal
			}
			least := int64(100)
			if dies > 0 {
				least = 100 - 50 // what the dead one had counts as used
			}
			if sum > 100 || sum < least || !refused {
				t.Errorf("%d of 100 were admitted, by %d Envoys; told to refuse: %t", sum,
					len(envoys), refused)
			}
		})
	}
}

// Promise: what an Envoy admits without a lease is charged; a bucket that nothing comes to is let
// go, and its lease comes back.
func TestQuotaWithoutLeaseAndIdle(t *testing.T) {
	door, clock := alone(t, quotaLimits)
	clock.set(time.Second)
	q := &quotas{door: door, buckets: map[string]*bucket{}}
	e := &anEnvoy{q: q, allowed: 30}
	e.report(t, time.Second, 0)
	free := request("q", "user", "x")
	free.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	left := func() uint32 {
		out, err := door.ShouldRateLimit(context.Background(), free)
		if err != nil {
			t.Fatal(err)
		}
		return out.Statuses[0].LimitRemaining
	}
	_, lent, _ := said(t, e.coming[0].action)
	e.coming = nil
	if n := left(); int64(n) != 70-lent || lent < 1 {
		t.Errorf("%d are left after 30 were admitted and %d were lent", n, lent)
	}
	word := ""
	for now := 2 * time.Second; now < 2*time.Minute && word != "abandon"; now += time.Second {
		clock.set(now)
		if e.report(t, now, 0); len(e.coming) > 0 {
			word, _, _ = said(t, e.coming[0].action)
			e.coming = nil
		}
	}
	if n := left(); word != "abandon" || n != 70 || len(q.buckets) != 0 {
		t.Errorf("%s; %d are left, want 70; %d buckets", word, n, len(q.buckets))
	}
}

// Promise: a client of go-control-plane's types is served by the listener that all gRPC clients
// use; what is wrong ends its stream, and so does the end of the node.
func TestQuotaOverTheWire(t *testing.T) {
	door, _ := alone(t, quotaLimits)
	server := native.NewServer(native.Config{
		Node: door.node, Clock: clock.New(),
		Doors: []native.Door{door},
	})
	l := bufconn.Listen(1 << 16)
	go server.Serve(l)
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///envoy",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := func(in *quotav3.RateLimitQuotaUsageReports) (
		quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient, *quotav3.RateLimitQuotaResponse,
		error,
	) {
		stream, err := quotav3.NewRateLimitQuotaServiceClient(
			conn).StreamRateLimitQuotas(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(in); err != nil {
			t.Fatal(err)
		}
		out, err := stream.Recv()
		return stream, out, err
	}
	one := []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{usage(quotaBucket("user", "x"),
		time.Second, 1, 0)}
	many := make([]*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage, 1001)
	for i := range many {
		many[i] = one[0]
	}
	for name, in := range map[string]*quotav3.RateLimitQuotaUsageReports{
		"no domain": {BucketQuotaUsages: one},
		"no bucket": {
			Domain:            "q",
			BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{{}},
		},
		"a bucket too many": {Domain: "q", BucketQuotaUsages: many},
	} {
		if _, out, err := open(in); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	stream, out, err := open(&quotav3.RateLimitQuotaUsageReports{
		Domain:            "q",
		BucketQuotaUsages: one,
	})
	if err != nil || len(out.BucketAction) != 1 {
		t.Fatal(out, err)
	}
	if word, n, _ := said(t, out.BucketAction[0]); word != "lease" || n < 1 ||
		out.BucketAction[0].BucketId.Bucket["user"] != "x" {
		t.Errorf("%v", out)
	}
	server.GracefulStop() // returns although the stream is open
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("at the end: %v", err)
	}
}

// Promise: buckets are bounded, and those that nothing is said of make room.
func TestQuotaBucketsAreBounded(t *testing.T) {
	door, clock := alone(t, quotaLimits)
	q := &quotas{door: door, domain: "q", buckets: map[string]*bucket{}}
	domain := door.inForce.Load().Domain("q")
	ask := func(i int) error {
		_, err := q.report(domain, usage(quotaBucket("user", fmt.Sprint(i)), time.Second, 0, 0))
		return err
	}
	for i := range maxBuckets {
		if err := ask(i); err != nil {
			t.Fatal(err)
		}
	}
	if ask(maxBuckets) == nil || ask(0) != nil {
		t.Error("one bucket too many is taken, or one that is there is not")
	}
	clock.set(10 * time.Minute)
	if err := ask(maxBuckets); err != nil || len(q.buckets) != 1 {
		t.Errorf("%v, %d buckets", err, len(q.buckets))
	}
}
