package redis

import (
	"fmt"

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

// queue is what a connection has queued. Its zero value is that of a connection outside of
// MULTI.
type queue struct {
	open     bool
	broken   bool // a command could not be queued: EXEC refuses
	commands []queuedCommand
	bytes    int64 // counted in stats.queued
}

type queuedCommand struct {
	known *command
	words [][]byte
}

// endQueue forgets what is queued.
func (c *connection) endQueue() {
	c.door.stats.queued.Add(-c.queue.bytes)
	c.queue = queue{}
}

// enqueue copies a command, which lies in the connection's buffer.
func (c *connection) enqueue(known *command, words [][]byte) {
	q, size := &c.queue, int64(0)
	for _, w := range words {
		size += int64(len(w)) + queuedWord
	}
	if q.broken { // nothing of it will run
		c.say("QUEUED")
		return
	}
	switch all := c.door.stats.queued.Add(size); {
	case q.bytes+size > queueBytes:
		c.door.stats.queued.Add(-size)
		q.broken = true
		c.fail(
			fmt.Sprintf(
				"ERR more than %d bytes of commands are queued between MULTI and EXEC; send them "+
					"in several pieces",
				queueBytes,
			),
		)
		return
	case all > queuesMost:
		c.door.stats.queued.Add(-size)
		q.broken = true
		c.fail(
			"ERR this node has too many commands queued between MULTI and EXEC; send them " +
				"without MULTI, or later",
		)
		return
	}
	q.bytes += size
	kept := make([][]byte, len(words))
	for i, w := range words {
		kept[i] = append([]byte{}, w...)
	}
	q.commands = append(q.commands, queuedCommand{known, kept})
	c.say("QUEUED")
}

func (c *connection) multi([][]byte) {
	if c.queue.open {
		c.fail("ERR MULTI calls can not be nested")
		return
	}
	c.queue = queue{open: true}
	c.say("OK")
}

// exec runs what is queued.
func (c *connection) exec([][]byte) {
	switch {
	case !c.queue.open:
		c.fail("ERR EXEC without MULTI")
		return
	case c.queue.broken:
		c.endQueue()
		c.fail("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	commands := c.queue.commands
	c.queue.open = false // so that they are run, and still counted
	r := c.begin()
	r.out = resp.AppendArray(r.out, len(commands))
	for _, x := range commands {
		r.commands++
		x.known.do(c, x.words)
	}
	c.decide() // the keys lie in the queue
	c.endQueue()
}

func (c *connection) discard([][]byte) {
	if !c.queue.open {
		c.fail("ERR DISCARD without MULTI")
		return
	}
	c.endQueue()
	c.say("OK")
}

func (c *connection) watch([][]byte) {
	if c.queue.open {
		c.fail("ERR WATCH inside MULTI is not allowed")
		return
	}
	c.fail(
		"ERR WATCH is not supported: keys are decided by their owners, and EXEC does not keep " +
			"others out; one command decides and charges",
	)
}
