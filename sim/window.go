package sim

import (
	"math"
	"slices"
	"time"

	"penstock/limiter"
)

// A window bounds what was admitted for one key from outside, by what clients saw and nothing else.
// A client knows when it asked and when it heard yes; the decision was taken somewhere between. So
// for every instant a at which somebody asked and every later instant b at which somebody heard:
// what was asked after a and admitted before b was surely admitted between a and b, and must be at
// most what the limit supplies in that time,
//
//	admitted(a, b) ≤ capacity + supply(b) − supply(a) + refunds that overlap (a, b)
//
// Taking the earliest question and the latest answer makes the widest span, so there are no false
// alarms. All pairs are checked, in the order of b. For each a the left side minus everything known
// at a is kept as its load; the largest load is all that matters at b, and once every question
// before some instant is answered, what lies behind it gains the same from then on, so it is folded
// into one number. Work and memory follow the number of questions that are open, not of those ever
// asked.
type window struct {
	open     []question // oldest first
	folded   int        // questions before open
	load     int64      // the largest among the folded
	begun    int64      // refunds that somebody has asked for
	returned int64      // refunds that surely are over
}

type question struct {
	load     int64
	answered bool
}

func newWindow() window { return window{load: math.MinInt64 / 2} }

// ask opens a question at an instant at which supply had been supplied; its number closes it.
func (w *window) ask(supply int64) (number int) {
	w.open = append(w.open, question{load: supply + w.returned})
	return w.folded + len(w.open) - 1
}

// admit adds what a question was granted.
func (w *window) admit(number int, amount int64) {
	w.load += amount
	for i := range w.open[:number-w.folded+1] {
		w.open[i].load += amount
	}
}

// answer closes a question.
func (w *window) answer(number int) {
	w.open[number-w.folded].answered = true
	done := 0
	for done < len(w.open) && w.open[done].answered {
		w.load = max(w.load, w.open[done].load)
		done++
	}
	w.open = slices.Delete(w.open, 0, done)
	w.folded += done
}

// excess is by how much the worst span that ends now exceeds what was supplied in it; 0 or less is
// well.
func (w *window) excess(capacity, supply int64) int64 {
	load := w.load
	for i := range w.open {
		load = max(load, w.open[i].load)
	}
	return load - capacity - supply - w.begun
}

// curve is what a limit supplies over time, in parts: a unit is worth unit parts.
type curve struct {
	unit     int64
	capacity int64
	rate     int64         // parts per nanosecond; 0 for windows that are aligned
	per      time.Duration // of aligned windows
	each     int64         // what one of them supplies when it begins
	// of windows of a calendar: when they begin; nil if several clocks have a say in that
	turns *turns
}

// turns are the windows of a calendar, counted as a clock goes by.
type turns struct {
	spec *limiter.Spec
	end  limiter.Instant // of the last one
	n    int64
}

// until is how many have ended.
func (x *turns) until(start, t limiter.Instant) int64 {
	if x.end == 0 {
		_, x.end = calendarWindow(x.spec, start)
	}
	for ; t >= x.end; x.n++ {
		_, x.end = calendarWindow(x.spec, x.end)
	}
	return x.n
}

// shortest is about how long a window of a calendar lasts at least, where clocks are set meanwhile.
func shortest(c limiter.Calendar) time.Duration {
	switch c {
	case limiter.Minutes:
		return time.Minute
	case limiter.Hours: // some clocks are set by half an hour
		return 30 * time.Minute
	}
	return c.Per() * 7 / 8
}

// curveOf is the supply of a single limiter: a bucket's burst and its refill; one limit for every
// window that a span touches. A window that opens at the first hit can lie anywhere, and a span can
// touch one more than fit into it. So can aligned windows, once several clocks have a say in where
// they begin.
func curveOf(s *limiter.Spec, clocks int) curve {
	flows := curve{unit: int64(s.Per), capacity: s.Limit * int64(s.Per), rate: s.Limit}
	switch s.Algorithm {
	case limiter.GCRA:
		flows.capacity = s.Burst * int64(s.Per)
		return flows
	case limiter.LeakyBucket:
		flows.capacity = (s.Burst + 1) * int64(s.Per)
		return flows
	case limiter.SlidingLog:
		return flows
	case limiter.TokenBucket:
		flows.capacity = (s.Limit + s.Refill) * int64(s.Per)
		flows.rate = s.Refill
		return flows
	case limiter.SlidingCounter:
		if s.Lenient || clocks > 1 {
			flows.capacity *= 2
			flows.rate *= 2
		}
		return flows
	}
	windows := curve{unit: 1, capacity: s.Limit, per: s.Per, each: s.Limit}
	switch {
	case s.Calendar != 0 && clocks > 1:
		windows.capacity *= 2
		windows.per = shortest(s.Calendar)
		return windows
	case s.Calendar != 0:
		windows.turns = &turns{spec: s}
		return windows
	case s.Anchor == limiter.FirstHit || clocks > 1:
		flows.capacity *= 2
		return flows
	}
	return windows
}

// supply is all that was supplied until the decider's clock showed t.
func (c *curve) supply(start, t limiter.Instant) int64 {
	if c.per == 0 {
		return c.rate * int64(t-start)
	}
	if c.turns != nil {
		return c.each * c.turns.until(start, t)
	}
	return c.each * (int64(aligned(t, c.per)-aligned(start, c.per)) / int64(c.per))
}

// spareCurve is what the shares of n nodes supply together, if bound is what they claim to add at
// most. The nodes' clocks differ, so aligned windows may begin at any time; and run up to 0.2 %
// fast.
func spareCurve(s *limiter.Spec, n int, bound int64) curve {
	own := share(s, n)
	c := curveOf(own, max(2, n))
	c.rate *= int64(n)
	c.each *= int64(n)
	if s.Algorithm == limiter.TokenBucket {
		c.capacity = (bound + int64(n)*own.Refill) * int64(s.Per)
	} else {
		c.capacity = bound * c.unit * (c.capacity / (capacityOf(own) * c.unit))
	}
	return c
}

// capacityOf is the most that s admits at once.
func capacityOf(s *limiter.Spec) int64 {
	switch s.Algorithm {
	case limiter.GCRA:
		return s.Burst
	case limiter.LeakyBucket:
		return s.Burst + 1
	}
	return s.Limit
}

// forgive grants an amount at this very instant.
func (w *window) forgive(amount int64) {
	w.begun += amount
	w.returned += amount
}
