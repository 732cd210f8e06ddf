package ownership

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// model is the world of the explorer: three machines, one partition, time in ticks. A link is up
// (what is sent is taken in at once, in order), cut (it is lost) or slow (it waits in a pool, from
// which it comes at any later moment, once, twice or never). A machine has one boot and a spare
// one.
type model struct {
	p      *Params
	now    Instant
	nodes  [3]machine
	links  [3][3]link
	pool   []packet
	newest []holding
	faults int    // that may still happen
	skews  int    // … and clocks that may still run ahead
	wrong  string // a violation
	second bool   // a second cluster was founded by restarted boots
	queue  []packet
}

type link uint8

const (
	linkUp link = iota
	linkCut
	linkSlow
)

type machine struct {
	s      *keeper
	boots  Boot // that were used
	up     bool
	closed bool // its door is closed, and its process lives
	frozen bool
	hidden bool // … and its clock stands still
	ahead  Instant
	behind Instant // what the clock has not seen
	door   door
}

// door is one take on its way: read now, charge, answer.
type door struct {
	step   uint8 // 0 none, 1 read, 2 charged
	now    Instant
	until  Instant
	marked bool
	bad    bool // somebody else might have decided when it was charged
}

type holding struct {
	lineage Lineage
	boot    Boot
}

type packet struct {
	from, to int
	boot     Boot // of the sender
	dest     Boot
	m        Message
}

func (n *machine) clock(now Instant) Instant { return now + n.ahead - n.behind }

// tickParams are the parameters of the explorer: one tick is one nanosecond.
func tickParams(without rule) *Params {
	return &Params{
		Lease: 2, Margin: 1, Renew: 1, Suspect: 2, Step: 1, Stop: 2, Mass: 5, without: without,
	}
}

// clone copies a model, but not what is never changed in place.
func (m *model) clone() *model {
	c := *m
	c.pool, c.newest = slices.Clone(m.pool), slices.Clone(m.newest)
	for i := range c.nodes {
		c.nodes[i].s = c.nodes[i].s.clone()
	}
	return &c
}

func (s *keeper) clone() *keeper {
	if s == nil {
		return nil
	}
	c, state := *s, *s.State
	state.roster = slices.Clone(s.roster)
	state.evicted, state.founding.met = slices.Clone(s.evicted), slices.Clone(s.founding.met)
	c.State, c.parts = &state, slices.Clone(s.parts)
	return &c
}

// index is the machine that a boot runs on: 1, 2, 3, then their spares.
func index(b Boot) int { return int(b-1) % 3 }

var names = []string{"a", "b", "c"}

// step gives an event to a machine and delivers what comes of it.
func (m *model) step(i int, e Event) {
	m.stepOne(i, e)
	for len(m.queue) > 0 {
		p := m.queue[0]
		m.queue = m.queue[1:]
		m.deliver(p)
	}
}

func (m *model) deliver(p packet) {
	n := &m.nodes[p.to]
	if n.up && !n.frozen && !n.closed && (p.dest == 0 || n.s.me.Boot == p.dest) {
		m.stepOne(p.to, Received{p.boot, p.m})
	}
}

// poolSize is how many messages are late at once. More are lost.
const poolSize = 2

func (m *model) stepOne(i int, e Event) {
	n := &m.nodes[i]
	before := lineageOf(n.s)
	fx := n.s.Step(n.clock(m.now), e)
	for _, s := range fx.Sends {
		to := index(s.To)
		if s.To == 0 {
			to = slices.Index(names, s.Addr)
		}
		p := packet{i, to, n.s.me.Boot, s.To, s.Message}
		switch {
		case to == i:
		case m.links[i][to] == linkUp:
			m.queue = append(m.queue, p)
		case m.links[i][to] == linkSlow && len(m.pool) < poolSize:
			m.pool = append(m.pool, p)
		}
	}
	if l := lineageOf(n.s); l != "" && l != before && n.s.parts[0].Kind == Held {
		m.holds(l, n.s.me.Boot)
	}
	for _, p := range fx.Parts {
		switch p.Kind {
		case PartHold:
			m.holds(lineageOf(n.s), n.s.me.Boot)
		case PartFetch:
			m.stepOne(i, Fetched{0})
		}
	}
	for _, c := range fx.Installed {
		if (c.Previous == Epoch{}) && len(m.newest) > 0 && n.s.config.Epoch.Lineage ==
			Founded(n.s.me.Boot) {
			m.second = m.second || n.s.me.Boot > 3
		}
	}
	m.check()
	if fx.Ended != NotEnded && fx.Ended != Closed {
		m.next(i, fx.Ended)
	}
}

