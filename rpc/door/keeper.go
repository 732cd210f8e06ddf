package door

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"penstock/rpc/fair"
)

// Keeper is a listener that lets in so many connections at a time and closes those beyond at
// once. Every door has one, so a crowd at one of them leaves the others, the peers and the files
// their file descriptors. It closes instead of letting wait: a client that is refused tries another
// node, one that waits does not.
type Keeper struct {
	net.Listener
	config KeeperConfig

	open    atomic.Int64
	shared  atomic.Int64 // those of open that take common room
	refused atomic.Uint64

	gate *fair.Gate    // of the node, in an overload; nil: connections are charged to nobody
	cost time.Duration // see Charge

	told seldom // of refusals

	mu   sync.Mutex           // guards what follows
	from map[netip.Prefix]int // open connections, with Fair
}

// refusalsLogged is how often a door says that it refuses, at most.
const refusalsLogged = 10 * time.Second

// KeeperConfig says how many connections a door may have.
type KeeperConfig struct {
	Name string // of the door, in logs
	Own  int    // connections that the door may have whatever other doors have
	// connections that it may have at all; those beyond Own are taken from Common
	Most   int
	Common *CommonRoom  // shared with other doors; nil: there is none
	Logger *slog.Logger // required
	// Fair bounds the connections of one address, or of one network of an IPv6 customer: it may
	// have fairShare times as many as there is room left for. One address alone gets 7 of 8; the
	// others find room.
	Fair bool
	// Refusal is written to a connection before it is closed, in the protocol of the door. Empty
	// for a door with TLS.
	Refusal string
	// UserTimeout is how long the kernel waits for the client to take in what was sent to it, where
	// the kernel can be told. gRPC tells it itself, but not about connections that are counted. 0:
	// as long as the kernel likes.
	UserTimeout time.Duration
}

// CommonRoom is room for connections of several doors, for the one that needs it first.
type CommonRoom struct {
	room int64
	used atomic.Int64
}

// NewCommonRoom makes room for so many.
func NewCommonRoom(connections int) *CommonRoom { return &CommonRoom{room: int64(connections)} }

func (r *CommonRoom) take() bool {
	if r == nil {
		return false
	}
	if r.used.Add(1) <= r.room {
		return true
	}
	r.used.Add(-1)
	return false
}

// left is the room that nobody has taken.
func (r *CommonRoom) left() int64 {
	if r == nil {
		return 0
	}
	return max(0, r.room-r.used.Load())
}

// NewKeeper makes one for l.
func NewKeeper(l net.Listener, c KeeperConfig) *Keeper {
	return &Keeper{Listener: l, config: c}
}

// Charge has connections cost their addresses so much of a processor while g has an overload.
// Further connections of an address that is ahead of its share are closed. It is called before the
// first Accept.
func (k *Keeper) Charge(g *fair.Gate, cost time.Duration) { k.gate, k.cost = g, cost }

// affordable charges the address of a connection, and reports whether it may have one more.
func affordable(gate *fair.Gate, cost time.Duration, conn net.Conn) bool {
	if !gate.Busy() {
		return true
	}
	client := Caller{Addr: conn.RemoteAddr().String()}.Name()
	if gate.Enter(client, fair.Work{Cost: cost}) != nil {
		return false
	}
	gate.Leave(client)
	return true
}

// Accept waits for a connection that there is room for.
func (k *Keeper) Accept() (net.Conn, error) {
	for {
		conn, err := k.Listener.Accept()
		if err != nil {
			return nil, err
		}
		open := k.open.Add(1)
		own := open-k.shared.Load() <= int64(k.config.Own)
		origin, fair := k.count(conn, open)
		if fair && affordable(k.gate, k.cost, conn) && open <= int64(k.config.Most) &&
			(own || k.config.Common.take()) {
			if !own {
				k.shared.Add(1)
			}
			if k.config.UserTimeout > 0 {
				SetUserTimeout(conn, k.config.UserTimeout)
			}
			return &admitted{Conn: Brisk(conn), keeper: k, shared: !own, origin: origin}, nil
		}
		k.open.Add(-1)
		k.uncount(origin)
		k.refuse(conn)
	}
}

const (
	// fairShare is how many connections an address may have for each that there is room left for.
	fairShare = 7
	// fairAlways is how many connections an address may have whatever others have.
	fairAlways = 4
)

// count adds a connection to those of its address, and reports whether that is no more than its
// share of the door; open are those of all addresses, with this one.
func (k *Keeper) count(conn net.Conn, open int64) (origin netip.Prefix, fair bool) {
	if !k.config.Fair {
		return origin, true
	}
	if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		origin = network(at.Addr())
	}
	own := max(0, int64(k.config.Own)-open+k.shared.Load())
	left := min(int64(k.config.Most)-open, own+k.config.Common.left())
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.from == nil {
		k.from = make(map[netip.Prefix]int)
	}
	k.from[origin]++
	mine := int64(k.from[origin])
	return origin, mine <= fairAlways || mine <= fairShare*max(0, left)
}

// uncount ends what count has begun.
func (k *Keeper) uncount(origin netip.Prefix) {
	if !k.config.Fair {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.from[origin]--; k.from[origin] <= 0 {
		delete(k.from, origin)
	}
}

// network is the address, or the network of an IPv6 customer.
func network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked()
	}
	return netip.PrefixFrom(ip, ip.BitLen())
}

// refuse closes conn. Its text fits into the empty buffer of the socket, so it waits for nobody.
func (k *Keeper) refuse(conn net.Conn) {
	if k.config.Refusal != "" {
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		conn.Write([]byte(k.config.Refusal))
	}
	conn.Close()
	n := k.refused.Add(1)
	more, due := k.told.due(n)
	if !due {
		return
	}
	k.config.Logger.Warn(
		"connections are refused: this door, or their address at it, has as many as it may have, "+
			"or their address uses more than its share of an overloaded node",
		"door", k.config.Name, "open", k.open.Load(), "refused", more, "refused_in_all", n,
	)
}

// admitted is a connection that counts until it is closed.
type admitted struct {
	net.Conn
	keeper *Keeper
	shared bool // it takes common room
	origin netip.Prefix
	closed atomic.Bool
	line   fair.Line
}

// Read reads as much as the line of the connection lets it.
func (c *admitted) Read(b []byte) (int, error) {
	if c.line.Wait() && arrived(c.Conn) {
		c.line.Late()
	}
	b = b[:c.line.Most(len(b))]
	n, err := c.Conn.Read(b)
	c.line.Got(n, len(b))
	return n, err
}

// LineOf is the line of a connection that a Keeper has let in, perhaps below TLS. Others have
// none, which is nil.
func LineOf(conn net.Conn) *fair.Line {
	if c, ok := Below(conn).(*admitted); ok {
		return &c.line
	}
	return nil
}

// Below is the connection that carries conn: below TLS, and before it was handed over.
func Below(conn net.Conn) net.Conn {
	for {
		above, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = above.NetConn()
	}
}

func (c *admitted) Close() error {
	if !c.closed.Swap(true) {
		c.line.End()
		if c.shared {
			c.keeper.config.Common.used.Add(-1)
			c.keeper.shared.Add(-1)
		}
		c.keeper.open.Add(-1)
		c.keeper.uncount(c.origin)
	}
	return c.Conn.Close()
}

// SyscallConn is the socket's, if it has one.
func (c *admitted) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Open is how many connections there are, and Refused how many were closed because that would have
// been too many.
func (k *Keeper) Open() int64     { return k.open.Load() }
func (k *Keeper) Refused() uint64 { return k.refused.Load() }
