package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// moves has a partition hear something. Its shell is told when this boot begins or ends to decide
// for it, and when it is to give it away.
func (s *keeper) moves(i int, e PartEvent) {
	was, is := s.parts[i], moved(s.parts[i], e)
	s.parts[i] = is
	fx := PartEffect{Partition: i}
	switch {
	case is.Kind == was.Kind:
		return
	case is.Kind == Held:
		fx.Kind, fx.Fresh = PartHold, e.Kind == PartGift || s.fresh(was)
	case was.Kind == Held && is.Kind == Giving:
		fx.Kind, fx.Boot = PartGive, e.Boot
	case was.Kind == Held:
		fx.Kind = PartDrop
	default:
		return
	}
	s.does = append(s.does, fx)
}

// ends has a boot decide nothing any more.
func (s *State) ends(why Ending) {
	s.stage, s.ending, s.out.Ended = StageEnded, why, why
	s.right.until, s.right.ended = never, true
}

// installs begins an epoch with nothing under way. The boot remembers the evicted, hands the
// configuration on later, and ends if it is not named. Each member counts as renewed just now, with
// nothing acknowledged and nobody missed; one that has left and is an owner again is up. What this
// boot asks for at this instant counts.
func (s *State) installs(now Instant, c *Configuration) {
	old, joined := s.config, s.stage == StageJoined
	if joined {
		for _, m := range old.Members {
			if !slices.Contains(c.Members, m) && !c.Has(m.Boot) {
				s.evicted = append(slices.Clone(s.evicted), m.Boot)
			}
		}
		if n := len(s.evicted); n > keepEvicted {
			s.evicted = s.evicted[n-keepEvicted:]
		}
	}
	s.config, s.stage = c, StageJoined
	if s.chain = append(slices.Clone(s.chain), c); len(s.chain) > keepChain {
		s.chain = s.chain[len(s.chain)-keepChain:]
	}
	s.voter, s.proposer, s.fork, s.founding = voter{}, proposer{}, fork{}, founding{}
	s.out.Installed = append(s.out.Installed, c)
	if me, named := c.Member(s.me.Boot); !named && joined && s.leaving {
		s.ends(Left)
		return
	} else if !named {
		s.ends(Evicted)
		return
	} else if s.me.Role = me.Role; me.Role == RoleOwner {
		s.right.ended, s.emptied = false, false
	}
	s.right.began = now
	for _, m := range c.Members {
		e := s.entry(m.Boot)
		if e.sign == SignLeft && m.Role == RoleOwner {
			e.sign, e.signAt = SignUp, now
		}
		e.asked, e.seen, e.missed, e.acked, e.renewed = false, false, nil, never, now
	}
	var known []entry
	for _, e := range s.roster {
		rival := slices.ContainsFunc(slices.Concat(c.Rivals, s.wentAnotherWay()),
			func(m Member) bool { return m.Boot == e.boot })
		if c.Has(e.boot) || rival || e.asked {
			known = append(known, e)
		}
	}
	s.roster, s.renewed = known, never
	if s.right.floor > now {
		s.right.floor = now
	}
	s.renew(now)
}

// keeps up with the State: in an epoch that it has installed, all that this boot owns and does not
// hold is claimed, and nothing else; of a boot that has ended all partitions are copies.
func (s *keeper) keepsUp(now Instant, fx Effects) {
	claims := false
	for _, c := range fx.Installed {
		if _, named := c.Member(s.me.Boot); named {
			claims = true
			s.claims.answered, s.claims.free, s.claims.parts = nil, nil, nil
			s.claims.better, s.claims.tries = nil, 0
			for i := range s.parts {
				mine := placeOwners(c, i) == s.me.Boot
				s.moves(i, PartEvent{Kind: PartInstalled, Epoch: c.Epoch.Number, Mine: mine})
			}
		}
	}
	switch {
	case s.stage == StageEnded && fx.Ended != NotEnded:
		for i := range s.parts {
			s.moves(i, PartEvent{Kind: PartEnded})
		}
	case claims:
		s.claim(now)
	}
}

// hasNothing is what a State is told of a member that leaves: that it holds and gives nothing.
func (s *keeper) hasNothing() {
	me, _ := s.config.Member(s.me.Boot)
	s.emptied = me.Role == RoleLeaving && !slices.ContainsFunc(s.parts, func(p Part) bool {
		return p.Kind == Giving || p.Kind == Held && hasOwner(s.config)
	})
}

