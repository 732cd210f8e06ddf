package fair

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is a node with one processor, which serves what its connections have sent in the order of
// its coming, and connections that ask at a pace of their own, one request after the other. The
// goroutine of a connection with a pipeline goes on until it yields, but for preempted at most.
// Other programs have the processor for others after each ours.
type model struct {
	gate   *Gate
	now    time.Duration
	cost   time.Duration // of a request; to refuse it costs half
	ours   time.Duration
	others time.Duration
	far    time.Duration // from an answer to the next request on a connection, on average
	had    time.Duration // of the processor
	turn   time.Duration // what is left of ours
	conns  []*modelConn
	idle   quiet         // those without a request that was read
	queue  []*modelConn  // those with one
	polled time.Duration // when it was last looked for what has come
	probe  modelProbe
}

// modelProbe is the byte that the gate sends, and a connection of nobody on which it comes.
type modelProbe struct {
	conn   modelConn
	under  bool          // the byte is under way
	before time.Duration // had when the byte was sent
	asked  time.Duration // had when the gate last asked
	last   wait
}

// preempted is how long the runtime lets a goroutine run that does not yield.
const preempted = 10 * time.Millisecond

type modelConn struct {
	client  string
	every   time.Duration
	next    time.Duration // when it asks next
	asked   time.Duration // when it asked what is in the queue
	until   time.Duration // when it is read again
	refused time.Duration // when it was told to try again later
	line    Line
	deep    int // requests that a reading brings; 0: there is one at a time
	left    int // of those, in what was read
	shared  bool

	answered, overloaded int
	took                 []time.Duration // of answers to requests that were not sent too early
}

func newModel() *model {
	m := &model{cost: 75 * time.Microsecond}
	m.gate = newGate(func() time.Duration { return m.now }, m.ask)
	m.gate.shares.processors = 1
	return m
}

// ask is probe.ask.
func (m *model) ask() (w wait) {
	p := &m.probe
	if w, p.last = p.last, (wait{}); p.under {
		w = m.waited()
		w.under = true
	} else {
		p.under, p.before, p.conn.next = true, m.had, m.now
		heap.Push(&m.idle, &p.conn)
	}
	w.had, p.asked = m.had-p.asked, m.had
	return w
}

// waited is how long the byte has been under way.
func (m *model) waited() wait {
	return wait{wall: m.now - m.probe.conn.next, own: m.had - m.probe.before}
}

// add adds n connections of a client, which together ask so often a second.
func (m *model) add(client string, n int, rate float64) (added []*modelConn) {
	every := time.Duration(float64(n) / rate * float64(time.Second))
	for range n {
		c := &modelConn{
			client: client, every: every, next: m.now + rand.N(every), refused: -time.Hour,
		}
		m.conns, added = append(m.conns, c), append(added, c)
		heap.Push(&m.idle, c)
	}
	return added
}

// pipe adds n connections of a client with pipelines of so many requests, without a pause.
func (m *model) pipe(client string, n, deep int, shared bool) (added []*modelConn) {
	added = m.add(client, n, 1e9)
	for _, c := range added {
		c.deep, c.shared = deep, shared
	}
	return added
}

// work has the processor work for so long.
func (m *model) work(cost time.Duration) {
	for m.had += cost; m.others > 0 && cost >= m.turn; m.turn = m.ours {
		m.now += m.turn + m.others
		cost -= m.turn
	}
	m.now += cost
	m.turn -= cost
}

// quiet are connections by when they have something to read, the first one first.
type quiet []*modelConn

func (q quiet) Len() int           { return len(q) }
func (q quiet) Less(i, j int) bool { return q[i].ready() < q[j].ready() }
func (q quiet) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *quiet) Push(c any)        { *q = append(*q, c.(*modelConn)) }

func (q *quiet) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	*q = (*q)[:last]
	return c
}

func (c *modelConn) ready() time.Duration { return max(c.next, c.until) }

// run lets so much time pass.
func (m *model) run(length time.Duration) {
	for end := m.now + length; m.now < end; {
		m.read()
		if len(m.queue) == 0 {
			m.now = min(end, m.idle[0].ready())
			continue
		}
		c := m.queue[0]
		m.queue = m.queue[1:]
		if c == &m.probe.conn {
			m.probe.under, m.probe.last = false, m.waited()
			continue
		}
		m.serve(c)
	}
}

