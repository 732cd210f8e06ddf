package sim

import "time"

// schedule is what will happen: a heap of events, earliest first, and first come first served within one instant.
// That order, and nothing else, decides what happens next in a world.
type schedule struct {
	heap []*event
	seq  uint64   // of the last event added
	free []*event // events that are over, to be used again
}

// event is something that happens to the world at an instant.
type event struct {
	at    time.Duration // since the world began
	seq   uint64
	run   func()
	index int // in heap, or -1
}

func (s *schedule) add(at time.Duration, run func()) *event {
	s.seq++
	var e *event
	if n := len(s.free); n > 0 {
		e, s.free = s.free[n-1], s.free[:n-1]
	} else {
		e = new(event)
	}
	*e = event{at: at, seq: s.seq, run: run, index: len(s.heap)}
	s.heap = append(s.heap, e)
	s.up(e.index)
	return e
}

// next takes the earliest event out; false if there is none.
func (s *schedule) next() (at time.Duration, run func(), ok bool) {
	if len(s.heap) == 0 {
		return 0, nil, false
	}
	e := s.heap[0]
	at, run = e.at, e.run
	s.remove(e)
	return at, run, true
}

// remove takes e out before its time. e must be in the schedule, and must not be used afterwards.
func (s *schedule) remove(e *event) {
	i, last := e.index, len(s.heap)-1
	s.swap(i, last)
	s.heap = s.heap[:last]
	if i < last {
		s.up(i)
		s.down(i)
	}
	*e = event{index: -1}
	s.free = append(s.free, e)
}

func (s *schedule) before(i, k int) bool {
	a, b := s.heap[i], s.heap[k]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (s *schedule) swap(i, k int) {
	s.heap[i], s.heap[k] = s.heap[k], s.heap[i]
	s.heap[i].index, s.heap[k].index = i, k
}

func (s *schedule) up(i int) {
	for i > 0 && s.before(i, (i-1)/2) {
		s.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (s *schedule) down(i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(s.heap) && s.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}
