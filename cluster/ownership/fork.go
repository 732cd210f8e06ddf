package ownership

import (
	"slices"
	"strings"
)

// forkKind is why a child lineage is begun.
type forkKind uint8

const (
	forkNone     forkKind = iota
	forkFollows           // this boot has promised another one to follow its child
	forkPair              // R13: the other one of two voters is not heard
	forkChild             // R11: most voters are gone
	forkRecovery          // an operator says so
)

// fork is a child lineage that is being begun. A boot that has begun or promised one takes part in
// its epoch no more: it acknowledges, accepts and decides nothing until it has installed the child.
type fork struct {
	kind     forkKind
	of       Boot // the parent
	since    Instant
	answered []Boot // members that will follow
}

func (f *fork) on() bool { return f.kind != forkNone }

func (f *fork) answer(from Boot) {
	if f.kind > forkFollows && !slices.Contains(f.answered, from) {
		f.answered = append(slices.Clone(f.answered), from)
		slices.Sort(f.answered)
	}
}

// considerFork begins a child if voters that are lost for good, or the silent half of a pair, make
// a decision impossible. A child that is begun while a rival is named waits until all that may go
// on with the rival are gone (unrivalled): a rival's lineage has to end with its boots.
//
// A half of a pair that has accepted a successor begins none while the other half may be there, for
// that successor may be decided, and others go on in it. When the other half is gone nothing else
// can be decided any more: this one asks the others as for a child, and then decides it
// (advanceFork).
func (s *State) considerFork(now Instant) {
	if !s.mayFork() {
		return
	}
	alive, silent := s.votersLeft(now)
	switch pair := len(s.config.Voters) == 2 && s.config.Votes(s.me.Boot); {
	case pair && alive == 1 && !(s.config.Marked() && s.p.keeps(ruleGrow)):
		if s.voter.accepted == 0 || silent == 0 || !s.p.keeps(ruleUndecided) {
			s.beginFork(now, forkPair)
		}
	case alive+silent < s.config.Quorum() && (now < max(s.right.until, s.right.lost) ||
		s.fork.on()):
		s.beginFork(now, forkChild)
	}
}

// mayFork reports whether this boot is a member and follows no child that may still be there.
func (s *State) mayFork() bool {
	return s.stage == StageJoined && (s.fork.kind < forkFollows ||
		s.fork.kind == forkFollows && s.entry(s.fork.of).sign == SignGone)
}

// votersLeft counts the voters that are not gone: those that are heard, and those that are silent.
// One that has said farewell votes until it is silent.
func (s *sight) votersLeft(now Instant) (alive, silent int) {
	for _, v := range s.config.Voters {
		switch sign, quiet := s.entry(v).sign, s.suspects(now, v); {
		case v != s.me.Boot && (sign == SignGone || sign == SignLeft && quiet):
		case quiet:
			silent++
		default:
			alive++
		}
	}
	return alive, silent
}

// recover begins a child on an operator's word. It is refused while this boot has the right, for
// then a majority lives. On a boot that waits for a cluster of which nobody is left it founds one.
func (s *State) recover(now Instant) {
	switch {
	case s.stage == StageJoined && !s.Deciding(now):
		s.beginFork(now, forkRecovery)
	case s.stage < StageJoined && s.Alone(now):
		s.foundWith([]Member{s.me})
	}
}

// Alone reports whether this boot is in no cluster and has not heard for a while of anybody that
// is: then an operator may have it found one.
func (s *State) Alone(now Instant) bool {
	if s.stage >= StageJoined || s.config == nil {
		return s.stage < StageJoined
	}
	for _, m := range s.config.Members {
		if m.Boot != s.me.Boot && s.entry(m.Boot).sign < SignGone &&
			now.Since(s.entry(m.Boot).heard) < s.p.Mass {
			return false
		}
	}
	return true
}

func (s *State) beginFork(now Instant, kind forkKind) {
	s.leaveEpoch(now, kind, s.me.Boot)
	s.advanceFork(now)
}

// leaveEpoch has this boot take part in its epoch no more, for the child of a boot.
func (s *State) leaveEpoch(now Instant, kind forkKind, of Boot) {
	s.fork = fork{kind: kind, of: of, since: now}
	s.voter.closed, s.voter.sealed = true, true
	s.proposer = proposer{}
	s.right.cede(now)
}

// secede answers a boot that begins a child: this one gives up its right, and will follow. It
// refuses while it hears enough voters, and keeps to the smallest boot that has asked; but of the
// halves of a pair to the first one, which may go on as soon as it has heard the answer.
func (s *State) secede(now Instant, from Boot, m Secede) {
	if !m.Recover && s.Deciding(now) {
		gone := 0
		for _, v := range s.config.Voters {
			if s.entry(v).sign >= SignGone {
				gone++
			}
		}
		if len(s.config.Voters)-gone >= s.config.Quorum() {
			return
		}
	}
	if of := s.fork.of; s.fork.on() && of != from && s.entry(of).sign != SignGone &&
		(of < from || !m.Recover && s.between(of, from)) {
		return
	}
	if s.fork.of != from {
		s.leaveEpoch(now, forkFollows, from)
	}
	s.send(from, Seceded{m.Epoch})
}

// between reports whether this boot is neither half of a pair that a and b are.
func (s *sight) between(a, b Boot) bool {
	c := s.config
	return s.p.keeps(ruleHalf) && len(c.Voters) == 2 && !c.Votes(s.me.Boot) && c.Votes(a) &&
		c.Votes(b)
}

