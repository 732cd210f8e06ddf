package redis

import (
	"errors"
	"net"
	"time"

	"penstock/rpc/resp"
)

// connection is one connection, as a story: bytes arrive (wire), the commands in them run
// (commands.go has the table), and their replies go out together (round). Its goroutine owns all of
// it, except where it says otherwise.
type connection struct {
	door   *Server
	wire   wire
	client client
	round  *round // while there is one
	queue  queue
	last   lastCommand
	limits [limitsAtHand]knownLimit
	now    time.Time // when a round was last begun or ended
}

func newConnection(d *Server, conn net.Conn, id uint64) *connection {
	return &connection{
		door: d, wire: wire{door: d, conn: conn},
		client: client{admits: d.admits, conn: conn, id: id}, queue: queue{all: &d.stats.queued},
	}
}

// serve answers until the client goes, or has to.
func (c *connection) serve() {
	defer c.wire.conn.Close()
	defer c.queue.end()
	c.now = time.Now()
	if !c.wire.open(c.now) {
		return
	}
	c.client.reset()
	for c.wire.read(c.now, c.client.known) && c.answer() {
	}
}

// answer replies to all commands that have arrived, and keeps what is left of the next. It reports
// whether the connection goes on.
func (c *connection) answer() bool {
	c.now = time.Now()
	r := newRound(c)
	c.round = r
	words, rest, err := c.wire.words, c.wire.in[:c.wire.held], error(nil)
	for !r.ending {
		var n int
		if words, n, err = resp.Parse(rest, words); n == 0 || err != nil {
			break
		}
		rest = rest[n:]
		if len(words) > 0 {
			r.commands++
			c.command(words)
		}
	}
	r.decide()
	if err != nil {
		r.ending = true
		c.door.stats.broken.Add(1)
		if !errors.Is(err, resp.ErrHTTP) {
			r.fail(err.Error())
		}
	}
	r.write()
	c.wire.words, c.wire.held = words, copy(c.wire.in, rest)
	goesOn := !r.ending
	c.round, c.now = nil, r.end()
	return goesOn
}
