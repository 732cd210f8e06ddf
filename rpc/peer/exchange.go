package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/rpc/catalog"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/wire"
)

// ServerConfig makes the door for other nodes. Node, Cluster and Clock are required.
type ServerConfig struct {
	Node    *cluster.Node
	Cluster string       // name of the cluster; nodes of another one are refused
	Clock   *clock.Clock // the node's
	TLS     *tls.Config  // nil: plaintext. See rpc.TLSFiles
	Logger  *slog.Logger // default slog.Default
	// Catalog answers what other nodes say about limits that were put; nil: nothing does.
	Catalog *catalog.Catalog
	// Inquiries answers what the pages of other nodes ask; nil: nothing does.
	Inquiries Inquiries
	Trace     Tracer // makes spans of asks; nil: there are none
}

// NewServer makes the door for other nodes: it reads the asks of each frame, has the node
// answer them from memory, and writes the answers as one reply. So answers are batched as the asks
// were, and nothing here waits; an ask that may wait (cluster.Ask.Waits), or of which others have
// to hear before it is answered (cluster.Node.MustNotify), gets a goroutine and a reply of its own.
func NewServer(c ServerConfig) *door.Server {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	d := &peerDoor{
		node: c.Node, clock: c.Clock, log: c.Logger, ending: make(chan struct{}),
		me: greeting{c.Cluster, c.Node.ID(), c.Node.Boot()}, trace: c.Trace,
	}
	s := grpc.NewServer(append(door.ServerOptions(c.TLS),
		grpc.Creds(newLinkCredentials(c.TLS, d)),
		grpc.ForceServerCodecV2(wire.RawCodec{}),
		grpc.MaxConcurrentStreams(4096),
		grpc.MaxRecvMsgSize(maxRead),
	)...)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: peerv1.Peer_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: peerv1.Peer_ServiceDesc.Streams[0].StreamName, ServerStreams: true,
			ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				return d.exchange(stream)
			},
		}},
	}, nil)
	if c.Catalog != nil {
		registerCatalog(s, d, c.Catalog)
	}
	if c.Inquiries != nil {
		d.register(s, inquiryService, "Ask", c.Inquiries.Answer)
	}
	return door.NewServer(s, d.ending, d.reading.Wait)
}

// peerDoor serves the streams of other nodes.
type peerDoor struct {
	node   *cluster.Node
	clock  *clock.Clock
	me     greeting
	log    *slog.Logger
	limits door.LimitCache
	trace  Tracer        // nil: there are no spans
	late   lateBudget    // of all streams
	turned turnedAway    // names that were refused lately
	ending chan struct{} // closed when the door closes
	// goroutines that serve links or read streams
	reading sync.WaitGroup
}

// met is the node that has opened a stream of gRPC.
func (d *peerDoor) met(ctx context.Context) (other greeting, agent bool, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	other, version, ok := readGreeting(md)
	if err = d.me.admit(other, version, ok); err == nil {
		agent, err = d.meet(other, shown(ctx))
	}
	return other, agent, err
}

// meet is nil if the node at the other end of a connection is the one that it says. The certificate
// that it shows, if the connection has any, must be its own, and its boot no other node's.
func (d *peerDoor) meet(other greeting, id *identity) (agent bool, err error) {
	if id != nil {
		role := cluster.RoleMember
		if agent = !id.is(role); agent { // then it may not say what only members say (forged)
			role = cluster.RoleAgent
		}
		err = id.check(other.node, role)
	}
	if v := d.node.View(); err == nil && v != nil {
		for i := range v.Members {
			if m := &v.Members[i]; m.Boot == other.boot && m.ID != other.node {
				err = fmt.Errorf("boot %016x is that of %q, not of %q", other.boot, m.ID,
					other.node)
			}
		}
	}
	if err == nil {
		return agent, nil
	}
	if d.turned.first(other.node, time.Now()) {
		d.log.Warn("a peer is refused", "peer", other.node, "reason", err)
	}
	return agent, status.Errorf(codes.PermissionDenied, "node %s refuses %q: %v", d.me.node,
		other.node, err)
}

// turnedAway are the names under which somebody was refused lately, so that each is logged once in
// a while, and few are remembered.
type turnedAway struct {
	mu sync.Mutex
	at map[string]time.Time
}

const (
	turnedEvery = time.Minute
	turnedMost  = 64
)

// first reports whether name was not refused within the last turnedEvery.
func (t *turnedAway) first(name string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.at, func(_ string, at time.Time) bool { return now.Sub(at) >= turnedEvery })
	if _, known := t.at[name]; known || len(t.at) >= turnedMost {
		return false
	}
	if t.at == nil {
		t.at = make(map[string]time.Time)
	}
	t.at[name] = now
	return true
}

// exchange serves one stream of gRPC until the peer or the door ends it. In both cases the trailer
// says how far it got.
func (d *peerDoor) exchange(stream grpc.ServerStream) error {
	other, agent, refused := d.met(stream.Context())
	if refused != nil && other.cluster == d.me.cluster {
		// without a greeting the caller reads why, and tries again later
		return refused
	}
	if err := stream.SendHeader(d.me.metadata()); err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	served, err := d.serve(other, agent, grpcCarrier{stream})
	stream.SetTrailer(metadata.Pairs(servedKey, strconv.FormatUint(served, 10)))
	return err
}

