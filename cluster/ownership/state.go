package ownership

import "slices"

// Stage is where a boot stands in its life. It only moves forward.
//
//	outside ──found──▶ joined ──evicted, conceded, left──▶ ended
//	   └──meets a founded node──▶ candidate ──admitted──┘    ▲
//	                                  └──its cluster is gone──┘
type Stage uint8

const (
	StageOutside   Stage = iota // knows no cluster
	StageCandidate              // has asked to be admitted
	StageJoined                 // has installed a configuration that names it
	// decides nothing any more; the process goes on as a new boot, or stops
	StageEnded
)

func (s Stage) String() string { return [...]string{"outside", "candidate", "joined", "ended"}[s] }

// Ending is why a boot has ended. After all but Left and Closed the process takes a new boot and
// joins again, with its table as copies; after NameInUse if the cluster leaves it its name.
type Ending uint8

const (
	NotEnded  Ending = iota
	Evicted          // the next configuration does not name it
	Conceded         // another lineage won
	Outdated         // nobody knows what followed its configuration, or nobody of it is left
	Unfounded        // it voted for a founder that is gone
	Left             // it wished to
	NameInUse        // a living member has its name
	Closed           // its process is stopping
)

func (e Ending) String() string {
	return [...]string{
		"", "evicted", "conceded", "too far behind", "founder gone", "left",
		"name in use", "closed",
	}[e]
}

// State is all that one boot knows about ownership. It is changed by Step alone, and what comes of
// a step depends on nothing but the state, the instant and the event. It is built in layers
// (layers.go), each of which sees what it is built on and nothing above it.
type State struct {
	founder
	ending Ending
	closed bool // its door is closed
	fork   fork
}

// never is an instant before all others.
const never Instant = -1 << 60

// New is a boot that knows nothing yet. former is the boot that the same process had before, or 0.
func New(p *Params, me Member, e Electorate, former Boot) *State {
	s := &State{}
	s.p, s.me, s.origin = p, me, origin{former, e}
	s.polled, s.renewed = never, never
	s.right = right{until: never, floor: never, lost: never, began: never, had: never}
	s.founding.since, s.asking.since = never, never
	return s
}

// Next is the same process under a new boot, after it has ended. It asks to be admitted where its
// former boot belonged, or where that one gave way to, and founds nothing: a cluster is there.
func (s *State) Next(b Boot) *State {
	me := s.me
	me.Boot, me.Role = b, RoleOwner
	n := New(s.p, me, s.origin.elect, s.me.Boot)
	if s.config == nil {
		return n
	}
	n.stage, n.config = StageCandidate, s.config
	e := &n.origin.elect
	e.Secret = s.config.Secret // if all others are gone, it founds a cluster after all
	e.Others = slices.Clone(e.Others)
	for _, m := range s.config.Members {
		if !e.greets(m.ID) {
			e.Others = append(e.Others, m.ID)
		}
	}
	return n
}

// Within is a boot that begins inside a configuration, which names it and which nobody else decides
// on any more: that of a simulated cluster that has been there before its world began.
func Within(p *Params, me Member, now Instant, c *Configuration) (*State, Effects) {
	s := New(p, me, Electorate{}, 0)
	s.install(now, c)
	return s, s.effects(now)
}

// Stage is where the boot stands in its life.
func (s *sight) Stage() Stage { return s.stage }

// Ending is why the boot has ended, if it has.
func (s *State) Ending() Ending { return s.ending }

// Config is the configuration installed, of a candidate that of the cluster it asks, or nil.
func (s *sight) Config() *Configuration { return s.config }

// Evictable reports whether this voter would let a member go.
func (s *sight) Evictable(now Instant, b Boot) bool { return s.evictable(now, b) }

// outbox collects the effects of a step.
type outbox struct {
	Effects
	own []Message // to this boot itself
}

// Step takes in one event.
func (s *State) Step(now Instant, e Event) Effects {
	s.step(now, e)
	return s.effects(now)
}

// effects has the boot hear what it said to itself, and returns what its shell has to do.
func (s *State) effects(now Instant) Effects {
	for len(s.out.own) > 0 && s.stage != StageEnded {
		m := s.out.own[0]
		s.out.own = s.out.own[1:]
		s.receive(now, s.me.Boot, m)
	}
	fx := s.out.Effects
	s.out = outbox{}
	return fx
}

func (s *State) step(now Instant, e Event) {
	if s.stage == StageEnded {
		if _, closes := e.(Closing); closes {
			s.ending = Closed
		}
		return
	}
	s.out.Stirred = !renews(e)
	e.happens(s, now)
}

func (Poll) happens(s *State, now Instant)             { s.poll(now) }
func (e Received) happens(s *State, now Instant)       { s.receive(now, e.From, e.Message) }
func (e LineUp) happens(s *State, now Instant)         { s.entry(e.Boot).line(lineUp, now) }
func (e LineEnded) happens(s *State, now Instant)      { s.lineEnded(now, e.Boot) }
func (e AddressRefused) happens(s *State, now Instant) { s.refused(now, e.Boot) }
func (e Unreached) happens(s *State, now Instant)      { s.entry(e.Boot).unreached = now }
func (e Reached) happens(s *State, _ Instant)          { s.entry(e.Boot).unreached = never }
func (Leave) happens(s *State, _ Instant)              { s.leaving, s.renewed = true, never }
func (Stay) happens(s *State, _ Instant) {
	s.leaving, s.emptied, s.renewed = false, false, never
}
func (Recover) happens(s *State, now Instant)    { s.recover(now) }
func (Closing) happens(s *State, _ Instant)      { s.closing() }
func (Emptied) happens(s *State, _ Instant)      { s.emptied, s.renewed = true, never }
func (e Electorate) happens(s *State, _ Instant) { s.origin.elect = e }

