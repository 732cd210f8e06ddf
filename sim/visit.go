package sim

import (
	"errors"
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
	begun    int           // visits; with the next one its client hangs up on those before
	turned   time.Duration // when the last visit began
	terms    []term        // kept by the judge, one per item
	roams    bool          // its client goes to another node at once if one is down
	retry    retry         // what its client does when it is refused
	asked    []asking      // kept by the course, one per item
	slip     *slip         // that items are written on; nil if somebody else has them

	term [1]term   // what terms mostly are
	ask  [1]asking // and asked
}

// visit is one time that a client is at a node's door.
type visit struct {
	process  *process
	request  *request
	number   int           // of the request's visits, from 1 on
	came     time.Duration // to the door
	question cluster.Request
	out      []cluster.Decision
	hearing  hearing
}

// hungUp reports whether the client has gone on to another node meanwhile.
func (v *visit) hungUp() bool { return v.number < v.request.begun }

// hungUpBefore reports whether the client had gone on before then.
func (v *visit) hungUpBefore(then time.Duration) bool {
	return v.hungUp() && v.request.turned < then
}

// over has the process wait for v no more.
func (v *visit) over() {
	p := v.process
	i := slices.Index(p.visits, v.request)
	p.visits = slices.Delete(p.visits, i, i+1)
}

// free gives v to others, and its request if nothing is left of it.
func (v *visit) free() {
	c, r := &v.process.machine.world.callers, v.request
	c.visits = append(c.visits, v)
	if r.open == 0 {
		if c.requests = append(c.requests, r); r.slip != nil {
			c.slips = append(c.slips, r.slip)
		}
	}
}

func (v *visit) happen() {
	p, r := v.process, v.request
	w, began := p.machine.world, p.machine.world.now
	c := &w.callers
	q := &v.question
	q.Items = append(q.Items[:0], r.items...)
	c.told.rename(q.Items)
	q.Atomic, q.Deadline, q.HungUp = r.atomic, p.now().Add(r.patience), v.hungUp
	v.out = append(v.out[:0], make([]cluster.Decision, len(q.Items))...)
	h := &v.hearing
	w.judge.opened(h, v)
	task := w.tasks.running
	task.hearing = w.judge.seenFromInside(h)
	err := p.door.Check(q, v.out)
	task.hearing = nil
	p.states()
	if err == nil && !r.broken {
		c.told.hear(r, q.Items, v.out)
	}
	v.over()
	w.judge.closed(h, v.out, err)
	switch {
	case errors.Is(err, cluster.ErrHungUp), err == nil && v.hungUp() && h.givenUp():
		w.course.over(r)
	case errors.Is(err, cluster.ErrExpired):
		c.failed(r)
	case err == nil:
		c.answered(r, v.out, w.now-began)
	}
	clear(q.Items) // a node that keeps them keeps nothing
	clear(v.out)
	v.free()
}