// followed reports whether this half of a pair is the one that goes on (R13): of a cluster of two
// both do, of a larger one the half that most of the others follow. There are others without a vote
// while a cluster grows or shrinks.
func (s *State) followed() bool {
	others, follow, half := 0, 0, Boot(0)
	for _, m := range s.config.Members {
		answered := slices.Contains(s.fork.answered, m.Boot)
		there := answered || s.entry(m.Boot).sign < SignGone
		switch {
		case m.Boot == s.me.Boot:
		case s.config.Votes(m.Boot):
			if half = m.Boot; answered || !there {
				return true
			}
		case answered:
			others, follow = others+1, follow+1
		case there:
			others++
		}
	}
	return 2*follow > others || 2*follow == others && (others == 0 || s.me.Boot < half)
}

// advanceFork asks those that have not answered, and installs the child when it may: every member
// has answered or is gone, and all rights that this boot may have acknowledged are over. The other
// half of a pair need not answer, nor those that an operator gives up. A half of a pair that has
// accepted a successor decides that when all have, and needs no child.
func (s *State) advanceFork(now Instant) {
	f := &s.fork
	if f.kind <= forkFollows {
		return
	}
	all := s.askToFollow()
	switch {
	case f.kind == forkPair && s.voter.accepted != 0 && s.p.keeps(ruleUndecided):
		if all {
			s.decide(s.voter.value)
			s.fork = fork{}
		}
	case s.complete(all) && (s.waited(now) || f.kind == forkPair && all):
		s.installChild(now)
	}
}

// askToFollow asks the members that have not answered, and reports whether all of these are gone.
func (s *State) askToFollow() (all bool) {
	f := &s.fork
	all = true
	for _, m := range s.config.Members {
		if m.Boot != s.me.Boot && !slices.Contains(f.answered, m.Boot) {
			all = all && s.entry(m.Boot).sign >= SignGone
			s.send(m.Boot, Secede{s.config.Epoch, f.kind == forkRecovery})
		}
	}
	return all
}

// complete reports whether nobody has to be waited for any more that may still follow.
func (s *State) complete(all bool) bool {
	switch s.fork.kind {
	case forkPair:
		return s.followed() || !s.p.keeps(ruleHalf)
	case forkChild:
		return (all || !s.p.keeps(ruleSecede)) &&
			(!s.config.Marked() || !s.p.keeps(ruleGrow) || s.unrivalled())
	}
	return true
}

// waited reports whether all rights are over that this boot may have acknowledged. Without both
// voters of a pair nobody has one; of others it acknowledges only a part.
//
// The voters that are gone may have decided a further epoch, and given a newcomer the right to
// decide in it. As long as this boot's own right would have lasted, it is a member of each such
// epoch, and what it has not answered there nobody has begun to hold (R8). So then there is
// nothing to wait for.
func (s *State) waited(now Instant) bool {
	switch {
	case s.fork.kind == forkChild && now < s.right.lost:
		return true
	case s.fork.kind != forkPair:
		return now.Since(s.fork.since) >= s.p.quiet()
	}
	for _, m := range s.config.Members {
		if m.Boot != s.me.Boot && now.Since(s.entry(m.Boot).renewed) < s.p.quiet() {
			return false
		}
	}
	return true
}

// leftOut are the members that did not go on with this half of a pair, while it marks. Some of them
// may go on with the rival.
func (s *sight) leftOut() []Member {
	if !s.config.Marked() {
		return nil
	}
	for i := len(s.chain) - 1; i > 0; i-- {
		if whole, half := s.chain[i-1], s.chain[i]; !whole.Marked() {
			return slices.DeleteFunc(slices.Clone(whole.Members), func(m Member) bool {
				return half.Has(m.Boot)
			})
		}
	}
	return s.config.Rivals
}

// unrivalled reports whether all that were left out are gone, so nobody goes on beside this half.
func (s *sight) unrivalled() bool {
	return !slices.ContainsFunc(s.leftOut(), func(m Member) bool {
		return s.entry(m.Boot).sign != SignGone
	})
}

// outlives reports whether the other half of a pair is gone, and may have gone on with others
// before that, which decide for a while yet: it may when this one has lost its right.
func (s *renewer) outlives() bool {
	return slices.ContainsFunc(s.config.Voters, func(v Boot) bool {
		e := s.entry(v)
		return v != s.me.Boot && e.sign >= SignGone && e.signAt >= s.right.lost &&
			s.p.keeps(ruleHalf)
	})
}

// installChild makes the configuration of the child.
func (s *State) installChild(now Instant) {
	f, c := &s.fork, s.config
	child := &Configuration{
		Epoch:    Epoch{c.Epoch.Lineage, c.Epoch.Number + 1},
		Previous: c.Epoch,
		Failover: c.Failover, Copies: c.Copies, Secret: c.Secret,
	}
	if s.p.keeps(ruleLineage) {
		child.Epoch.Lineage = c.Epoch.Lineage.Child(s.me.Boot)
	}
	for _, m := range c.Members {
		switch {
		case m.Boot == s.me.Boot || slices.Contains(f.answered, m.Boot):
			child.Members = append(child.Members, m)
		case f.kind == forkPair && s.entry(m.Boot).sign < SignGone && s.p.keeps(ruleRival) &&
			(c.Votes(m.Boot) || s.outlives()):
			child.Rivals = append(child.Rivals, m)
		}
	}
	slices.SortFunc(child.Members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	ready := func(Boot) bool { return !child.Marked() }
	child.Voters = chooseVoters([]Boot{s.me.Boot}, child.Members, ready)
	for _, b := range f.answered {
		s.send(b, Decided{child})
	}
	s.install(now, child)
}
