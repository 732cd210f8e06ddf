package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Errors of a call that may have arrived or not. They must not wrap cluster.ErrUnsent.
var (
	errSilence = errors.New("sim: no answer came before the deadline")
	errBroken  = fmt.Errorf("sim: the peer died before it answered: %w", cluster.ErrGone)
)

// network is what lies between the machines: it delays, loses, doubles and reorders.
type network struct {
	lines [][]line      // from, to
	cuts  int           // of lines
	slow  time.Duration // that the slowest message of all has been on its way
	tally MessageReport
	// not in use
	letters []*letter
	frames  []*frame
}

// line is one way between two machines.
type line struct {
	cut  bool          // nothing passes
	last time.Duration // when the latest message so far arrives
	slow time.Duration // that the slowest message has been on its way
	more time.Duration // that it takes than others
}

func newNetwork(machines int) network {
	n := network{lines: make([][]line, machines)}
	for i := range n.lines {
		n.lines[i] = slices.Repeat([]line{{last: -warmUp}}, machines)
	}
	return n
}

// The three things that happen to a letter.
type (
	arriving letter // at the machine that it was sent to
	expiring letter // nobody waits for the answer any more
	// A delivery is what the machine does with one copy of it.
	delivery struct {
		letter   *letter
		process  *process // that reads it
		deadline limiter.Instant
		answer   *cluster.Answer
		own      cluster.Answer // what answer mostly is
	}
	answering delivery // the answer arrives where the letter came from
)

// lone is room for one item and its answer.
type lone struct {
	ask    [1]cluster.AskItem
	answer [1]cluster.AnswerItem
}

// reply is what a task waits for: the answers of all calls that it sent at once.
type reply struct {
	task    *task
	missing int
}

// Call sends every Ask to its peer and waits until each is answered or given up.
func (p *process) Call(calls []cluster.Call) {
	w := p.machine.world
	t := w.tasks.running
	t.reply = reply{task: t, missing: len(calls)}
	for i := range calls {
		l := w.network.letter()
		t.letters = append(t.letters, l)
		w.send(p, &calls[i], l, &t.reply)
	}
	if t.hearing != nil {
		t.hearing.asks = true
		w.judge.spread.sends(t.hearing, calls)
	}
	w.tasks.wait()
	if p.hears != nil {
		p.hears(calls)
	}
}

// Wait returns at until. Work takes no time in a world, so a node that rests as long as its work
// has taken rests for the time that a step of a look is said to take.
func (p *process) Wait(until limiter.Instant) {
	w := p.machine.world
	t := w.tasks.running
	at := max(w.now, p.time.when(until))
	if until <= p.now() {
		at = w.now + w.plan.table.look
	}
	h := t.hearing
	first := h != nil && h.began == w.now && !h.asks && !slices.Contains(h.decided, true)
	w.at(at, func() { p.do(t.enter) })
	w.tasks.wait()
	if first && p.machine.hasThawed(h.began) {
		p.states()
		w.judge.sees(h)
	}
}

func (w *world) send(p *process, c *cluster.Call, l *letter, r *reply) {
	l.from, l.to, l.boot, l.call, l.ask, l.reply = p, w.byID[c.To.ID], c.To.Boot, c, *c.Ask, r
	l.left, l.sent = time.Duration(c.Deadline-p.now()), w.now
	l.uses = 2 // the job that sends it, and the alarm
	if len(c.Ask.Items) == 1 {
		if l.lone == nil {
			l.lone = new(lone)
		}
		l.ask.Items = append(l.lone.ask[:0], c.Ask.Items...)
	} else {
		l.ask.Items = slices.Clone(c.Ask.Items)
	}
	// its keys lie in the frame that is being answered, and other copies of this may come when that
	// is gone
	if w.tasks.running.hearing == nil {
		for i := range l.ask.Items {
			l.ask.Items[i].Key = strings.Clone(l.ask.Items[i].Key)
		}
	}
	if d, passes := w.tasks.running.job.(*delivery); passes && c.Ask.For != 0 {
		l.origin = d.letter.sender()
		if c.Ask.Move != nil { // it lies in that frame as well
			l.ask.Move = c.Ask.Move.Clone()
		}
	}
	l.alarm = w.schedule.add(p.time.when(c.Deadline), (*expiring)(l))
	w.course.sent(askBytes(&l.ask))
	if w.liar != nil {
		l.ask.Move = w.liar.renumbered(p, &l.ask, l.to)
		w.liar.overhears(p, &l.ask, l.to)
	}
	l.uses += w.post(p.machine, l.to, (*arriving)(l))
}

