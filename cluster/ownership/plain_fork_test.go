package ownership

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// partsWays: a boot that has begun a child asks each member that has not answered to follow. It
// installs the child, with those that have answered, when nobody is left to wait for: the others of
// a child are gone, and all rights that it has acknowledged are over. Rivals are the other half of
// a pair, or those that may have followed that before it died.
func (s *State) partsWays(now Instant) {
	f := &s.fork
	if f.kind == forkNone || f.kind == forkFollows {
		return
	}
	quiet := now.Add(-s.p.quiet())
	follow, waitsFor, acknowledged := []Member{s.me}, 0, false
	var rivals []Member
	follow[0], _ = s.config.Member(s.me.Boot)
	for _, m := range s.config.Members {
		switch {
		case m.Boot == s.me.Boot:
			continue
		case slices.Contains(f.answered, m.Boot):
			follow = append(follow, m)
		default:
			s.puts(m.Boot, Secede{s.config.Epoch, f.kind == forkRecovery})
			if s.hasGone(m.Boot) {
				break
			}
			if waitsFor++; f.kind == forkPair && (s.config.Votes(m.Boot) || s.mayFollowTheDead()) {
				rivals = append(rivals, m)
			}
		}
		acknowledged = acknowledged || s.entry(m.Boot).renewed > quiet
	}
	if f.kind == forkPair && s.voter.accepted != 0 { // that may be decided, and nothing else
		if waitsFor == 0 {
			s.decides(s.voter.value)
			s.fork = fork{}
		}
		return
	}
	var may bool
	switch f.kind {
	case forkPair: // all that its voters acknowledge, they acknowledge together
		may = waitsFor == 0 || !acknowledged && s.mostAreWithIt()
	case forkChild: // nobody has gone another way, or all that have are gone
		may = waitsFor == 0 && (now < s.right.lost || f.since <= quiet)
		for _, m := range s.wentAnotherWay() {
			may = may && s.entry(m.Boot).sign == SignGone
		}
	case forkRecovery:
		may = f.since <= quiet
	}
	if !may {
		return
	}
	slices.SortFunc(follow, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	c := s.config
	child := &Configuration{
		Epoch: Epoch{c.Epoch.Lineage.Child(s.me.Boot), c.Epoch.Number + 1}, Previous: c.Epoch,
		Members: follow, Rivals: rivals, Failover: c.Failover, Copies: c.Copies, Secret: c.Secret,
	}
	child.Voters = chooseVoters([]Boot{s.me.Boot}, follow, func(Boot) bool { return rivals == nil })
	for _, b := range f.answered {
		s.puts(b, Decided{child})
	}
	s.install(now, child)
}

// wentAnotherWay: those that were members before there was a rival, and not when there was one.
func (s *State) wentAnotherWay() []Member {
	out := s.config.Rivals
	for i, c := range s.chain[1:] {
		before := s.chain[i]
		if len(c.Rivals) == 0 || len(before.Rivals) > 0 {
			continue
		}
		out = nil
		for _, m := range before.Members {
			if !c.Has(m.Boot) {
				out = append(out, m)
			}
		}
	}
	if len(s.config.Rivals) == 0 {
		return nil
	}
	return out
}

// mayFollowTheDead: the other half of a pair was there longer than the right of this one.
func (s *State) mayFollowTheDead() bool {
	for _, v := range s.config.Voters {
		if v != s.me.Boot && s.hasGone(v) && s.right.lost <= s.entry(v).signAt {
			return true
		}
	}
	return false
}

// mostAreWithIt: of those that are there beside a pair more follow this half than can follow the
// other one, or as many, and this half is the smaller boot. Where nobody else is there, and where
// the other half follows or is gone, it is the only one that anybody asks about.
func (s *State) mostAreWithIt() bool {
	balance, alone, other := 0, true, Boot(0)
	for _, m := range s.config.Members {
		follows := slices.Contains(s.fork.answered, m.Boot)
		gone := !follows && s.hasGone(m.Boot)
		if m.Boot == s.me.Boot {
			continue
		}
		if s.config.Votes(m.Boot) {
			if other = m.Boot; follows || gone {
				return true
			}
			continue
		}
		if gone {
			continue
		}
		alone = false
		if balance--; follows {
			balance += 2
		}
	}
	return alone || balance > 0 || balance == 0 && s.me.Boot < other
}

// parted begins a child if that is due: of a pair, if the other voter is not there, and did not
// bind this one before it fell silent; else if too few voters are left, while this boot had its
// right. There is no pair where there is a rival, and no child while another boot is followed
// that is there.
func (s *State) parted(now Instant) {
	f := s.fork
	if s.stage != StageJoined || f.kind > forkFollows ||
		f.kind == forkFollows && s.entry(f.of).sign != SignGone {
		return
	}
	gone, silent := 0, 0
	for _, v := range s.config.Voters {
		sign, quiet := s.entry(v).sign, s.suspects(now, v)
		if v != s.me.Boot && (sign == SignGone || sign == SignLeft && quiet) {
			gone++
		} else if quiet {
			silent++
		}
	}
	n := len(s.config.Voters)
	kind := forkNone
	pair := n == 2 && s.config.Votes(s.me.Boot) && len(s.config.Rivals) == 0
	switch {
	case pair && gone+silent == 1:
		if gone == 1 || s.voter.accepted == 0 {
			kind = forkPair
		}
	case 2*(n-gone) <= n && (now < s.right.until || now < s.right.lost || f.kind != forkNone):
		kind = forkChild
	}
	if kind == forkNone {
		return
	}
	s.fork = fork{kind: kind, of: s.me.Boot, since: now}
	s.voter.closed, s.voter.sealed, s.proposer = true, true, proposer{}
	s.right.lost = max(s.right.lost, s.right.until)
	s.givesUp(now)
	s.right.ended = true
	s.partsWays(now)
}

// Promise: see parted and partsWays.
func TestForksInPlainWords(t *testing.T) {
	did := map[string]int{}
	for seed := range uint64(6000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageJoined, StageJoined, StageCandidate)
		if draw.IntN(2) == 0 {
			s.config.Voters = s.config.Voters[:min(2, len(s.config.Voters))]
		}
		for _, m := range s.config.Members {
			if e := s.entry(m.Boot); draw.IntN(2) == 0 {
				e.sign, e.signAt = pick(draw, SignGone, SignLeft), pick(draw, never, now)
			} else if draw.IntN(2) == 0 {
				e.renewed = now.Add(-pick(draw, s.p.Suspect, s.p.quiet()-1, s.p.quiet()))
			}
			if m.Boot != s.me.Boot && s.fork.kind > forkFollows && draw.IntN(3) == 0 {
				s.fork.answered = append(s.fork.answered, m.Boot)
			}
		}
		if alike(t, seed, s.clone(), func(s *keeper) { s.considerFork(now) },
			func(s *keeper) { s.parted(now) }) {
			did["begin"]++
		}
		if s.stage == StageJoined && alike(t, seed, s.clone(),
			func(s *keeper) { s.advanceFork(now) }, func(s *keeper) { s.partsWays(now) }) {
			did["advance"]++
		}
	}
	if did["begin"] < 500 || did["advance"] < 500 {
		t.Errorf("forks: %v; that proves little", did)
	}
}

