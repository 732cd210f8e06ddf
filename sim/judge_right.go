package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter"
)

// The right to decide. A member may decide until so
// long after it sent a renewal that a majority of the voters of its configuration has acknowledged,
// by its own clock. The judge finds that out by itself, from the acknowledgements that came to each
// node. A node may have given up its right earlier; never does it have it longer.

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
	slices.Sort(acks)
	return max(c.until, acks[len(acks)-c.config.Quorum()].Add(rightLasts))
}

// leaves reports whether the process leaves: by itself, or since most others miss it. Then it gives
// up its right, and goes by on_error until it is gone or has come back.
func (c *right) leaves() bool {
	m, _ := c.config.Member(c.boot)
	return m.Role == ownership.RoleLeaving
}

// hasRight checks that p, which decides, has the right to, and says how many members there are with
// it. A pair that has parted is one of two voters: one that leaves has no vote, whichever half has
// taken it along.
func (j *ownerJudge) hasRight(p *process, a *account) (members int) {
	config := p.stated.agreed
	if config == nil {
		j.fail(owned, "%s decides on %s, and is a member of no configuration", p.machine.id,
			keyText(a.key))
		return 0
	}
	if until := p.rightOf().ends(p); p.now() >= until {
		j.fail(owned, "%s decides on %s, and its right to has been over for %v", p.machine.id,
			keyText(a.key), time.Duration(p.now()-until))
	}
	members = len(config.Members) + len(config.Rivals)
	for _, m := range config.Members {
		if m.Role == ownership.RoleLeaving && len(config.Rivals) > 0 {
			members--
		}
	}
	return members
}

// standing is what a node may go by that has answered without the owner: onError is false if
// it must have noticed that it is cut off, so that its limits' on_partition holds. Else nobody can
// tell from outside which of the two it is. shares is in how many it must split a limit at least.
func (j *markedJudge) standing(h *hearing) (onError bool, shares int) {
	p := h.process
	active := min(h.view.Active(), p.stated.view.Active())
	config := p.stated.agreed
	if p.machine.role == cluster.RoleAgent || config == nil {
		return true, min(active, 1)
	}
	c := p.rightOf()
	over := p.now() - c.ends(p) - limiter.Instant(j.world.now-h.began)
	cutOff := time.Duration(over) > noticed && c.joined < h.began-rightLasts-noticed &&
		p.machine.thawed < h.began-noticed && !p.leaving && !c.leaves()
	if cutOff {
		j.requests.CutOff++
	}
	// it has split the limit when it gave up asking, and others may have come since
	return !cutOff, min(membersOf(config), cmp.Or(h.members, math.MaxInt))
}

// membersOf is how many members a configuration has.
func membersOf(c *ownership.Configuration) int {
	if c == nil {
		return 0
	}
	return len(c.Members)
}
