package sim

import (
	"slices"
	"time"

	"penstock/cluster"
)

// enter makes a process known that has just been started: it learns the members from one of them,
// and is JOINING until it has settled. A process that finds no member stays JOINING until another
// one comes, as in production: it must not found a cluster of its own.
func (w *world) enter(p *process) {
	m := p.machine
	p.known = make([]fact, len(w.machines))
	seed, state := w.seedFor(p), cluster.StateJoining
	if seed != nil {
		copy(p.known, seed.known)
	}
	if len(w.machines) == 1 || seed != nil && w.plan.gossip.settle == 0 {
		state = cluster.StateActive
	}
	m.version = max(m.version, p.known[m.index].version/2*2)
	// until its own word comes back to it
	p.known[m.index] = fact{m.version + 1, p.boot, state, true}
	p.look()
	w.gossip.tell(p, state, true)
	w.gossip.doubt()
	switch {
	case state == cluster.StateActive:
	case seed != nil:
		w.settles(p)
	default:
		w.knocks(p)
	}
}

// knocks has p look for somebody again and again.
func (w *world) knocks(p *process) {
	w.at(w.now+knockEvery, func() {
		p.do(func() {
			seed := w.seedFor(p)
			if seed == nil {
				if !w.resting {
					w.knocks(p)
				}
				return
			}
			for i, f := range seed.known {
				p.learn(w.machines[i], f)
			}
			w.settles(p)
		})
	})
}

const knockEvery = time.Second

// settles has p be ACTIVE in a while.
func (w *world) settles(p *process) {
	w.at(w.now+w.plan.gossip.settle, func() { p.do(func() { w.activate(p) }) })
}

// seedFor is a member that can tell p of the others: one that is about to leave, if there is no
// other.
func (w *world) seedFor(p *process) (leaving *process) {
	for i := range w.machines {
		m := w.machines[(p.machine.index+1+i)%len(w.machines)]
		q := m.process
		switch {
		case q == nil || q == p || m.frozen || !w.gossip.speak(m, p.machine):
		case !q.leaving:
			return q
		case leaving == nil:
			leaving = q
		}
	}
	return leaving
}

// enterEvery is how often a node looks whether it has been admitted: others hear that it is ACTIVE
// when it decides.
const enterEvery = 20 * time.Millisecond

func (w *world) activate(p *process) {
	if p.leaving {
		return
	}
	enters := p.machine.role == cluster.RoleMember
	if enters && (p.node.Agreed() == nil || !p.node.Deciding()) {
		if w.resting {
			return
		}
		w.at(w.now+enterEvery, func() { p.do(func() { w.activate(p) }) })
		return
	}
	w.gossip.tell(p, cluster.StateActive, true)
	if p.machine.rolling {
		w.at(w.now+w.plan.gossip.settle, func() {
			p.machine.rolling = false
			w.roll(p.machine.index + 1)
		})
	}
}

// leave takes a node out without losing anything, as an operator does: it is LEAVING until it has
// given away all that it held, then it answers what it has begun, and is gone.
func (m *machine) leave() {
	p := m.process
	p.leaving = true
	m.world.gossip.tell(p, cluster.StateLeaving, true)
	m.world.at(m.world.now+lingers, func() { m.depart(p) })
}

// lingers is how long a node that leaves answers at least, so that all hear that it does.
const lingers = time.Second

func (m *machine) depart(p *process) {
	w := m.world
	switch {
	case m.process != p || w.resting:
	case m.frozen || p.node.Held() > 0 || len(p.visits) > 0:
		p.closed = p.node.Held() == 0
		w.at(w.now+20*time.Millisecond, func() { m.depart(p) })
	default:
		w.trace.add(happening{at: w.now, kind: departs, node: m})
		p.departed = true
		w.gossip.tell(p, cluster.StateLeaving, false)
		p.node.Stop()
		p.states()
		if w.plan.machines[m.index].disk {
			p.save()
			m.running = false
		}
		m.process = nil
		w.goesDown()
		p.dead = true
		p.end()
		w.judge.bounded.losesShares(p)
		if m.returns {
			w.at(w.now+w.plan.gossip.settle, func() { m.start() })
		}
	}
}

// restart is a graceful leave after which the machine starts again.
func (m *machine) restart() {
	m.returns = true
	m.leave()
}

// moving reports whether somebody is about to leave or to come back.
func (w *world) moving() bool {
	return slices.ContainsFunc(w.machines, func(m *machine) bool {
		return m.returns || m.process != nil && (m.rolling || m.process.leaving)
	})
}

// roll restarts machine after machine, from the i-th on: each when the one before is back.
func (w *world) roll(i int) {
	for ; i < len(w.machines); i++ {
		if m := w.machines[i]; m.process != nil && !m.frozen && !m.process.leaving &&
			w.othersStay(m) {
			m.rolling = true
			m.restart()
			return
		}
	}
}