// serve runs the goroutine of a connection until it waits for the client, or for others.
func (m *model) serve(c *modelConn) {
	for began := m.had; ; {
		if c.deep == 0 {
			m.request(c)
			heap.Push(&m.idle, c)
			return
		}
		if c.left == 0 {
			most := c.line.Most(c.deep * modelBytes)
			c.line.Got(most, most)
			c.left = max(1, most/modelBytes)
		}
		pause := m.request(c)
		if c.left--; c.left == 0 && pause > m.now {
			c.next = m.now // the pipeline has no end
			heap.Push(&m.idle, c)
			return
		}
		if c.line.behind() || m.had-began >= preempted {
			m.queue = append(m.queue, c)
			return
		}
	}
}

// modelBytes are those of a request in a pipeline.
const modelBytes = 80

// read takes into the queue what connections have sent. The runtime looks for it when there is
// nothing else to do, and else when it has not done so for preempted.
func (m *model) read() {
	if len(m.queue) > 0 && m.now-m.polled < preempted {
		return
	}
	m.polled = m.now
	for len(m.idle) > 0 && m.idle[0].ready() <= m.now {
		c := heap.Pop(&m.idle).(*modelConn)
		c.asked = c.next
		if c.until <= m.now-over {
			c.line.until.Store(0)
		}
		if c.line.sent.Swap(false) && c.asked < c.until {
			c.line.Late()
		}
		m.queue = append(m.queue, c)
	}
}

// request decides on a request, and returns until when the connection is not read.
func (m *model) request(c *modelConn) time.Duration {
	now := m.gate.look()
	v, entered := m.gate.enter(now, c.client, Work{Cost: m.cost, Line: &c.line})
	if entered {
		m.work(m.cost)
		m.gate.Leave(c.client)
		if c.answered++; c.asked-c.refused >= time.Second {
			c.took = append(c.took, m.now-c.asked)
		}
	} else {
		m.work(m.cost / 2)
		c.overloaded++
		c.refused = m.now
	}
	if pause := c.line.pauseFor(m.now, v, c.shared); pause > 0 {
		c.until = max(c.until, m.now+pause)
		c.line.until.Store(int64(c.until))
	}
	if c.next += c.every; m.now-c.next > time.Second {
		c.next = m.now // callers that gave up
	}
	if c.next = max(c.next, m.now); m.far > 0 {
		c.next = max(c.next, m.now+rand.N(2*m.far))
	}
	return c.until
}

// stop has connections ask no more.
func (m *model) stop(conns []*modelConn) {
	for _, c := range conns {
		c.next = time.Hour
	}
	heap.Init(&m.idle)
}

// forget begins to count anew.
func (m *model) forget() {
	for _, c := range m.conns {
		c.answered, c.overloaded, c.took = 0, 0, nil
	}
}

type tally struct {
	answered, overloaded int
	p99                  time.Duration
}

func count(conns []*modelConn) (sum tally) {
	var took []time.Duration
	for _, c := range conns {
		sum.answered += c.answered
		sum.overloaded += c.overloaded
		took = append(took, c.took...)
	}
	if slices.Sort(took); len(took) > 0 {
		sum.p99 = took[len(took)*99/100]
	}
	return sum
}

const perSecond = 13333 // requests that the model can answer

// Promise: beside a client that asks three times as often as the node can answer, a client that
// asks little is answered each time, and as fast as before but for the time that two dozen requests
// take. So are those requests of the greedy client that are admitted; the others hear OVERLOADED,
// and of what the node can do more than five sixths are done.
func TestPoliteClientBesideThreeTimesTheCapacity(t *testing.T) {
	for _, connections := range []int{300, 1000} {
		m := newModel()
		polite := m.add("polite", 1, 100)
		greedy := m.add("greedy", connections, 3*perSecond)
		m.run(2 * time.Second)
		m.forget()
		m.run(4 * time.Second)
		if got := count(polite); got.overloaded > 0 || got.answered < 390 ||
			got.p99 > 24*m.cost {
			t.Errorf("beside %d connections the polite client has %+v", connections, got)
		}
		if got := count(greedy); got.overloaded == 0 || got.answered < 4*perSecond*5/6 ||
			got.p99 > burst+patience {
			t.Errorf("over %d connections the greedy client has %+v", connections, got)
		}
		if t.Failed() {
			return
		}
		m.stop(greedy)
		m.run(2 * time.Second)
		if m.gate.Busy() {
			t.Errorf("two seconds after the last request of a greedy client its share is %v",
				m.gate.shares.level)
		}
	}
}

