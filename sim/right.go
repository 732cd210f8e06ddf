package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter"
)

// The right to decide. A member may decide until so long after it sent a renewal that a majority of
// the voters of its configuration has acknowledged, by its own clock. Judges find that out by
// themselves, from the acknowledgements that came to each node. A node may have given up its right
// earlier; never does it have it longer.

// rightLasts is how long a renewal is worth, and noticed what goes by at most until a node has
// looked whether it is over.
const (
	rightLasts = 600 * time.Millisecond
	noticed    = 100 * time.Millisecond
)

// right is what the judge knows of a process's right to decide.
type right struct {
	config *ownership.Configuration // that it is a member of
	boot   ownership.Boot           // of the process, in it
	joined time.Duration            // when this boot became a member
	acked  map[ownership.Epoch]map[ownership.Boot]limiter.Instant
	until  limiter.Instant // from the epochs before
}

// isTold notes what p is told about renewals.
func (p *process) isTold(w *cluster.Words) {
	if w == nil {
		return
	}
	for _, m := range w.Said {
		if ack, is := m.(ownership.RenewAck); is {
			c := p.rightOf()
			if c.acked[ack.Epoch] == nil {
				c.acked[ack.Epoch] = make(map[ownership.Boot]limiter.Instant)
			}
			acked := c.acked[ack.Epoch]
			acked[w.From] = max(acked[w.From], limiter.Instant(ack.Sent))
		}
	}
}

// rightOf is what is known of p by now.
func (p *process) rightOf() *right {
	c, config := p.right, p.stated.agreed
	if c == nil {
		c = &right{
			acked:  make(map[ownership.Epoch]map[ownership.Boot]limiter.Instant),
			joined: p.machine.world.now,
		}
		p.right = c
	}
	if c.config == config || config == nil {
		return c
	}
	until, boot := c.ends(p), c.boot
	for _, m := range config.Members {
		if m.ID == p.machine.id {
			c.boot = m.Boot
		}
	}
	c.config, c.until = config, until // what was acknowledged in the epoch before goes on
	if boot != c.boot {
		c.until, c.joined = 0, p.machine.world.now
	}
	for e := range c.acked {
		if e.Lineage == config.Epoch.Lineage && e.Number < config.Epoch.Number {
			delete(c.acked, e)
		}
	}
	return c
}

// ends is until when p may decide at most.
func (c *right) ends(p *process) limiter.Instant {
	if c.config == nil || len(c.config.Voters) == 0 {
		return 0
	}
	var acks []limiter.Instant
	for _, v := range c.config.Voters {
		at := c.acked[c.config.Epoch][v]
		if v == c.boot {
			at = p.now()
		}
		acks = append(acks, at)
	}
	// a majority, more than half of the voters, has acknowledged the latest of these that as many
	// have reached
	slices.Sort(acks)
	majority := 0
	for 2*majority <= len(acks) {
		majority++
	}
	return max(c.until, acks[len(acks)-majority].Add(rightLasts))
}

// leaves reports whether the process leaves: by itself, or since most others miss it. Then it gives
// up its right, and goes by on_error until it is gone or has come back.
func (c *right) leaves() bool {
	return slices.ContainsFunc(c.config.Members, func(m ownership.Member) bool {
		return m.Boot == c.boot && m.Role == ownership.RoleLeaving
	})
}

// countedOn is how many members there should be: the other half of a pair is one still.
func countedOn(c *ownership.Configuration) int {
	if c == nil {
		return 0
	}
	return len(c.Members) + len(c.Rivals)
}

// membersOf is how many members a configuration has.
func membersOf(c *ownership.Configuration) int {
	if c == nil {
		return 0
	}
	return len(c.Members)
}
