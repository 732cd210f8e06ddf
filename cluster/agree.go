package cluster

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

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

const (
	agreeEvery   = 25 * time.Millisecond
	wordsTimeout = 500 * time.Millisecond
	// heirAnswers is how long an heir may leave copies unanswered until another member gets them.
	heirAnswers = 500 * time.Millisecond
)

// right is how a node stands to what members agree on, as all its other parts read it, without a
// lock.
type right struct {
	*self
	on     bool          // false: Views are given, and what they say holds
	until  atomic.Int64  // the node decides before this Instant only
	lapses atomic.Uint64 // how often it has had no right for a moment, or has given it up
	marked atomic.Bool   // another node may decide as well
	leaves atomic.Bool   // the node wishes to leave
	halted atomic.Bool   // the node has no timers any more
	// cut off from most of the others: this node decides nothing but by on_partition
	minority atomic.Bool
	entered  atomic.Bool // it has claimed what it should hold since it became a member
	roll     atomic.Pointer[roll]
}

// agreement is a node's part in what members agree on.
type agreement struct {
	*self
	*right
	views     *views
	parts     *partitions
	claims    *claimer
	contacts  *contacts
	followers followers

	params ownership.Params
	trust  Trust
	zone   string // of this node; empty: none

	// guards below; neither partitions.mu nor a lock of the table is taken while it is held
	mu     sync.Mutex
	state  *ownership.State
	elect  ownership.Electorate // as Elect said
	lives  uint64               // boots that this process has had before
	polled limiter.Instant
	lines  map[uint64]int  // streams that processes have open to this node
	begun  limiter.Instant // when this boot became a member
	asked  bool            // … and whether it has been asked to step down
	seats  map[ownership.Boot]seat
	ended  map[ownership.Boot]bool // lines

	suspended SuspendedClock // nil: the clock sees every stop
}

// followers go by the configuration that is agreed.
type followers interface {
	agreedAnew(now limiter.Instant)
}

// seat is where a boot was heard.
type seat struct {
	id, addr string
	process  uint64
}

// roll is a configuration, and how this node stands to it. It is immutable.
type roll struct {
	stage  ownership.Stage
	config *ownership.Configuration // nil before the first
	boot   ownership.Boot           // this node's
}

// joined reports whether the node is a member.
func (r *roll) joined() bool { return r != nil && r.stage == ownership.StageJoined }

// lonely reports whether the node is the only member. As such it may leave without being told so.
func (r *roll) lonely() bool { return r.joined() && len(r.config.Members) == 1 }

// epoch is that of the configuration installed.
func (r *roll) epoch() (e ownership.Epoch) {
	if r.joined() {
		e = r.config.Epoch
	}
	return e
}

// member is the member of an id, for a candidate in the configuration of the cluster that it asks.
func (r *roll) member(id string) (m ownership.Member, found bool) {
	if r == nil || r.config == nil {
		return m, false
	}
	i, found := slices.BinarySearchFunc(r.config.Members, id,
		func(m ownership.Member, id string) int {
			return strings.Compare(m.ID, id)
		})
	if found {
		m = r.config.Members[i]
	}
	return m, found
}

// has reports whether the process of some id and boot is a member.
func (r *roll) has(id string, process uint64) bool {
	m, found := r.member(id)
	return found && sameProcess(m.Boot, process)
}

// hasProcess reports whether some life of a process is a member.
func (r *roll) hasProcess(boot uint64) bool {
	return r.joined() && slices.ContainsFunc(r.config.Members,
		func(m ownership.Member) bool { return sameProcess(m.Boot, boot) })
}

// zoneOf is the zone of the member of an id; empty if it names none, or is no member.
func (r *roll) zoneOf(id string) string {
	m, _ := r.member(id)
	return m.Zone
}

// stateOf is how a member stands that gossip says something of.
func (r *roll) stateOf(m *Member) State {
	if x, found := r.member(m.ID); found && sameProcess(x.Boot, m.Boot) {
		return stateOf(&x)
	}
	if m.State == StateLeaving {
		return StateLeaving
	}
	return StateJoining
}

func stateOf(x *ownership.Member) State {
	if x.Role == ownership.RoleLeaving {
		return StateLeaving
	}
	return StateActive
}

// Membership is a node's part in the list of members that they agree on.
type Membership struct{ a *agreement }

// Membership is the node's part in the list of members.
func (n *Node) Membership() Membership { return Membership{&n.agreed} }

// bootOf is the boot of one life of a process.
func bootOf(process, lives uint64) ownership.Boot {
	return ownership.Boot(process ^ lives<<(64-livesBits))
}

