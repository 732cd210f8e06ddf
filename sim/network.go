package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"penstock/cluster"
)

// Errors of a call whose fate its caller does not know. They must not wrap cluster.ErrUnsent.
var (
	errSilence = errors.New("sim: no answer came before the deadline")
	errBroken  = errors.New("sim: the peer died before it answered")
)

// network is what lies between the machines: it delays, loses, doubles and reorders.
type network struct {
	cut   map[[2]int]bool          // from, to: nothing passes in this direction
	last  map[[2]int]time.Duration // arrival of the last message, where a line keeps order
	tally MessageReport
}

// letter is one Ask on its way there and back.
type letter struct {
	from  *process
	to    *machine
	call  *cluster.Call
	ask   cluster.Ask   // as it was when it was sent
	left  time.Duration // until the deadline, when it was sent: clocks differ, so this is what travels
	sent  time.Duration
	acted bool   // some copy of it was delivered
	void  bool   // some copy of it was turned away: the line is broken, no other copy arrives
	alarm *event // at the deadline; nil once the call is settled
	reply *reply
}

// reply is what a task waits for: the answers of all calls that it sent at once.
type reply struct {
	task    *task
	missing int
}

// Call sends every Ask to its peer and waits until each is answered or given up.
func (p *process) Call(calls []cluster.Call) {
	w := p.machine.world
	r := &reply{task: w.tasks.running, missing: len(calls)}
	for i := range calls {
		w.send(p, &calls[i], r)
	}
	w.tasks.wait()
}

func (w *world) send(p *process, c *cluster.Call, r *reply) {
	l := &letter{from: p, to: w.byID[c.To.ID], call: c, ask: *c.Ask, left: time.Duration(c.Deadline - p.Now()), sent: w.now, reply: r}
	l.ask.Items = slices.Clone(c.Ask.Items)
	l.alarm = w.at(p.machine.clock.when(c.Deadline), func() {
		l.alarm = nil
		p.do(func() { l.settle(nil, errSilence) })
	})
	w.post(p.machine, l.to, l.arrive)
}

// post carries a message from one machine to another, or loses it, or carries it twice.
func (w *world) post(from, to *machine, arrive func()) {
	n, x := &w.network, &w.plan.weather
	line := [2]int{from.index, to.index}
	n.tally.Sent++
	if n.cut[line] || w.dice.Float64() < x.loss {
		n.tally.Lost++
		w.trace.add(happening{at: w.now, kind: loses, node: from, peer: to})
		return
	}
	w.trace.add(happening{at: w.now, kind: sends, node: from, peer: to})
	copies := 1
	if w.dice.Float64() < x.twice {
		copies = 2
		n.tally.Doubled++
		w.trace.add(happening{at: w.now, kind: doubles, node: from, peer: to})
	}
	for range copies {
		at := w.now + x.delay(w.dice)
		if x.inOrder {
			at = max(at, n.last[line])
		} else if at < n.last[line] {
			n.tally.Overtaken++
		}
		n.last[line] = max(at, n.last[line])
		w.at(at, arrive)
	}
}

// arrive hands the letter to whatever runs on the machine it was sent to.
func (l *letter) arrive() {
	w, p := l.from.machine.world, l.to.process
	switch {
	case l.void:
	case p == nil || p.boot != l.call.To.Boot:
		l.turnAway()
	default:
		l.acted = true // from here on nobody can promise that it was not
		p.do(func() { w.tasks.start(p, func() { l.deliver(p) }) })
	}
}

// turnAway tells the sender that nobody is at home.
func (l *letter) turnAway() {
	w := l.from.machine.world
	l.void = true
	w.trace.add(happening{at: w.now, kind: turnsAway, node: l.to, peer: l.from.machine})
	err := errBroken
	if !l.acted {
		err = fmt.Errorf("sim: %s is down: %w", l.to.id, cluster.ErrUnsent)
		w.network.tally.Refused++
	}
	w.at(w.now+w.plan.weather.delay(w.dice), func() {
		l.from.do(func() { l.settle(nil, err) })
	})
}

// deliver has the node answer, and sends the answer back. The keys that the node sees lie in a frame that is
// overwritten afterwards, as a real one is: a node that keeps them keeps garbage.
func (l *letter) deliver(p *process) {
	w := p.machine.world
	f := w.frame()
	ask := f.read(&l.ask, p)
	ask.Deadline = p.Now().Add(l.left)
	answer := p.door.Deliver(ask)
	f.erase()
	w.judge.delivered(p, &l.ask, ask.Deadline, answer)
	w.post(p.machine, l.from.machine, func() {
		l.from.do(func() { l.settle(answer, nil) })
	})
}

// settle ends the call; the last one of a reply lets the task go on.
func (l *letter) settle(answer *cluster.Answer, err error) {
	if l.reply == nil {
		return
	}
	w, r := l.from.machine.world, l.reply
	l.reply = nil
	if l.alarm != nil {
		w.schedule.remove(l.alarm)
		l.alarm = nil
	}
	w.judge.settled(l, err == nil)
	if l.call.Err = err; err == nil {
		l.call.Answer = answer
	} else if errors.Is(err, errSilence) {
		w.network.tally.TimedOut++
	}
	if r.missing--; r.missing == 0 {
		r.task.enter()
	}
}

// frame is the buffer that a peer's message is read into.
type frame struct {
	world *world
	bytes []byte
	items []cluster.AskItem
}

func (w *world) frame() *frame {
	n := len(w.frames)
	if n == 0 {
		return &frame{world: w}
	}
	f := w.frames[n-1]
	w.frames = w.frames[:n-1]
	return f
}

// read copies a into the frame, as the process that it reached sees it.
func (f *frame) read(a *cluster.Ask, p *process) *cluster.Ask {
	size := 0
	for i := range a.Items {
		size += len(a.Items[i].Key)
	}
	f.bytes = slices.Grow(f.bytes[:0], size) // never moves while keys point into it
	f.items = f.items[:0]
	for _, it := range a.Items {
		start := len(f.bytes)
		f.bytes = append(f.bytes, it.Key...)
		it.Key = unsafe.String(unsafe.SliceData(f.bytes[start:]), len(it.Key))
		it.Limit = p.limit(it.Limit)
		f.items = append(f.items, it)
	}
	ask := *a
	ask.Items = f.items
	return &ask
}

func (f *frame) erase() {
	for i := range f.bytes {
		f.bytes[i] = '#'
	}
	clear(f.items)
	f.world.frames = append(f.world.frames, f)
}

// cutOff keeps all messages from one machine to another; one way only.
func (w *world) cutOff(from, to *machine) { w.network.cut[[2]int{from.index, to.index}] = true }

// mend lets them pass again.
func (w *world) mend(from, to *machine) { delete(w.network.cut, [2]int{from.index, to.index}) }
