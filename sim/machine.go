package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter"
)

// machine is one computer of the world. It outlives the processes that run on it.
type machine struct {
	world   *world
	id      string
	index   int // in world.machines
	clock   clock
	process *process      // nil while it is down
	frozen  bool          // paused: nothing runs, while time and messages go on
	crashed bool          // down, and has not said goodbye
	backlog []func()      // what will happen when it thaws
	thawed  time.Duration // when it last did, or -1
	froze   time.Duration // when it last froze
	boots   int           // processes started
	role    cluster.Role
	version uint64 // of the last fact that it has told
	returns bool   // it will start again when it has left
	disk    *file  // nil: there is none, or nothing was written yet
	running bool   // the disk says that a node was not stopped in order
	rolling bool   // the next machine restarts when it has
}

// process is one start of a node on a machine, from boot to crash. It is the node's two hands:
// Clock and Network.
type process struct {
	machine *machine
	boot    uint64
	node    *cluster.Node
	door    door
	wire    Wire                   // nil: messages are copied, and not written
	clock   func() limiter.Instant // the node's: the machine's, unless a test plants a fault
	// what a test has its node believe of calls that are over; nil: what is so
	hears   func([]cluster.Call)
	waiting []*task    // in the middle of a call
	visits  []*request // of clients that have not heard yet
	judged
	received map[limiter.Spec]*limiter.Limit
	latest   map[*limiter.Limit]*limiter.Limit // some of received, by what came
	dead     bool
	departed bool // dead, and has left nothing behind
	membership
	began    time.Duration
	restored *file  // what it was started from
	saved    uint64 // Changes of the node, when it wrote its file last
	time     clock  // the machine's when it booted: setting that later changes nothing here
}

// judged is what the judge keeps of a process.
type judged struct {
	shares   *shares   // what it has admitted without owners
	right    *right    // to decide
	fading   []fading  // when what it charged may be forgotten
	stated   statement // what the node has said of itself last
	counters []counter // that it has in the end
	decided  bool      // it had the right to when its timers were stopped
}

// membership is what gossip has told a process, and what others are told of it.
type membership struct {
	leaving  bool          // it says goodbye
	closed   bool          // to clients
	known    []fact        // of every machine
	watching map[int]bool  // machines that do not answer
	told     cluster.State // what it has last said of itself
}

// door is how the world speaks to a node. It is the node itself, unless a test plants a fault in
// between.
type door interface {
	Check(r *cluster.Request, out []cluster.Decision) error
	// Deliver decides, and leaves it to process.node to Confirm: so the judge sees a decision when
	// it is taken.
	Deliver(a *cluster.Ask) *cluster.Answer
}

// threshold is the door of a node.
type threshold struct{ *cluster.Node }

func (t threshold) Deliver(a *cluster.Ask) *cluster.Answer {
	answer := new(cluster.Answer)
	t.DeliverInto(a, answer)
	return answer
}

// boot starts a new process with an empty memory.
func (m *machine) boot() {
	m.boots++
	m.crashed = false
	p := &process{
		machine: m, boot: m.world.plan.boot(m.index, m.boots),
		time: m.clock, judged: judged{shares: newShares()},
		received: make(map[limiter.Spec]*limiter.Limit),
		latest:   make(map[*limiter.Limit]*limiter.Limit),
	}
	p.clock = p.now
	node, err := cluster.New(cluster.Config{
		ID: m.id, Boot: p.boot, Clock: p, Network: p,
		Table:      limiter.NewTable(m.world.plan.table.config(p.boot)),
		SweepEvery: m.world.plan.sweepEvery, Rings: ringOf,
	})
	if err != nil {
		panic(err)
	}
	node.SetLimits(m.world.limits)
	if m.role == cluster.RoleMember {
		if first := m.world.founded; first != nil && m.boots == 1 &&
			!m.world.plan.machines[m.index].later {
			node.Membership().AgreeWithin(first)
			ids := m.world.founders()
			node.Membership().Elect(len(ids), ids, 0)
		} else {
			ids := m.world.electorate(m)
			node.Membership().Agree(cluster.Trust{
				Copies: m.world.plan.copies, Secret: m.world.plan.secret,
				Zone: m.world.plan.machines[m.index].zone,
			})
			node.Membership().Elect(len(ids), ids, 0)
		}
	}
	p.node, p.door = node, threshold{node}
	m.process, p.began = p, m.world.now
	if m.world.plant != nil {
		m.world.plant(p)
	}
	if m.world.plan.machines[m.index].disk {
		p.restore()
		p.keepSaving()
	}
	node.Start()
	p.states()
}

// electorate are the machines that found a cluster with m, if there is none: those that are there,
// or that have crashed and are to come back.
func (w *world) electorate(m *machine) (ids []string) {
	for _, o := range w.machines {
		if o.role == cluster.RoleMember && (o == m || o.process != nil || o.crashed || o.returns) {
			ids = append(ids, o.id)
		}
	}
	return ids
}