// Promise: a boot asks each other member for what it does not hold yet: those that have not
// answered, and all again if something that was held has not come; from the second time on by way
// of the voters as well. What nobody else can hold it holds at once.
func TestClaimsInPlainWords(t *testing.T) {
	asked := 0
	for seed := range uint64(4000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageJoined, StageJoined, StageCandidate)
		if draw.IntN(3) > 0 {
			c := &s.claims
			for i := range s.parts {
				if draw.IntN(2) == 0 || s.parts[i].Kind == Claiming {
					c.parts, c.free = append(c.parts, i), append(c.free, draw.IntN(3))
				}
			}
			c.tries = draw.IntN(2)
			for _, m := range s.config.Members {
				if m.Boot != s.me.Boot && draw.IntN(2) == 0 {
					c.answered = append(c.answered, m.Boot)
				}
			}
			if draw.IntN(2) == 0 && len(c.parts) > 0 {
				c.better = []offer{{c.parts[0], 70, Copy{Of: 70, Epoch: 6}}}
			}
		}
		if alike(t, seed, s, func(s *keeper) { s.claim(now) }, func(s *keeper) {
			c, others := &s.claims, len(s.config.Members)-1
			if s.stage != StageJoined {
				return
			}
			first := c.parts == nil
			for i := range s.parts {
				if first && s.parts[i].Kind == Claiming {
					c.parts, c.free = append(c.parts, i), append(c.free, 0)
				}
			}
			takes := func() {
				for k, i := range c.parts {
					if s.parts[i].Kind == Claiming && c.free[k] >= others {
						s.conclude(now, i, false)
					}
				}
			}
			if first {
				takes()
			}
			open, given := false, false
			for k, i := range c.parts {
				if s.parts[i].Kind == Claiming {
					open, given = true, given || c.free[k] < len(c.answered)
				}
			}
			if !open {
				return
			}
			m := Claim{s.config.Epoch, c.parts}
			for _, o := range s.config.Members {
				if o.Boot == s.me.Boot || slices.Contains(c.answered, o.Boot) && !given {
					continue
				}
				s.puts(o.Boot, m)
				for _, v := range s.config.Voters {
					if c.tries > 0 && v != s.me.Boot && v != o.Boot {
						s.puts(v, Relayed{s.me.Boot, o.Boot, m})
					}
				}
			}
			c.tries = 1
			takes()
		}) {
			asked++
		}
	}
	if asked < 1000 {
		t.Errorf("%d have asked; that proves little", asked)
	}
}