// serve answers what the node at the other end of c asks, until c or the door ends. served is the
// tag of the last ask that it came to: later ones are not touched.
func (d *peerDoor) serve(other greeting, agent bool, c carrier) (served uint64, err error) {
	defer d.node.Membership().LineUp(other.boot)()
	e := &exchange{
		door: d, peer: other, agent: agent, to: c, frames: frameReader{known: &d.limits},
	}
	over := make(chan error, 1)
	d.reading.Go(func() { over <- c.receive(e.answer) })
	select {
	case err = <-over:
	case <-d.ending:
		err = status.Error(codes.Unavailable, "this node is stopping")
	}
	c.hurry()
	e.mu.Lock() // waits for the frame that is being served
	defer e.mu.Unlock()
	e.ended = true
	if errors.Is(err, io.EOF) { // the peer closes the stream
		return e.served, nil
	}
	return e.served, err
}

// exchange is one stream at work.
type exchange struct {
	door   *peerDoor
	peer   greeting // the node at the other end
	agent  bool     // by its certificate it is an agent
	late   lateBudget
	to     carrier
	frames frameReader
	reply  []byte         // with room for its head
	given  cluster.Answer // the last one

	mu     sync.Mutex // held while a frame is served; guards the two below
	served uint64     // tag of the last ask
	ended  bool       // no further frame is served
}

// answer serves a frame of the peer.
func (e *exchange) answer(frame []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return io.EOF
	}
	if err := e.serve(frame); err != nil {
		return err
	}
	if len(e.reply) == headSize { // all of it is answered later
		return nil
	}
	return e.to.send(e.reply)
}

// answerLater answers an ask that may wait.
func (e *exchange) answerLater(tag uint64, a *cluster.Ask, weight int) {
	defer e.leave(weight)
	defer e.traced(a)()
	e.answerLate(appendAnswer(roomForHead(nil), tag, e.door.node.Deliver(a)))
}

func (e *exchange) answerLate(reply []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		_ = e.to.send(reply) // the reader learns that the stream has ended
	}
}

// answerWhenTold answers an ask that was decided, and gave back what others have to hear of first.
func (e *exchange) answerWhenTold(tag uint64, a *cluster.Ask, answer *cluster.Answer, weight int) {
	defer e.leave(weight)
	e.door.node.Confirm(a, answer)
	e.answerLate(appendAnswer(roomForHead(nil), tag, answer))
}

// traced begins the span of an ask that is a part of a trace. done ends it.
func (e *exchange) traced(a *cluster.Ask) (done func()) {
	if e.door.trace == nil || a.Trace == (cluster.Trace{}) {
		return func() {}
	}
	return e.door.trace.Answers(a, e.peer.node)
}

// keep is a with its own copy of what lies in the frame.
func keep(a *cluster.Ask) *cluster.Ask {
	kept := *a
	kept.Items, kept.Forget = slices.Clone(a.Items), slices.Clone(a.Forget)
	if a.Move != nil {
		kept.Move = a.Move.Clone()
	}
	for i := range kept.Items {
		it := &kept.Items[i]
		it.Key = strings.Clone(it.Key)
		if it.Hold != nil {
			it.Hold.Holder = strings.Clone(it.Hold.Holder)
		}
	}
	return &kept
}

// serve has the asks of a frame answered into e.reply. The keys that the node sees lie in b.
func (e *exchange) serve(b []byte) error {
	e.reply = roomForHead(e.reply[:0])
	err := e.frames.read(b, e.door.clock.Now(), func(tag uint64, a *cluster.Ask, err error) {
		e.served = tag
		if err != nil {
			e.reply = appendRefusal(e.reply, tag, err.Error())
			return
		}
		if reason := e.forged(a); reason != "" {
			e.reply = appendRefusal(e.reply, tag, reason)
			return
		}
		if a.Waits() {
			weight := weigh(a)
			switch {
			case a.Relay && (!e.known() || !e.enter(weight, relaysAtOnce, relayBytes)):
				// the asker hears that this node does not hold the keys, and goes on without it
				a.Relay = false
			case a.Relay || e.enter(weight, lateAtOnce, lateBytes):
				go e.answerLater(tag, keep(a), weight)
				return
			}
		}
		if a.Waits() {
			e.reply = appendRefusal(e.reply, tag, errTooMuchWaits)
			return
		}
		traced := e.traced(a)
		e.door.node.DeliverInto(a, &e.given)
		if traced(); e.door.node.MustNotify(a, &e.given) {
			weight := weigh(a)
			e.force(weight) // it is charged already: too late to refuse it
			given := e.given
			e.given = cluster.Answer{}
			go e.answerWhenTold(tag, keep(a), &given, weight)
			return
		}
		e.reply = appendAnswer(e.reply, tag, &e.given)
	})
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "a frame %v", err)
	}
	return nil
}