// What Trust accepts, and how many members a cluster can have.
const (
	LeastFailover = ownership.MinFailover
	MostFailover  = ownership.MaxFailover
	MostMembers   = ownership.MaxMembers
	MostCopies    = ownership.MaxCopies
	MaxZone       = ownership.MaxName
)

// CopiesOf is what Trust says of a number of heirs, 0 to MostCopies.
func CopiesOf(heirs int) ownership.Copies { return ownership.CopiesOf(heirs) }

// CheckZone reports what is wrong with the name of a zone.
func CheckZone(zone string) error {
	if zone == "" || len(zone) > MaxZone ||
		strings.ContainsFunc(zone, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%.40q is no name of a zone; give 1 to %d bytes of printable text", zone,
			MaxZone)
	}
	return nil
}

// Trust is what a cluster is founded with, and what a node believes.
type Trust struct {
	// Failover is how long a silent member is waited for, if this node founds the cluster:
	// LeastFailover to MostFailover; 0 is a second.
	Failover time.Duration
	// DoubtRefused says that a refused connection may come from something else than the machine of
	// a process that is gone, so its right is waited for instead.
	DoubtRefused bool
	// Copies is how many heirs keep a copy of each partition, if this node founds the cluster; the
	// zero value is one heir (ownership.CopiesOf).
	Copies ownership.Copies
	// Zone is where this node is: copies are kept in another zone where there is one. At most
	// MaxZone bytes; empty: it does not say.
	Zone string
}

// Agree has the node take part in what members agree on. It must be called before the first
// SetView. The node founds no cluster before Elect names the electorate.
func (m Membership) Agree(t Trust) {
	a := m.a
	m.agreeBegins()
	a.trust = t
	a.params = a.params.With(t.Failover)
	a.params.Copies = t.Copies
	a.zone = t.Zone
	a.state = ownership.New(&a.params, a.asMember(), ownership.Electorate{}, 0)
	a.publish(a.clock.Now())
}

// Elect names the nodes that found a cluster with this one, if there is none yet: size, of which a
// majority has to be there, and by now those of these ids are known, this node's among them. Of two
// clusters that meet, the one with the smaller stamp goes on: let it be the time, so that a node
// that founds one by mistake gives way. All may be said again when more is known.
func (m Membership) Elect(size int, ids []string, stamp uint64) {
	a := m.a
	a.mu.Lock()
	a.elect = ownership.Electorate{Size: size, IDs: ids, Stamp: ownership.Boot(stamp)}
	a.mu.Unlock()
	m.electAnew()
}

// electAnew tells the State which nodes gossip knows. They are greeted, and as long as one
// of them counts itself as a member of a cluster, nobody founds another one.
func (m Membership) electAnew() {
	a := m.a
	v := a.views.hinted.Load()
	if v == nil || !a.on {
		return
	}
	a.mu.Lock()
	e := a.elect
	e.Others, e.Members = nil, nil
	for i := range v.Members {
		m := &v.Members[i]
		if i == v.Self || m.Role != RoleMember {
			continue
		}
		if !slices.Contains(e.IDs, m.ID) {
			e.Others = append(e.Others, m.ID)
		}
		if m.State == StateActive {
			e.Members = append(e.Members, m.ID)
		}
	}
	a.mu.Unlock()
	a.agree(0, e, ownership.Poll{})
}

// AgreeWithin is Agree for a node of a cluster that has been there before the world began: c names
// it, with this node's zone.
func (m Membership) AgreeWithin(c *ownership.Configuration) {
	a := m.a
	m.agreeBegins()
	if x, found := c.Member(bootOf(a.boot, 0)); found {
		a.zone = x.Zone
	}
	var fx ownership.Effects
	a.state, fx = ownership.Within(&a.params, a.asMember(), ownership.Instant(a.clock.Now()), c)
	a.publish(a.clock.Now())
	a.send(fx.Sends)
}

