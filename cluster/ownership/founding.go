package ownership

import (
	"slices"
	"strings"
)

// founding is how unfounded boots become a cluster (R12). The electorate is known to all of them.
// The boot with the smallest id asks for votes; each boot gives one; a majority of the electorate
// founds. Where somebody answers as founded, nobody founds.
type founding struct {
	met      []Member // unfounded boots that have answered
	votedFor Boot
	votes    []Boot // for this boot
	gaveUp   bool   // this boot has released its votes, and never founds
	since    Instant
}

// candidacy is what a candidate knows of the cluster that it asks.
type candidacy struct {
	since Instant  // when it was first polled as a candidate
	heirs []Member // boots of no cluster that have the names of members
}

// extinct reports whether the cluster that this candidate asks is gone: each of its members is
// gone, or has been silent for Mass while another boot of its name belongs to no cluster. Without
// this a candidate waited for members that had all been restarted, and they waited for its vote.
func (s *founder) extinct(now Instant) bool {
	if s.asking.since == never {
		s.asking.since = now
	}
	return !slices.ContainsFunc(s.config.Members, func(m Member) bool {
		e := s.entry(m.Boot)
		replaced := m.ID == s.me.ID ||
			slices.ContainsFunc(s.asking.heirs, func(o Member) bool { return o.ID == m.ID })
		silent := now.Since(max(s.asking.since, e.heard)) >= s.p.Mass
		return e.sign < SignGone && !(replaced && silent)
	})
}

// greet calls those that belong to the cluster and are not in it: before it is founded, all of the
// electorate and the others; afterwards those of a name that no member has, and rivals.
func (s *founder) greet(now Instant) {
	if s.stage == StageJoined && s.renewed != never && now.Since(s.renewed) < s.p.Renew {
		return
	}
	hello := s.ownHello(now, false)
	there := s.names()
	for i, ids := range [][]string{s.origin.elect.IDs, s.origin.elect.Others} {
		if i == 1 && s.stage == StageJoined && !s.config.Votes(s.me.Boot) {
			break // a newcomer to a thousand members is called by its seeds and the voters
		}
		for _, id := range ids {
			if id == s.me.ID || there[id] {
				continue
			}
			s.out.Sends = append(s.out.Sends, Send{Addr: id, Message: hello})
		}
	}
	if s.stage == StageJoined {
		for _, r := range s.config.Rivals {
			s.send(r.Boot, hello)
		}
	}
}

// names are the ids of the members, if this boot is one.
func (s *sight) names() map[string]bool {
	if s.stage != StageJoined {
		return nil
	}
	names := make(map[string]bool, len(s.config.Members))
	for _, m := range s.config.Members {
		names[m.ID] = true
	}
	return names
}

func (s *founder) ownHello(now Instant, reply bool) Hello {
	h := Hello{Member: s.me, Former: s.origin.former, Reply: reply}
	if s.stage == StageJoined {
		h.Config, h.Deciding = s.config, s.Deciding(now)
	}
	return h
}

// hello learns whether somebody is founded, and which of two lineages wins.
func (s *State) hello(now Instant, from Boot, m Hello) {
	s.lapses(now, from, m)
	switch {
	case s.stage == StageJoined && m.Config != nil:
		s.meet(now, from, m)
		return
	case s.stage != StageJoined && m.Config != nil:
		if s.p.keeps(ruleFoundedWins) || s.stage == StageCandidate {
			s.candidate(m.Config)
			return
		}
	case s.stage == StageCandidate:
		known := slices.Contains(s.asking.heirs, m.Member)
		if holder, named := s.config.named(m.Member.ID); named && holder.Boot != from && !known {
			s.asking.heirs = append(s.asking.heirs, m.Member)
		}
	case s.stage == StageOutside && m.Config == nil:
		s.founding.met = slices.DeleteFunc(s.founding.met, func(o Member) bool {
			return o.ID == m.Member.ID
		})
		if slices.Contains(s.origin.elect.IDs, m.Member.ID) { // others have no vote here
			s.founding.met = append(s.founding.met, m.Member)
		}
		slices.SortFunc(s.founding.met, func(a, b Member) int {
			return strings.Compare(a.ID, b.ID)
		})
	}
	if !m.Reply {
		s.send(from, s.ownHello(now, true))
	}
}

// meet compares two founded lineages (R1). The loser gives way, to one that decides: two that have
// both lost their majority would else both be lost. The winner gives way if this member has had no
// right for Mass. One that has just given its right up, since it leaves or has lost its lines, is
// of a lineage that may well decide, and to which the loser gives way meanwhile.
func (s *State) meet(now Instant, from Boot, m Hello) {
	theirs, own := m.Config.Epoch.Lineage, s.config.Epoch.Lineage
	switch {
	case theirs == own:
		if !s.descends(m.Config.Epoch) && m.Config.Epoch.Number > s.config.Epoch.Number {
			s.send(from, Behind{s.config.Epoch})
		}
	case !s.p.keeps(ruleConcede):
	case m.Deciding && (theirs.Beats(own) || s.right.without(now) >= s.p.Mass):
		s.config = m.Config
		s.end(Conceded)
	case !m.Reply:
		s.send(from, s.ownHello(now, true))
	}
}

