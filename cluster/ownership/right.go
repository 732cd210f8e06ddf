package ownership

import (
	"slices"
	"time"
)

// right is until when this member may decide, by its own clock (R3). A majority of the voters of
// its epoch has acknowledged a renewal; the oldest of the newest acknowledgements of that majority,
// plus Lease, is the end. Each of those voters waits for Lease + Margin from a later moment before
// it accepts a configuration without this member.
type right struct {
	until Instant // decisions are taken before it only
	floor Instant // renewals sent before it count for nothing
	ended bool    // given up for good in this epoch
	began Instant // when this member installed the epoch
	// lost is until when it would have lasted, had it not been given up with its lines or for a
	// child lineage. Before that instant no configuration is decided without this member.
	lost Instant
	had  Instant // when it was valid last, if it was given up since; never: it was not
}

// lapsed is for how long this member has had no right in its epoch; 0: it has given it up for good.
func (r *right) lapsed(now Instant) time.Duration {
	if r.ended {
		return 0
	}
	return now.Since(max(r.until, r.floor, r.began))
}

// without is for how long there has been no right, in this epoch or by that of before.
func (r *right) without(now Instant) time.Duration {
	return now.Since(max(r.until, r.had, r.began))
}

// end has the right end now, if it is valid.
func (r *right) end(now Instant) { r.had, r.until = max(r.had, min(r.until, now)), never }

// lose gives the right up until something newer is acknowledged.
func (r *right) lose(now Instant) {
	r.end(now)
	r.floor = now + 1
}

// cede gives the right up for a child lineage.
func (r *right) cede(now Instant) {
	r.lost = max(r.lost, r.until)
	r.over(now)
}

// over gives the right up for good.
func (r *right) over(now Instant) {
	r.end(now)
	r.ended = true
}

// Boot is this boot.
func (s *sight) Boot() Boot { return s.me.Boot }

// DecideUntil is the instant that a decision compares with its own, under the lock under which it
// charges. An answer that leaves later is marked.
func (s *renewer) DecideUntil() Instant { return s.right.until }

// Marked reports whether all decisions are marked, for a rival may decide as well.
func (s *sight) Marked() bool { return s.stage == StageJoined && s.config.Marked() }

// Deciding reports whether the right is valid.
func (s *renewer) Deciding(now Instant) bool { return now < s.right.until }

// renew asks all voters for the right to decide, each Renew. Voters that have not heard yet of an
// epoch acknowledge nothing in it, so a member asks more often until most of them have.
func (s *renewer) renew(now Instant) {
	if !s.right.ended && s.mayGo() {
		s.right.over(now)
		s.renewed = never // so the farewell is said at once
	}
	every := s.p.Renew
	if !s.right.ended && s.acknowledged() == never {
		every /= 4
	}
	if s.renewed == never || now.Since(s.renewed) >= every {
		s.askRight(now)
	}
}

// renewAlong asks for the right a little early, because another voter has just asked: voters that
// ask at one time wake each other's machines once instead of one after the other. A boot that is
// not polled any more has stopped, and goes along with nobody.
func (s *renewer) renewAlong(now Instant) {
	early := s.p.Renew - s.p.Renew/8
	if !s.right.ended && s.renewed != never && now.Since(s.renewed) >= early &&
		now.Since(s.polled) <= s.p.Renew && !s.mayGo() {
		s.askRight(now)
	}
}

// askRight asks all voters for the right to decide.
func (s *renewer) askRight(now Instant) {
	s.renewed = now
	if s.right.ended && s.mayGo() {
		s.sendVoters(Farewell{s.config.Epoch})
	}
	m := Renew{Epoch: s.config.Epoch, Sent: now, Leaving: s.leaving}
	if s.Deciding(now) {
		m.Unreached = s.missing(now)
	} else if s.right.lapsed(now) >= s.p.Suspect && s.reachesNotAll() {
		s.sendVoters(Hello{Member: s.me, Former: s.origin.former, Reply: true})
	}
	s.sendVoters(m)
}

// lapses notes that a member says that it has no right.
func (s *renewer) lapses(now Instant, from Boot, m Hello) {
	if s.stage == StageJoined && m.Config == nil && s.config.Has(from) {
		s.entry(from).lapsed = now
	}
}

// deaf reports whether b says that it has no right, and this voter does not reach it: b hears no
// acknowledgement, and the line is as good as cut both ways.
func (s *sight) deaf(now Instant, b Boot) bool {
	e := s.entry(b)
	return e.unreached != never && now.Since(e.lapsed) < s.p.Suspect && s.p.keeps(ruleBothWays)
}

// missing are the members that this one has not reached for Missed. One that is cut off itself
// speaks of nobody.
func (s *sight) missing(now Instant) (list []Boot) {
	for i := range s.roster {
		if e := &s.roster[i]; e.unreached != never && now.Since(e.unreached) >= s.p.Missed &&
			s.config.Has(e.boot) {
			list = append(list, e.boot)
		}
	}
	return list
}

