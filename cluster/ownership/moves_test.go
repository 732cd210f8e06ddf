package ownership

import "fmt"

// kind is what may happen to a model. An exploration is given a set of kinds.
type kind uint32

const (
	tick  kind = 1 << iota // a tick goes by, and all that run are polled
	skew                   // the clock of a runs one tick ahead
	crash                  // the process of a ends
	// a sees that the lines of b's boot have ended, and that its address refuses
	notice
	restart  // a starts anew, as its spare boot
	freeze   // a stops; its clock runs on
	hide     // a stops, and its clock with it
	thaw     // a goes on
	cutLink  // what a sends to b is lost
	slowLink // what a sends to b is late
	heal     // what a sends to b comes at once
	late     // what is late comes
	twice    // … and will come again
	lose     // … or never
	read     // a take: the door of a reads its clock,
	charge   // charges,
	answer   // and answers
	filter   // a is refused at b's address, though b lives
	shut     // a closes its door, and its process lives on
	leave    // a wishes to leave
	operator // a recovery on a, when most voters are gone

	ordinary = tick | notice | restart | thaw | heal | late | lose | read | charge | answer
	all      = operator<<1 - 1
)

var verbs = []string{
	"tick", "clock ahead", "crash", "notices the end of", "restart", "stops",
	"stops, clock and all", "goes on",
	"cut to", "slow to", "healed to", "late message", "late message, and again",
	"late message is lost",
	"reads the clock", "charges", "answers", "is refused by a filter for", "closes its door",
	"leaves", "recover",
}

// move is one of them.
type move struct {
	k    kind
	a, b int8
}

func (v move) String() string {
	i := 0
	for v.k>>i > 1 {
		i++
	}
	switch v.k {
	case tick:
		return verbs[i]
	case late, twice, lose:
		return fmt.Sprintf("%s (%d)", verbs[i], v.a)
	case notice, cutLink, slowLink, heal, filter:
		return fmt.Sprintf("%s %s %s", names[v.a], verbs[i], names[v.b])
	}
	return fmt.Sprintf("%s %s", names[v.a], verbs[i])
}

// moves lists what may happen next.
func (m *model) moves(kinds kind, list []move) []move {
	list = append(list[:0], move{tick, 0, 0})
	add := func(k kind, a, b int) {
		if kinds&k != 0 {
			list = append(list, move{k, int8(a), int8(b)})
		}
	}
	for i := range m.nodes {
		m.movesOf(i, add)
		for j := range m.nodes {
			if i != j {
				m.movesBetween(i, j, add)
			}
		}
	}
	for k := range m.pool {
		add(late, k, 0)
		add(twice, k, 0)
		add(lose, k, 0)
	}
	return list
}

// movesOf are those of one machine.
func (m *model) movesOf(i int, add func(kind, int, int)) {
	n := &m.nodes[i]
	fault := m.faults > 0
	switch {
	case !n.up:
		if n.boots < 2 {
			add(restart, i, 0)
		}
		return
	case n.frozen:
		add(thaw, i, 0)
		return
	}
	if fault {
		for _, k := range []kind{crash, freeze, hide} {
			add(k, i, 0)
		}
		if !n.closed {
			add(shut, i, 0)
		}
		if !n.s.leaving {
			add(leave, i, 0)
		}
		if m.lost(n.s) {
			add(operator, i, 0)
		}
	}
	if m.skews > 0 && n.ahead == 0 {
		add(skew, i, 0)
	}
	switch {
	case n.door.step == 0 && n.s.stage == StageJoined && n.s.parts[0].Kind == Held:
		add(read, i, 0)
	case n.door.step == 1:
		add(charge, i, 0)
	case n.door.step == 2:
		add(answer, i, 0)
	}
}

// movesBetween are those of a link.
func (m *model) movesBetween(i, j int, add func(kind, int, int)) {
	n, o := &m.nodes[i], &m.nodes[j]
	if m.links[i][j] != linkUp {
		add(heal, i, j)
	} else if m.faults > 0 {
		add(cutLink, i, j)
		add(slowLink, i, j)
	}
	if !n.up || n.frozen || m.links[i][j] != linkUp || m.links[j][i] != linkUp {
		return
	}
	if b := m.past(j); b != 0 && n.s.knows(b) {
		add(notice, i, j)
	}
	if o.up && !o.closed && m.faults > 0 && n.s.knows(o.s.me.Boot) {
		add(filter, i, j)
	}
}

