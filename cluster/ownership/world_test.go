package ownership

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// world is a small network of boots in true time. Each node has a clock of its own, links can be
// cut one way, and what is sent takes a while. After every event it is checked that of two boots
// that may charge one partition both mark what they do, and that no boot goes on that was replaced.
type world struct {
	p      Params
	now    Instant // true time
	random *rand.Rand
	queue  schedule
	age    uint64
	nodes  []*node
	boots  map[Boot]*node // living or dead, by boot
	cut    map[[2]string]bool
	loss   int // of 100 messages
	double int
	slow   Instant // what a line takes besides, up to twice as long

	// by partition: the boot that began to hold it last
	newest  map[Lineage][]Boot
	truth   []int                                 // by partition: what was charged
	drop    func(from, to string, m Message) bool // what gets lost besides
	sent    []sent                                // what may be doubled much later,
	doubles bool                                  // if it is kept
	every   Instant                               // between two polls of a node
	sleeps  bool                                  // Polls are left out until they are due
	// something was killed or evicted: counts may be lost
	lossy     bool
	skewed    bool     // clocks run at their own pace
	log       []string // what happened, for golden files
	refounded bool     // a second cluster was founded
	wrong     string   // the first violation
	next      Boot
	events    int
	recovered int
}

// node is a machine with a name. It has one boot at a time.
type node struct {
	id, zone string
	electors []string
	s        *keeper
	up       bool
	frozen   bool
	held     []func() // what waits for the end of a freeze
	offset   Instant
	rate     int64 // its clock's, in thousandths
	table    []int
	listens  bool
	due      Instant // as promised said after its last event
	promised *keeper
}

func (n *node) clock(now Instant) Instant { return n.offset + now*Instant(n.rate)/1000 }

// sent is a message that was on its way once.
type sent struct {
	from Boot
	to   *node
	m    Message
}

// again delivers once more what was sent.
func (w *world) again(match func(sent) bool) {
	for _, x := range w.sent {
		if match(x) && x.to.up {
			w.step(x.to, Received{x.from, x.m})
		}
	}
}

type happening struct {
	at  Instant
	age uint64
	do  func()
}

type schedule []happening

func (q schedule) Len() int { return len(q) }
func (q schedule) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), cmp.Compare(q[i].age, q[j].age)) < 0
}
func (q schedule) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *schedule) Push(x any)   { *q = append(*q, x.(happening)) }
func (q *schedule) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// placeOwners spreads partitions over owners by their place in the list.
func placeOwners(c *Configuration, partition int) Boot {
	var owners []Boot
	for _, m := range c.Members {
		if m.Role == RoleOwner {
			owners = append(owners, m.Boot)
		}
	}
	if len(owners) == 0 {
		return 0
	}
	return owners[partition%len(owners)]
}

func newWorld(seed uint64, partitions int, without ...rule) *world {
	p := Default()
	for _, r := range without {
		p.without |= r
	}
	return &world{
		p: p, every: 25 * ms, random: rand.New(rand.NewPCG(seed, 1)), boots: map[Boot]*node{},
		cut:    map[[2]string]bool{},
		newest: map[Lineage][]Boot{}, truth: make([]int, partitions),
	}
}

const ms = Instant(time.Millisecond)

func (w *world) after(d Instant, do func()) {
	w.age++
	heap.Push(&w.queue, happening{w.now + d, w.age, do})
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%8.3f  ", float64(w.now)/1e9)+fmt.Sprintf(format, args...))
}

// run lets time go by.
func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for len(w.queue) > 0 && w.queue[0].at <= end {
		h := heap.Pop(&w.queue).(happening)
		w.now = max(w.now, h.at)
		h.do()
		w.events++
	}
	w.now = end
}

