package sim

import "time"

// schedule is what will happen: a heap of events, earliest first, and first come first served
// within one instant. That order, and nothing else, decides what happens next in a world.
type schedule struct {
	heap []place
	seq  uint64   // of the last event added
	free []*event // events that are over, to be used again
}

// happens is something that can happen. Whatever is on its way already is put into the schedule as
// it is; the rest as a function.
type happens interface{ happen() }

type doing func()

func (f doing) happen() { f() }

// place is where an event stands in the heap, with all that its order depends on.
type place struct {
	at    time.Duration // since the world began
	seq   uint64
	event *event
}

// event is something that happens to the world at an instant.
type event struct {
	what  happens
	index int // in heap, or -1
}

func (s *schedule) add(at time.Duration, what happens) *event {
	s.seq++
	var e *event
	if n := len(s.free); n > 0 {
		e, s.free = s.free[n-1], s.free[:n-1]
	} else {
		e = new(event)
	}
	e.what = what
	s.heap = append(s.heap, place{})
	s.up(len(s.heap)-1, place{at, s.seq, e})
	return e
}

// next takes the earliest event out; false if there is none.
func (s *schedule) next() (at time.Duration, what happens, ok bool) {
	if len(s.heap) == 0 {
		return 0, nil, false
	}
	e := s.heap[0].event
	at, what = s.heap[0].at, e.what
	s.remove(e)
	return at, what, true
}

// remove takes e out before its time. e must be in the schedule, and must not be used afterwards.
func (s *schedule) remove(e *event) {
	i, last := e.index, len(s.heap)-1
	moved := s.heap[last]
	s.heap = s.heap[:last]
	if i < last {
		s.down(i, moved)
		s.up(moved.event.index, moved)
	}
	*e = event{index: -1}
	if len(s.free) < keptEvents+len(s.heap)/4 {
		s.free = append(s.free, e)
	}
	if c := cap(s.heap); c > keptEvents && last < c/8 { // there was a rush, and it is over
		s.heap = append(make([]place, 0, c/4), s.heap...)
	}
}

// keptEvents is how many places and events are kept for what comes, whatever is under way.
const keptEvents = 4096

func (p *place) before(o *place) bool { return p.at < o.at || p.at == o.at && p.seq < o.seq }

func (s *schedule) put(i int, p place) {
	s.heap[i] = p
	p.event.index = i
}

// up puts p at i, or where it belongs above that.
func (s *schedule) up(i int, p place) {
	for i > 0 && p.before(&s.heap[(i-1)/arity]) {
		s.put(i, s.heap[(i-1)/arity])
		i = (i - 1) / arity
	}
	s.put(i, p)
}

// down puts p at i, or where it belongs below that.
func (s *schedule) down(i int, p place) {
	for {
		least, at := &p, i
		for child := arity*i + 1; child <= arity*i+arity && child < len(s.heap); child++ {
			if s.heap[child].before(least) {
				least, at = &s.heap[child], child
			}
		}
		if at == i {
			s.put(i, p)
			return
		}
		s.put(i, *least)
		i = at
	}
}

// arity is how many events stand below one in the heap: of four, one line of the processor's cache
// has most.
const arity = 4