// founders are the members that the world begins with. If all that any of them asks are gone, they
// found a cluster together as those of a new one do.
func (w *world) founders() (ids []string) {
	for _, m := range w.founded.Members {
		ids = append(ids, m.ID)
	}
	return ids
}

// found makes the configuration that the world begins with.
func (w *world) found() {
	var members []ownership.Member
	for i, m := range w.machines {
		if mp := w.plan.machines[i]; !mp.later && !mp.agent {
			members = append(members,
				ownership.Member{ID: m.id, Boot: ownership.Boot(w.plan.boot(i, 1)), Zone: mp.zone})
		}
	}
	if len(members) > 0 {
		w.founded = ownership.First(members)
		w.founded.Copies, w.founded.Secret = w.plan.copies, w.plan.secret
	}
}

// start boots the machine and makes it known.
func (m *machine) start() {
	m.returns = false
	if m.process == nil && !m.world.resting {
		m.boot()
		m.world.enter(m.process)
	}
}

// hasThawed reports whether m went on shortly before then, or later: then a node may wait whether
// the clients that ask it hang up.
func (m *machine) hasThawed(then time.Duration) bool {
	return m.thawed >= max(0, then-time.Second)
}

// crash ends the process at once: what it waits for never comes back, what it knew is gone.
func (m *machine) crash() {
	p := m.process
	m.process, m.backlog, m.frozen, m.crashed = nil, nil, false, true
	m.world.goesDown()
	p.dead = true
	p.end()
	m.world.judge.bounded.losesShares(p)
	for _, r := range p.visits {
		m.world.judge.left(r)
		m.world.callers.failed(r)
	}
}

// end unwinds all that p is in the middle of.
func (p *process) end() {
	for _, t := range slices.Clone(p.waiting) {
		t.end()
	}
	p.waiting = nil
}

func (p *process) forget(t *task) {
	i := slices.Index(p.waiting, t)
	p.waiting = slices.Delete(p.waiting, i, i+1)
}

// do has f happen to p now; later if its machine is frozen; never if p is dead.
func (p *process) do(f func()) {
	switch {
	case p.dead:
	case p.machine.frozen:
		p.machine.backlog = append(p.machine.backlog, func() { p.do(f) })
	default:
		f()
	}
}

// freeze stops the machine between two instructions.
func (m *machine) freeze() { m.frozen, m.froze = true, m.world.now }

// thaw lets it go on, with all that has come in meanwhile, in the order in which it came.
func (m *machine) thaw() {
	m.frozen = false
	m.thawed = m.world.now
	for len(m.backlog) > 0 && !m.frozen {
		f := m.backlog[0]
		m.backlog = m.backlog[1:]
		f()
	}
}

// Now is the node's clock.
func (p *process) Now() limiter.Instant { return p.clock() }

// now is what the clock shows by which the process lives: the machine's, unless a test plants a
// fault.
func (p *process) now() limiter.Instant { return p.time.at(p.machine.world.now) }

// AfterFunc has f happen as a task of the process.
func (p *process) AfterFunc(d time.Duration, f func()) (stop func()) {
	t := &timer{process: p, run: f}
	t.event = p.machine.world.schedule.add(p.time.when(p.now().Add(d)), t)
	return t.stop
}

// timer is a task of a process that has not begun.
type timer struct {
	process *process
	run     doing
	event   *event // nil once it has gone off or was stopped
}

func (t *timer) happen() {
	t.event = nil
	p := t.process
	w := p.machine.world
	switch {
	case p.machine.frozen:
		p.do(func() {
			t.fires()
			w.tasks.start(p, t.run)
		})
	case !p.dead:
		t.fires()
		w.tasks.last(p, t.run)
	}
}

func (t *timer) fires() {
	w := t.process.machine.world
	w.trace.add(happening{at: w.now, kind: fires, node: t.process.machine})
}

func (t *timer) stop() {
	if t.event != nil {
		t.process.machine.world.schedule.remove(t.event)
		t.event = nil
	}
}

// limit is this process's own copy of a limit that came with an Ask: a peer gets bytes, not a
// pointer.
func (p *process) limit(l *limiter.Limit) *limiter.Limit {
	own := p.latest[l]
	if own != nil {
		return own
	}
	if own = p.received[l.Spec]; own == nil {
		var err error
		if own, err = limiter.New(l.Spec); err != nil {
			panic(err)
		}
		p.received[l.Spec] = own
	}
	if len(p.latest) >= latestLimits {
		clear(p.latest)
	}
	p.latest[l] = own
	return own
}

// latestLimits is how many limits a process finds without looking at all that they are: clients
// bring along new ones.
const latestLimits = 64
