package sim

import (
	"slices"
	"time"

	"penstock/limiter"
)

// What becomes of windows that are aligned to a clock when their key comes to another one.

// carryWindows lays the loose reference on the clock of p. Windows begin by the clock of the
// process that decides; the most generous that a new one can be is to count as if it had decided
// all along. laid says that others may have had the key in between, on their clocks.
func (j *carrier) carryWindows(a *account, from, p *process, laid bool) {
	r, s, at := &a.reference, a.spec, p.now()
	apart := time.Duration(at - from.now())
	drift := j.drift(r)
	switch {
	case s.Algorithm == limiter.TokenBucket && !laid:
		r.loose.shift(apart-drift, at)
		r.loose.mark = aligned(r.loose.mark, s.Per)
	case !laid && comesWhole(s, apart, j.carriage()):
		// What was charged in the window in force counts here, where it lies in that of this clock.
		begun := aligned(from.now(), s.Per)
		r.past = slices.DeleteFunc(r.past, func(x charged) bool {
			return x.cost > 0 && from.time.at(x.at) < begun
		})
		r.loose = naiveState{}
		for _, x := range r.past {
			r.loose.charge(p.time.at(x.at), s, x.cost)
		}
	case !laid && apart.Abs() > inStep && s.Algorithm == limiter.SlidingCounter:
		r.loose.shift(apart-drift, at)
		for i := range r.loose.counts { // on a boundary near that, and never before this one
			c := &r.loose.counts[i]
			c.begin = aligned(c.begin, s.Per/time.Duration(s.Buckets))
		}
	case apart.Abs() > inStep || laid: // a window may have ended there that would go on here
		if !asNew(&r.loose, from.now(), s) {
			j.allowed.used[windowAnew]++
		}
		r.loose = naiveState{}
		// copies may still not know what was given back
		r.past = slices.DeleteFunc(r.past, func(x charged) bool { return x.cost > 0 })
		r.cut = j.world.now
	default:
		r.loose = naiveState{}
		for _, x := range r.past {
			// It lies in the window on the charging process's clock, which may have been a little
			// behind.
			r.loose.charge(min(p.time.at(x.at), x.own), s, x.cost)
		}
	}
}

// outlive has the strict reference count what a copy that p has kept may count: a window of it may
// end later than it did on the clock of the process that charged, by as much as a window.
func (r *reference) outlive(s *limiter.Spec, p *process) {
	longer, now := s.Per, p.now()
	if s.Algorithm == limiter.SlidingCounter {
		longer /= time.Duration(s.Buckets)
	}
	var copied naiveState
	for _, x := range r.past {
		if t := p.time.at(x.at).Add(longer); x.cost > 0 && t.Add(forgets(s)) > now {
			copied.charge(min(t, now), s, x.cost)
		}
	}
	r.strict.merge(&copied, now, s)
}

// laying is when what is kept of a partition was last laid on a clock that is out of step with the
// one before, and from which process to which.
type laying struct {
	from, to *process
	last     time.Duration
	other    time.Duration // when it last was between two others
}

func (l *laying) add(from, to *process, now time.Duration) {
	if l.from != from || l.to != to {
		l.from, l.to, l.other = from, to, l.last
	}
	l.last = now
}

// beside is when it was last laid on another clock, but for that of to, coming from from.
func (l *laying) beside(from, to *process) time.Duration {
	if l.from == from && l.to == to {
		return l.other
	}
	return l.last
}

// beginsEarlier is how much earlier the windows of s begin on a clock that is so far ahead. One
// that is behind has them begin earlier as well, by what is left of a window, unless that is so
// much that the two share boundaries: then they begin a little later.
func beginsEarlier(s *limiter.Spec, apart time.Duration) time.Duration {
	part := apart % s.Per
	switch {
	case apart.Abs() <= inStep:
		return 0
	case part >= 0 || s.Calendar != 0:
		return max(0, part)
	case -part <= min(time.Second, s.Per/8):
		return 0
	}
	return part + s.Per
}

// comesWhole reports whether a window of s that is in force on one clock goes on, with all that it
// counts, on another one that is so far ahead: the two are not in step (limiter's landWindow).
func comesWhole(s *limiter.Spec, apart, way time.Duration) bool {
	aligned := s.Algorithm == limiter.SlidingWindow || s.Algorithm == limiter.FixedWindow &&
		s.Anchor == limiter.Epoch
	part := (apart%s.Per + s.Per) % s.Per
	return aligned && s.Calendar == 0 && min(part, s.Per-part) > min(time.Second, s.Per/8)+way
}