// Promise: greedy clients have equal shares, however many connections they have.
func TestGreedyClientsShareAlike(t *testing.T) {
	m := newModel()
	few, many := m.add("few", 200, 2*perSecond), m.add("many", 1500, 3*perSecond)
	m.run(2 * time.Second)
	m.forget()
	m.run(4 * time.Second)
	a, b := count(few).answered, count(many).answered
	if a < b*2/3 || b < a*2/3 {
		t.Errorf("a client with 200 connections gets %d answers, one with 1500 gets %d", a, b)
	}
}

// Promise: a client with pipelines that have no end leaves a polite client all its answers, each as
// fast as a few dozen requests take.
func TestPoliteClientBesidePipelines(t *testing.T) {
	for _, c := range []struct {
		connections int
		shared      bool
	}{{16, false}, {64, false}, {400, false}, {16, true}, {64, true}} {
		m := newModel()
		polite := m.add("polite", 1, 100)
		greedy := m.pipe("greedy", c.connections, 50, c.shared)
		m.run(time.Second)
		m.forget()
		m.run(4 * time.Second)
		if got := count(polite); got.overloaded > 0 || got.answered < 390 ||
			got.p99 > preempted+burst+patience {
			t.Errorf("beside %+v the polite client has %+v", c, got)
		}
		if got := count(greedy); got.answered < 4*perSecond*6/10 ||
			got.overloaded > got.answered/4 {
			t.Errorf("over %+v the greedy client has %+v", c, got)
		}
	}
}

// Promise: an overload by one client alone is seen within a second, also where other programs have
// three quarters of the processor, so that requests wait for longer than from one look to the next.
func TestOverloadByOneClientIsSeen(t *testing.T) {
	m := newModel()
	m.ours, m.others = 3*time.Millisecond, 9*time.Millisecond
	m.add("greedy", 400, 10*perSecond)
	m.run(time.Second)
	if m.gate.shares.phase != overloaded {
		t.Errorf("with 400 callers: %+v", m.gate.shares)
	}
}

// Promise: where requests wait for something else than requests, clients may still use an eighth of
// the node, and one that asks little is not refused.
func TestClientsKeepAnEighthOfTheNode(t *testing.T) {
	m := newModel()
	polite := m.add("polite", 1, 100)
	m.add("greedy", 1000, 3*perSecond)
	m.run(time.Second)
	m.gate.waited = func() wait {
		w := m.ask()
		w.wall, w.own = max(w.wall, lookEvery), max(w.own, 2*fairWait)
		return w
	}
	m.run(2 * time.Second)
	m.forget()
	m.run(4 * time.Second)
	if got := count(polite); got.overloaded > 0 {
		t.Errorf("the polite client has %+v", got)
	}
	if level := m.gate.shares.level; level < leastPart*0.9 {
		t.Errorf("the level is %v", level)
	}
}

// Promise: other programs that have three quarters of the processor do not take from what clients
// get of the rest: a polite client has its answers, and more than half of what the node can do is
// done, since what has gathered meanwhile is not taken for too much.
func TestOverloadBesideOtherPrograms(t *testing.T) {
	m := newModel()
	m.ours, m.others = 3*time.Millisecond, 9*time.Millisecond
	polite := m.add("polite", 1, 100)
	greedy := m.add("greedy", 1000, 3*perSecond/4)
	m.run(2 * time.Second)
	m.forget()
	m.run(8 * time.Second)
	if got := count(polite); got.overloaded > 0 || got.p99 > 30*time.Millisecond {
		t.Errorf("the polite client has %+v", got)
	}
	if got := count(greedy); got.overloaded == 0 || got.answered < 8*perSecond/4*55/100 {
		t.Errorf("the greedy client has %+v", got)
	}
}

