package ownership

// Due is until when nothing happens to this boot by time alone: Poll does nothing before it, if no
// other event comes. So a shell may leave Polls out until then. That is known while a boot is calm:
// a member that has its right, hears all others, and knows of nothing that should change. Else each
// Poll may count.
func (s *State) Due(now Instant) (due Instant, calm bool) {
	if !s.calm(now) {
		return now, false
	}
	due = min(s.renewed.Add(s.p.Renew), s.right.until)
	if !s.config.Votes(s.me.Boot) {
		return due, true
	}
	for _, m := range s.config.Members {
		if m.Boot == s.me.Boot {
			continue
		}
		e := s.entry(m.Boot)
		if !e.seen || s.evictable(now, m.Boot) {
			return now, false
		}
		due = min(due, e.renewed.Add(s.p.Suspect))
	}
	return due, s.want(now, true) == nil
}

// calm reports whether this boot has nothing under way.
func (s *State) calm(now Instant) bool {
	if s.stage != StageJoined || s.closed || s.leaving || s.emptied || s.me.Role != RoleOwner {
		return false
	}
	if s.right.ended || !s.Deciding(now) || s.renewed == never || s.acknowledged() == never {
		return false
	}
	return !s.changes()
}

// changes reports whether a successor of the configuration is under way, or may be begun.
func (s *State) changes() bool {
	v, p := &s.voter, &s.proposer
	return p.phase != phaseIdle || p.wants || v.sealed || v.closed || v.pending != 0 ||
		s.fork.on() || len(s.config.Rivals) > 0 || s.lostVoters()
}

// lostVoters reports whether too few voters are left for a decision, which begins a child lineage.
func (s *sight) lostVoters() bool {
	left := 0
	for _, v := range s.config.Voters {
		if v == s.me.Boot || s.entry(v).sign < SignGone {
			left++
		}
	}
	return left < s.config.Quorum()
}
