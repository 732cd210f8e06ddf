package redis

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/resp"
)

// connection is one connection. Its goroutine owns all of it, except where it says otherwise.
//
// What is read at once is decided at once: commands become items of one request until there are no
// more, a command comes that is no check, or the request is full; then the node decides, and the
// replies follow in order. Items of one request that concern one key are decided in their order
// (cluster.Node.Check), so it makes no difference to a client whether its commands travelled
// together.
type connection struct {
	door *Server
	conn net.Conn // closed by anybody
	id   uint64

	in    []byte // what has been read begins here
	held  int    // bytes of it
	words [][]byte
	round *round // while there is one

	now     time.Time // when a round was last begun or ended
	readBy  time.Time // deadlines in force
	writeBy time.Time
	partial bool // readBy is for the rest of a command

	version int // of the protocol: 2 or 3
	known   bool
	name    string // by CLIENT SETNAME
	ending  bool   // when the replies are written
	queue   queue

	from      door.Caller // see there
	named     string      // what origin has found; empty: it is looked up anew
	limits    [limitsAtHand]knownLimit
	last      *command // as lastName calls it
	lastName  string   // in lastBytes
	lastBytes [longestCommand]byte
}

const (
	firstBuffer = 4 << 10 // until somebody sends more at once than that
	mostBuffer  = resp.MaxCommand
	// roundItems is how many checks are decided at once. More would not be faster, and a client
	// that does not read its replies holds the memory of a round until it is cut off.
	roundItems = 256
	// roundCost is about what a round takes of a processor, and checkCost each of its commands.
	roundCost = 12 * time.Microsecond
	checkCost = 500 * time.Nanosecond
)

// round is the memory of one round of commands, used again and again.
type round struct {
	out     []byte
	items   [roundItems]cluster.Item
	replies [roundItems]replyKind // of items
	checks  int                   // items that wait for their decision
	decided [roundItems]cluster.Decision
	request cluster.Request

	commands, errors uint64
	asked            uint64 // commands that the gate was asked for
}

var rounds = sync.Pool{New: func() any { return new(round) }}

func newConnection(d *Server, conn net.Conn, id uint64) *connection {
	return &connection{door: d, conn: conn, id: id, version: 2, known: d.admits == nil}
}

// serve answers until the client goes, or has to.
func (c *connection) serve() {
	defer c.conn.Close()
	defer c.endQueue()
	c.now = time.Now()
	c.readBy = c.now.Add(hurry)
	c.conn.SetDeadline(c.readBy)
	c.writeBy = c.readBy
	if t, ok := c.conn.(*tls.Conn); ok {
		if t.Handshake() != nil {
			c.door.stats.broken.Add(1)
			return
		}
		c.showCertificate()
	}
	if c.known {
		c.readBy = time.Time{}
	}
	c.in = make([]byte, firstBuffer)
	for c.read() && c.answer() && !c.ending {
	}
}

// closeNow is for other goroutines.
func (c *connection) closeNow() {
	if t, ok := c.conn.(*tls.Conn); ok {
		t.NetConn().Close() // Close would wait for the writer
		return
	}
	c.conn.Close()
}

// read waits for bytes.
func (c *connection) read() bool {
	c.setReadDeadline()
	if c.door.closing.Load() { // and has moved the deadline, perhaps before it was set here
		return false
	}
	n, err := c.conn.Read(c.in[c.held:])
	c.held += n
	if err != nil {
		var timeout net.Error
		if c.held > 0 && errors.As(err, &timeout) && timeout.Timeout() && !c.door.closing.Load() {
			c.door.stats.broken.Add(1)
		}
		return n > 0
	}
	if c.held == len(c.in) && len(c.in) < mostBuffer {
		in := make([]byte, mostBuffer)
		copy(in, c.in)
		c.in = in
	}
	return true
}

// setReadDeadline sets what is due. Deadlines cost system time, so one that is nearly right stays.
func (c *connection) setReadDeadline() {
	switch {
	case !c.known: // the first deadline, whatever comes
		return
	case c.held > 0 && c.partial:
		return
	case c.held > 0:
		c.partial, c.readBy = true, c.now.Add(hurry)
	case c.partial || c.readBy.Sub(c.now) < idleTimeout:
		c.partial, c.readBy = false, c.now.Add(idleTimeout+idleTimeout/10)
	default:
		return
	}
	c.conn.SetReadDeadline(c.readBy)
}

// answer replies to all commands that have arrived, and keeps what is left of the next. It reports
// whether the connection goes on.
func (c *connection) answer() bool {
	c.now = time.Now()
	r := rounds.Get().(*round)
	c.round = r
	rest, err := c.in[:c.held], error(nil)
	for !c.ending {
		var n int
		if c.words, n, err = resp.Parse(rest, c.words); n == 0 || err != nil {
			break
		}
		rest = rest[n:]
		if len(c.words) > 0 {
			r.commands++
			c.command(c.words)
		}
	}
	c.decide()
	if err != nil {
		c.ending = true
		c.door.stats.broken.Add(1)
		if !errors.Is(err, resp.ErrHTTP) {
			c.fail(err.Error())
		}
	}
	written := c.write()
	c.held = copy(c.in, rest)
	c.count()
	c.round = nil
	rounds.Put(r)
	return written
}

