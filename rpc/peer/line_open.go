package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"penstock/cluster"
	"penstock/rpc/door"
	"penstock/rpc/wire"
)

const (
	// connectTimeout is how long a connection may take to be made.
	connectTimeout = time.Second
	// An idle link is tried after keepaliveAfter, and given up when the peer's machine does not
	// acknowledge for keepaliveWait, be it that or anything else that was sent. This finds a
	// network that swallows everything. It does not find a peer that hangs; the deadlines of the
	// calls do.
	keepaliveAfter = 10 * time.Second
	keepaliveWait  = 2 * time.Second
)

// open opens a link to the node and boot that the line is for, or a stream of gRPC where that node
// is of an earlier release. It ends with ctx.
func (l *line) open(ctx context.Context, hangUp func()) (carrier, error) {
	k, err := l.openLink(ctx)
	if errors.Is(err, errNoLink) {
		return l.openStream(ctx, hangUp)
	}
	if err != nil {
		return nil, explainProtocol(err)
	}
	return k, nil
}

func (l *line) openLink(ctx context.Context) (*link, error) {
	brief, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := l.dial(brief, l.to.addr)
	if err != nil {
		return nil, err
	}
	door.SetUserTimeout(conn, keepaliveWait)
	conn = door.Brisk(conn)
	// whatever happens, the connection is closed when ctx ends, which converse sees to
	context.AfterFunc(ctx, func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(greetingTimeout))
	k, err := l.greetLink(conn)
	if err != nil {
		conn.Close()
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			err = errNoGreeting
		}
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return k, nil
}

var errNoGreeting = fmt.Errorf("it does not say who it is within %v", greetingTimeout)

// greetLink begins a link on conn, and says what is wrong with the node that answers.
func (l *line) greetLink(conn net.Conn) (*link, error) {
	var id *identity
	if t := l.config.tls(); t != nil {
		t = t.Clone()
		t.NextProtos = []string{linkProtocol, "h2"}
		t.ServerName, _, _ = net.SplitHostPort(l.to.addr)
		secured := tls.Client(conn, t)
		if err := secured.Handshake(); err != nil {
			return nil, fmt.Errorf("TLS handshake: %w", err)
		}
		state := secured.ConnectionState()
		if state.NegotiatedProtocol != linkProtocol {
			return nil, errNoLink
		}
		id, conn = identityOfState(&state), secured
	} else if _, err := conn.Write([]byte(linkPreface)); err != nil {
		return nil, err
	}
	k := newLink(conn, maxReply)
	if err := k.greet(l.me()); err != nil {
		return nil, err
	}
	g, version, ok, err := k.greeted()
	if err != nil {
		return nil, err
	}
	if !ok || g.cluster != l.config.Cluster {
		return nil, l.stranger(g, version)
	}
	return k, l.meet(g, id)
}

// me is how this node introduces itself.
func (l *line) me() greeting {
	return greeting{l.config.Cluster, l.config.ID, l.config.Boot}
}

// openStream opens a stream of gRPC.
func (l *line) openStream(ctx context.Context, hangUp func()) (carrier, error) {
	stream, err := l.conn.NewStream(metadata.NewOutgoingContext(ctx, l.me().metadata()),
		&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, exchangeMethod)
	if err != nil {
		return nil, err
	}
	timeout := time.AfterFunc(greetingTimeout, hangUp)
	if err = l.meetStream(stream); !timeout.Stop() {
		err = errNoGreeting
	}
	return grpcCarrier{stream}, err
}

// meetStream reads which node answers on stream, and says what is wrong with it.
func (l *line) meetStream(stream grpc.ClientStream) error {
	header, err := stream.Header()
	if err != nil {
		return explainProtocol(err)
	}
	g, version, ok := readGreeting(header)
	if !ok || g.cluster != l.config.Cluster { // it refuses this node too, and says why
		if err := stream.RecvMsg(&wire.Message{}); err != nil {
			return explainProtocol(err)
		}
		return l.stranger(g, version)
	}
	return l.meet(g, shown(stream.Context()))
}

// stranger says what is wrong with a node of another cluster or protocol.
func (l *line) stranger(g greeting, version string) error {
	return fmt.Errorf("it names cluster %q and protocol %q, this node %q and %q", g.cluster,
		version, l.config.Cluster, protocol)
}

// meet is nil if g is the node that the line is for, and id, if there is one, its certificate.
func (l *line) meet(g greeting, id *identity) error {
	if l.to.id != "" && g.node != l.to.id || l.to.boot != 0 && g.boot != l.to.boot {
		return fmt.Errorf("%w: another node answers there: %s, boot %016x, instead of %s, boot "+
			"%016x", cluster.ErrGone, g.node, g.boot, l.to.id, l.to.boot)
	}
	l.met, l.agent = g, false
	if id == nil {
		return nil
	}
	l.agent = !id.is(cluster.RoleMember)
	return id.check(g.node, l.role)
}

// dial connects, and notes whether the machine says that nobody listens there. A process that is
// dying may still take a connection on and drop it; callers hear from here that the peer is gone.
func (l *line) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: keepaliveAfter, Interval: keepaliveWait / 2, Count: 2,
	}}).DialContext(ctx, "tcp", addr)
	refused := isRefused(err)
	l.refused.Store(refused)
	l.mu.Lock()
	if refused && l.down != nil && !errors.Is(l.down, cluster.ErrGone) {
		l.down = fmt.Errorf("%w: %w", cluster.ErrGone, l.down)
	}
	l.mu.Unlock()
	return conn, err
}

// isDropped reports whether a connection was taken on and dropped before its peer named itself:
// the process may be dying.
func isDropped(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &op) && op.Op != "dial" && !op.Timeout()
}
