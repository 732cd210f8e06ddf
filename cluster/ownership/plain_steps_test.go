package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// hearsItself takes in what a boot has said to itself, and all that it says to itself then.
func (s *State) hearsItself(now Instant) Effects {
	var fx Effects
	for s.stage != StageEnded && len(s.out.own) > 0 {
		m := s.out.own[0]
		s.out.own = s.out.own[1:]
		s.receive(now, s.me.Boot, m)
	}
	fx, s.out = s.out.Effects, outbox{}
	return fx
}

// stopped has a boot count no silence of before: what others said may lie in a queue.
func (s *State) stopped(now Instant) {
	for i := range s.roster {
		e := &s.roster[i]
		e.renewed, e.heard = max(e.renewed, now), max(e.heard, now)
	}
}

// pulses does all that is due, after a look whether the boot itself has stood still.
func (s *State) pulses(now Instant) {
	if s.polled != never && s.polled < now.Add(-s.p.Stop) {
		s.stopped(now)
	}
	s.polled = now
	switch s.stage {
	case StageOutside:
		s.greet(now)
		s.found(now)
	case StageCandidate:
		if s.extinct(now) {
			s.config = nil
			s.ends(Outdated)
			return
		}
		s.greet(now)
		s.asksIn()
	case StageJoined:
		s.greet(now)
		s.renew(now)
		s.acceptPending(now)
		s.considerFork(now)
		s.advanceFork(now)
		s.propose(now)
	}
}

// happens is one event in plain words.
func (s *State) happens(now Instant, event Event) {
	if s.stage == StageEnded {
		if event == (Closing{}) {
			s.ending = Closed
		}
		return
	}
	s.out.Stirred = true
	switch e := event.(type) {
	case Poll:
		s.pulses(now)
	case Received:
		switch e.Message.(type) {
		case Renew, RenewAck:
			s.out.Stirred = false
		}
		s.receive(now, e.From, e.Message)
	case LineUp:
		if x := s.entry(e.Boot); x.sign == SignEnded {
			x.sign, x.signAt = SignUp, now
		}
	case LineEnded:
		s.lineEnded(now, e.Boot)
	case AddressRefused:
		x := s.entry(e.Boot)
		if x.sign == SignEnded {
			x.sign, x.signAt = SignGone, now
		}
		if x.sign == SignGone && s.founding.votedFor == e.Boot && s.stage == StageOutside {
			s.ends(Unfounded)
		}
		s.thinksAgain(now)
	case Unreached:
		s.entry(e.Boot).unreached = now
	case Reached:
		s.entry(e.Boot).unreached = never
	case Suspended:
		s.givesUp(now)
		s.right.floor, s.right.lost = now+1, never
		s.stopped(now)
	case Leave:
		s.leaving, s.renewed = true, never
	case Stay:
		s.leaving, s.emptied, s.renewed = false, false, never
	case Emptied:
		s.emptied, s.renewed = true, never
	case Recover:
		s.recover(now)
	case Closing:
		s.ends(Closed)
		s.closed = true
	case Electorate:
		s.origin.elect = e
	}
}

// steps is one event in plain words, and what it is for partitions.
func (s *keeper) steps(now Instant, event Event) (fx partEffects) {
	s.happens(now, event)
	fx.Effects = s.hearsItself(now)
	s.keepsUp(now, fx.Effects)
	switch e := event.(type) {
	case Fetched:
		s.conclude(now, e.Partition, true)
	case Copying:
		s.copying(e)
	case Poll:
		if fx.Installed == nil {
			s.claim(now)
		}
	}
	if s.stage == StageJoined {
		s.hasNothing()
	}
	fx.Sends = append(fx.Sends, s.hearsItself(now).Sends...)
	fx.Parts, s.does = s.does, nil
	return fx
}

