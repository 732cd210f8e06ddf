package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// world is some machines, what lies between them, and the clients. One goroutine owns all of it.
type world struct {
	plan     *plan
	now      time.Duration // since the world began
	schedule schedule
	tasks    tasks
	machines []*machine // by index
	byID     map[string]*machine
	network  network
	dice     *rand.Rand // of the network
	clients  *clients
	rules    []limitRule
	named    map[string]*limiter.Limit // of all rules
	limits   cluster.Limits            // those that nodes know by name
	owners   *cluster.View             // who owns what, in truth
	frames   []*frame                  // buffers not in use
	judge    *judge
	trace    trace
	plant    func(*process) // of a test: a fault in every process that boots
	faults   FaultReport
	resting  bool          // no timers any more, and no requests
	rested   time.Duration // since when
}

// limitRule is a rule of the plan, made.
type limitRule struct {
	limit  *limiter.Limit
	inline bool
}

// restAfter is more than anybody waits for anything: so long a world goes on after its last request and its last
// fault, and so long it then has to come to rest by itself.
const restAfter = 30 * time.Second

func newWorld(p *plan, plant func(*process)) *world {
	w := &world{
		plan: p, plant: plant, dice: stream(p.seed, dicesStream), byID: make(map[string]*machine), limits: make(cluster.Limits), named: make(map[string]*limiter.Limit), trace: newTrace(),
		network: newNetwork(len(p.clocks)),
	}
	for _, rule := range p.limits {
		l := mustLimit(rule.Spec)
		w.rules = append(w.rules, limitRule{l, rule.inline})
		w.named[l.Name] = l
		if !rule.inline {
			w.limits[l.Name] = l
		}
	}
	for i, c := range p.clocks {
		m := &machine{world: w, id: machineID(i), index: i, clock: c, thawed: -1}
		w.machines = append(w.machines, m)
		w.byID[m.id] = m
	}
	w.judge = newJudge(w)
	w.clients = newClients(w)
	for _, m := range w.machines {
		m.boot()
	}
	w.announce()
	w.at(0, w.clients.next)
	for _, f := range p.faults {
		w.at(f.at, func() { w.strike(f) })
	}
	return w
}

func machineID(i int) string { return fmt.Sprintf("n%d", i+1) }

// at has run happen at an instant of the world.
func (w *world) at(t time.Duration, run func()) *event { return w.schedule.add(t, run) }

// run lets the world go on until nothing more happens in it, or until a promise is broken.
func (w *world) run() {
	defer w.end()
	for w.judge.failure == nil {
		at, happen, ok := w.schedule.next()
		if !ok {
			w.judge.atRest()
			return
		}
		w.now = at
		w.judge.checked[sound]++
		happen()
		if w.resting && w.now > w.rested+restAfter {
			w.judge.restless()
		}
	}
}

// end unwinds whoever still waits, and turns a panic of a node into a failure.
func (w *world) end() {
	if p := recover(); p != nil {
		w.judge.panicked(p)
	}
	for _, m := range w.machines {
		if m.process != nil {
			m.process.end()
		}
	}
	w.tasks.close()
}

// rest lets the world come to an end: no client asks any more, and when the last of them must have heard and the last
// fault is over, the nodes' timers stop.
func (w *world) rest() {
	last := w.now
	if n := len(w.plan.faults); n > 0 {
		last = max(last, w.plan.faults[n-1].at)
	}
	w.at(last+restAfter, func() {
		w.resting, w.rested = true, w.now
		for _, m := range w.machines {
			if m.process != nil {
				m.process.node.Stop()
			}
		}
	})
}

// announce gives every node that is up a View of all machines with their present boots, all of them ACTIVE, whether
// they are up or not: gossip that knows everything at once, except who is dead.
func (w *world) announce() {
	for _, m := range w.machines {
		if m.process == nil {
			continue
		}
		v := *fullViews(len(w.machines))[m.index]
		v.Members = slices.Clone(v.Members)
		for i := range v.Members {
			if p := w.byID[v.Members[i].ID].process; p != nil {
				v.Members[i].Boot = p.boot
			}
		}
		m.process.node.SetView(&v)
		w.owners = &v
	}
}

// fullViews are the Views of n machines that all know each other, by machine. The ring depends on ids alone, and to
// build it takes longer than a small world lasts; so it is built once for all worlds.
func fullViews(n int) []*cluster.View {
	fullViewsMu.Lock()
	defer fullViewsMu.Unlock()
	if vs, ok := fullViewsOf[n]; ok {
		return vs
	}
	members := make([]cluster.Member, n)
	for i := range members {
		members[i] = cluster.Member{ID: machineID(i), State: cluster.StateActive}
	}
	vs := make([]*cluster.View, n)
	for i := range vs {
		v, err := cluster.NewView(machineID(i), members)
		if err != nil {
			panic(err)
		}
		vs[i] = v
	}
	fullViewsOf[n] = vs
	return vs
}

var (
	fullViewsMu sync.Mutex // guards below: worlds of different seeds run at the same time
	fullViewsOf = make(map[int][]*cluster.View)
)

// owner is the machine that owns key, in truth.
func (w *world) owner(key string) *machine {
	return w.byID[w.owners.Members[w.owners.Owner(limiter.Hash(key))].ID]
}

// strike has a fault happen. What does not apply any more (a machine that is down cannot freeze) is passed over.
func (w *world) strike(f fault) {
	m, peer := w.machines[f.node], w.machines[f.peer]
	w.trace.add(happening{at: w.now, kind: f.kind, node: m, peer: peer})
	switch {
	case f.kind == crashes && m.process != nil:
		w.faults.Crashes++
		m.crash()
	case f.kind == boots && m.process == nil:
		m.boot()
		w.announce()
		w.judge.forgot(m)
	case f.kind == freezes && m.process != nil && !m.frozen:
		w.faults.Freezes++
		m.freeze()
	case f.kind == thaws && m.frozen:
		m.thaw()
	case f.kind == cuts && m != peer:
		w.faults.Cuts++
		w.cutOff(m, peer)
	case f.kind == mends:
		w.mend(m, peer)
	}
}

// request is what a client asks, once or several times under the same IDs.
type request struct {
	items    []cluster.Item
	atomic   bool
	broken   bool          // has to be refused
	patience time.Duration // from the question to the deadline, on the node's clock
	open     int           // visits that are not over
	terms    []term        // kept by the judge, one per item
}

// visit has a client bring r to m.
func (w *world) visit(m *machine, r *request) {
	if m.process == nil {
		w.trace.add(happening{at: w.now, kind: absent, node: m})
		w.judge.requests.Absent++
		w.judge.left(r)
		return
	}
	p := m.process
	p.visits = append(p.visits, r)
	p.do(func() {
		w.tasks.start(p, func() { p.check(r) })
	})
}

// check is one visit at the client's door.
func (p *process) check(r *request) {
	w := p.machine.world
	items := append([]cluster.Item(nil), r.items...) // the node writes into them
	q := &cluster.Request{Items: items, Atomic: r.atomic, Deadline: p.machine.now().Add(r.patience)}
	out := make([]cluster.Decision, len(items))
	h := w.judge.opened(p, r, q)
	err := p.door.Check(q, out)
	i := slices.Index(p.visits, r)
	p.visits = slices.Delete(p.visits, i, i+1)
	w.judge.closed(h, out, err)
}
