package native

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
	"penstock/rpc/admin"
	"penstock/rpc/audit"
	"penstock/rpc/catalog"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/gubernator"
	"penstock/rpc/history"
	"penstock/rpc/notation"
	"penstock/rpc/trace"
	"penstock/rpc/wire"
)

// Config makes the gRPC door for clients. Node and Clock are required.
type Config struct {
	Node  *cluster.Node
	Clock *clock.Clock // the node's
	TLS   *tls.Config  // nil: plaintext. See rpc.TLSFiles
	// clients must send it as bearer token, except to ask for health; empty: anyone may ask
	AuthToken string
	Draining  func() bool // while it is true, health says NOT_SERVING; nil: never
	// takes the node out of its cluster while it goes on running; nil: it cannot
	Drain func(context.Context) error
	// the limits that requests bring along, shared by the doors of a node; nil: those of this door
	// alone
	Inlines *door.Inlines
	Doors   []Door // further services of the same listener
	// AdminElsewhere leaves penstock.v1.Admin out: another listener has it, or none. See
	// NewAdminServer.
	AdminElsewhere bool
	// Clients are those that may ask, with their rights. nil: AuthToken alone decides.
	Clients *access.Clients
	// Audit records changes; nil: nothing does.
	Audit *audit.Log
	// Roster knows the versions of members, and those that have failed; nil: nothing does.
	Roster admin.Roster
	// Catalog keeps the limits that are put into the whole cluster, shared by the doors of a node;
	// nil: they are this door's alone.
	Catalog *catalog.Catalog
	// Recorder knows which keys are asked for most; nil: Top does not say.
	Recorder *history.Recorder
	// Gate refuses requests while there are too many, shared by the doors of a node. nil: it lets
	// in all.
	Gate *fair.Gate
	// Unfinished is how many bytes calls may take that are incomplete or have unread answers, of
	// all clients.
	// Default: 128 MiB.
	Unfinished int64
	Logger     *slog.Logger  // default: slog's
	Metrics    *door.Metrics // shows what the door refuses; nil: nobody does
	Trace      *trace.Tracer // makes spans of checks; nil: there are none
}

// Door is a service that a gRPC listener may have beside those of this package. Its streams must
// end when ending is closed.
type Door interface {
	Register(s grpc.ServiceRegistrar, ending <-chan struct{})
}

// maxRequest is the most that a client may send at once, in bytes. The largest request that is not
// in error, 1000 items with keys of 1 KiB and inline limits with names of 256 bytes, has 1.4 MiB;
// the rest lets an error name the field.
const maxRequest = 2 << 20

// maxStreams is how many calls one connection may have open at a time.
const maxStreams = 1000

// defaultUnfinished is room for ten thousand open calls, or for 64 messages of the largest kind.
const defaultUnfinished = 128 << 20

// streamWorkers is how many goroutines wait for calls. A goroutine made for one call begins with a
// small stack and has it copied as it grows, a twelfth of the processor time of a Check. A stream
// keeps its goroutine; calls beyond that many at once get one made for each.
const streamWorkers = 128

// NewServer makes the gRPC door for clients: penstock.v1, pb.gubernator.V1, the further doors,
// grpc.health.v1 and reflection.
func NewServer(c Config) *door.Server {
	s, _ := newServer(c)
	return s
}

// NewAdminServer makes penstock.v1.Admin and reflection for a listener that speaks HTTP as well: it
// serves a door.Handover.
func NewAdminServer(c Config) *door.Server {
	b := newBare("admin", c, handedOver{door.Credentials(nil)})
	b.addAdmin(c)
	reflection.Register(b)
	b.calls.learn(b)
	return door.NewServer(b.server, b.ending, nil)
}

// bare is a gRPC server without services, and what guards it. Services are added to it, and not to
// the server within.
type bare struct {
	server  *grpc.Server
	calls   *admit
	weighed *intake
	refused *refusals
	ending  chan struct{} // closed when streams shall end
}

func newBare(
	name string, c Config, by credentials.TransportCredentials, more ...grpc.ServerOption,
) *bare {
	refused := newRefusals(c.Metrics, name)
	b := &bare{
		calls: &admit{
			clients: door.ClientsOf(c.Clients, c.AuthToken), single: make(map[string]bool),
			gate: c.Gate, refused: refused,
		},
		weighed: newIntake(cmp.Or(c.Unfinished, defaultUnfinished),
			cmp.Or(c.Logger, slog.Default())),
		refused: refused,
		ending:  make(chan struct{}),
	}
	if c.Metrics != nil {
		b.weighed.showIn(c.Metrics, name)
	}
	b.server = grpc.NewServer(append(append(door.ServerOptions(c.TLS), more...),
		grpc.Creds(weighing{by, b.weighed}),
		grpc.InTapHandle(b.calls.handle),
		grpc.UnknownServiceHandler(b.calls.answerUnknown),
		grpc.ForceServerCodecV2(weighingCodec{wire.NewCodec()}),
		grpc.UnaryInterceptor(b.refused.unary),
		grpc.StreamInterceptor(b.refused.stream),
		//lint:ignore SA1019 a registered one holds for all of the program
		grpc.RPCDecompressor(newUnpacker()),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxRequest),
	)...)
	return b
}

// addAdmin adds penstock.v1.Admin.
func (b *bare) addAdmin(c Config) {
	penstockv1.RegisterAdminServer(b, admin.New(admin.Config{
		Node: c.Node, Drain: c.Drain, Audit: c.Audit,
		Roster: c.Roster, Catalog: catalog.OrAlone(c.Catalog, c.Node), Recorder: c.Recorder,
	}))
}