// Promise: see steps, happens, pulses and hearsItself: each event does what it is for and nothing
// else.
func TestEventsInPlainWords(t *testing.T) {
	changed := map[string]int{}
	for seed := range seeds(2500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageJoined, StageJoined, StageCandidate, StageOutside,
			StageEnded)
		if s.stage != StageJoined {
			s.me.Role = RoleOwner
		}
		b := pick(draw, append(slices.Clone(s.config.Members), Member{Boot: 70})...).Boot
		s.founding.votedFor = pick(draw, 0, b)
		if draw.IntN(2) == 0 {
			s.entry(b).sign = SignEnded
		}
		if s.stage == StageJoined {
			s.hasNothing()
		}
		i := draw.IntN(len(s.parts))
		s.claims.parts, s.claims.free = []int{i}, []int{0}
		s.claims.better = []offer{{i, 70, Copy{Of: 70, Epoch: 6}}}
		events := []Event{
			Poll{},
			LineUp{b},
			LineEnded{b},
			AddressRefused{b},
			Unreached{b},
			Reached{b},
			Suspended{},
			Leave{},
			Stay{},
			Recover{},
			Closing{},
			Emptied{},
			Fetched{i},
			Copying{i, b, true},
			Of("q"),
			Received{b, Renew{Epoch: s.config.Epoch, Sent: now}},
			Received{b, RenewAck{s.config.Epoch, now, now}},
			Received{b, Farewell{s.config.Epoch}},
			Received{b, Decided{follower(draw, s)}},
			Received{b, Release{}},
			Received{b, Missed{pick(draw, s.config.Epoch, Epoch{})}},
			Received{b, Refuse{b}},
			Received{b, Vote{b, false}},
			Received{b, Join{Member: Member{ID: "z", Boot: b}}},
			Received{b, Hello{Member: Member{ID: "z", Boot: b}}},
		}
		for _, e := range events {
			var got, want partEffects
			if alike(t, seed, s.clone(), func(s *keeper) { got = s.Step(now, e) },
				func(s *keeper) { want = s.steps(now, e) }) {
				changed[fmt.Sprintf("%T", e)]++
			}
			a, c := keep(&State{}, 0), keep(&State{}, 0)
			a.out.Effects, c.out.Effects = got.Effects, want.Effects
			a.does, c.does = got.Parts, want.Parts
			alike(t, seed, a, func(*keeper) {}, func(s *keeper) { *s = *c })
		}
	}
	if len(changed) != 15 {
		t.Errorf("only %v have changed anything", changed)
	}
}

// Promise: what a boot hears beside what members of its epoch say goes to the part that it is for.
func TestWordsFromOutside(t *testing.T) {
	for seed := range seeds(2000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := unfoundedBoot(draw)
		s.closed = draw.IntN(20) == 0
		from := pick(draw, Boot(40), 41, 70)
		s.founding.votedFor = pick(draw, from, s.founding.votedFor)
		try := func(m Message, plain func(s *keeper)) {
			alike(t, seed, s.clone(), func(s *keeper) { s.receive(now, from, m) }, func(s *keeper) {
				if !s.closed {
					s.entry(from).heard = now
					plain(s)
				}
			})
		}
		hello := Hello{Member: Member{ID: "b", Boot: from}}
		try(hello, func(s *keeper) { s.hello(now, from, hello) })
		vote := Vote{Founder: from}
		try(vote, func(s *keeper) { s.vote(now, from, vote) })
		try(Release{}, func(s *keeper) { s.released(from) })
		join := Join{Member: hello.Member}
		try(join, func(s *keeper) { s.joinAsked(now, from, join) })
		next := follower(draw, s)
		try(Decided{next}, func(s *keeper) { s.decided(now, from, next) })
		try(Refuse{}, func(s *keeper) {
			if s.stage == StageCandidate {
				s.ends(NameInUse)
			}
		})
		for _, e := range []Epoch{s.config.Epoch, {Founded(9), 6}} {
			try(Missed{e}, func(s *keeper) {
				if s.stage == StageCandidate || s.stage == StageJoined && e == s.config.Epoch {
					s.ends(Outdated)
				}
			})
		}
	}
}
