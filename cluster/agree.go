package cluster

import (
	"maps"
	"slices"
	"sync"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// How a node takes part in what members agree on (package ownership; its DESIGN.md tells the
// protocol). The State machine lies under a lock of its own, agreement.mu. Events come from four
// sides: a timer, messages in frames (Words), what calls say of their peers, and the node itself,
// which wishes to leave. The effects of an event are carried out without that lock: messages are
// sent, a configuration makes a View, and a boot that has ended lets go of all that the node holds.
//
// Two things follow for the rest of the node. It decides only before an instant of its own clock,
// which the table compares under the lock of the key (decides). And partitions change hands inside
// of one epoch: claims and gifts name it, and all members of the configuration answer a claim.

// agreement is a node's part in what members agree on.
type agreement struct {
	*self
	*right
	views     *views
	parts     *partitions
	claims    *claimer
	contacts  *contacts
	pulse     *pulse
	followers followers

	stopPoll func() // guarded by partitions.mu

	foundation

	// guards below; neither partitions.mu nor a lock of the table is taken while it is held
	mu     sync.Mutex
	state  *ownership.State
	elect  ownership.Electorate // as Elect said
	lives  uint64               // boots that this process has had before
	secret Secret               // of the cluster, or of the one that this node may found
	pace
	begun limiter.Instant // when this boot became a member
	asked bool            // … and whether it has been asked to step down
	lineage

	suspends suspends
}

// pace is when the state is polled.
type pace struct {
	polled limiter.Instant
	calm   limiter.Instant // until when nothing happens by time alone, if nothing stirs
}

// foundation is what a cluster is founded with, by this node or by others.
type foundation struct {
	params ownership.Params
	trust  Trust
	zone   string // of this node; empty: none
}

// lineage is what is known of other boots by their lines to this node.
type lineage struct {
	// the last stream that a process has opened to this node, while it is open: by boot, which of
	// all streams it is
	lines   map[uint64]uint64
	streams uint64
	seats   map[ownership.Boot]seat
	ended   map[ownership.Boot]bool // lines
}

// suspends are the times for which the machine was suspended, and its clock has not seen it.
type suspends struct {
	clock SuspendedClock // nil: the clock sees every stop
	then  func()         // is called after one
}

// seen reports whether there was one since it was called last.
func (s *suspends) seen() bool {
	seen := s.clock != nil && s.clock.Suspended()
	if seen {
		s.then()
	}
	return seen
}

// followers go by the configuration that is agreed.
type followers interface {
	agreedAnew(now limiter.Instant)
	fenceLocked() // hold nothing any more
}

// seat is where a boot was heard.
type seat struct {
	id, addr string
	process  uint64
}

func (a *agreement) asMember() ownership.Member {
	return ownership.Member{ID: a.id, Boot: bootOf(a.boot, a.lives), Zone: a.zone}
}

// publish makes known what the rest of the node goes by. The right to decide comes last when it
// grows, and first when it ends: both are one store.
func (a *agreement) publish(now limiter.Instant) {
	s := a.state
	if old := a.roll.Load(); old == nil || old.stage != s.Stage() || old.config != s.Config() {
		a.roll.Store(&roll{s.Stage(), s.Config(), s.Boot()})
	}
	a.marked.Store(s.Marked())
	if was, is := a.until.Load(), int64(s.DecideUntil()); was != is {
		if is < was || was <= int64(now) {
			a.lapses.Add(1)
		}
		a.until.Store(is)
	}
}

// agree takes events in and carries their effects out. It returns the messages for asker.
func (a *agreement) agree(
	asker ownership.Boot, events ...ownership.Event,
) (said []ownership.Message) {
	now := a.clock.Now()
	a.mu.Lock()
	suspended := a.suspends.seen()
	if !a.on {
		a.mu.Unlock()
		return nil
	}
	// It was stopped: before all else it has to know that. A node without timers would poll at each
	// message, renew, and so keep the others talking for ever.
	if now > a.polled.Add(a.params.Stop) && a.polled != 0 && !a.halted.Load() {
		events = append([]ownership.Event{ownership.Poll{}}, events...)
	}
	if suspended {
		events = append([]ownership.Event{ownership.Suspended{}}, events...)
	}
	sends, installed, stirred, ended := a.stepLocked(now, events)
	sends = a.holdBack(sends)
	cutOff := a.cutOff(now)
	a.publish(now)
	calm := a.restsLocked(now, stirred)
	a.mu.Unlock()
	if !calm {
		a.pulse.wake()
	}
	if ended != ownership.NotEnded {
		a.boreEnd(ended)
	} else if installed {
		a.followers.agreedAnew(now)
	}
	a.noteRight(cutOff)
	a.send(slices.DeleteFunc(sends, func(s ownership.Send) bool {
		answers := asker != 0 && s.To == asker && !isRenewal(s.Message)
		if answers {
			said = append(said, s.Message)
		}
		return answers
	}))
	return said
}

// restsLocked reports whether an idle node may leave polls out after an event. What renewals say
// again and again is not worked out again: a voter of a thousand members hears 5,000 a second.
func (a *agreement) restsLocked(now limiter.Instant, stirred bool) bool {
	if stirred {
		a.calm = 0
	}
	if !a.pulse.idle.Load() || now < a.calm {
		return true
	}
	_, calm := a.dueInLocked(now)
	return calm
}

// isRenewal reports whether m asks for the right to decide. It does so for the whole time until the
// next one, so it is a call of its own: an answer that comes too late is heard by nobody.
func isRenewal(m ownership.Message) bool {
	_, is := m.(ownership.Renew)
	return is
}

// holdBack has a candidate not ask to be admitted while it reaches no more than half of the
// members: it could not hold anything, and the others would wait for it. Which members there are
// it has been told by those that it reaches: gossip may name a dead one for seconds.
func (a *agreement) holdBack(sends []ownership.Send) []ownership.Send {
	if a.state.Stage() != ownership.StageCandidate || !a.contacts.reachesFew(a.state.Config()) {
		return sends
	}
	return slices.DeleteFunc(sends, func(s ownership.Send) bool {
		_, asks := s.Message.(ownership.Join)
		return asks
	})
}

// stepLocked takes events in, and returns what follows from them.
func (a *agreement) stepLocked(
	now limiter.Instant, events []ownership.Event,
) (sends []ownership.Send, installed, stirred bool, ended ownership.Ending) {
	was := a.state.Stage()
	for _, e := range events {
		if _, poll := e.(ownership.Poll); poll {
			a.polled = now
		}
		fx := a.state.Step(ownership.Instant(now), e)
		sends = append(sends, fx.Sends...)
		installed, stirred = installed || len(fx.Installed) > 0, stirred || fx.Stirred
		ended = max(ended, fx.Ended)
	}
	if was != ownership.StageJoined && a.state.Stage() == ownership.StageJoined {
		a.begun = now
	}
	if installed {
		a.secret = a.state.Config().Secret
		a.prune(now)
		if m, found := a.state.Config().Member(a.state.Boot()); found {
			a.asked = m.Role == ownership.RoleLeaving && !a.leaves.Load()
		}
	}
	return sends, installed, stirred, ended
}

// prune forgets where boots were heard, and that their lines have ended, if they are neither
// members nor known for anything else. A configuration was just installed.
func (a *agreement) prune(now limiter.Instant) {
	known := make(map[ownership.Boot]bool)
	for _, k := range a.state.Roster(ownership.Instant(now)) {
		known[k.Boot] = true
	}
	config := a.state.Config()
	gone := func(b ownership.Boot) bool { return !known[b] && !config.Has(b) }
	maps.DeleteFunc(a.seats, func(b ownership.Boot, _ seat) bool { return gone(b) })
	maps.DeleteFunc(a.ended, func(b ownership.Boot, _ bool) bool { return gone(b) })
}

// cutOff reports whether the node has been a member for a while, and has not the right to decide.
// One that leaves gives it up by itself.
func (a *agreement) cutOff(now limiter.Instant) bool {
	decides := a.state.Deciding(ownership.Instant(now))
	if a.state.Stage() != ownership.StageJoined || decides || now < a.begun.Add(a.params.Lease) {
		return false
	}
	m, _ := a.state.Config().Member(a.state.Boot())
	return m.Role != ownership.RoleLeaving
}

// pollAgreement is the pulse.
func (a *agreement) pollAgreement() {
	r := a.roll.Load()
	m, _ := r.member(a.id)
	if r.joined() && m.Role == ownership.RoleLeaving && a.parts.emptied() &&
		a.claims.copier.keepers.endsAreHeard() {
		a.agree(0, ownership.Emptied{}, ownership.Poll{})
	} else {
		a.agree(0, ownership.Poll{})
	}
	a.parts.mu.Lock()
	defer a.parts.mu.Unlock()
	every := agreeEvery
	if a.pulse.idle.Load() {
		if due, calm := a.dueIn(a.clock.Now()); calm {
			every = max(every, due)
		}
	}
	a.pollInLocked(every)
}

// pollInLocked has the next poll come after d, instead of the one that was to come next.
func (a *agreement) pollInLocked(d time.Duration) {
	if a.stopPoll != nil {
		a.stopPoll()
	}
	if a.on && !a.stopped.Load() {
		a.stopPoll = a.clock.AfterFunc(d, a.pollAgreement)
	}
}

// dueIn is in how long the agreement has to be polled, while it is calm (ownership.State.Due).
func (a *agreement) dueIn(now limiter.Instant) (d time.Duration, calm bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dueInLocked(now)
}

func (a *agreement) dueInLocked(now limiter.Instant) (d time.Duration, calm bool) {
	due, calm := a.state.Due(ownership.Instant(now))
	if a.calm = 0; calm {
		a.calm = limiter.Instant(due)
	}
	return due.Since(ownership.Instant(now)), calm
}

const (
	// nameAgain is how long a node that was refused its name waits before it asks for it again.
	nameAgain = time.Second
	// stepsDown is how long a member that most others did not reach stays out.
	stepsDown = 3 * time.Second
)

// boreEnd makes the node hold nothing any more. The process goes on as another boot, unless this
// one has left. Gossip says which node has a name: if another one has it, this process has to stop;
// if not, the node that was admitted under it before is on its way out.
func (a *agreement) boreEnd(why ownership.Ending) {
	a.parts.mu.Lock()
	a.entered.Store(false)
	a.followers.fenceLocked()
	switch why {
	case ownership.Evicted, ownership.Conceded, ownership.Outdated:
		for p := range a.parts.list { // others have decided for what this node held
			a.parts.list[p].whole, a.parts.list[p].gave = false, false
		}
	}
	a.parts.mu.Unlock()
	if why == ownership.Left {
		a.followers.agreedAnew(a.clock.Now())
	}
	if pause := a.pauseAfter(why); pause > 0 {
		a.clock.AfterFunc(pause, a.nextLife)
		return
	}
	a.nextLife()
}

// pauseAfter is how long the process waits until it goes on as another boot.
func (a *agreement) pauseAfter(why ownership.Ending) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch asked := a.asked; {
	case why == ownership.NameInUse:
		return nameAgain
	case asked:
		a.asked = false
		return stepsDown
	}
	return 0
}