// Promise: of three times what a node can do it does so much at least, and the client that asks
// little waits no longer than this, also where other programs have the processor in between, and
// where answers take their time. (-v prints what it does.)
func TestWhatIsDoneOfThreeTimesTheCapacity(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		ours, others, far int // ms
		least             float64
		longest           time.Duration
	}{
		{1, 0, 0, 0.83, ms(3)},
		{1, 0, 4, 0.83, ms(3)},
		{1, 0, 16, 0.83, ms(3)},
		{3, 9, 0, 0.55, ms(12)},
		{4, 4, 0, 0.75, ms(12)},
		{4, 4, 8, 0.75, ms(12)},
		{8, 4, 4, 0.55, ms(12)},
		{8, 12, 8, 0.35, ms(24)},
		{20, 20, 8, 0.3, ms(40)},
	} {
		m := newModel()
		m.ours, m.others, m.far = ms(c.ours), ms(c.others), ms(c.far)
		can := perSecond * float64(c.ours) / float64(c.ours+c.others)
		polite := m.add("polite", 1, 100)
		greedy := m.add("greedy", 1000, 3*can)
		m.run(2 * time.Second)
		m.forget()
		m.run(8 * time.Second)
		p, g := count(polite), count(greedy)
		done := float64(g.answered) / (8 * can)
		t.Logf("%d ms of its own, %d of others', answers take %d: %.2f is done, "+
			"%d refusals a second, p99 %v", c.ours, c.others, c.far, done, g.overloaded/8,
			p.p99.Round(ms(1)/10))
		if done < c.least || p.p99 > c.longest || p.overloaded > 0 {
			t.Errorf("%+v: %v is done, and the polite client has %+v", c, done, p)
		}
	}
}

// Promise: without an overload nothing is refused and no connection is read less: neither at nine
// tenths of what a node can do, nor for some hundred callers of one client that ask without a
// pause; and whatever other programs take.
func TestNothingIsRefusedWithoutOverload(t *testing.T) {
	for _, c := range []struct {
		connections int
		rate        float64
		others      time.Duration
	}{
		{1000, perSecond * 9 / 10, 0},
		{64, 10 * perSecond, 0},
		{1000, perSecond / 4 * 8 / 10, 9 * time.Millisecond},
		{64, 10 * perSecond, 9 * time.Millisecond},
		{200, 10 * perSecond, 0},
		{200, 10 * perSecond, 9 * time.Millisecond},
	} {
		m := newModel()
		m.ours, m.others = 3*time.Millisecond, c.others
		all := m.add("one", c.connections, c.rate)
		m.run(4 * time.Second)
		least := int(3 * perSecond * m.ours / (m.ours + m.others))
		quiet := c.others == 0 && c.connections == 1000 // then nobody is even counted
		if got := count(all); got.overloaded > 0 || m.gate.shares.phase == overloaded ||
			got.answered < least || quiet && m.gate.Busy() {
			t.Errorf("%d connections that ask %v times a second: %+v, %+v",
				c.connections, c.rate, got, m.gate.shares)
		}
	}
}

// Promise: where goroutines wait and requests are not the reason, nobody is refused, and the room
// stays as large as it is, whatever the requests take of the little that other programs leave.
func TestBusyMachineRefusesNobody(t *testing.T) {
	for _, w := range []wait{
		{wall: time.Second, own: time.Second, had: lookEvery},
		{wall: 50 * time.Millisecond, own: time.Millisecond, had: time.Millisecond / 2},
	} {
		h := new(hand)
		g := newGate(func() time.Duration { return h.now }, func() wait { return w })
		for range 1000 {
			h.now += lookEvery
			if err := g.Enter("modest", Work{Cost: time.Millisecond / 2}); err != nil {
				t.Fatal(err)
			}
			g.Leave("modest")
		}
		if room := g.Figures().Room; w.own <= mostWait && room != mostRoom {
			t.Errorf("with waits of %+v the room is %d", w, room)
		}
	}
}
