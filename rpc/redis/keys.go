package redis

import (
	"path"
	"strconv"
	"time"

	"penstock/cluster"
	"penstock/rpc/door"
	"penstock/rpc/resp"
)

// What Redis says of a key, it says here of a key of CL.THROTTLE, which in redis-cell is a key of
// Redis: it is there until its arrival time is over, and DEL makes it as new. Buckets of RL.* are
// no such keys: each has its numbers in its name, and Smyte's server has none of these commands.

// cellItems are items on keys of CL.THROTTLE, or nil, after an error was replied.
func (c *connection) cellItems(keys [][]byte, op cluster.Op) []cluster.Item {
	// all have the counter of any
	l, err := c.limit(commandLimit{count: 1, more: 1, per: time.Second})
	if err != nil {
		c.failLimit(err)
		return nil
	}
	items := make([]cluster.Item, len(keys))
	for i, key := range keys {
		if !c.keyed(key) {
			return nil
		}
		if !c.permitted(door.AskOf(&cluster.Item{Inline: l, Key: borrow(key), Op: op})) {
			return nil
		}
		items[i] = cluster.Item{Inline: l, Key: borrow(key), Op: op}
	}
	return items
}

// decideNow decides items after all that came before. ok says that no error was replied.
func (c *connection) decideNow(items []cluster.Item) (out []cluster.Decision, ok bool) {
	c.decide()
	out = make([]cluster.Decision, len(items))
	if err := c.door.config.Node.Check(&cluster.Request{Items: items}, out); err != nil {
		c.fail("ERR " + door.Explain(err).Text)
		return nil, false
	}
	return out, true
}

// there is the state of each key; one that is not there is full again. ok says that no error was
// replied.
func (c *connection) there(keys [][]byte) (states []cluster.Decision, ok bool) {
	items := c.cellItems(keys, cluster.OpPeek)
	if items == nil {
		return nil, false
	}
	return c.decideNow(items)
}

func present(states []cluster.Decision) (n int64) {
	for i := range states {
		if states[i].ResetAfter > 0 {
			n++
		}
	}
	return n
}

// del is DEL and UNLINK. It resets as any client of another door may.
func (c *connection) del(words [][]byte) {
	items := c.cellItems(words[1:], cluster.OpReset)
	if items == nil {
		return
	}
	deleted := int64(0)
	for i := range items { // one by one: a key that stands twice is deleted once
		before, ok := c.there(words[1+i : 2+i])
		if !ok {
			return
		}
		if n := present(before); n > 0 {
			out, ok := c.decideNow(items[i : i+1])
			if !ok {
				return
			}
			c.caller().Recorder(c.door.config.Audit).Resets(items[i:i+1], before, out)
			deleted += n
		}
	}
	c.number(deleted)
}

// exists counts a key as often as it stands there.
func (c *connection) exists(words [][]byte) {
	if states, ok := c.there(words[1:]); ok {
		c.number(present(states))
	}
}

// noSuchKey is what TTL says of a key that is not there.
const noSuchKey = -2

func (c *connection) ttl(words [][]byte) {
	// as Redis rounds
	c.lasts(words, func(w time.Duration) int64 { return (w.Milliseconds() + 500) / 1000 })
}

func (c *connection) pttl(words [][]byte) {
	c.lasts(words, func(w time.Duration) int64 { return w.Milliseconds() })
}

func (c *connection) lasts(words [][]byte, in func(time.Duration) int64) {
	states, ok := c.there(words[1:])
	switch {
	case !ok:
	case states[0].ResetAfter <= 0:
		c.number(noSuchKey)
	default:
		c.number(in(states[0].ResetAfter))
	}
}

// configure is CONFIG GET: what clients ask for when they connect, and monitors. Nothing can be
// set.
func (c *connection) configure(words [][]byte) {
	if !isWord(words[1], "GET") || len(words) < 3 {
		c.fail("ERR unknown subcommand or wrong number of arguments for 'config'; there is: get")
		return
	}
	known := [][2]string{
		{"appendonly", "no"},
		{"databases", "1"},
		{"maxclients", strconv.Itoa(c.door.most)},
		{"maxmemory-policy", "noeviction"},
		{"proto-max-bulk-len", strconv.Itoa(resp.MaxCommand)},
		{"save", ""},
		{"timeout", strconv.Itoa(int(idleTimeout / time.Second))},
	}
	var found [][2]string
	for _, x := range known {
		for _, pattern := range words[2:] {
			if ok, err := path.Match(string(pattern), x[0]); ok && err == nil {
				found = append(found, x)
				break
			}
		}
	}
	r := c.begin()
	r.out = resp.AppendMap(r.out, c.version, len(found))
	for _, x := range found {
		r.out = resp.AppendBulk(resp.AppendBulk(r.out, x[0]), x[1])
	}
}