func (Suspended) happens(s *State, now Instant) {
	if s.p.keeps(ruleSuspended) {
		s.right.lose(now)
		s.right.lost = never // by a clock that has not seen the stop
	}
	s.wasStopped(now)
}

// poll does what is due.
func (s *State) poll(now Instant) {
	if s.polled != never && now.Since(s.polled) > s.p.Stop && s.p.keeps(ruleStopped) {
		s.wasStopped(now)
	}
	s.polled = now
	switch s.stage {
	case StageOutside:
		s.greet(now)
		s.found(now)
	case StageCandidate:
		if s.extinct(now) {
			s.config = nil
			s.end(Outdated)
			return
		}
		s.greet(now)
		s.join()
	case StageJoined:
		s.greet(now)
		s.renew(now)
		s.acceptPending(now)
		s.considerFork(now)
		s.advanceFork(now)
		s.propose(now)
	}
}

// wasStopped forgets how long others were silent: what they said may still lie in a queue.
func (s *sight) wasStopped(now Instant) {
	for i := range s.roster {
		e := &s.roster[i]
		e.renewed, e.heard = max(e.renewed, now), max(e.heard, now)
	}
}

// end makes the boot decide nothing any more.
func (s *State) end(why Ending) {
	s.stage, s.ending, s.out.Ended = StageEnded, why, why
	s.right.over(never) // it is of no interest any more when that was
}

// send puts a message out.
func (s *speaker) send(to Boot, m Message) {
	if to == s.me.Boot {
		s.out.own = append(s.out.own, m)
	} else {
		s.out.Sends = append(s.out.Sends, Send{To: to, Message: m})
	}
}

// sendVoters puts a message out to all voters, this boot last: so others hear it before what
// follows.
func (s *speaker) sendVoters(m Message) {
	for _, v := range s.config.Voters {
		if v != s.me.Boot {
			s.send(v, m)
		}
	}
	if s.config.Votes(s.me.Boot) {
		s.send(s.me.Boot, m)
	}
}

// receive takes in a message, one of an epoch only if it is this boot's.
func (s *State) receive(now Instant, from Boot, m Message) {
	if s.closed {
		return
	}
	if from != s.me.Boot {
		s.entry(from).heard = now
	}
	if of, named := m.(ofEpoch); !named || s.stage == StageJoined && s.inEpoch(now, from, of) {
		m.heard(s, now, from)
	}
}

func (m Hello) heard(s *State, now Instant, from Boot)   { s.hello(now, from, m) }
func (m Vote) heard(s *State, now Instant, from Boot)    { s.vote(now, from, m) }
func (Release) heard(s *State, _ Instant, from Boot)     { s.released(from) }
func (m Join) heard(s *State, now Instant, from Boot)    { s.joinAsked(now, from, m) }
func (m Decided) heard(s *State, now Instant, from Boot) { s.decided(now, from, m.Config) }

func (Refuse) heard(s *State, _ Instant, _ Boot) {
	if s.stage == StageCandidate {
		s.end(NameInUse)
	}
}

func (m Missed) heard(s *State, _ Instant, _ Boot) {
	if s.stage == StageCandidate || s.stage == StageJoined && m.Epoch == s.config.Epoch {
		s.end(Outdated)
	}
}

// What follows is what members of one epoch say to each other.

func (m Renew) heard(s *State, now Instant, from Boot)    { s.renewAsked(now, from, m) }
func (m RenewAck) heard(s *State, now Instant, from Boot) { s.renewAcked(now, from, m) }
func (Farewell) heard(s *State, now Instant, from Boot)   { s.left(now, from) }
func (m Canvass) heard(s *State, now Instant, from Boot)  { s.canvassed(now, from, m.Value) }
func (m Consent) heard(s *State, now Instant, from Boot)  { s.consented(now, from, m) }
func (m Prepare) heard(s *State, now Instant, from Boot)  { s.prepare(now, from, m) }
func (m Promise) heard(s *State, _ Instant, from Boot)    { s.promised(from, m) }
func (m Accept) heard(s *State, now Instant, _ Boot)      { s.accept(now, m) }
func (m Accepted) heard(s *State, _ Instant, from Boot)   { s.accepted(from, m) }
func (m Secede) heard(s *State, now Instant, from Boot)   { s.secede(now, from, m) }
func (Seceded) heard(s *State, _ Instant, from Boot)      { s.fork.answer(from) }
func (Behind) heard(*State, Instant, Boot)                {} // inEpoch has answered it

// inEpoch reports whether a message is of this boot's epoch. If it is older, its sender is told
// what followed; if it is newer, it is asked; if it is of another lineage, both find out which one
// wins.
func (s *State) inEpoch(now Instant, from Boot, m ofEpoch) bool {
	e, own := m.epoch(), s.config.Epoch
	if e == own {
		return true
	}
	s.out.Stirred = true
	switch {
	case e.Lineage != own.Lineage && !s.descends(e):
		s.send(from, s.ownHello(now, false))
	case e.Number < own.Number || e.Lineage != own.Lineage:
		s.handOn(from, e)
	default:
		s.send(from, Behind{own})
	}
	switch m.(type) {
	case Renew, RenewAck:
		return !s.p.keeps(ruleOneEpoch)
	}
	return false
}
