package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// What a course makes of holds. Asked, admitted and denied are what clients want to reserve and
// get; what they have used of it counts as admitted, against the limit, when they say so. Of
// permits, what counts is how many clients have at once.

// ideal is one limiter, alone and always there, with what is set aside at it.
type ideal struct {
	naiveState
	aside []idealHold
}

type idealHold struct {
	id      cluster.ID
	units   int64
	until   limiter.Instant
	release bool
}

func asksFor(it *cluster.Item) bool { return it.Op == cluster.OpTake || it.Op == cluster.OpReserve }

// fits reports whether it would grant cost.
func (m *ideal) fits(now limiter.Instant, s *limiter.Spec, cost int64) bool {
	for i := range m.aside {
		cost += m.aside[i].units
	}
	return m.peek(now, s, cost).Allowed
}

// takes grants what it asks for, or not.
func (m *ideal) takes(now limiter.Instant, s *limiter.Spec, it *cluster.Item) bool {
	switch {
	case it.Op == cluster.OpTake && (len(m.aside) == 0 || it.Cost <= 0):
		return m.take(now, s, it.Cost).Allowed
	case !m.fits(now, s, it.Cost):
		return false
	case it.Op == cluster.OpTake:
		return m.take(now, s, it.Cost).Allowed
	}
	m.aside = append(m.aside, idealHold{
		it.ID, it.Cost, now.Add(it.Hold.TTL),
		s.Unsettled == limiter.UnsettledRelease || s.Algorithm == limiter.Concurrency,
	})
	return true
}

// follow settles what it settles, and what has run out by now.
func (m *ideal) follow(now limiter.Instant, s *limiter.Spec, it *cluster.Item) {
	m.aside = slices.DeleteFunc(m.aside, func(h idealHold) bool {
		switch {
		case h.until <= now && h.release:
		case h.until <= now:
			m.report(now, s, h.units)
		case it.Op == cluster.OpSettle && it.Hold.ID == h.id && s.Algorithm == limiter.Concurrency:
		case it.Op == cluster.OpSettle && it.Hold.ID == h.id:
			m.report(now, s, it.Cost)
		default:
			return false
		}
		return true
	})
	for i := range m.aside {
		if h := &m.aside[i]; it.Op == cluster.OpExtend && it.Hold.ID == h.id {
			h.until = max(h.until, now.Add(it.Hold.TTL))
		}
	}
}

// permits are what clients have of a key, as they see it: what was reserved, by the id of that.
type permits map[cluster.ID]permit

type permit struct {
	units int64
	until time.Duration
}

// reserved notes what a client has got.
func (c *course) reserved(k *keyCourse, it *cluster.Item) {
	if k.permits == nil {
		k.permits = make(permits)
	}
	k.permits[it.ID] = permit{it.Cost, c.world.now + it.Hold.TTL - tickSlack}
	if k.spec.Algorithm != limiter.Concurrency {
		return
	}
	var out int64
	for _, p := range k.permits {
		if p.until > c.world.now {
			out += p.units
		}
	}
	c.exceeds(k, out-k.spec.Limit)
}

// settled counts what a client has used of what it had.
func (c *course) settled(k *keyCourse, number int, it *cluster.Item, d *cluster.Decision) {
	p, known := k.permits[it.Hold.ID]
	if delete(k.permits, it.Hold.ID); known && d.Hold == limiter.HoldSettled &&
		k.spec.Algorithm != limiter.Concurrency {
		c.admitted(k, number, min(it.Cost, p.units))
	}
}

// returns notes that a client is about to give a permit back: it does not use it any more.
func (c *course) returns(k *keyCourse, it *cluster.Item) {
	if it.Op == cluster.OpSettle && k.spec.Algorithm == limiter.Concurrency {
		delete(k.permits, it.Hold.ID)
	}
}

// extended notes that a client has what it has for longer.
func (c *course) extended(k *keyCourse, it *cluster.Item, d *cluster.Decision) {
	if p, has := k.permits[it.Hold.ID]; has && d.Hold == limiter.HoldOpen {
		p.until = c.world.now + it.Hold.TTL - tickSlack
		k.permits[it.Hold.ID] = p
	}
}