// Promise: copies are taken in and acknowledged to the boot that they are of, and sent on by the
// holder alone; a gift is taken when all members have answered, and receipted as often as it comes.
func TestCopiesAndGiftsInPlainWords(t *testing.T) {
	for seed := range seeds(3000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageCandidate)
		for i := range s.parts {
			p := &s.parts[i]
			p.Epoch, p.Bound = pick(draw, uint64(6), 7), pick(draw, uint64(6), 7, 8)
			p.Copy.Of = pick(draw, Boot(0), 10, 11)
		}
		for _, m := range s.config.Members {
			if m.Boot != s.me.Boot && draw.IntN(4) > 0 {
				s.claims.answered = append(s.claims.answered, m.Boot)
			}
		}
		i, from := draw.IntN(len(s.parts)), pick(draw, Boot(10), 11, 12)
		whole := draw.IntN(2) == 0
		alike(t, seed, s.clone(), func(s *keeper) { s.copying(Copying{i, from, whole}) },
			func(s *keeper) {
				if s.stage == StageJoined && s.parts[i].Kind == Held {
					s.puts(from, CopyOf{s.config.Epoch, i, whole})
				}
			})
		m := CopyOf{s.config.Epoch, i, whole}
		alike(t, seed, s.clone(), func(s *keeper) { s.copyOf(now, from, m) }, func(s *keeper) {
			s.moves(i, PartEvent{Kind: PartCopied, Epoch: 7, Boot: from, Whole: whole, At: now})
			if s.parts[i].Copy.Of == from {
				s.puts(from, CopyKept{s.config.Epoch, i})
			}
		})
		g := Gift{s.config.Epoch, i}
		alike(t, seed, s.clone(), func(s *keeper) { s.gift(from, g) }, func(s *keeper) {
			if s.parts[i].Kind == Claiming && len(s.claims.answered) < len(s.config.Members)-1 {
				return
			}
			s.moves(i, PartEvent{Kind: PartGift, Epoch: 7, Boot: from})
			if s.parts[i].Kind == Held {
				s.puts(from, Taken(g))
			}
		})
	}
}