// count ends a round, and adds it to the door's counters.
func (c *connection) count() {
	began := c.now
	c.now = time.Now()
	r, stats := c.round, &c.door.stats
	if r.commands == 0 && r.errors == 0 {
		return
	}
	stats.batches.Add(1)
	stats.commands.Add(r.commands)
	if r.errors > 0 {
		stats.errors.Add(r.errors)
	}
	if r.commands > r.asked {
		c.spend(r.commands - r.asked)
	}
	decides := r.asked > 0
	r.commands, r.errors, r.asked = 0, 0, 0
	if c.door.seconds != nil {
		seconds := c.now.Sub(began).Seconds()
		c.door.seconds.Observe(seconds)
		if decides {
			c.door.checks.Observe(seconds)
		}
	}
}

// spend has the client pay for commands of the round that are no checks.
func (c *connection) spend(commands uint64) {
	gate := c.door.config.Gate
	if !gate.Busy() {
		return
	}
	gate.Spend(c.origin(), fair.Work{
		Cost: roundCost + time.Duration(commands)*checkCost, Line: door.LineOf(c.conn),
	})
}

// write sends the replies that there are. A client that does not read them is gone for us.
func (c *connection) write() bool {
	r := c.round
	if len(r.out) == 0 {
		return true
	}
	if c.writeBy.Sub(c.now) < writeTimeout {
		c.writeBy = c.now.Add(writeTimeout + writeTimeout/2)
		c.conn.SetWriteDeadline(c.writeBy)
	}
	c.door.unread.begin(c, cap(r.out))
	_, err := c.conn.Write(r.out)
	c.door.unread.end(c)
	if r.out = r.out[:0]; cap(r.out) > 4*repliesGathered {
		r.out = nil
	}
	if err != nil {
		c.ending = true
	}
	return err == nil
}

// check adds an item to the round; reply says what to make of its decision. The key must stay where
// it is until then.
func (c *connection) check(
	l *limiter.Limit, key []byte, cost int64, terms cluster.Terms, reply replyKind,
) {
	r := c.round
	ask := access.Ask{Inline: true, Key: borrow(key)}
	switch {
	case cost < 0:
		ask.Act = access.GiveBack
	case cost == 0:
		ask.Act = access.Peek
	}
	if !c.permitted(ask) {
		return
	}
	it := &r.items[r.checks]
	*it = cluster.Item{Inline: l, Key: borrow(key), Cost: cost, Terms: terms}
	if cost == 0 {
		it.Op = cluster.OpPeek
	}
	r.replies[r.checks] = reply
	if r.checks++; r.checks == len(r.items) {
		c.decide()
	}
}

// busy is said to what is refused. Most of it comes when there is no time.
var busy = "BUSY " + fair.ErrOverloaded.Error()

// decide has the node decide on the items of the round, and writes their replies down.
func (c *connection) decide() {
	r := c.round
	n := r.checks
	if n == 0 {
		return
	}
	r.checks = 0
	r.asked += uint64(n)
	r.request = cluster.Request{Items: r.items[:n]}
	out := r.decided[:n]
	if err := c.charge(out); err != nil {
		text := busy
		if !errors.Is(err, fair.ErrOverloaded) {
			text = "ERR " + door.Explain(err).Text
		}
		for range n {
			c.fail(text)
		}
	} else {
		for i := range out {
			r.out = r.replies[i].append(r.out, &out[i], r.items[i].Inline, r.items[i].Cost)
		}
	}
	clear(r.items[:n]) // they point into buffers of connections
	c.relieve()
}

// charge has the node decide on the request of the round.
func (c *connection) charge(out []cluster.Decision) error {
	gate := c.door.config.Gate
	if gate == nil {
		return c.door.config.Node.Check(&c.round.request, out)
	}
	client := c.origin()
	w := fair.Work{
		Cost: roundCost + time.Duration(len(out))*checkCost, Line: door.LineOf(c.conn),
	}
	if err := gate.Enter(client, w); err != nil {
		return err
	}
	defer gate.Leave(client)
	return c.door.config.Node.Check(&c.round.request, out)
}

// begin makes room for a reply that is no decision: those before it come first.
func (c *connection) begin() *round {
	c.decide()
	c.relieve()
	return c.round
}

// relieve keeps the replies that were not sent yet from piling up.
func (c *connection) relieve() {
	if len(c.round.out) >= repliesGathered {
		c.write()
	}
}

// fail replies with an error.
func (c *connection) fail(text string) {
	r := c.begin()
	r.errors++
	r.out = resp.AppendError(r.out, text)
}
