package sim

import (
	"slices"
	"time"

	"penstock/cluster"
)

// request is what a client asks, once or several times under the same IDs.
type request struct {
	items    []cluster.Item
	atomic   bool
	broken   bool          // has to be refused
	patience time.Duration // from the question to the deadline, on the node's clock
	open     int           // visits that are not over
	terms    []term        // kept by the judge, one per item
	roams    bool          // its client goes to another node at once if one is down
	retry    retry         // what its client does when it is refused
	asked    []asking      // kept by the course, one per item
	slip     *slip         // that items are written on; nil if somebody else has them

	term [1]term   // what terms mostly are
	ask  [1]asking // and asked
}

// visit has a client bring r to m. last says that nothing else is left of the event.
func (w *world) visit(m *machine, r *request, last bool) {
	if r.roams {
		m = w.roam(m)
	}
	if m.process == nil || m.process.closed {
		w.trace.add(happening{at: w.now, kind: absent, node: m})
		w.judge.requests.Absent++
		w.judge.left(r)
		w.failed(r)
		return
	}
	p := m.process
	p.visits = append(p.visits, r)
	var v *visit
	if n := len(w.visits); n > 0 {
		v, w.visits = w.visits[n-1], w.visits[:n-1]
	} else {
		v = new(visit)
	}
	v.process, v.request = p, r
	switch {
	case p.machine.frozen:
		p.do(func() { w.tasks.start(p, v) })
	case last:
		w.tasks.last(p, v)
	default:
		w.tasks.start(p, v)
	}
}

// visit is one time that a client is at a node's door.
type visit struct {
	process  *process
	request  *request
	question cluster.Request
	out      []cluster.Decision
	hearing  hearing
}

func (v *visit) happen() {
	p, r := v.process, v.request
	w, began := p.machine.world, p.machine.world.now
	q := &v.question
	q.Items = append(q.Items[:0], r.items...)
	w.told.rename(q.Items)
	q.Atomic, q.Deadline = r.atomic, p.now().Add(r.patience)
	v.out = append(v.out[:0], make([]cluster.Decision, len(q.Items))...)
	h := &v.hearing
	w.judge.opened(h, p, r, q, v.out)
	task := w.tasks.running
	task.hearing = w.judge.seenFromInside(h)
	err := p.door.Check(q, v.out)
	task.hearing = nil
	p.states()
	if err == nil && !r.broken {
		w.told.hear(r, q.Items, v.out)
	}
	i := slices.Index(p.visits, r)
	p.visits = slices.Delete(p.visits, i, i+1)
	w.judge.closed(h, v.out, err)
	if err == nil {
		w.answered(r, v.out, w.now-began)
	}
	clear(q.Items) // a node that keeps them keeps nothing
	clear(v.out)
	w.visits = append(w.visits, v)
	if r.open == 0 {
		if w.requests = append(w.requests, r); r.slip != nil {
			w.slips = append(w.slips, r.slip)
		}
	}
}
