package redis

import (
	"fmt"
	"sync/atomic"

	"penstock/rpc/resp"
)

// Between MULTI and EXEC commands are queued, and EXEC runs them in their order and replies with an
// array. Some clients expect that: their pipelines are transactions unless they are told
// otherwise (redis-py's). Nothing is rolled back, as in Redis; unlike there, commands of others may
// come in between, since each key is decided by its owner. So WATCH, which promises that nothing
// came in between, is refused.

// Bounds of what is queued, with queuedWord for each word.
const (
	queueBytes = 1 << 20  // of one connection
	queuesMost = 64 << 20 // of all connections of the door
	queuedWord = 48
)

// queue is what a connection has queued. It is closed outside of MULTI.
type queue struct {
	all      *atomic.Int64 // bytes in the queues of all connections
	open     bool
	broken   bool // a command could not be queued: EXEC refuses
	commands []queuedCommand
	bytes    int64 // counted in all
}

type queuedCommand struct {
	known *command
	words [][]byte
}

// end forgets what is queued.
func (q *queue) end() {
	q.all.Add(-q.bytes)
	*q = queue{all: q.all}
}

// add copies a command, which lies in the connection's buffer.
func (q *queue) add(known *command, words [][]byte) (fault string) {
	if q.broken { // nothing of it will run
		return ""
	}
	size := int64(0)
	for _, w := range words {
		size += int64(len(w)) + queuedWord
	}
	switch all := q.all.Add(size); {
	case q.bytes+size > queueBytes:
		fault = fmt.Sprintf("ERR more than %d bytes of commands are queued between MULTI and "+
			"EXEC; send them in several pieces", queueBytes)
	case all > queuesMost:
		fault = "ERR this node has too many commands queued between MULTI and EXEC; send them " +
			"without MULTI, or later"
	}
	if fault != "" {
		q.all.Add(-size)
		q.broken = true
		return fault
	}
	q.bytes += size
	kept := make([][]byte, len(words))
	for i, w := range words {
		kept[i] = append([]byte{}, w...)
	}
	q.commands = append(q.commands, queuedCommand{known, kept})
	return ""
}

func (c *connection) multi([][]byte) (fault string) {
	if c.queue.open {
		return "ERR MULTI calls can not be nested"
	}
	c.queue.open, c.queue.broken = true, false
	c.round.say("OK")
	return ""
}

// exec runs what is queued.
func (c *connection) exec([][]byte) (fault string) {
	switch {
	case !c.queue.open:
		return "ERR EXEC without MULTI"
	case c.queue.broken:
		c.queue.end()
		return "EXECABORT Transaction discarded because of previous errors."
	}
	commands := c.queue.commands
	c.queue.open = false // so that they are run, and still counted
	r := c.round.begin()
	r.out = resp.AppendArray(r.out, len(commands))
	for _, x := range commands {
		r.commands++
		if fault := x.known.do(c, x.words); fault != "" {
			r.fail(fault)
		}
	}
	r.decide() // the keys lie in the queue
	c.queue.end()
	return ""
}

func (c *connection) discard([][]byte) (fault string) {
	if !c.queue.open {
		return "ERR DISCARD without MULTI"
	}
	c.queue.end()
	c.round.say("OK")
	return ""
}

func (c *connection) watch([][]byte) (fault string) {
	if c.queue.open {
		return "ERR WATCH inside MULTI is not allowed"
	}
	return "ERR WATCH is not supported: keys are decided by their owners, and EXEC does not keep " +
		"others out; one command decides and charges"
}