// reachesNotAll reports whether a voter cannot be called from here. Then this member says when it
// has no right (lapsed): what it is acknowledged may not arrive.
func (s *sight) reachesNotAll() bool {
	return slices.ContainsFunc(s.config.Voters,
		func(v Boot) bool { return s.entry(v).unreached != never })
}

// mayGo reports whether a member that leaves has given everything away. The last one has nobody to
// give it to, and goes on until its process ends.
func (s *renewer) mayGo() bool {
	m, _ := s.config.Member(s.me.Boot)
	return m.Role == RoleLeaving && len(s.config.Members) > 1 && s.emptied
}

// roleOf is the role of a member in the next configuration.
func (s *sight) roleOf(now Instant, m *Member, missed map[Boot]int) Role {
	switch e := s.entry(m.Boot); {
	case len(s.config.Members) == 1:
		return RoleOwner
	case e.leaving || s.unreachable(now, m.Boot, missed):
		return RoleLeaving
	case m.Role == RoleOwner || e.sign == SignLeft: // a farewell is for good
		return m.Role
	case e.stays, s.reachedByMost(m.Boot):
		// it was asked to step down, and is reached again
		return RoleOwner
	}
	return m.Role
}

// renewAsked acknowledges a renewal, unless this voter has sealed the epoch (R4).
func (s *renewer) renewAsked(now Instant, from Boot, m Renew) {
	e := s.entry(from)
	s.out.Stirred = s.out.Stirred || !e.repeats(m)
	e.wish(m)
	if !s.config.Votes(s.me.Boot) || s.p.keeps(ruleOneEpoch) && !s.config.Has(from) {
		return
	}
	if s.voter.closed || s.voter.sealed && s.p.keeps(ruleSeal) {
		return
	}
	// asked to step down, it cannot give away what it holds: it is evicted
	x, _ := s.config.Member(from)
	if x.Role == RoleLeaving && s.byMost(s.missed()[from]) || s.deaf(now, from) {
		return
	}
	e.renewed, e.seen = now, true
	s.send(from, RenewAck{m.Epoch, m.Sent, now})
	if from != s.me.Boot && s.config.Votes(from) {
		s.renewAlong(now)
	}
}

// repeats reports whether a renewal says nothing that was not known.
func (e *entry) repeats(m Renew) bool {
	return e.seen && len(e.missed) == 0 && len(m.Unreached) == 0 && m.Leaving == e.leaving
}

// wish takes in what a renewal says of its sender, unless it was overtaken on its way: the sender's
// mind may have changed.
func (e *entry) wish(m Renew) {
	if m.Sent < e.wished {
		return
	}
	if e.wished = m.Sent; m.Leaving != e.leaving {
		e.leaving, e.stays = m.Leaving, !m.Leaving
	}
	e.missed = m.Unreached
}

// renewAcked counts an acknowledgement.
func (s *renewer) renewAcked(now Instant, from Boot, m RenewAck) {
	e := s.entry(from)
	if s.right.ended || m.Sent < s.right.floor || e.base.fast(s.p, now, m) {
		return
	}
	e.acked = max(e.acked, m.Sent)
	if oldest := s.acknowledged(); oldest >= s.right.floor && oldest != never {
		s.right.until = max(s.right.until, oldest.Add(s.p.Lease))
	}
}

// acknowledged is the instant of which a majority of the voters has acknowledged in this epoch that
// this member was there; never, if none has.
func (s *sight) acknowledged() Instant {
	acks := make([]Instant, 0, MaxVoters)
	for _, v := range s.config.Voters {
		acks = append(acks, s.entry(v).acked)
	}
	slices.Sort(acks)
	return acks[len(acks)-s.config.Quorum()]
}

// exchange compares the clock of a voter with this member's: when a renewal was sent and
// acknowledged here, and what the voter's clock said in between.
type exchange struct {
	sent, back, theirs Instant
}

// window is for how long an exchange is compared with later ones.
const window = 5 * time.Second

// fast reports whether the voter's clock has run faster than this one since the exchange x, by more
// than Params.Drift. Its waiting would end before a lease does, so it does not count.
func (x *exchange) fast(p *Params, now Instant, m RenewAck) bool {
	if p.Drift == 0 || !p.keeps(ruleDrift) {
		return false
	}
	next := exchange{m.Sent, now, m.Clock}
	if x.back == 0 {
		*x = next
		return false
	}
	most := int64(now - x.sent) // of this clock between the two readings of the voter's, at most
	fast := int64(m.Clock-x.theirs)*1000 > most*(1000+p.Drift)
	// also after a jump; the next exchange is compared with this one
	if now.Since(x.back) > window {
		*x = next
	}
	return fast
}