func (m Membership) agreeBegins() {
	a := m.a
	a.on, a.params = true, ownership.Default()
	a.seats, a.ended = make(map[ownership.Boot]seat), make(map[ownership.Boot]bool)
	a.lines = make(map[uint64]int)
	a.suspended, _ = a.clock.(SuspendedClock)
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

// decides reports whether this node decides for the key with this hash at an instant of its clock.
func (hd *holder) decides(now limiter.Instant, hash uint64) bool {
	return hd.parts.holds(hash) && int64(now) < hd.right.until.Load()
}

// Agreed is Node.Agreed.
func (rt *right) Agreed() *ownership.Configuration {
	if r := rt.roll.Load(); r.joined() {
		return r.config
	}
	return nil
}

// Deciding is Node.Deciding.
func (rt *right) Deciding() bool { return int64(rt.clock.Now()) < rt.until.Load() }

// Entered reports whether the node is a member that has the right to decide, and has asked once who
// holds what it should: what nobody held it holds since, and of the rest it knows who does.
func (m Membership) Entered() bool {
	return m.a.entered.Load() && m.a.Agreed() != nil && m.a.Deciding()
}

// neverEnds is the right of a node with Views that are given.
const neverEnds = math.MaxInt64

// agree takes events in and carries their effects out. It returns the messages for asker.
func (a *agreement) agree(
	asker ownership.Boot, events ...ownership.Event,
) (said []ownership.Message) {
	if !a.on {
		return nil
	}
	now := a.clock.Now()
	var sends []ownership.Send
	ended, installed := ownership.NotEnded, false
	a.mu.Lock()
	// It was stopped: before all else it has to know that. A node without timers would poll at each
	// message, renew, and so keep the others talking for ever.
	if now > a.polled.Add(a.params.Stop) && a.polled != 0 && !a.halted.Load() {
		events = append([]ownership.Event{ownership.Poll{}}, events...)
	}
	if a.suspended != nil && a.suspended.Suspended() {
		events = append([]ownership.Event{ownership.Suspended{}}, events...)
	}
	was := a.state.Stage()
	for _, e := range events {
		if _, poll := e.(ownership.Poll); poll {
			a.polled = now
		}
		fx := a.state.Step(ownership.Instant(now), e)
		sends = append(sends, fx.Sends...)
		installed = installed || len(fx.Installed) > 0
		ended = max(ended, fx.Ended)
	}
	if was != ownership.StageJoined && a.state.Stage() == ownership.StageJoined {
		a.begun = now
	}
	if installed {
		a.prune(now)
		if m, found := a.state.Config().Member(a.state.Boot()); found {
			a.asked = m.Role == ownership.RoleLeaving && !a.leaves.Load()
		}
	}
	cutOff := a.cutOff(now)
	a.publish(now)
	a.mu.Unlock()
	if ended != ownership.NotEnded {
		a.boreEnd(ended)
	} else if installed {
		a.followers.agreedAnew(now)
	}
	a.noteRight(cutOff)
	sends = slices.DeleteFunc(sends, func(s ownership.Send) bool {
		if asker != 0 && s.To == asker {
			said = append(said, s.Message)
			return true
		}
		return false
	})
	a.send(sends)
	return said
}

// prune forgets where boots were heard, and whose lines have ended, that are neither members nor
// known for anything else. A configuration was just installed.
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
	if r.joined() && m.Role == ownership.RoleLeaving && a.parts.emptied() {
		a.agree(0, ownership.Emptied{}, ownership.Poll{})
	} else {
		a.agree(0, ownership.Poll{})
	}
	a.parts.mu.Lock()
	defer a.parts.mu.Unlock()
	if !a.stopped.Load() {
		a.clock.AfterFunc(agreeEvery, a.pollAgreement)
	}
}

