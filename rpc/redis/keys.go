package redis

import (
	"time"

	"penstock/cluster"
	"penstock/rpc/door"
)

// What Redis says of a key, it says here of a key of CL.THROTTLE, which in redis-cell is a key of
// Redis: it is there until its arrival time is over, and DEL makes it as new. Buckets of RL.* are
// no such keys: each has its numbers in its name, and Smyte's server has none of these commands.

// cellItems are items on keys of CL.THROTTLE.
func (c *connection) cellItems(
	keys [][]byte, op cluster.Op,
) (items []cluster.Item, fault string) {
	// all have the counter of any
	l, err := c.limit(commandLimit{count: 1, more: 1, per: time.Second}, false)
	if err != nil {
		return nil, throttleFault(err)
	}
	items = make([]cluster.Item, len(keys))
	for i, key := range keys {
		items[i] = cluster.Item{Inline: l, Key: borrow(key), Op: op}
		if fault := keyFault(key); fault != "" {
			return nil, fault
		}
		if fault := c.client.permit(door.AskOf(&items[i])); fault != "" {
			return nil, fault
		}
	}
	return items, ""
}

// there is the state of each key; one that is not there is full again.
func (c *connection) there(keys [][]byte) (states []cluster.Decision, fault string) {
	items, fault := c.cellItems(keys, cluster.OpPeek)
	if fault != "" {
		return nil, fault
	}
	return c.round.decideNow(items)
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
func (c *connection) del(words [][]byte) (fault string) {
	items, fault := c.cellItems(words[1:], cluster.OpReset)
	if fault != "" {
		return fault
	}
	deleted := int64(0)
	for i := range items { // one by one: a key that stands twice is deleted once
		before, fault := c.there(words[1+i : 2+i])
		if fault != "" {
			return fault
		}
		if n := present(before); n > 0 {
			out, fault := c.round.decideNow(items[i : i+1])
			if fault != "" {
				return fault
			}
			c.client.caller().Recorder(c.door.config.Audit).Changes(
				&cluster.Request{Items: items[i : i+1]}, before, out)
			deleted += n
		}
	}
	c.round.number(deleted)
	return ""
}

// exists counts a key as often as it stands there.
func (c *connection) exists(words [][]byte) (fault string) {
	states, fault := c.there(words[1:])
	if fault == "" {
		c.round.number(present(states))
	}
	return fault
}

// noSuchKey is what TTL says of a key that is not there.
const noSuchKey = -2

// lasts is TTL and PTTL: for how long a key is there.
func lasts(in func(time.Duration) int64) handler {
	return func(c *connection, words [][]byte) (fault string) {
		states, fault := c.there(words[1:])
		switch {
		case fault != "":
		case states[0].ResetAfter <= 0:
			c.round.number(noSuchKey)
		default:
			c.round.number(in(states[0].ResetAfter))
		}
		return fault
	}
}

// inSeconds rounds as Redis does.
func inSeconds(d time.Duration) int64 { return (d.Milliseconds() + 500) / 1000 }