// hears what was decided: what follows its own epoch, or, while it is no member, what names it. One
// that has promised to follow a child takes no successor but from the boot that began the child.
// It tells those that its teller does not reach.
func (s *State) hears(now Instant, from Boot, c *Configuration) {
	if s.stage == StageEnded || s.stage != StageJoined && !c.Has(s.me.Boot) {
		return
	}
	if s.stage != StageJoined {
		s.installs(now, c)
		return
	}
	child := c.Epoch.Lineage != s.config.Epoch.Lineage
	if c.Previous != s.config.Epoch || s.fork.kind == forkFollows && s.fork.of != from && !child {
		return
	}
	missed := slices.Clone(s.entry(from).missed)
	s.installs(now, c)
	for _, b := range missed {
		if s.stage == StageJoined && b != s.me.Boot && c.Has(b) {
			s.puts(b, Decided{c})
		}
	}
}

// Promise: see hears and installs.
func TestDecisionsInPlainWords(t *testing.T) {
	installed := 0
	for seed := range uint64(4000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageJoined, StageJoined, StageCandidate, StageEnded,
			StageOutside)
		if draw.IntN(20) == 0 { // it has lived for long
			for b := range Boot(keepEvicted - 1) {
				s.evicted = append(s.evicted, 1000+b)
			}
		}
		for range draw.IntN(keepChain + 2) {
			s.chain = append(s.chain, &Configuration{Epoch: Epoch{Founded(7), 1}})
		}
		for i, asked := range []bool{true, false, draw.IntN(2) == 0} {
			e := s.entry(Boot(70 + i))
			e.asked, e.heard = asked, now
		}
		for i := range s.parts {
			if draw.IntN(2) == 0 {
				s.parts[i].Copy = Copy{Of: 10, Epoch: 6, Whole: true}
			}
		}
		c := follower(draw, s)
		if draw.IntN(4) == 0 {
			c.Rivals = []Member{{ID: "r", Boot: 71}}
		}
		if draw.IntN(4) == 0 {
			c.Epoch.Lineage = c.Epoch.Lineage.Child(10)
		}
		if draw.IntN(6) == 0 {
			c.Previous.Number++
		}
		from := pick(draw, s.config.Members...).Boot
		if alike(t, seed, s, func(s *keeper) {
			s.decided(now, from, c)
			s.follow(now, s.out.Effects)
		}, func(s *keeper) {
			s.hears(now, from, c)
			s.keepsUp(now, s.out.Effects)
		}) {
			installed++
		}
	}
	if installed < 1000 {
		t.Errorf("%d were installed; that proves little", installed)
	}
}

// said are messages of all kinds, in an epoch.
func said(draw *rand.Rand, s *keeper, e Epoch) []Message {
	c := follower(draw, s)
	c.Previous = e
	ballot := Ballot(16 + draw.IntN(len(s.config.Voters)))
	i := draw.IntN(len(s.parts))
	return []Message{
		Renew{Epoch: e, Sent: 5},
		RenewAck{e, s.right.floor + 1, 7},
		Farewell{e},
		Canvass{c},
		Consent{c, true},
		Prepare{e, 64},
		Promise{e, s.proposer.ballot, ballot, c},
		Accept{64 + ballot%16, c},
		Accepted{e, s.proposer.ballot},
		Secede{e, draw.IntN(2) == 0},
		Seceded{e},
		Claim{e, []int{i}},
		ClaimAnswer{Epoch: e},
		Gift{e, i},
		Taken{e, i},
		CopyOf{e, i, true},
		Behind{e},
		CopyKept{e, i},
	}
}

// thinksAgain tells the last proposer that this voter has refused if it would consent now.
func (s *State) thinksAgain(now Instant) {
	to, value := s.voter.refused.of, s.voter.refused.value
	if s.stage == StageJoined && value != nil && s.wouldAccept(now, value) {
		s.puts(to, Consent{value, true})
		s.voter.refused = refusal{}
	}
}

// takes hands what a member says in this epoch to what it is for.
func (s *keeper) takes(now Instant, from Boot, m Message) {
	switch m := m.(type) {
	case Renew:
		s.renewAsked(now, from, m)
	case RenewAck:
		s.renewAcked(now, from, m)
	case Farewell:
		if e := s.entry(from); e.sign == SignUp || e.sign == SignEnded {
			e.sign, e.signAt = SignLeft, now
		}
		s.thinksAgain(now)
	case Canvass:
		yes := s.wouldAccept(now, m.Value)
		s.puts(from, Consent{m.Value, yes})
		s.voter.refused = refusal{from, m.Value}
		if yes {
			s.voter.refused = refusal{}
		}
	case Consent:
		s.consented(now, from, m)
	case Prepare:
		s.prepare(now, from, m)
	case Promise:
		s.promised(from, m)
	case Accept:
		s.accept(now, m)
	case Accepted:
		s.accepted(from, m)
	case Secede:
		s.secede(now, from, m)
	case Seceded:
		if k := s.fork.kind; k != forkNone && k != forkFollows {
			if list := &s.fork.answered; !slices.Contains(*list, from) {
				*list = slices.Sorted(slices.Values(append(slices.Clone(*list), from)))
			}
		}
	case Claim:
		s.claimAsked(from, m)
	case ClaimAnswer:
		s.claimAnswered(now, from, m)
	case Gift:
		s.gift(from, m)
	case Taken:
		s.moves(m.Partition, PartEvent{Kind: PartTaken, Boot: from, Epoch: m.Epoch.Number})
	case CopyOf:
		s.copyOf(now, from, m)
	}
}