// found asks for votes if this boot has the smallest id of those it has met, and founds when a
// majority has voted for it.
func (s *founder) found(now Instant) {
	f := &s.founding
	if !s.metEnough(now) {
		return
	}
	if len(f.met) > 0 && f.met[0].ID < s.me.ID {
		s.giveUp()
		return
	}
	if f.votedFor != 0 && f.votedFor != s.me.Boot && s.p.keeps(ruleVoteOnce) {
		return
	}
	f.votedFor = s.me.Boot
	s.votedBy(s.me.Boot)
	if s.stage == StageJoined {
		return
	}
	for _, m := range f.met {
		s.send(m.Boot, Vote{Founder: s.me.Boot})
	}
}

// metEnough reports whether this boot has met as many of the electorate as a founder needs, and has
// waited for the others.
func (s *founder) metEnough(now Instant) bool {
	f := &s.founding
	total := s.origin.elect.Size
	// those that answer no more wait for nobody
	f.met = slices.DeleteFunc(slices.Clone(f.met), func(m Member) bool {
		e := s.entry(m.Boot)
		return e.sign >= SignGone || now.Since(e.heard) >= s.p.Lease
	})
	if s.stage != StageOutside || total == 0 || f.gaveUp || len(f.met)+1 <= total/2 {
		return false
	}
	if slices.ContainsFunc(s.origin.elect.Members, func(id string) bool {
		return !slices.ContainsFunc(f.met, func(m Member) bool { return m.ID == id })
	}) {
		return false
	}
	if f.since == never {
		f.since = now
	}
	if len(f.met)+1 < total && now.Since(f.since) < s.p.Lease {
		return false // others are just starting
	}
	return true
}

// giveUp releases the votes for this boot, as another one is to found.
func (s *founder) giveUp() {
	f := &s.founding
	if f.votedFor == s.me.Boot {
		f.gaveUp, f.votedFor = true, 0
		for _, b := range f.votes {
			s.send(b, Release{})
		}
		f.votes = nil
	}
}

// vote gives this boot's only vote, or counts one.
func (s *founder) vote(now Instant, from Boot, m Vote) {
	f := &s.founding
	switch {
	case s.stage == StageJoined && !m.Given:
		s.send(from, s.ownHello(now, true))
	case s.stage != StageOutside:
	case m.Given:
		if m.Founder == s.me.Boot && f.votedFor == s.me.Boot && !f.gaveUp {
			s.votedBy(from)
		}
	case f.votedFor == 0 || f.votedFor == from || !s.p.keeps(ruleVoteOnce):
		f.votedFor = from
		s.send(from, Vote{Founder: from, Given: true})
	}
}

func (s *founder) released(from Boot) {
	if s.stage == StageOutside && s.founding.votedFor == from {
		s.founding.votedFor = 0
	}
}

// votedBy counts a vote and founds.
func (s *founder) votedBy(from Boot) {
	f := &s.founding
	if !slices.Contains(f.votes, from) {
		f.votes = append(slices.Clone(f.votes), from)
	}
	if len(f.votes) <= s.origin.elect.Size/2 {
		return
	}
	var members []Member
	for _, m := range append([]Member{s.me}, f.met...) {
		if slices.Contains(f.votes, m.Boot) {
			members = append(members, m)
		}
	}
	s.foundWith(members)
}

// foundWith installs the first configuration of a cluster.
func (s *founder) foundWith(members []Member) {
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	root := s.me.Boot
	if s.origin.elect.Stamp != 0 {
		root = s.origin.elect.Stamp
	}
	c := &Configuration{
		Epoch: Epoch{Founded(root), 1}, Members: members, Failover: s.p.Failover,
		Copies: s.p.Copies, Secret: s.origin.elect.Secret,
	}
	c.Voters = chooseVoters(nil, members, func(Boot) bool { return true })
	for _, m := range members {
		s.send(m.Boot, Decided{c})
	}
}

// candidate makes this boot a candidate of the members of config. All of them answer a greeting;
// they are asked once, and then as often as poll does.
func (s *founder) candidate(config *Configuration) {
	asked := s.stage == StageCandidate && s.config.Epoch == config.Epoch
	s.stage, s.founding = StageCandidate, founding{since: never}
	s.config, s.asking = config, candidacy{since: never}
	if !asked {
		s.join()
	}
}

// join asks the members of the cluster to admit this boot.
func (s *founder) join() {
	for _, m := range s.config.Members {
		s.send(m.Boot, Join{s.me, s.origin.former})
	}
}

// joinAsked notes a candidate. If a member has its name, the candidate is told as soon as that
// member is seen to live after all (property 7); a process that was restarted meets the end of its
// former boot instead.
func (s *speaker) joinAsked(now Instant, from Boot, m Join) {
	if s.stage != StageJoined {
		return
	}
	if s.config.Has(from) {
		s.send(from, Decided{s.config}) // it was admitted, and has not heard so
		return
	}
	// it was admitted and evicted before it heard of either
	if slices.Contains(s.evicted, from) && s.p.keeps(ruleChain) {
		s.send(from, Missed{})
		return
	}
	e := s.entry(from)
	if !e.asked {
		e.asked, e.askedAt = true, now
	}
	e.member = m.Member
	if m.Former != 0 {
		s.entry(m.Former).signed(SignGone, now)
	}
	if !s.config.Votes(s.me.Boot) {
		return
	}
	holder, taken := s.config.named(m.Member.ID)
	if taken && s.p.keeps(ruleName) && s.entry(holder.Boot).renewed > s.entry(from).askedAt {
		s.send(from, Refuse{holder.Boot})
	}
}