// next goes on with the spare boot, if the machine has one.
func (m *model) next(i int, why Ending) {
	n := &m.nodes[i]
	if n.boots > 1 || why == Left || why == NameInUse {
		n.up = false
		return
	}
	n.boots++
	n.s = n.s.Next(Boot(i+1) + 3)
	n.door = door{}
}

func (m *model) holds(l Lineage, b Boot) {
	for i := range m.newest {
		if m.newest[i].lineage == l {
			m.newest[i].boot = b
			return
		}
	}
	m.newest = append(m.newest, holding{l, b})
	slices.SortFunc(m.newest, func(a, b holding) int {
		return strings.Compare(string(a.lineage), string(b.lineage))
	})
}

// replaced reports whether another boot has begun to hold what s holds since.
func (m *model) replaced(s *keeper) bool {
	l := s.config.Epoch.Lineage
	return slices.ContainsFunc(m.newest, func(h holding) bool {
		return strings.HasPrefix(string(h.lineage), string(l)) && h.boot != s.me.Boot
	})
}

func (m *model) able(i int) bool {
	n := &m.nodes[i]
	return n.up && !n.hidden && n.s.Holds(n.clock(m.now), 0)
}

// alone reports whether machine i may charge without a mark.
func (m *model) alone(i int) bool {
	for j := range m.nodes {
		if j != i && m.able(j) {
			return false
		}
	}
	return !m.replaced(m.nodes[i].s)
}

// check is property 1, and that one epoch has one configuration.
func (m *model) check() {
	for i := range m.nodes {
		if m.wrong == "" && m.able(i) && !m.nodes[i].s.Marked() && !m.alone(i) {
			m.wrong = fmt.Sprintf(
				"%s may decide unmarked, and so may another one, or another one has since",
				names[i])
		}
		for j := range i {
			a, b := &m.nodes[i], &m.nodes[j]
			if a.up && b.up && a.s.stage == StageJoined && b.s.stage == StageJoined &&
				a.s.config.Epoch == b.s.config.Epoch && !a.s.config.same(b.s.config) &&
				m.wrong == "" {
				m.wrong = fmt.Sprintf("%v and %v are one epoch", a.s.config, b.s.config)
			}
		}
	}
}

// hash is of all that decides what comes next. Instants are taken relative to now, and those that
// lie so far back that nothing depends on how far are one: so time may go on for ever in finitely
// many states.
func (m *model) hash() uint64 {
	h := hasher{fnv.New64a(), make([]byte, 0, 512)}
	h.num(m.faults, m.skews, len(m.pool), len(m.newest))
	for i := range m.nodes {
		n := &m.nodes[i]
		h.num(int(n.boots))
		h.bit(n.up, n.closed, n.frozen, n.hidden, n.door.marked, n.door.bad)
		h.num(int(n.ahead), int(n.behind), int(n.door.step))
		h.num(int(m.links[i][0]), int(m.links[i][1]), int(m.links[i][2]))
		now := n.clock(m.now)
		if n.door.step > 0 {
			h.at(now, n.door.now)
			h.at(now, n.door.until)
		}
		if n.up {
			h.keeper(now, n.s)
		}
	}
	for _, p := range m.pool {
		h.num(p.from, p.to, int(p.boot), int(p.dest))
		h.message(m.nodes[p.from].clock(m.now), m.nodes[p.to].clock(m.now), p.m)
	}
	for _, x := range m.newest {
		h.buf = append(append(h.buf, x.lineage...), byte(x.boot))
	}
	h.Write(h.buf)
	return h.Sum64()
}
