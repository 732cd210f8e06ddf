package fair

import (
	"runtime/metrics"
	"time"
)

const (
	// lookEvery is how often the room is adapted, while there are requests.
	lookEvery = 20 * time.Millisecond
	// mostWait is the wait of the median goroutine beyond which the room shrinks. A processor runs
	// some hundred short goroutines in that time.
	mostWait = time.Millisecond
)

// look adapts the room and the shares to how long goroutines have waited for a processor since the
// last look, and returns the time. What is under way is what made them wait, so the room shrinks
// from there.
func (g *Gate) look() time.Duration {
	now := g.now()
	if now-time.Duration(g.looked.Load()) < lookEvery {
		return now
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	since := now - time.Duration(g.looked.Load())
	if since < lookEvery {
		return now
	}
	g.looked.Store(int64(now))
	idle := since >= time.Second
	waited := g.waited()
	switch {
	case idle:
		g.room = mostRoom
	case waited.median > mostWait && g.room == mostRoom:
		// from now on all are counted; the next look knows how many there are
		g.room = mostRoom * 7 / 8
	case waited.median > mostWait:
		g.room = max(leastRoom, min(g.room, g.used)*7/8)
	default:
		g.room = min(mostRoom, g.room+g.room/16+1)
	}
	g.shares.look(now, waited.most)
	g.busy.Store(g.room < mostRoom || g.shares.phase != calm)
	return now
}

// waits are how long goroutines have waited between being ready and running.
type waits struct {
	median time.Duration
	most   time.Duration // of nine in ten. Of the goroutines of a request, one waits in line
}

// scheduler reads waits of this process.
type scheduler struct {
	sample []metrics.Sample
	before []uint64
}

func newScheduler() *scheduler {
	s := &scheduler{sample: []metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	s.waited()
	return s
}

// waited are the waits since the last call.
func (s *scheduler) waited() waits {
	metrics.Read(s.sample)
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return waits{}
	}
	h := s.sample[0].Value.Float64Histogram()
	w := waits{quantileSince(s.before, h, 0.5), quantileSince(s.before, h, 0.9)}
	s.before = append(s.before[:0], h.Counts...)
	return w
}

// quantileSince is the upper bound of the bucket with the quantile q of what h has more than
// before.
func quantileSince(before []uint64, h *metrics.Float64Histogram, q float64) time.Duration {
	grown := func(i int) uint64 {
		if i < len(before) {
			return h.Counts[i] - before[i]
		}
		return h.Counts[i]
	}
	all := uint64(0)
	for i := range h.Counts {
		all += grown(i)
	}
	seen := uint64(0)
	for i := range h.Counts {
		if seen += grown(i); all > 0 && float64(seen) >= q*float64(all) {
			upper := h.Buckets[i+1]
			if upper > 1e3 { // the last bucket has no end
				upper = h.Buckets[i]
			}
			return time.Duration(upper * float64(time.Second))
		}
	}
	return 0
}
