package native

import (
	"encoding/binary"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"penstock/rpc/door"
	"penstock/rpc/fair"

	"google.golang.org/grpc/credentials"
)

const (
	// streamWeight is what an open call takes: its goroutine and what gRPC keeps of it.
	streamWeight = 12 << 10
	// answerWeight is what a call takes of which the whole request has come, and not the whole
	// answer has gone, beside what its answer weighs.
	answerWeight = 4 << 10
	// pieceWeight is what a frame of data takes beside its bytes.
	pieceWeight = 256
	// messageTimeout is how long a message may be on its way, from its first byte to its last. The
	// largest one needs 1.7 Mbit/s.
	messageTimeout = 10 * time.Second
	// intakeLogged is how often a door says that it closes connections for their weight, at most.
	intakeLogged = 10 * time.Second
)

// intake bounds the memory of calls that are not over, at a gRPC door. gRPC makes a goroutine for a
// call when its header comes, takes in as much of its message as the client sends, up to the
// largest size, and keeps the answer until the client has a window for it; a client that ends
// nothing and reads nothing would have all of that a thousand times a connection. Here each
// connection has a weight: of its calls, of the bytes of unfinished messages, and of answers that
// were not sent yet (answers.go). When all together weigh more than there is room for, the heaviest
// connection is closed, then the next one: an attacker's, since clients that finish what they begin
// and read what they get weigh next to nothing.
type intake struct {
	room   int64
	log    *slog.Logger
	used   atomic.Int64  // weight of all connections
	closed atomic.Uint64 // connections closed for their weight
	slow   atomic.Uint64 // connections closed because a message did not come to its end

	flooded atomic.Uint64 // connections closed because of their frames of control

	mu     sync.Mutex // guards what follows
	conns  map[*weighedConn]struct{}
	logged time.Time // when closing was last logged
	going  int64     // weight of connections that are closed and not gone yet
	gone   sync.Cond // of mu: a connection is closed, or gone
}

func newIntake(room int64, log *slog.Logger) *intake {
	d := &intake{room: room, log: log, conns: make(map[*weighedConn]struct{})}
	d.gone.L = &d.mu
	return d
}

// relieve closes the heaviest connections until what is left has room, and then waits until they
// are gone: their weight is in use until then. The reader of c calls it, and reads nothing more
// meanwhile.
func (d *intake) relieve(c *weighedConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.used.Load() > d.room && !c.dropped.Load() {
		if d.used.Load()-d.going > d.room && d.dropHeaviestLocked() {
			continue
		}
		if d.going == 0 { // calls have ended meanwhile
			return
		}
		d.gone.Wait()
	}
}

// dropHeaviestLocked closes the heaviest connection, and reports whether there was one. d.mu is
// held.
func (d *intake) dropHeaviestLocked() bool {
	var heaviest *weighedConn
	var most int64
	for c := range d.conns {
		if w := c.weight.Load(); w > most && !c.dropped.Load() {
			heaviest, most = c, w
		}
	}
	if heaviest == nil {
		return false
	}
	heaviest.dropped.Store(true) // its weight stays as it is now, but for a change under way
	d.going += most
	heaviest.going = most
	heaviest.raw.Close() // not of TLS, which would wait for a write
	d.gone.Broadcast()   // its reader may be waiting
	n := d.closed.Add(1)
	if now := time.Now(); now.Sub(d.logged) >= intakeLogged {
		d.logged = now
		d.log.Warn("a connection is closed: the unfinished calls and unread answers of all "+
			"clients take more than there is room for, and its take most",
			"client", heaviest.RemoteAddr().String(), "bytes", most,
			"room_bytes", d.room, "closed_in_all", n)
	}
	return true
}

// forget is what the end of a connection calls.
func (d *intake) forget(c *weighedConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
	d.going -= c.going
	c.going = 0
	c.mu.Lock() // or a change that is just settled would stay
	c.dropped.Store(true)
	d.used.Add(-c.weight.Swap(0))
	c.mu.Unlock()
	d.gone.Broadcast()
}

// weighedConn is a connection that is weighed. It reads along what passes, in both directions.
type weighedConn struct {
	net.Conn
	raw     net.Conn // below TLS
	line    *fair.Line
	door    *intake
	in      frameWalk // of the goroutine that reads
	out     frameWalk // of the goroutine that writes
	weight  atomic.Int64
	dropped atomic.Bool // it is closed, and weighs what it weighed then until it is gone
	named   sync.Once
	name    string // by named
	going   int64  // what it adds to the door's; the door's mu guards it

	mu      sync.Mutex // guards what follows
	calls   map[uint32]*openCall
	whole   int       // calls of which the whole request has come
	spare   *openCall // of a call that is complete, for the next one; nil: none
	change  int64     // of the weight, since it was last added
	partial int       // calls with a message of which a part has come
	timer   *time.Timer
	armed   bool // timer looks for messages that do not come to their end

	controls controls
}

// openCall is a call that is not over.
type openCall struct {
	weight int64
	whole  bool      // its request is complete; the answer is not
	prefix [5]byte   // of the message that is coming
	have   int       // bytes of prefix
	left   uint32    // bytes of the message that are to come; valid if have is 5
	since  time.Time // when a part of the message was first left over; zero: none was yet
}

// clientPreface is how many bytes an HTTP/2 client sends before its first frame.
const clientPreface = 24

func newWeighedConn(conn, raw net.Conn, d *intake) *weighedConn {
	c := &weighedConn{
		Conn: conn, raw: raw, line: door.LineOf(raw), door: d, in: frameWalk{skip: clientPreface},
		calls: make(map[uint32]*openCall),
	}
	d.mu.Lock()
	d.conns[c] = struct{}{}
	d.mu.Unlock()
	return c
}