// nextLife has the process go on as another boot, unless it has left.
func (a *agreement) nextLife() {
	a.mu.Lock()
	why := a.state.Ending()
	left := why == ownership.Left && a.leaves.Load()
	if a.state.Stage() == ownership.StageEnded && !left && why != ownership.Closed {
		a.lives, a.calm = a.lives+1, 0
		a.state = a.state.Next(bootOf(a.boot, a.lives))
		a.publish(a.clock.Now())
	}
	a.mu.Unlock()
	a.contacts.countAnew()
}

// noteRight notes whether the node is cut off: it has been a member for a while, and has not the
// right to decide.
func (a *agreement) noteRight(cutOff bool) {
	if a.minority.Load() != cutOff && a.minority.Swap(cutOff) != cutOff && !cutOff {
		a.parts.mu.Lock()
		a.contacts.healed = a.clock.Now()
		a.claims.tendLocked()
		a.parts.mu.Unlock()
	}
}

// isGone tells the agreement that the process of a member, or of a rival, exists no more.
func (a *agreement) isGone(id string, process uint64) {
	m, found := a.roll.Load().known(id, process)
	if a.trust.DoubtRefused || !found {
		return
	}
	a.mu.Lock()
	known := a.ended[m.Boot]
	_, lives := a.lines[process]
	a.ended[m.Boot] = known || !lives
	a.mu.Unlock()
	if known || lives {
		return
	}
	a.agree(0, ownership.LineEnded{Boot: m.Boot}, ownership.AddressRefused{Boot: m.Boot},
		ownership.Poll{})
}