// past is a boot of a machine with lines that have ended: it is down, has closed its door, or
// another boot runs there.
func (m *model) past(j int) Boot {
	n := &m.nodes[j]
	switch {
	case n.s.me.Boot > 3:
		return Boot(j + 1)
	case !n.up || n.closed:
		return n.s.me.Boot
	}
	return 0
}

// knows reports whether it would matter to s that the boot b is gone.
func (s *State) knows(b Boot) bool {
	for i := range s.roster {
		if s.roster[i].boot == b {
			return s.roster[i].sign < SignGone
		}
	}
	return false
}

// lost reports whether most voters of a configuration do not run any more: what an operator makes
// sure of before a recovery.
func (m *model) lost(s *keeper) bool {
	if s.stage != StageJoined {
		return false
	}
	alive := 0
	for _, v := range s.config.Voters {
		if n := &m.nodes[index(v)]; n.up && n.s.me.Boot == v {
			alive++
		}
	}
	return alive < s.config.Quorum()
}

// do makes a move.
func (m *model) do(v move) {
	if v.k&(crash|freeze|hide|cutLink|slowLink|filter|shut|leave|operator) != 0 {
		m.faults--
	}
	i, j := int(v.a), int(v.b)
	n := &m.nodes[i]
	switch v.k {
	case tick:
		m.tick()
	case skew:
		m.skews--
		n.ahead++
	case crash:
		n.up, n.door = false, door{}
	case notice:
		b := m.past(j)
		m.step(i, LineEnded{b})
		m.step(i, AddressRefused{b})
	case restart:
		n.up, n.closed, n.boots = true, false, n.boots+1
		n.s = keep(New(m.p, Member{ID: names[i], Boot: Boot(i+1) + 3}, Of(names...), 0), 1)
	case freeze, hide:
		n.frozen, n.hidden = true, v.k == hide
	case thaw:
		m.thaw(n, i)
	case cutLink:
		m.links[i][j] = linkCut
	case slowLink:
		m.links[i][j] = linkSlow
	case heal:
		m.links[i][j] = linkUp
	case late, twice, lose:
		m.late(v)
	case read, charge, answer:
		m.take(n, i, v.k)
	case filter:
		m.step(i, AddressRefused{m.nodes[j].s.me.Boot})
	case shut:
		m.step(i, Closing{})
		n.closed = true
	case leave:
		m.step(i, Leave{})
	case operator:
		m.step(i, Recover{})
	}
	m.check()
}

// tick lets time go by: for clocks that stand still as well, but they do not see it.
func (m *model) tick() {
	m.now++
	for i := range m.nodes {
		if m.nodes[i].hidden {
			m.nodes[i].behind++
		}
	}
	m.check()
	for i := range m.nodes {
		if n := &m.nodes[i]; n.up && !n.frozen && !n.closed {
			m.step(i, Poll{})
		}
	}
}

// thaw lets a machine go on. If its clock has not seen the stop, its shell says so before anything
// else.
func (m *model) thaw(n *machine, i int) {
	hidden := n.hidden && n.behind > 0
	n.frozen, n.hidden = false, false
	if hidden && m.p.keeps(ruleSuspended) {
		n.behind = 0
		m.step(i, Suspended{})
	}
	if n.up && !n.closed {
		m.step(i, Poll{})
	}
}

func (m *model) late(v move) {
	p := m.pool[v.a]
	if v.k != twice {
		m.pool = append(m.pool[:v.a:v.a], m.pool[v.a+1:]...)
	}
	if v.k != lose {
		m.queue = append(m.queue, p)
		first := m.queue[0]
		m.queue = m.queue[1:]
		m.deliver(first)
		for len(m.queue) > 0 {
			next := m.queue[0]
			m.queue = m.queue[1:]
			m.deliver(next)
		}
	}
}

// take is one step of a decision (R5): the instant is read at the door, compared under the lock
// under which is charged, and the answer is marked if it leaves after the right that it was
// compared with.
func (m *model) take(n *machine, i int, k kind) {
	d := &n.door
	now := n.clock(m.now)
	switch k {
	case read:
		*d = door{step: 1, now: now}
	case charge:
		if n.s.stage != StageJoined || n.s.parts[0].Kind != Held || d.now >= n.s.right.until {
			*d = door{}
			return
		}
		*d = door{step: 2, until: n.s.right.until, marked: n.s.Marked(), bad: !m.alone(i)}
	case answer:
		if d.bad && !d.marked && (now < d.until || !m.p.keeps(ruleLate)) && m.wrong == "" {
			m.wrong = fmt.Sprintf(
				"%s answers unmarked what it charged while another one might decide", names[i])
		}
		*d = door{}
	}
}
