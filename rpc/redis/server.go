package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/cluster"
	"penstock/rpc/access"
	"penstock/rpc/audit"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/resp"
)

// Config makes the door for the Redis protocol. Node is required.
type Config struct {
	Node *cluster.Node
	TLS  *tls.Config // nil: plaintext. See rpc.TLSFiles
	// clients must send it by AUTH or HELLO before anything else; empty: anyone may ask
	AuthToken string
	Clients   *access.Clients // those that may ask, with their rights; nil: AuthToken alone decides
	Audit     *audit.Log      // records what DEL resets, and refunds; nil: nothing does
	Draining  func() bool     // while it is true, READY says 0; nil: never
	// the limits that commands bring along, shared by the doors of a node; nil: those of this door
	// alone
	Inlines *door.Inlines
	Gate    *fair.Gate    // refuses rounds of checks while there are too many; nil: none
	Metrics *door.Metrics // shows what the door counts; nil: nobody does
}

// Bounds of the door. Slower clients, and more of them, are cut off. (Those of a command are
// resp's.)
const (
	maxConnections = 10_000
	// idleTimeout is for clients that say nothing: pools keep connections for half an hour, and
	// open others when these are gone.
	idleTimeout = 5 * time.Minute
	// hurry is for what must not take long: the rest of a command, the handshake of TLS,
	// authentication.
	hurry = 5 * time.Second
	// writeTimeout is how long a client may take to read. Nothing more of its commands is read
	// meanwhile, so its replies do not pile up.
	writeTimeout = 10 * time.Second
	// repliesGathered is how many bytes of replies are gathered before they are written.
	repliesGathered = 64 << 10
)

// Server is the door for clients of the Redis protocol. Each connection has a goroutine, which
// decides all that has arrived at once (round.go).
type Server struct {
	config  Config
	admits  *access.Clients // nil: anybody
	inlines *door.Inlines
	stats   stats
	seconds prometheus.Observer // of batches
	checks  prometheus.Observer // of batches with checks
	most    int                 // connections at a time
	unread  unread
	refused *door.Unauthorized // commands of clients that are unknown, or lack a right

	mu       sync.Mutex // guards conns and listener
	conns    map[*connection]struct{}
	listener net.Listener
	closing  atomic.Bool    // set under mu
	serving  sync.WaitGroup // connections
}

// stats count since the start.
type stats struct {
	connections atomic.Uint64 // accepted
	turnedAway  atomic.Uint64 // closed because there were too many
	commands    atomic.Uint64 // replied to
	batches     atomic.Uint64 // in how many rounds
	errors      atomic.Uint64 // replies that are errors
	queued      atomic.Int64  // bytes of commands between MULTI and EXEC, now
	broken      atomic.Uint64 // connections closed for what their clients sent
}

// New makes the door.
func New(c Config) *Server {
	d := &Server{
		config: c, admits: door.ClientsOf(c.Clients, c.AuthToken), most: maxConnections,
		inlines: door.OrNew(c.Inlines, c.Node), conns: make(map[*connection]struct{}),
		refused: c.Metrics.Unauthorized("redis"),
	}
	if c.TLS != nil {
		d.config.TLS = withoutProtocols(c.TLS)
	}
	if c.Metrics != nil {
		d.seconds, d.checks = d.showIn(c.Metrics), c.Metrics.Checks("redis")
	}
	return d
}

// withoutProtocols is t for clients that name none in the handshake, or one that t does not know.
func withoutProtocols(t *tls.Config) *tls.Config {
	return door.Adjusted(t, func(t *tls.Config) { t.NextProtos = nil })
}

// Serve serves l until Close or Shutdown, and then returns nil.
func (d *Server) Serve(l net.Listener) error {
	d.mu.Lock()
	d.listener = l
	closing := d.closing.Load()
	d.mu.Unlock()
	if closing {
		l.Close()
	}
	for pause := time.Duration(0); ; {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			d.admit(conn)
		case d.closing.Load():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // no file descriptors, perhaps: others will be closed
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			slog.Warn("a connection for the Redis protocol could not be accepted", "error", err,
				"pause", pause)
			time.Sleep(pause)
		}
	}
}

// admit serves conn in a goroutine of its own, unless there are too many.
func (d *Server) admit(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing.Load() {
		conn.Close()
		return
	}
	if len(d.conns) >= d.most {
		d.stats.turnedAway.Add(1)
		if d.config.TLS == nil { // the socket's buffer is empty, so this does not wait
			conn.Write(resp.AppendError(nil, "ERR max number of clients reached"))
		}
		conn.Close()
		return
	}
	if d.config.TLS != nil {
		conn = tls.Server(conn, d.config.TLS)
	}
	c := newConnection(d, conn, d.stats.connections.Add(1))
	d.conns[c] = struct{}{}
	d.serving.Go(func() {
		c.serve()
		d.mu.Lock()
		delete(d.conns, c)
		d.mu.Unlock()
	})
}

// Shutdown takes no more connections, lets every client have the replies to what has been read, and
// closes. When ctx ends, it closes at once. It returns when all connections are gone.
func (d *Server) Shutdown(ctx context.Context) {
	d.mu.Lock()
	d.closing.Store(true)
	if d.listener != nil {
		d.listener.Close()
	}
	for c := range d.conns {
		// a reader that waits for commands waits no more
		c.wire.conn.SetReadDeadline(time.Unix(1, 0))
	}
	d.mu.Unlock()
	hurry := context.AfterFunc(ctx, d.closeAll)
	defer hurry()
	d.serving.Wait()
}

// clients is how many connections are open.
func (d *Server) clients() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

func (d *Server) closeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.wire.closeNow()
	}
}
