package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
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
	gossip   gossip
	callers  callers
	rulebook
	first   *placement               // in the beginning
	founded *ownership.Configuration // that the world begins with
	judge   *judge
	trace   trace
	plant   func(*process) // of a test: a fault in every process that boots
	course  *course        // what happens over time; nil if nobody wants to see it
	liar    *liar          // nil: no member lies
	damage
	ending
}

// rulebook are the limits of a world.
type rulebook struct {
	rules  []limitRule
	named  map[string]*limiter.Limit // of all rules
	limits cluster.Limits            // those that nodes know by name
}

// damage is what has gone wrong.
type damage struct {
	faults    FaultReport
	wentDown  time.Duration // when a node last did
	allDown   time.Duration // when nobody was left
	recovered bool          // an operator has
}

// ending is how a world comes to rest.
type ending struct {
	clear    bool          // no requests and no faults any more: nothing gets lost
	agreeBy  time.Duration // all must; 0: not known yet
	agreeEnd time.Duration // and however often that begins anew
	agreedOn uint64        // number of the latest configuration that was looked at
	resting  bool          // no timers any more, and no requests
	rested   time.Duration // since when
}

// limitRule is a rule of the plan, made.
type limitRule struct {
	limit  *limiter.Limit
	inline bool
}

// restAfter is more than anybody waits for anything: so long a world goes on after its last request
// and its last fault, and so long it then has to come to rest by itself.
const restAfter = 30 * time.Second

// restTime is restAfter, or less where nothing goes wrong: then nobody waits for longer than a
// client has patience.
func (p *plan) restTime() time.Duration {
	if !p.quiet() {
		return restAfter
	}
	var longest time.Duration
	if p.traffic.requests > 0 || len(p.script) > 0 {
		// of the clients that seeds draw, also when they are written down
		longest = 10 * time.Second
	}
	longest = max(longest, p.longestHold())
	for i := range p.script {
		longest = max(longest, p.script[i].patience+p.script[i].retry.lasts(p.script[i].patience))
	}
	for i := range p.replays {
		longest = max(longest, p.replays[i].patience)
	}
	for i := range p.demands {
		longest = max(longest,
			p.demands[i].patience+p.demands[i].retry.lasts(p.demands[i].patience))
	}
	return min(restAfter, longest+2*time.Second)
}

// warmUp is how long before its first instant a world is there, so that nodes have found each other
// by then.
const warmUp = 2 * time.Second

func newWorld(p *plan, plant func(*process)) *world {
	w := &world{
		plan: p, plant: plant, now: -warmUp, dice: stream(p.seed, dicesStream),
		byID: make(map[string]*machine), trace: newTrace(), network: newNetwork(len(p.machines)),
		rulebook: rulebook{limits: make(cluster.Limits), named: make(map[string]*limiter.Limit)},
		damage:   damage{wentDown: -warmUp, allDown: -2 * warmUp},
	}
	w.gossip.world = w
	w.callers = callers{world: w, told: newReservations()}
	for _, rule := range p.limits {
		l := mustLimit(rule.Spec, p.except[rule.Name]...)
		w.rules = append(w.rules, limitRule{l, rule.inline})
		w.named[l.Name] = l
		if !rule.inline {
			w.limits[l.Name] = l
		}
	}
	for i, mp := range p.machines {
		m := &machine{world: w, id: machineID(i), index: i, clock: mp.clock, thawed: -1}
		if mp.agent {
			m.role = cluster.RoleAgent
		}
		w.machines = append(w.machines, m)
		w.byID[m.id] = m
	}
	for _, d := range p.distances {
		w.network.lines[d.from][d.to].more = d.more
	}
	w.judge = newJudge(w)
	w.found()
	for i, m := range w.machines {
		if !p.machines[i].later {
			m.boot()
		}
	}
	w.gossip.gather()
	w.gossip.reconcile()
	// what it took to find each other is no news
	w.at(0, func() { w.network.tally = MessageReport{} })
	w.callers.await(w.source())
	for _, f := range p.faults {
		w.at(f.at, func() { w.strike(f) })
	}
	w.liar = newLiar(w)
	return w
}

func machineID(i int) string { return fmt.Sprintf("n%d", i+1) }

// at has run happen at an instant of the world.
func (w *world) at(t time.Duration, run func()) *event { return w.schedule.add(t, doing(run)) }

// run lets the world go on until nothing more happens in it, or until a promise is broken.
func (w *world) run() {
	defer w.end()
	w.tasks.play(w.step)
}

// step has the next event happen, if there is one and no promise is broken.
func (w *world) step() bool {
	w.callers.goOn()
	if w.resting && w.now > w.rested+restAfter {
		w.judge.live.restless()
	}
	if w.judge.failure != nil {
		return false
	}
	at, what, ok := w.schedule.next()
	if !ok {
		for _, m := range w.machines {
			if m.process != nil {
				m.process.takeStock()
			}
		}
		w.judge.atRest()
		return false
	}
	w.now = max(w.now, at) // what was to be done earlier is done at once
	w.judge.checked[sound]++
	what.happen()
	return true
}

