package sim

import (
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/cluster"
	"penstock/ring"
)

// gossip is how machines learn of each other. Every fact comes to every machine on its own, so they
// hear of things late and in different orders, and a member may be the last to hear of itself.
type gossip struct {
	world *world
	views []*cluster.View // made last
}

// pace says how long that takes.
type pace struct {
	spread time.Duration // the longest that a fact is under way
	// the shortest time after which a machine that does not answer is declared dead; 0: never
	detect time.Duration
	doubt  time.Duration // how much longer it may take; each observer has its own patience
	settle time.Duration // between a node's start and its being ACTIVE
}

// fact is what is said about a machine. Of two facts the one with the higher version holds. A
// machine gives its own facts even versions. An observer that declares it dead takes the next odd
// version, and the machine, if it lives, contradicts with the even version after that.
type fact struct {
	version uint64
	boot    uint64
	state   cluster.State
	there   bool // false: it is gone, or was declared dead
}

// gather has all machines that are there from the beginning know each other, all of them ACTIVE.
func (g *gossip) gather() {
	w := g.world
	for _, m := range w.machines {
		if p := m.process; p != nil {
			m.version, p.told = 2, cluster.StateActive
			p.known = make([]fact, len(w.machines))
			for i, o := range w.machines {
				if o.process != nil {
					p.known[i] = fact{2, o.process.boot, cluster.StateActive, true}
				}
			}
		}
	}
	for _, m := range w.machines {
		if m.process != nil {
			m.process.look()
		}
	}
}

// tell has p say something new about its own machine.
func (g *gossip) tell(p *process, state cluster.State, there bool) {
	m := p.machine
	m.version += 2
	p.told = state
	g.rumour(p, m, fact{m.version, p.boot, state, there})
}

// rumour spreads a fact about a machine from a process that knows it.
func (g *gossip) rumour(from *process, about *machine, f fact) {
	w := g.world
	for _, m := range w.machines {
		q := m.process
		if q == nil {
			continue
		}
		if w.plan.gossip.spread == 0 {
			q.do(func() { q.learn(about, f) })
			continue
		}
		late := time.Duration(w.dice.Int64N(int64(w.plan.gossip.spread)))
		w.at(w.now+late, func() { g.bring(from, q, about, f) })
	}
}

// bring has q learn a fact, as soon as it is not cut off from where that comes from.
func (g *gossip) bring(from, q *process, about *machine, f fact) {
	w := g.world
	if !q.dead && !w.resting && !g.reaches(from.machine, q.machine) {
		w.at(w.now+time.Second, func() { g.bring(from, q, about, f) })
		return
	}
	q.do(func() { q.learn(about, f) })
}

// learn takes a fact in, and makes a View of all that is known if it is news.
func (p *process) learn(about *machine, f fact) {
	known := &p.known[about.index]
	if f.version <= known.version {
		return
	}
	// not dead yet, nor gone while it is leaving
	if about == p.machine && !f.there && f.boot == p.boot && !p.departed {
		if f.version > about.version { // else what it has said since contradicts already
			about.version = f.version - 1
			// which it may not have heard of itself yet
			p.machine.world.gossip.tell(p, p.told, true)
		}
		return
	}
	*known = f
	p.look()
	if f.there {
		p.machine.world.gossip.watch(p, about) // it may be old news
	}
}

// look makes a View of what p knows.
func (p *process) look() {
	v, err := p.machine.world.gossip.view(p)
	if err != nil {
		panic(err)
	}
	w := p.machine.world
	w.trace.add(happening{at: w.now, kind: looks, node: p.machine, seq: v.RingHash()})
	w.faults.Views++
	p.node.SetView(v)
	p.states()
}

// view is the View of p. Most machines mostly know the same, and share it.
func (g *gossip) view(p *process) (*cluster.View, error) {
	w := g.world
	members := make([]cluster.Member, 0, len(p.known))
	for i := range p.known {
		f, m := &p.known[i], w.machines[i]
		if f.there || m == p.machine {
			members = append(members, cluster.Member{
				ID: m.id, Boot: f.boot, State: f.state,
				Role: m.role, Features: cluster.OwnFeatures,
			})
		}
	}
	slices.SortFunc(members, func(a, b cluster.Member) int { return strings.Compare(a.ID, b.ID) })
	for _, v := range g.views {
		if slices.Equal(v.Members, members) {
			return v.SeenBy(p.machine.id)
		}
	}
	v, err := cluster.NewViewOn(p.machine.id, members, ringOf)
	if err == nil {
		g.views = append(g.views[max(0, len(g.views)-latestViews+1):], v)
	}
	return v, err
}