func (e *expiring) happen() {
	l := (*letter)(e)
	l.alarm = nil
	l.close(nil, errSilence)
	l.drop()
}

// close settles l as soon as its sender can notice.
func (l *letter) close(answer *cluster.Answer, err error) {
	if p := l.from; p.machine.frozen {
		l.uses++
		p.do(func() {
			l.settle(answer, err)
			l.drop()
		})
	} else if !p.dead {
		l.settle(answer, err)
	}
}

// post carries a message from one machine to another, or loses it, or carries it twice: so many
// copies are under way.
func (w *world) post(from, to *machine, arrive happens) (copies int) {
	n, x := &w.network, &w.plan.weather
	line := &n.lines[from.index][to.index]
	n.tally.Sent++
	if line.cut || w.dice.Float64() < x.loss && !w.clear {
		n.tally.Lost++
		w.trace.add(happening{at: w.now, kind: loses, node: from, peer: to})
		return 0
	}
	w.trace.add(happening{at: w.now, kind: sends, node: from, peer: to})
	copies = 1
	if w.dice.Float64() < x.twice {
		copies = 2
		n.tally.Doubled++
		w.trace.add(happening{at: w.now, kind: doubles, node: from, peer: to})
	}
	for range copies {
		at := w.now + min(x.far, x.delay(w.dice)+line.more)
		if x.inOrder {
			at = max(at, line.last)
		} else if at < line.last {
			n.tally.Overtaken++
		}
		line.last = max(at, line.last)
		line.slow = max(line.slow, at-w.now)
		n.slow = max(n.slow, at-w.now)
		w.schedule.add(at, arrive)
	}
	return copies
}

// arrive hands the letter to whatever runs on the machine it was sent to.
func (a *arriving) happen() {
	l := (*letter)(a)
	w, p := l.from.machine.world, l.to.process
	switch {
	case l.void:
	case p == nil || p.boot != l.boot && l.boot != 0:
		l.turnAway()
	default:
		l.acted = true // from here on nobody can promise that it was not
		d := &l.first
		if d.letter != nil {
			d = new(delivery)
		}
		*d = delivery{letter: l, process: p, deadline: p.now().Add(l.left)}
		l.uses++ // until it is answered
		if !p.machine.frozen {
			d.begin()
			break
		}
		// it froze before it could read the letter: the time runs from when it does
		unread := w.dice.IntN(2) == 0
		p.do(func() {
			if unread {
				d.deadline = p.now().Add(l.left)
			}
			d.begin()
		})
	}
	l.drop()
}

// begin has the node answer.
func (d *delivery) begin() {
	ts := &d.process.machine.world.tasks
	if d.letter.ask.Waits() || d.letter.ask.GivesBack() {
		ts.start(d.process, d)
	} else {
		ts.direct(d.process, d)
	}
}

