package sim

import (
	"time"

	"penstock/cluster"
)

// callers are the clients of a world while they ask: they bring requests to nodes, hear what those
// answer, and may try again.
type callers struct {
	world   *world
	coming  awaited      // the next request
	drawing source       // of the next request, before the next event
	told    reservations // what clients have heard
	// not in use
	visits   []*visit
	requests []*request
	slips    []*slip
}

// goOn waits for the request after the one that has just come, if one has.
func (c *callers) goOn() {
	if from := c.drawing; from != nil {
		c.drawing = nil
		c.await(from)
	}
}

// await waits for the next request; after the last one the world comes to rest.
func (c *callers) await(from source) {
	c.coming.callers, c.coming.from = c, from
	if !from.next(&c.coming.next) {
		c.world.rest()
		return
	}
	c.world.schedule.add(c.coming.next.at, &c.coming)
}

// awaited is the next request, when its time has come.
type awaited struct {
	callers *callers
	from    source
	next    arrival
}

func (a *awaited) happen() {
	a.callers.drawing = a.from
	a.callers.arrive(&a.next)
}

// arrive has the nodes that a names hear of it.
func (c *callers) arrive(a *arrival) {
	w := c.world
	if !c.told.follows(a) {
		return
	}
	var r *request
	if n := len(c.requests); n > 0 {
		r, c.requests = c.requests[n-1], c.requests[:n-1]
	} else {
		r = new(request)
	}
	*r = request{
		items: a.items, atomic: a.atomic, broken: a.broken, patience: a.patience,
		open: len(a.calls), roams: a.roams, retry: a.retry, slip: a.slip,
	}
	w.judge.posed(r)
	w.course.posed(r)
	for i, call := range a.calls {
		if m := w.machines[call.node]; call.after == 0 {
			c.visit(m, r, i == len(a.calls)-1)
		} else {
			c.visitLater(m, r, call.after)
		}
	}
}

func (c *callers) visitLater(m *machine, r *request, after time.Duration) {
	c.world.at(c.world.now+after, func() { c.visit(m, r, true) })
}

// roam is the machine at which a client ends up that begins at m and goes on from one to the next
// until one is up.
func (c *callers) roam(m *machine) *machine {
	w := c.world
	for i := range w.machines {
		if next := w.machines[(m.index+i)%len(w.machines)]; next.process != nil {
			return next
		}
	}
	return m
}

// answered is what a client does when it hears.
func (c *callers) answered(r *request, out []cluster.Decision, took time.Duration) {
	c.world.course.heard(r, out, took)
	for i := range out {
		if !out[i].Allowed {
			c.retry(r)
			return
		}
	}
}

// failed is what it does when it will not.
func (c *callers) failed(r *request) {
	c.world.course.missed(r)
	c.retry(r)
}

// retry has the client of r try again some time later, if it is one that does: at any node, as a
// request of its own.
func (c *callers) retry(r *request) {
	if r.retry.times == 0 {
		return
	}
	w := c.world
	again := arrival{
		items: r.items, atomic: r.atomic, patience: r.patience, roams: r.roams,
		retry: retry{r.retry.times - 1, r.retry.after},
		calls: []calling{{node: w.dice.IntN(len(w.machines))}},
	}
	w.at(w.now+r.retry.after, func() { c.arrive(&again) })
}

// visit has a client bring r to m. last says that nothing else is left of the event.
func (c *callers) visit(m *machine, r *request, last bool) {
	w := c.world
	if r.roams {
		m = c.roam(m)
	}
	if m.process == nil || m.process.closed {
		w.trace.add(happening{at: w.now, kind: absent, node: m})
		w.judge.requests.Absent++
		w.judge.left(r)
		c.failed(r)
		return
	}
	p := m.process
	p.visits = append(p.visits, r)
	var v *visit
	if n := len(c.visits); n > 0 {
		v, c.visits = c.visits[n-1], c.visits[:n-1]
	} else {
		v = new(visit)
	}
	r.begun, r.turned = r.begun+1, w.now
	v.process, v.request, v.number, v.came = p, r, r.begun, w.now
	switch {
	case p.machine.frozen:
		p.do(func() { w.tasks.start(p, v) })
	case last:
		w.tasks.last(p, v)
	default:
		w.tasks.start(p, v)
	}
}