// knows reports whether this boot has installed an epoch, or what followed it.
func (s *State) passed(e Epoch) bool {
	for _, c := range s.chain {
		if c.Epoch == e || c.Previous == e {
			return true
		}
	}
	return false
}

// reads takes what a member says if it is of this epoch. One of an older epoch is told what
// followed, or that nobody knows; one of a newer epoch is asked; and one of another lineage is
// greeted.
func (s *keeper) reads(now Instant, from Boot, m Message) {
	of, named := m.(ofEpoch)
	if !named {
		return
	}
	e, own := of.epoch(), s.config.Epoch
	if e == own {
		s.takes(now, from, m)
		return
	}
	s.out.Stirred = true
	switch {
	case e.Lineage != own.Lineage && !s.passed(e):
		s.puts(from, Hello{
			Member: s.me, Former: s.origin.former, Config: s.config, Deciding: now < s.right.until,
		})
	case e.Lineage == own.Lineage && e.Number > own.Number:
		s.puts(from, Behind{own})
	default:
		for _, c := range s.chain {
			if c.Previous == e {
				s.puts(from, Decided{c})
				return
			}
		}
		s.puts(from, Missed{e})
	}
}

// Promise: what a member says is taken in this epoch alone, by what it is for, and answered the way
// that it came; a voter passes on what is for another member, once.
func TestMessagesInPlainWords(t *testing.T) {
	changed := map[string]int{}
	for seed := range uint64(1500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageJoined, StageJoined, StageJoined, StageCandidate,
			StageOutside)
		for i := range s.parts {
			if s.parts[i].Kind == Giving {
				s.parts[i].To, s.parts[i].Epoch = 10, 7
			}
		}
		s.claim(now)
		s.out = outbox{}
		s.closed = draw.IntN(10) == 0
		member := func() Boot { return pick(draw, s.config.Members...).Boot }
		from := pick(draw, member(), member(), 70)
		e := pick(draw, s.config.Epoch, s.config.Epoch, s.config.Epoch, Epoch{Founded(9), 6},
			Epoch{Founded(9), 5}, Epoch{Founded(9), 3}, Epoch{Founded(9), 8},
			Epoch{Founded(8), 4}, Epoch{Founded(8), 9}, Epoch{Founded(8), 7})
		for _, m := range said(draw, s, e) {
			name := fmt.Sprintf("%T", m)
			if alike(t, seed, s.clone(), func(s *keeper) { s.receive(now, from, m) },
				func(s *keeper) {
					if s.closed {
						return
					}
					if from != s.me.Boot {
						s.entry(from).heard = now
					}
					if s.stage == StageJoined {
						s.reads(now, from, m)
					}
				}) {
				changed[name]++
			}
			r := Relayed{From: from, To: pick(draw, s.me.Boot, s.me.Boot, member(), 71), Inner: m}
			via := pick(draw, from, member())
			if draw.IntN(20) == 0 {
				r.Inner = Relayed{from, s.me.Boot, m}
			}
			alike(t, seed, s.clone(), func(s *keeper) { s.receive(now, via, r) }, func(s *keeper) {
				_, twice := r.Inner.(Relayed)
				switch {
				case s.closed || twice || s.stage != StageJoined || !s.config.Has(r.From):
				case r.To == s.me.Boot:
					sends := s.out.Sends
					s.out.Sends = nil
					s.reads(now, r.From, m)
					for _, x := range s.out.Sends {
						if x.To == r.From {
							x = Send{To: via, Message: Relayed{s.me.Boot, x.To, x.Message}}
						}
						sends = append(sends, x)
					}
					s.out.Sends = sends
				case via == r.From && s.config.Has(r.To):
					s.puts(r.To, r)
				}
			})
		}
	}
	for name := range changed {
		if changed[name] < 200 {
			t.Errorf("%s has changed anything %d times; that proves little", name, changed[name])
		}
	}
}
