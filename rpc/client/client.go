// Package client asks a cluster for decisions. Follow one Take:
//
//  1. Take draws an id for the request, so that repeating it within two seconds charges once. The
//     take joins those that wait for the stream to the node.
//  2. All waiting takes are sent as one request. There is no timer: a single take is sent at once.
//     The answer wakes each caller with its decision.
//  3. If the stream breaks, the unanswered takes are sent once more under their ids, to the next
//     target that can be reached.
//
// A denial is an answer: Decision.Allowed is false and the error nil. Errors are gRPC statuses;
// with INVALID_ARGUMENT, NOT_FOUND and FAILED_PRECONDITION nothing was charged.
//
// Most programs need only Limiter, Wait and Allow. HTTPMiddleware puts a limiter before handlers of
// net/http, Interceptors before those of gRPC. Transport retries the denied requests of an HTTP
// client, and Fake replaces all of it in tests.
//
// For many requests at once in one message, Client.DoAll decides each by itself, Client.DoTogether
// all or none. Client.CheckRules takes attributes of a request, and the rules of the cluster's
// files select the limits.
//
// Client.Reserve reserves units for a cost that is known only afterwards. Client.Acquire takes a
// permit under a concurrency limit.
//
// With Config.Leases, frequently requested keys of limits with consistency leased are decided in
// this process, from units that the cluster has reserved for it.
//
// Client.Conn is for programs that operate a cluster: over it, the generated stubs of penstock.v1
// list members, keys and holds, and put limits in force.
package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
)

// DefaultTimeout bounds a call if its context has no deadline.
const DefaultTimeout = 2 * time.Second

const (
	// repeatWithin is how long after it was sent a take may be repeated. Its owner remembers it for
	// two seconds.
	repeatWithin = 1500 * time.Millisecond
	// repeatedBy is when a repeat that still waits, for a connection or at a node, is given up.
	repeatedBy = repeatWithin + 400*time.Millisecond
)

// maxAnswer is the longest answer that is read. MaxAll denials, each with the longest body that a
// limit may have, are less than half of it.
const maxAnswer = 16 << 20

// Config says how to reach a cluster.
type Config struct {
	// Targets are the client doors of nodes: host:port, or unix:///path. At least one. Any node
	// answers for all keys. The first that can be reached is used until it fails: it is
	// unreachable, is not ready, or leaves calls and the health check unanswered for about half a
	// second (a stopped process, a machine without power). A name is resolved anew then.
	Targets []string
	TLS     *tls.Config // nil: plaintext
	Token   string      // sent as bearer token; empty: none
	OnError OnError     // the answer of Take and Peek while no node answers; default: the error
	// Local are the limits of FailLocal, by name. Each process counts for itself then, so their
	// figures are this process's share.
	Local []limiter.Spec
	// Leases lets Take, Do and the functions built on them decide here on frequently requested keys
	// of limits with consistency leased. Decision.Source is then lease. Other limits grant no
	// leases, and are asked each time as without it (and once a minute for a lease). Nothing more
	// is admitted than without leases. Units leased here and not used are denied elsewhere, for a
	// second at most. Close returns them; if the process dies, they are charged.
	Leases bool
}

// Client asks a cluster, through one of its nodes at a time. Its methods are safe for concurrent
// use.
type Client struct {
	conn     *grpc.ClientConn
	limits   penstockv1.RateLimiterClient // over Conn
	targets  *targets
	takes    *takes
	fallback fallback
	leases   *leases       // nil: none
	origin   uint64        // of all ids that this client draws
	sequence atomic.Uint64 // of the last one
}

// New makes a Client. It connects in the background: an error is one of the Config.
func New(c Config) (*Client, error) {
	if len(c.Targets) == 0 {
		return nil,
			errors.New("client: Config.Targets is empty; give host:port of at least one node")
	}
	fallback, err := newFallback(c)
	if err != nil {
		return nil, err
	}
	var state resolver.State
	for _, target := range c.Targets {
		if _, _, err := net.SplitHostPort(target); err != nil &&
			!strings.HasPrefix(target, "unix:///") {
			return nil, fmt.Errorf("client: target %q: give host:port or unix:///path", target)
		}
		state.Addresses = append(state.Addresses,
			resolver.Address{Addr: target, ServerName: serverName(target)})
	}
	targets := newTargets(slices.Clone(c.Targets))
	doors := manual.NewBuilderWithScheme("penstock")
	doors.InitialState(state)
	transport := insecure.NewCredentials()
	if c.TLS != nil {
		transport = credentials.NewTLS(c.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithResolvers(doors),
		grpc.WithContextDialer(targets.dial),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 1.6,
				Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:    30 * time.Second,
			Timeout: 5 * time.Second,
		}),
	}
	if c.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(token(c.Token)))
	}
	conn, err := grpc.NewClient("penstock:///"+serverName(c.Targets[0]), options...)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	conn.Connect()
	client := &Client{conn: conn, targets: targets, fallback: fallback, origin: newOrigin()}
	targets.health = healthv1.NewHealthClient(conn)
	client.limits = penstockv1.NewRateLimiterClient(client.Conn())
	client.takes = newTakes(penstockv1.NewRateLimiterClient(conn), targets)
	if c.Leases {
		client.leases = newLeases(client)
	}
	return client, nil
}