// newServer returns what weighs unfinished calls as well.
func newServer(c Config) (*door.Server, *intake) {
	inlines := door.OrNew(c.Inlines, c.Node)
	b := newBare("grpc", c, door.Credentials(c.TLS), grpc.NumStreamWorkers(streamWorkers))
	calls, ending := b.calls, b.ending
	r := newRateLimiter(c, inlines)
	r.ending, r.refused = ending, b.refused
	registerRateLimiter(b, r)
	gubernator.Register(b, &gubernator.Door{
		Node: c.Node, Clock: c.Clock, Inlines: inlines, Draining: c.Draining, Audit: c.Audit,
		Seconds: c.Metrics.Checks("gubernator"),
	})
	if !c.AdminElsewhere {
		b.addAdmin(c)
	}
	for _, further := range c.Doors {
		further.Register(b, ending)
	}
	healthv1.RegisterHealthServer(b, &health{
		node: c.Node, services: slices.Collect(maps.Keys(b.GetServiceInfo())),
		draining: c.Draining, ending: ending,
	})
	reflection.Register(b)
	calls.learn(b)
	return door.NewServer(b.server, ending, nil), b.weighed
}

// Register adds penstock.v1.RateLimiter alone to a server of the caller's. What NewServer has
// before a call, which finds its client and refuses what is too much, is not there.
func Register(s grpc.ServiceRegistrar, c Config) {
	registerRateLimiter(s, newRateLimiter(c, door.OrNew(c.Inlines, c.Node)))
}

// rateLimiter is penstock.v1.RateLimiter.
type rateLimiter struct {
	penstockv1.UnimplementedRateLimiterServer
	node    *cluster.Node
	clock   *clock.Clock
	inlines *door.Inlines
	ending  <-chan struct{}
	guarded bool       // calls have tickets
	gate    *fair.Gate // of requests in streams; other calls have passed it
	audit   *audit.Log
	refused *refusals
	seconds prometheus.Observer // of checks; nil: they are not measured
	trace   *trace.Tracer
}

func newRateLimiter(c Config, inlines *door.Inlines) *rateLimiter {
	return &rateLimiter{
		node: c.Node, clock: c.Clock, inlines: inlines,
		guarded: c.Clients != nil || c.AuthToken != "", audit: c.Audit, gate: c.Gate,
		seconds: c.Metrics.Checks("grpc"), trace: c.Trace,
	}
}

// Check charges items.
func (s *rateLimiter) Check(ctx context.Context,
	in *penstockv1.CheckRequest,
) (*penstockv1.CheckResponse, error) {
	c := &checkCall{in: in}
	if err := s.serve(ctx, c); err != nil {
		return nil, err
	}
	return c.response(), nil
}

func (s *rateLimiter) serve(ctx context.Context, c *checkCall) error {
	c.from = door.Caller{Context: ctx}
	began := time.Now()
	err := s.check(s.deadline(ctx), c)
	door.Took(s.seconds, began)
	if err != nil {
		return door.StatusError(err)
	}
	return nil
}

// Peek answers as Check would, and changes nothing.
func (s *rateLimiter) Peek(ctx context.Context,
	in *penstockv1.PeekRequest,
) (*penstockv1.PeekResponse, error) {
	c := &checkCall{from: door.Caller{Context: ctx}}
	if err := s.decide(s.deadline(ctx), in.Items, false, cluster.OpPeek, c); err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.PeekResponse{Decisions: notation.Decisions(c.out)}, nil
}

// Reset forgets keys.
func (s *rateLimiter) Reset(ctx context.Context,
	in *penstockv1.ResetRequest,
) (*penstockv1.ResetResponse, error) {
	c := &checkCall{from: door.Caller{Context: ctx}}
	if err := s.decide(s.deadline(ctx), in.Items, false, cluster.OpReset, c); err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.ResetResponse{Decisions: notation.Decisions(c.out)}, nil
}

// deadline is ctx's deadline on the node's clock, or 0 if it has none.
func (s *rateLimiter) deadline(ctx context.Context) limiter.Instant {
	if t, ok := ctx.Deadline(); ok {
		return s.clock.At(t)
	}
	return 0
}

// charge asks the node for c.request, if the client may ask for it.
func (s *rateLimiter) charge(c *checkCall) error {
	if door.GivesBack(c.request.Items) {
		return s.change(c)
	}
	if s.guarded {
		if err := door.Permit(c.from.Ticket(), &c.request); err != nil {
			return err
		}
	}
	return s.decider(c).Check(&c.request, c.out)
}

// change is charge for resets and refunds, which are recorded.
func (s *rateLimiter) change(c *checkCall) error {
	rec := c.from.Recorder(s.audit)
	if err := door.Permit(rec.Who, &c.request); err != nil {
		return err
	}
	return rec.Check(s.decider(c), &c.request, c.out)
}

// decider is the node, which decides on c in a span if there are spans.
func (s *rateLimiter) decider(c *checkCall) door.Decider {
	return s.trace.GRPC(s.node, c.from.Context)
}

// decide is every call of this service that the library has read: decode, Node.Check.
func (s *rateLimiter) decide(deadline limiter.Instant, in []*penstockv1.Item, atomic bool,
	op cluster.Op, c *checkCall,
) error {
	if err := c.decode(in, op, s.inlines); err != nil {
		s.node.Stats().Refused.Add(1)
		return err
	}
	c.request.Atomic = atomic
	c.until(deadline)
	charge := s.charge
	if op == cluster.OpReset {
		charge = s.change
	}
	if err := charge(c); err != nil {
		return err
	}
	if atomic {
		c.verdict = encodeVerdict(c.out)
	}
	return nil
}