// Origin is the name of the client at the other end, by its certificate or address.
func (c *weighedConn) origin(info credentials.AuthInfo) string {
	c.named.Do(func() {
		c.name = door.Caller{
			TLS:  door.TLSState(info),
			Addr: c.RemoteAddr().String(),
		}.Name()
	})
	return c.name
}

func (c *weighedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.received(b[:n]) {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *weighedConn) Close() error {
	c.door.forget(c)
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	later := c.controls.flood
	c.mu.Unlock()
	if later {
		return nil
	}
	return c.Conn.Close()
}

// received weighs what has come, and reports whether gRPC may have it.
func (c *weighedConn) received(b []byte) bool {
	c.mu.Lock()
	c.in.walk(b, requests{c})
	if c.partial > 0 && !c.armed {
		c.armLocked()
	}
	heavier, flood, known := c.settleLocked(), c.controls.flood, c.controls.known
	c.controls.known = flood
	c.mu.Unlock()
	switch {
	case flood && !known:
		c.endFlood()
	case heavier && c.door.used.Load() > c.door.room:
		c.door.relieve(c)
	}
	return !flood
}

// unfinished reports whether a call is open with an incomplete request.
func (c *weighedConn) unfinished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls) > c.whole
}

// settleLocked adds the change to the weights, and reports whether they grew.
func (c *weighedConn) settleLocked() bool {
	change := c.change
	if c.change = 0; change == 0 || c.dropped.Load() {
		return false
	}
	c.door.used.Add(change)
	c.weight.Add(change)
	return change > 0
}

func (c *weighedConn) armLocked() {
	c.armed = true
	if c.timer == nil {
		c.timer = time.AfterFunc(messageTimeout, c.look)
	} else {
		c.timer.Reset(messageTimeout)
	}
}

// look closes the connection if a message has been coming for too long.
func (c *weighedConn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	if c.partial == 0 || c.dropped.Load() {
		return
	}
	now := time.Now()
	for _, u := range c.calls {
		if !u.since.IsZero() && now.Sub(u.since) >= messageTimeout {
			c.door.slow.Add(1)
			c.raw.Close()
			return
		}
	}
	c.armLocked()
}

// coming reports whether a part of a message has come, and not all of it.
func (u *openCall) coming() bool { return u.have > 0 }

// endLocked forgets a call.
func (c *weighedConn) endLocked(stream uint32) {
	if u := c.calls[stream]; u != nil {
		if u.coming() {
			c.partial--
		}
		if u.whole {
			c.whole--
		}
		c.change -= u.weight
		delete(c.calls, stream)
		*u = openCall{}
		c.spare = u
	}
}

// completeLocked takes note that nothing more comes of a call.
func (c *weighedConn) completeLocked(stream uint32) {
	u := c.calls[stream]
	if u == nil || u.whole {
		return
	}
	if u.coming() {
		c.partial--
	}
	c.change += answerWeight - u.weight
	*u = openCall{weight: answerWeight, whole: true}
	c.whole++
}

// requests are the frames of the client.
type requests struct{ *weighedConn }

func (c requests) begun(f frameHead) {
	if f.kind == frameHeaders && c.calls[f.stream] == nil {
		u := c.spare
		if c.spare = nil; u == nil {
			u = new(openCall)
		}
		u.weight = streamWeight
		c.calls[f.stream] = u
		c.change += streamWeight
	}
	if u := c.calls[f.stream]; u != nil && !u.whole && f.kind == frameData {
		u.weight += pieceWeight
		c.change += pieceWeight
	}
}

// data weighs a piece of a message. Padding is taken for a part of it: no gRPC client pads, and
// what one that does is taken for is at worst heavier than it is.
func (c requests) data(f frameHead, b []byte) {
	u := c.calls[f.stream]
	if u == nil || u.whole {
		return
	}
	u.weight += int64(len(b))
	c.change += int64(len(b))
	for len(b) > 0 {
		if !u.coming() {
			c.partial++
		}
		if b = u.take(b); u.have < len(u.prefix) || u.left > 0 {
			if u.since.IsZero() {
				u.since = time.Now()
			}
			return
		}
		u.have, u.since = 0, time.Time{} // the message is complete
		c.partial--
		c.change += streamWeight - u.weight
		u.weight = streamWeight
	}
}

// take reads along what b has of the message, and returns what comes after it.
func (u *openCall) take(b []byte) []byte {
	if u.have < len(u.prefix) {
		n := copy(u.prefix[u.have:], b)
		u.have, b = u.have+n, b[n:]
		if u.have < len(u.prefix) {
			return nil
		}
		u.left = binary.BigEndian.Uint32(u.prefix[1:])
	}
	n := min(uint64(u.left), uint64(len(b)))
	u.left -= uint32(n)
	return b[n:]
}

func (c requests) ended(f frameHead) {
	switch f.kind {
	case frameHeaders:
		c.controls.grant(controlsForFrame)
	case frameData:
	case frameWindow:
		c.change += c.controls.window()
	default:
		c.controls.spend()
	}
	switch {
	case f.kind == frameReset:
		c.endLocked(f.stream)
	case f.ends():
		c.completeLocked(f.stream)
	}
}

// answers are the frames of the server.
type answers struct{ *weighedConn }

func (c answers) begun(frameHead)        {}
func (c answers) data(frameHead, []byte) {}
func (c answers) ended(f frameHead) {
	c.controls.sent(f)
	if f.ends() {
		c.endLocked(f.stream)
	}
}