// serverName is the name that the certificate of target must have.
func serverName(target string) string {
	if strings.HasPrefix(target, "unix:") {
		return "localhost"
	}
	return target
}

// newOrigin draws a number that no other client has. The highest bit belongs to the nodes.
func newOrigin() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: it would end the process
	return binary.LittleEndian.Uint64(b[:])>>1 | 1
}

// token adds itself to each call. It does so in plaintext too: loopback has no certificates, and a
// node that listens elsewhere without TLS was started with --insecure.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (token) RequireTransportSecurity() bool { return false }

// Close ends the connection. Calls under way end with CANCELED or UNAVAILABLE. With Config.Leases
// it first returns the leases, and waits for that at most DefaultTimeout.
func (c *Client) Close() error {
	if c.leases != nil {
		c.leases.close()
	}
	c.takes.close()
	c.targets.close()
	return c.conn.Close()
}

// Peek answers as Take would, and changes nothing.
func (c *Client) Peek(ctx context.Context, limit, key string, cost int64) (Decision, error) {
	r := Request{Limit: limit, Key: key, Cost: cost}
	if err := r.sendable(0); err != nil {
		return Decision{}, err
	}
	in := &penstockv1.PeekRequest{Items: []*penstockv1.Item{r.item()}}
	out, err := c.limits.Peek(ctx, in)
	if err != nil {
		return c.fallback.peek(ctx, err, limit, key, cost)
	}
	return only(out.Decisions)
}

// Ready asks whether the node that answers can decide. Nodes say it to everybody: no token is
// needed.
func (c *Client) Ready(ctx context.Context) (bool, error) {
	answer, err := healthv1.NewHealthClient(c.Conn()).Check(ctx, &healthv1.HealthCheckRequest{})
	return answer.GetStatus() == healthv1.HealthCheckResponse_SERVING, err
}

// Reset resets the counters of key under the named limit, and returns the state after that. If the
// decision is degraded and not allowed, the owner of the key could not be reached.
func (c *Client) Reset(ctx context.Context, limit, key string) (Decision, error) {
	in := &penstockv1.ResetRequest{Items: []*penstockv1.Item{{Limit: limit, Key: []byte(key)}}}
	out, err := c.limits.Reset(ctx, in)
	if err != nil {
		return Decision{}, err
	}
	return only(out.Decisions)
}

// only is the answer to a message of one item.
func only(decisions []*penstockv1.Decision) (Decision, error) {
	if len(decisions) != 1 {
		return Decision{}, status.Errorf(codes.Internal,
			"client: the node answered %d decisions to one item", len(decisions))
	}
	return decision(decisions[0]), nil
}

func (c *Client) nextID() *penstockv1.RequestId {
	return &penstockv1.RequestId{Origin: c.origin, Sequence: c.sequence.Add(1)}
}

// once calls, for at most DefaultTimeout if ctx has no deadline.
func (c *Client) once(ctx context.Context, call func(context.Context) error) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	c.targets.begin()
	defer c.targets.answered.Add(1)
	return call(ctx)
}

// twice calls, and calls again if the connection broke. Nothing is charged or given back twice:
// takes and resets have ids, and other calls change no counter.
func (c *Client) twice(ctx context.Context, call func(context.Context) error) error {
	return c.once(ctx, func(ctx context.Context) error {
		sent := time.Now()
		err := call(ctx)
		if status.Code(err) != codes.Unavailable || time.Since(sent) >= repeatWithin {
			return err
		}
		again, cancel := context.WithDeadline(ctx, sent.Add(repeatedBy))
		defer cancel()
		second := call(again)
		if status.Code(second) == codes.DeadlineExceeded && ctx.Err() == nil {
			return err // it was too late to ask again
		}
		return second
	})
}