// end unwinds the tasks that still wait, and turns a panic of a node into a failure.
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

// rest lets the world come to an end: no client asks any more, and when the last of them must have
// heard and the last fault is over, the nodes' timers stop.
func (w *world) rest() {
	last := w.now
	if n := len(w.plan.faults); n > 0 {
		last = max(last, w.plan.faults[n-1].at)
	}
	w.at(last, func() { w.clear = true })
	w.at(last+w.plan.restTime(), w.stop)
}

// stop ends the timers of all nodes, as soon as nobody is about to come or go.
func (w *world) stop() {
	if w.moving() && w.now < w.plan.length+longestMove {
		w.at(w.now+time.Second, w.stop)
		return
	}
	if w.agreeBy == 0 {
		w.agreesFromNow()
	}
	w.agreesAnew()
	if w.now >= w.agreeBy {
		w.recovers()
	}
	if !w.judge.converged.converged(w.now >= w.agreeBy) {
		w.at(w.now+time.Second, w.stop)
		return
	}
	w.judge.aside.runOut()
	w.resting, w.rested = true, w.now
	for _, m := range w.machines {
		if m.process != nil {
			m.process.node.Stop()
			m.process.states()
			m.process.decided = m.process.now() < m.process.stated.until
		}
	}
}

// longestMove is how long a world waits for nodes that come and go after its last request. Some
// never get away, because no node is left that could take over what they hold.
const longestMove = 10 * time.Minute

// owner is the machine that owns key when the world begins.
func (w *world) owner(key string) *machine {
	if w.first == nil {
		w.first = w.plan.firstPlacement()
	}
	return w.byID[w.first.ownerOf(w.plan.partition(limiter.Hash(key)))]
}

// strike has a fault happen. What does not apply any more (a machine that is down cannot freeze) is
// passed over.
func (w *world) strike(f fault) {
	m, peer := w.machines[f.node], w.machines[f.peer]
	if w.fails(f) {
		w.judge.struck(f)
	}
	if stops(f.kind) && m.process != nil {
		w.judge.counted.dies(m.process)
	}
	w.trace.add(happening{at: w.now, kind: f.kind, node: m, peer: peer})
	switch f.kind {
	case crashes, boots, joins, leaves, restarts, rolls:
		w.strikeMember(f.kind, m)
	case freezes, thaws:
		w.strikeFrozen(f.kind, m)
	case cuts:
		if m != peer {
			w.faults.Cuts++
			w.cutOff(m, peer)
			w.gossip.doubt()
		}
	case mends:
		w.mend(m, peer)
	case steps:
		w.faults.Steps++
		m.clock.start = m.clock.start.Add(f.by)
	}
}

// fails reports whether somebody or a line fails by f now, or comes back: not if a line that is to
// be cut is so already, or a machine that is to crash is down.
func (w *world) fails(f fault) bool {
	m := w.machines[f.node]
	switch f.kind {
	case crashes:
		return m.process != nil
	case boots, joins:
		return m.process == nil
	case freezes:
		return m.process != nil && !m.frozen
	case thaws:
		return m.frozen
	case cuts, mends:
		return f.node != f.peer && w.network.lines[f.node][f.peer].cut != (f.kind == cuts)
	}
	return false
}

// strikeMember has a process start or end, or all of them one after the other.
func (w *world) strikeMember(k kind, m *machine) {
	up := m.process != nil
	mayLeave := up && !m.process.leaving && w.othersStay(m)
	switch {
	case k == crashes && up:
		w.faults.Crashes++
		m.crash()
		w.gossip.doubt()
	case k == boots && !up:
		m.start()
	case k == joins && !up:
		w.faults.Joins++
		m.start()
	case k == leaves && mayLeave:
		w.faults.Leaves++
		m.leave()
	case k == restarts && mayLeave:
		w.faults.Restarts++
		m.restart()
	case k == rolls:
		w.faults.Rolls++
		w.roll(0)
	}
}

// strikeFrozen has a machine freeze or thaw.
func (w *world) strikeFrozen(k kind, m *machine) {
	switch {
	case k == freezes && m.process != nil && !m.frozen:
		w.faults.Freezes++
		m.freeze()
		w.gossip.doubt()
	case k == thaws && m.frozen:
		m.thaw()
	}
}

// othersStay reports whether there is another node that can take over what m has.
func (w *world) othersStay(but *machine) bool {
	for _, m := range w.machines {
		if m == but {
			continue
		}
		if p := m.process; p != nil && !p.leaving && p.node.View().Me().State ==
			cluster.StateActive && m.role == cluster.RoleMember {
			return true
		}
	}
	return false
}