// turnAway tells the sender that nobody is at home.
func (l *letter) turnAway() {
	w := l.from.machine.world
	l.void = true
	w.trace.add(happening{at: w.now, kind: turnsAway, node: l.to, peer: l.from.machine})
	err := errBroken
	switch p := l.to.process; {
	case l.acted:
	case p != nil && cluster.SameProcess(ownership.Boot(l.boot), p.boot):
		// the sender knows a life of the process, and not where it listens: it cannot connect
		err = fmt.Errorf("sim: the address of %s is unknown: %w", l.to.id, cluster.ErrUnsent)
	default:
		err = fmt.Errorf("sim: %s is down: %w, %w", l.to.id, cluster.ErrUnsent, cluster.ErrGone)
		w.network.tally.Refused++
	}
	l.uses += w.post(l.to, l.from.machine, doing(func() {
		l.close(nil, err)
		l.drop()
	}))
}

// happen has the node answer, and sends the answer back. The keys that the node sees lie in a frame
// that is overwritten afterwards, as a real one is: a node that keeps them keeps garbage.
func (d *delivery) happen() {
	l, p := d.letter, d.process
	w := p.machine.world
	ask, erase := d.read()
	ask.Deadline = d.deadline
	answer := &d.own
	if p.door == door(threshold{p.node}) {
		if len(ask.Items) == 1 && d == &l.first {
			answer.Items = l.lone.answer[:0]
		}
		p.node.DeliverInto(ask, answer)
	} else {
		answer = p.door.Deliver(ask)
	}
	p.states()
	if l.lie {
		w.judge.lied(p)
	} else {
		w.judge.delivered(l.sender(), p, &l.ask, d.deadline, answer)
	}
	if ask.Waits() || p.node.MustNotify(ask, answer) {
		p.node.Confirm(ask, answer)
		p.states()
		w.judge.confirmed(p, &l.ask, answer)
	}
	erase()
	d.answer = l.written(answer)
	w.course.sent(answerBytes(answer))
	l.uses += w.post(p.machine, l.from.machine, (*answering)(d))
	l.drop()
}

// written is an answer as it comes back to its asker.
func (l *letter) written(a *cluster.Answer) *cluster.Answer {
	if l.from.wire == nil {
		return a
	}
	got, err := l.from.wire.Answer(a, len(l.ask.Items))
	if err != nil {
		panic(fmt.Sprintf("sim: an answer of %s to %s cannot be read: %v", l.to.id,
			l.from.machine.id, err))
	}
	return got
}

func (a *answering) happen() {
	a.letter.close(a.answer, nil)
	a.letter.drop()
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
		l.uses--
	}
	if l.call.Err = err; err == nil {
		l.call.Answer = answer
	} else if errors.Is(err, errSilence) {
		w.network.tally.TimedOut++
	}
	w.judge.settled(l, err == nil)
	if r.missing--; r.missing == 0 {
		r.task.enter()
	}
}

// cutOff keeps all messages from one machine to another; one way only.
func (w *world) cutOff(from, to *machine) { w.setLine(from, to, true) }

// mend lets them pass again.
func (w *world) mend(from, to *machine) { w.setLine(from, to, false) }

func (w *world) setLine(from, to *machine, cut bool) {
	l := &w.network.lines[from.index][to.index]
	if l.cut != cut {
		l.cut = cut
		w.judge.counted.linesChange()
		if cut {
			w.network.cuts++
		} else {
			w.network.cuts--
		}
	}
}

// apart reports whether nothing passes between two machines, at least one way.
func (n *network) apart(a, b *machine) bool {
	return n.lines[a.index][b.index].cut || n.lines[b.index][a.index].cut
}

// slowest is how long the slowest message of m has been on its way.
func (n *network) slowest(m *machine) (most time.Duration) {
	for i := range n.lines[m.index] {
		most = max(most, n.lines[m.index][i].slow)
	}
	return most
}

// reached is how many of the machines that are there m can speak with both ways, itself among them.
func (n *network) reached(m *machine, machines []*machine) (reached int) {
	for _, o := range machines {
		if o.process != nil && !n.lines[m.index][o.index].cut && !n.lines[o.index][m.index].cut {
			reached++
		}
	}
	return reached
}