// latestViews is how many different Views a world looks among.
const latestViews = 4

// ringOf is the ring of some members. It depends on ids alone, and to build it takes longer than a
// small world lasts; so rings are kept for all worlds.
func ringOf(ids []string) (*ring.Ring, error) {
	name := strings.Join(ids, " ")
	ringsMu.Lock()
	defer ringsMu.Unlock()
	if r := rings[name]; r != nil {
		return r, nil
	}
	r, err := ring.New(ids)
	if err != nil {
		return nil, err
	}
	if ringBytes += 25_000 + 1100*len(ids); ringBytes > mostRings {
		clear(rings)
		ringBytes = 0
	}
	rings[name] = r
	return r, nil
}

// mostRings is about how many bytes of rings are kept.
const mostRings = 64 << 20

var (
	ringsMu sync.Mutex // guards below: worlds of different seeds run at the same time
	rings   = make(map[string]*ring.Ring)
	// ringBytes is about how many they have.
	ringBytes int
)

// doubt has every machine watch the ones that do not answer any more, and declare them dead when
// its patience is over.
func (g *gossip) doubt() {
	w := g.world
	if w.plan.gossip.detect == 0 {
		return
	}
	for _, m := range w.machines {
		for _, o := range w.machines {
			q := o.process
			if m == o || q == nil || !q.known[m.index].there {
				continue
			}
			g.watch(q, m)
		}
	}
}

// watch has q declare m dead if it stays silent for long.
func (g *gossip) watch(q *process, m *machine) {
	w := g.world
	if w.plan.gossip.detect == 0 || q.machine == m || q.watching[m.index] || !g.silent(q, m) {
		return
	}
	if q.watching == nil {
		q.watching = make(map[int]bool)
	}
	q.watching[m.index] = true
	times := &w.plan.gossip
	patience := times.detect + time.Duration(w.dice.Int64N(int64(times.doubt)+1))
	const looks = 8 // it has to be silent at each
	var look func(n int)
	look = func(n int) {
		switch f := &q.known[m.index]; {
		case q.dead, w.resting: // a cut that nobody mends has no end of its own
		case !f.there || !g.silent(q, m):
			delete(q.watching, m.index)
		case q.machine.frozen: // it notices nothing
			q.do(func() { look(n) })
		case n > 0:
			w.at(w.now+patience/looks, func() { look(n - 1) })
		default:
			delete(q.watching, m.index)
			w.trace.add(happening{at: w.now, kind: buries, node: q.machine, peer: m})
			w.faults.Deaths++
			g.rumour(q, m, fact{f.version | 1, f.boot, f.state, false})
		}
	}
	look(looks)
}

// silent reports whether q hears nothing of the boot of m that it knows.
func (g *gossip) silent(q *process, m *machine) bool {
	return m.process == nil || m.frozen || m.process.boot != q.known[m.index].boot ||
		!g.speak(m, q.machine)
}

// speak reports whether two machines reach each other.
func (g *gossip) speak(m, o *machine) bool { return g.reaches(m, o) && g.reaches(o, m) }

// reaches reports whether what is said on one machine comes to another, by whatever way.
func (g *gossip) reaches(from, to *machine) bool {
	w := g.world
	if w.network.cuts == 0 || from == to || !w.network.lines[from.index][to.index].cut {
		return true
	}
	reached := make([]bool, len(w.machines))
	reached[from.index] = true
	next := []*machine{from}
	for len(next) > 0 {
		m := next[0]
		next = next[1:]
		for i, o := range w.machines {
			if reached[i] || w.network.lines[m.index][i].cut {
				continue
			}
			if o == to {
				return true
			}
			if o.process != nil && !o.frozen {
				reached[i] = true
				next = append(next, o)
			}
		}
	}
	return false
}

// reconcile lets machines that have lost sight of each other meet again: now and then each tells
// another all that it knows.
func (g *gossip) reconcile() {
	w := g.world
	if w.plan.quiet() {
		return
	}
	w.at(w.now+reconcileEvery, func() {
		if w.resting {
			return
		}
		for _, m := range w.machines {
			o := w.machines[w.dice.IntN(len(w.machines))]
			p, q := m.process, o.process
			if p == nil || q == nil || p == q || m.frozen || o.frozen || !g.reaches(m, o) {
				continue
			}
			for i, f := range p.known {
				q.learn(w.machines[i], f)
			}
		}
		g.reconcile()
	})
}

const reconcileEvery = 2 * time.Second
