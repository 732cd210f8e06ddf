package fair

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is a node with one processor, which serves what its connections have sent in the order of
// its coming, and connections that ask at a pace of their own, one request after the other.
type model struct {
	gate  *Gate
	now   time.Duration
	cost  time.Duration // of a request; to refuse it costs half
	conns []*modelConn
	idle  quiet        // those without a request that was read
	queue []*modelConn // those with one
	waits []time.Duration
}

type modelConn struct {
	client  string
	every   time.Duration
	next    time.Duration // when it asks next
	asked   time.Duration // when it asked what is in the queue
	until   time.Duration // when it is read again
	refused time.Duration // when it was told to try again later
	line    Line

	answered, overloaded int
	took                 []time.Duration // of answers to requests that were not sent too early
}

func newModel() *model {
	m := &model{cost: 75 * time.Microsecond}
	m.gate = newGate(func() time.Duration { return m.now }, func() waits {
		w := waits{}
		if n := len(m.waits); n > 0 {
			slices.Sort(m.waits)
			w.most = m.waits[n*7/10] // a request has two goroutines that wait little beside
			m.waits = m.waits[:0]
		}
		return w
	})
	m.gate.shares.processors = 1
	return m
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
		m.serve(c)
	}
}

// read takes into the queue what connections have sent.
func (m *model) read() {
	for len(m.idle) > 0 && m.idle[0].ready() <= m.now {
		c := heap.Pop(&m.idle).(*modelConn)
		c.asked = c.next
		if c.line.sent.Swap(false) && c.asked < c.until {
			c.line.Late()
		}
		m.queue = append(m.queue, c)
		c.until = m.now // since when it waits in the queue
	}
}

func (m *model) serve(c *modelConn) {
	m.waits = append(m.waits, m.now-c.until)
	now := m.gate.look()
	v, entered := m.gate.enter(now, c.client, Work{Cost: m.cost, Line: &c.line})
	if entered {
		m.now += m.cost
		m.gate.Leave(c.client)
		if c.answered++; c.asked-c.refused >= time.Second {
			c.took = append(c.took, m.now-c.asked)
		}
	} else {
		m.now += m.cost / 2
		c.overloaded++
		c.refused = m.now
	}
	c.until = m.now + c.line.pauseFor(v, false)
	if c.next += c.every; m.now-c.next > time.Second {
		c.next = m.now // callers that gave up
	}
	c.next = max(c.next, m.now)
	heap.Push(&m.idle, c)
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
// and most of what the node can do is done.
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
		if got := count(greedy); got.overloaded == 0 || got.answered < 4*perSecond*6/10 ||
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

// Promise: without an overload nothing is refused and no connection is read less: neither at nine
// tenths of what a node can do, nor for a few callers that ask without a pause.
func TestNothingIsRefusedWithoutOverload(t *testing.T) {
	for _, c := range []struct {
		connections int
		rate        float64
	}{{1000, perSecond * 9 / 10}, {64, 10 * perSecond}} {
		m := newModel()
		all := m.add("one", c.connections, c.rate)
		m.run(4 * time.Second)
		if got := count(all); got.overloaded > 0 || m.gate.Busy() || got.answered < 3*perSecond {
			t.Errorf("%d connections that ask %v times a second: %+v, busy %t",
				c.connections, c.rate, got, m.gate.Busy())
		}
	}
}

// Promise: where goroutines wait and requests are not the reason, nobody is refused.
func TestBusyMachineRefusesNobody(t *testing.T) {
	h := new(hand)
	g := newGate(
		func() time.Duration { return h.now },
		func() waits { return waits{most: time.Second} },
	)
	for range 1000 {
		h.now += lookEvery
		if err := g.Enter("modest", Work{Cost: time.Millisecond / 2}); err != nil {
			t.Fatal(err)
		}
		g.Leave("modest")
	}
}