// emptied reports whether this node may leave: it holds nothing, and whoever holds what is copied
// here has another copy, or it was lent to whom takes it over. So a crash right after it has left
// loses no more than one before.
func (ps *partitions) emptied() bool {
	if ps.n.Load()+ps.given.Load() > 0 {
		return false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	roll := ps.right.roll.Load()
	for p := range ps.list {
		pt := &ps.list[p]
		if pt.copyOf != 0 && pt.copyOf != ps.boot &&
			(pt.lentTo == 0 || roll.hasProcess(pt.copyOf)) {
			return false
		}
	}
	return true
}

const (
	// nameAgain is how long a node that was refused its name waits before it asks for it again.
	nameAgain = time.Second
	// stepsDown is how long a member that most others did not reach stays out.
	stepsDown = 3 * time.Second
)

// boreEnd lets go of everything, and goes on as another boot, unless this one has left. Gossip says
// whose a name is: if it is another one's, this process has to stop; if not, who was admitted under
// it before is on its way out.
func (a *agreement) boreEnd(why ownership.Ending) {
	a.parts.mu.Lock()
	a.entered.Store(false)
	a.parts.fenceLocked()
	switch why {
	case ownership.Evicted, ownership.Conceded, ownership.Outdated:
		for p := range a.parts.list { // others have decided for what this node held
			a.parts.list[p].whole = false
		}
	}
	a.parts.mu.Unlock()
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
	defer a.mu.Unlock()
	why := a.state.Ending()
	left := why == ownership.Left && a.leaves.Load()
	if a.state.Stage() == ownership.StageEnded && !left && why != ownership.Closed {
		a.lives++
		a.state = a.state.Next(bootOf(a.boot, a.lives))
		a.publish(a.clock.Now())
	}
}

// agreedAnew follows a configuration that was installed.
func (n *Node) agreedAnew(now limiter.Instant) {
	n.parts.mu.Lock()
	defer n.parts.mu.Unlock()
	n.reviewLocked(now)
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

// countSilentLocked notes which members do not answer, or leave. Another one gets copies in their
// place, though they may still be there for the rest. One whom most members do not reach, though
// they have their right, is asked to step down.
func (ct *contacts) countSilentLocked(now limiter.Instant, r *route) {
	ct.agreed.mu.Lock()
	lasts := ct.agreed.params.Mass
	ct.agreed.mu.Unlock()
	roll, changed := ct.right.roll.Load(), false
	var events []ownership.Event
	for _, p := range r.peers {
		missed := limiter.Instant(p.missed.Load())
		if silent := p.left.Load() || missed != 0 &&
			now > missed.Add(heirAnswers); silent != p.silent {
			p.silent, changed = silent, true
		}
		if quits := p.leaving(); quits != p.quits {
			p.quits, changed = quits, true
		}
		m, found := roll.member(p.id)
		unreached := missed != 0 && now > max(missed, ct.healed).Add(lasts) && ct.right.Deciding()
		if unreached == p.unreached || !found || !sameProcess(m.Boot, p.boot) {
			continue
		}
		if p.unreached = unreached; unreached {
			events = append(events, ownership.Unreached{Boot: m.Boot})
		} else {
			events = append(events, ownership.Reached{Boot: m.Boot})
		}
	}
	if changed {
		ct.copier.retargetLocked(now, r)
	}
	if len(events) > 0 {
		ct.clock.AfterFunc(0, func() { ct.agreed.agree(0, events...) })
	}
}

// size is how many members there should be.
func (rt *right) size() int {
	if on := rt.roll.Load(); on != nil && on.config != nil {
		return len(on.config.Members) + len(on.config.Rivals)
	}
	return 0
}

// peerAddr is where others reach this node, as its View has it.
func (s *self) peerAddr() string {
	if r := s.view.Load(); r != nil {
		return r.Me().PeerAddr
	}
	return ""
}

// send brings messages to their boots, each boot by a call of its own: one that does not answer
// keeps no other waiting.
func (a *agreement) send(sends []ownership.Send) {
	for len(sends) > 0 {
		to, addr := sends[0].To, sends[0].Addr
		var said []ownership.Message
		sends = slices.DeleteFunc(sends, func(s ownership.Send) bool {
			if s.To == to && s.Addr == addr {
				said = append(said, s.Message)
				return true
			}
			return false
		})
		if m, known := a.seatOf(to, addr); known {
			a.clock.AfterFunc(0, func() { a.say(m, to, said) })
		}
	}
}

// seatOf is where a boot, or the node of an id, is to be reached.
func (a *agreement) seatOf(to ownership.Boot, id string) (m Member, known bool) {
	if to != 0 {
		a.mu.Lock()
		s, heard := a.seats[to]
		config := a.state.Config()
		a.mu.Unlock()
		switch {
		case heard:
			m = Member{ID: s.id, Boot: s.process, PeerAddr: s.addr}
			return m, true
		case config == nil:
			return m, false
		}
		x, _ := config.Member(to)
		id = x.ID
	}
	r := a.view.Load()
	if r == nil || id == "" {
		return m, false
	}
	if i := r.Find(id); i >= 0 {
		m = r.Members[i]
		return m, to == 0 || sameProcess(to, m.Boot)
	}
	return Member{ID: id}, to == 0
}

// say has one boot hear something, and takes in what it answers.
func (a *agreement) say(m Member, to ownership.Boot, said []ownership.Message) {
	sent := a.clock.Now()
	a.mu.Lock()
	from := a.state.Boot()
	a.mu.Unlock()
	deadline := sent.Add(wordsTimeout)
	words := &Words{From: from, To: to, ID: a.id, Addr: a.peerAddr(), Process: a.boot, Said: said}
	ask := &Ask{Hop: 1, Deadline: deadline, Words: words}
	calls := []Call{{To: m, Ask: ask, Deadline: deadline, Once: m.Boot == 0}}
	a.net.Call(calls)
	if to != 0 {
		a.noteWords(sent, &calls[0])
	}
	if calls[0].Err == nil && calls[0].Answer.Words != nil {
		a.hearWords(calls[0].Answer.Words, 0)
	}
}

// noteWords has the peer's record, if there is one, learn from a call.
func (a *agreement) noteWords(sent limiter.Instant, c *Call) {
	if r := a.view.Load(); r != nil {
		if i := r.Find(c.To.ID); i >= 0 && r.peers[i].boot == c.To.Boot {
			a.contacts.note(sent, a.clock.Now(), r.peers[i], c)
		}
	}
}

// hearWords takes in what a boot says, and returns what asker, which waits for it, is answered.
func (a *agreement) hearWords(w *Words, asker ownership.Boot) *Words {
	if !a.on {
		return nil
	}
	a.mu.Lock()
	me := a.state.Boot()
	_, heard := a.seats[w.From]
	if w.To == me || w.To == 0 {
		a.seats[w.From] = seat{w.ID, w.Addr, w.Process}
	}
	config := a.state.Config()
	a.mu.Unlock()
	if !heard && config != nil && config.Has(w.From) { // its address may not have been known before
		a.followers.agreedAnew(a.clock.Now())
	}
	if w.To != me && w.To != 0 || w.From == me {
		return nil
	}
	events := make([]ownership.Event, len(w.Said))
	for i, m := range w.Said {
		events[i] = ownership.Received{From: w.From, Message: m}
		a.lookAtEvicted(m)
	}
	if said := a.agree(asker, events...); len(said) > 0 {
		return &Words{
			From: me, To: w.From, ID: a.id, Addr: a.peerAddr(), Process: a.boot,
			Said: said,
		}
	}
	return nil
}

// lookAtEvicted asks for signs of life of those that somebody would evict, does not reach, or goes
// on without: to consent a node has to see for itself that they are gone.
func (a *agreement) lookAtEvicted(m ownership.Message) {
	r, on := a.view.Load(), a.roll.Load()
	if r == nil || !on.joined() {
		return
	}
	var out func(ownership.Boot) bool
	switch m := m.(type) {
	case ownership.Canvass:
		out = func(b ownership.Boot) bool { return !m.Value.Has(b) }
	case ownership.Secede:
		out = on.config.Votes
	case ownership.Renew:
		if len(m.Unreached) == 0 {
			return
		}
		out = func(b ownership.Boot) bool { return slices.Contains(m.Unreached, b) }
	default:
		return
	}
	now := a.clock.Now()
	for _, x := range on.config.Members {
		if i := r.Find(x.ID); out(x.Boot) && x.Boot != on.boot && i >= 0 &&
			sameProcess(x.Boot, r.Members[i].Boot) {
			a.contacts.suspect(now, r.peers[i])
		}
	}
}

// LineUp notes that the process of some boot has opened a stream to this node. ended must be called
// at its end: a process is gone if its own streams have ended and its address refuses, and not if a
// packet filter refuses for a living one. The end of a stream is often noticed first, so the
// address is then tried at once.
func (m Membership) LineUp(boot uint64) (ended func()) {
	a := m.a
	if !a.on {
		return func() {}
	}
	a.mu.Lock()
	a.lines[boot]++
	a.mu.Unlock()
	return func() {
		a.mu.Lock()
		if a.lines[boot]--; a.lines[boot] == 0 {
			delete(a.lines, boot)
		}
		up := a.lines[boot] > 0
		a.mu.Unlock()
		if r := a.view.Load(); !up && r != nil {
			for _, p := range r.peers {
				if p.boot == boot {
					a.contacts.suspect(a.clock.Now(), p)
				}
			}
		}
	}
}

// Close gives up the right to decide for good: the process closes its doors next.
func (m Membership) Close() { m.a.agree(0, ownership.Closing{}) }

// Stay takes back that this node leaves, as a View with the state LEAVING has said. If it has left
// already, it enters again as another boot.
func (m Membership) Stay() {
	a := m.a
	if !a.on || !a.leaves.Swap(false) {
		return
	}
	a.mu.Lock()
	left := a.state.Ending() == ownership.Left
	a.mu.Unlock()
	if left {
		m.a.nextLife()
		return
	}
	a.agree(0, ownership.Stay{}, ownership.Poll{})
}

// isGone tells the agreement that the process of a peer exists no more.
func (a *agreement) isGone(p *peer) {
	r := a.roll.Load()
	m, found := r.member(p.id)
	if a.trust.DoubtRefused || !found || !sameProcess(m.Boot, p.boot) {
		return
	}
	a.mu.Lock()
	known := a.ended[m.Boot]
	lives := a.lines[p.boot] > 0
	a.ended[m.Boot] = known || !lives
	a.mu.Unlock()
	if known || lives {
		return
	}
	a.agree(0, ownership.LineEnded{Boot: m.Boot}, ownership.AddressRefused{Boot: m.Boot},
		ownership.Poll{})
}