func (w *world) node(id string) *node {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// start begins a boot on a node, which is made if there is none.
func (w *world) start(id string, electors ...string) *node {
	n := w.node(id)
	if n == nil {
		n = &node{id: id, rate: 1000, offset: Instant(len(w.nodes)) * 1000 * ms}
		if w.skewed {
			n.rate, n.offset = 980+int64(w.random.IntN(41)), Instant(w.random.IntN(100000))*ms
		}
		w.nodes = append(w.nodes, n)
	}
	n.electors = electors
	w.next++
	w.boot(n, w.keep(Member{ID: n.id, Boot: w.next, Zone: n.zone}, n.electors))
	return n
}

// keep is a new boot, with the partitions of this world.
func (w *world) keep(me Member, electors []string) *keeper {
	return keep(New(&w.p, me, Of(electors...), 0), len(w.truth))
}

func (w *world) boot(n *node, s *keeper) {
	n.s = s
	n.up, n.frozen, n.listens, n.held = true, false, true, nil
	n.table = make([]int, len(w.truth))
	w.boots[s.me.Boot] = n
	w.pulse(n, n.s)
}

func (w *world) pulse(n *node, s *keeper) {
	w.after(w.every, func() {
		if n.s != s || !n.up {
			return
		}
		if !n.frozen {
			w.charge(n)
			if !w.sleeps || n.clock(w.now) >= n.due {
				w.step(n, Poll{})
			}
			w.copies(n)
		}
		if n.s == s {
			w.pulse(n, s)
		}
	})
}

// promises finds that a Poll has done something before it was due.
func (w *world) promises(n *node, now Instant, fx partEffects) {
	does := len(fx.Sends)+len(fx.Installed)+len(fx.Parts) > 0 || fx.Ended != NotEnded
	if (does || n.s.proposer.wants) && w.wrong == "" {
		w.wrong = fmt.Sprintf("%s:%d: a Poll at %d has done %+v, and was due at %d", n.id,
			n.s.me.Boot, now, fx, n.due)
	}
}

// charge is a client that has asked n.
func (w *world) charge(n *node) {
	for i := range w.truth {
		if n.s.Holds(n.clock(w.now), i) && !n.s.Marked() {
			w.truth[i]++
			n.table[i]++
		}
	}
}

// copies streams what n holds to the next owner.
func (w *world) copies(n *node) {
	if n.s.stage != StageJoined {
		return
	}
	for i := range w.truth {
		if n.s.parts[i].Kind != Held {
			continue
		}
		if heir := heirOf(n.s.config, i); heir != 0 && heir != n.s.me.Boot {
			w.step(n, Copying{i, heir, true})
		}
	}
}

// heirOf is the owner of a partition in the configuration without its owner.
func heirOf(c *Configuration, partition int) Boot {
	owner := placeOwners(c, partition)
	without := *c
	without.Members = slices.DeleteFunc(slices.Clone(c.Members), func(m Member) bool {
		return m.Boot == owner
	})
	return placeOwners(&without, partition)
}

// step gives an event to a node, and does what it asks for.
func (w *world) step(n *node, e Event) {
	if n.frozen {
		n.held = append(n.held, func() { w.step(n, e) })
		return
	}
	s := n.s
	lineage := lineageOf(s)
	now := n.clock(w.now)
	fx := s.Step(now, e)
	if _, polled := e.(Poll); polled && now < n.due && n.promised == s {
		w.promises(n, now, fx)
	}
	n.due, n.promised = now, s
	if due, calm := s.Due(now); calm {
		n.due = due
	}
	for _, c := range fx.Installed {
		if (c.Previous == Epoch{}) && c.Epoch.Lineage == Founded(s.me.Boot) {
			w.founded(n)
		}
		w.say("%s:%d installs %v", n.id, s.me.Boot, c)
	}
	for i := range s.parts {
		if lineage != lineageOf(s) && s.parts[i].Kind == Held { // it goes on in a child
			w.began(s, i)
		}
	}
	for _, p := range fx.Parts {
		w.part(n, p)
	}
	for _, m := range fx.Sends {
		w.send(n, m)
	}
	w.check()
	if fx.Ended != NotEnded {
		w.ended(n, fx.Ended)
	}
}

// founded notes a second founding, by restarted boots that reach none of the first. A majority of
// names that has forgotten everything cannot be told from one that never knew: see DESIGN.md, "not
// done".
func (w *world) founded(n *node) {
	for _, o := range w.nodes {
		w.refounded = w.refounded ||
			o != n && o.up && o.s.stage == StageJoined &&
				o.s.config.Epoch.Lineage != Founded(n.s.me.Boot)
	}
}

func lineageOf(s *keeper) Lineage {
	if s.stage != StageJoined {
		return ""
	}
	return s.config.Epoch.Lineage
}

func (w *world) part(n *node, p PartEffect) {
	word := p.Kind.String()
	switch p.Kind {
	case PartHold:
		w.began(n.s, p.Partition)
		if !p.Fresh {
			word = "hold (bound B)"
		}
		if n.s.Marked() {
			w.lossy = true
		}
		if n.table[p.Partition] < w.truth[p.Partition] {
			if !w.lossy && w.wrong == "" {
				w.wrong = fmt.Sprintf("%s holds %d with %d of %d charges", n.id, p.Partition,
					n.table[p.Partition], w.truth[p.Partition])
			}
			w.truth[p.Partition] = n.table[p.Partition]
		}
	case PartFetch:
		from := w.boots[p.Boot]
		if from == nil || !from.up || !w.reaches(from.id, n.id) {
			return
		}
		count := from.table[p.Partition]
		w.after(2*ms, func() {
			if n.up && n.s.me.Boot != 0 {
				n.table[p.Partition] = max(n.table[p.Partition], count)
				w.step(n, Fetched{p.Partition})
			}
		})
	}
	if p.Boot != 0 {
		w.say("%s:%d part %d: %s %d", n.id, n.s.me.Boot, p.Partition, word, p.Boot)
	} else {
		w.say("%s:%d part %d: %s", n.id, n.s.me.Boot, p.Partition, word)
	}
}

func (w *world) ended(n *node, why Ending) {
	w.say("%s:%d ended: %v", n.id, n.s.me.Boot, why)
	switch why {
	case Left, NameInUse, Closed:
		w.die(n)
	default:
		w.lossy = true
		table := n.table
		w.lines(n, n.s.me.Boot)
		w.next++
		w.boot(n, n.s.Next(w.next))
		copy(n.table, table)
	}
}

// reaches reports whether what a sends gets to b.
func (w *world) reaches(a, b string) bool { return !w.cut[[2]string{a, b}] }

// send carries a message, with the counts of what it is about.
func (w *world) send(n *node, m Send) {
	to := w.boots[m.To]
	if m.To == 0 {
		to = w.node(m.Addr)
	}
	if to == nil || !w.reaches(n.id, to.id) || w.random.IntN(100) < w.loss {
		return
	}
	if w.drop != nil && w.drop(n.id, to.id, m.Message) {
		return
	}
	from, boot := n.s.me.Boot, m.To
	switch m.Message.(type) {
	case Gift, CopyOf, Join:
		if w.doubles {
			w.sent = append(w.sent, sent{from, to, m.Message})
		}
	}
	arrive := w.carry(n, m.Message)
	deliver := func() {
		if !to.up || !to.listens || boot != 0 && to.s.me.Boot != boot || !w.reaches(n.id, to.id) {
			return
		}
		arrive(to)
		w.step(to, Received{from, m.Message})
	}
	times := 1
	if w.random.IntN(100) < w.double {
		times = 2
	}
	for range times {
		late := Instant(0)
		if w.loss > 0 && w.random.IntN(20) == 0 {
			late = Instant(w.random.IntN(1500)) * ms
		}
		if w.slow > 0 {
			late += w.slow + Instant(w.random.Int64N(int64(w.slow)))
		}
		w.after(ms/2+Instant(w.random.IntN(1000))*ms/1000+late, deliver)
	}
}

// carry is what comes along with a message, taken when it is sent.
func (w *world) carry(n *node, m Message) (arrive func(to *node)) {
	if r, relayed := m.(Relayed); relayed && r.To != 0 {
		if origin := w.boots[r.From]; origin != nil {
			inner := w.carry(origin, r.Inner)
			final := w.boots[r.To]
			return func(to *node) {
				if to == final {
					inner(to)
				}
			}
		}
	}
	switch m := m.(type) {
	case Gift:
		count := n.table[m.Partition]
		return func(to *node) {
			if p := to.s.parts[m.Partition]; p.Kind == Claiming && p.Epoch == m.Epoch.Number {
				to.table[m.Partition] = count
			}
		}
	case CopyOf:
		count := n.table[m.Partition]
		return func(to *node) {
			if k := to.s.parts[m.Partition].Kind; k == None || k == Copied {
				to.table[m.Partition] = max(to.table[m.Partition], count)
			}
		}
	}
	return func(*node) {}
}

// kill ends a process: its kernel tells those that it can reach.
func (w *world) kill(id string) {
	n := w.node(id)
	w.say("%s:%d is killed", id, n.s.me.Boot)
	w.lossy = true
	w.die(n)
}

func (w *world) die(n *node) {
	n.up, n.frozen, n.listens = false, false, false
	w.lines(n, n.s.me.Boot)
}

// lines tells all others that a boot's lines have ended, and that its address refuses: as soon as
// they can be told.
func (w *world) lines(n *node, b Boot) {
	for _, o := range w.nodes {
		if o == n {
			continue
		}
		var tell func()
		tell = func() {
			switch {
			case !o.up:
			case !w.reaches(n.id, o.id) || !w.reaches(o.id, n.id):
				w.after(200*ms, tell)
			default:
				s := o.s
				w.step(o, LineEnded{b})
				if o.s == s {
					w.step(o, AddressRefused{b})
				}
			}
		}
		w.after(ms, tell)
	}
}

func (w *world) freeze(id string) {
	w.say("%s is stopped", id)
	w.node(id).frozen = true
}

func (w *world) thaw(id string) {
	n := w.node(id)
	if !n.up || !n.frozen {
		return
	}
	w.say("%s goes on", id)
	n.frozen = false
	held, s := n.held, n.s
	n.held = nil
	w.step(n, Poll{})
	for _, f := range held {
		if n.s == s {
			f()
		}
	}
}

// sever cuts all links between two groups, or mends them.
func (w *world) sever(a, b string, cut bool) {
	for _, x := range strings.Fields(a) {
		for _, y := range strings.Fields(b) {
			w.cut[[2]string{x, y}], w.cut[[2]string{y, x}] = cut, cut
		}
	}
}

// began notes that a boot holds a partition in its lineage.
func (w *world) began(s *keeper, i int) {
	l := s.config.Epoch.Lineage
	if w.newest[l] == nil {
		w.newest[l] = make([]Boot, len(w.truth))
	}
	w.newest[l][i] = s.me.Boot
}

// since is another boot that has begun to hold what s holds later, in its lineage or a child's; or
// 0.
func (w *world) since(s *keeper, i int) Boot {
	l := s.config.Epoch.Lineage
	for other, newest := range w.newest {
		if strings.HasPrefix(string(other), string(l)) && newest[i] != 0 && newest[i] != s.me.Boot {
			return newest[i]
		}
	}
	return 0
}

// check looks for two that may charge.
func (w *world) check() {
	if w.wrong != "" {
		return
	}
	for i := range w.truth {
		var able []*node
		marked := true
		for _, n := range w.nodes {
			if n.up && n.s.Holds(n.clock(w.now), i) {
				able = append(able, n)
				marked = marked && n.s.Marked()
			}
		}
		switch {
		case len(able) > 1 && !marked:
			w.wrong = fmt.Sprintf("%.3f: %s and %s both decide for %d", float64(w.now)/1e9,
				able[0].id, able[1].id, i)
		case len(able) == 1 && !marked && w.since(able[0].s, i) != 0:
			w.wrong = fmt.Sprintf("%.3f: %s decides for %d, which %d has held since",
				float64(w.now)/1e9, able[0].id, i, w.since(able[0].s, i))
		}
	}
}

// agreed reports whether all that are up are in one configuration and every partition is decided,
// and else what is missing.
func (w *world) agreed() string {
	var c *Configuration
	for _, n := range w.nodes {
		switch {
		case !n.up:
			continue
		case n.s.stage != StageJoined:
			return fmt.Sprintf("%s is %v", n.id, n.s.stage)
		case !n.s.Deciding(n.clock(w.now)):
			return fmt.Sprintf("%s has no right in %v", n.id, n.s.config)
		case c == nil:
			c = n.s.config
		case c.Epoch != n.s.config.Epoch:
			return fmt.Sprintf("%s is at %v, not %v", n.id, n.s.config, c)
		}
	}
	for i := range w.truth {
		if c == nil {
			return "nobody is there"
		}
		n := w.boots[placeOwners(c, i)]
		if n == nil || !n.up || !n.s.Holds(n.clock(w.now), i) {
			return fmt.Sprintf("nobody decides for %d in %v", i, c)
		}
	}
	return ""
}
