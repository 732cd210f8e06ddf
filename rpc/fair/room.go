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

// look adapts the room to how long goroutines have waited for a processor since the last look.
// What is under way is what made them wait, so the room shrinks from there.
func (g *Gate) look() {
	now := g.now()
	if now-time.Duration(g.looked.Load()) < lookEvery {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	since := now - time.Duration(g.looked.Load())
	if since < lookEvery {
		return
	}
	g.looked.Store(int64(now))
	idle := since >= time.Second
	switch waited := g.waited(); {
	case idle:
		g.room = mostRoom
	case waited > mostWait && g.room == mostRoom:
		// from now on all are counted; the next look knows how many there are
		g.room = mostRoom * 7 / 8
	case waited > mostWait:
		g.room = max(leastRoom, min(g.room, g.used)*7/8)
	default:
		g.room = min(mostRoom, g.room+g.room/16+1)
	}
	g.busy.Store(g.room < mostRoom)
}

// scheduler reads how long goroutines wait between being ready and running.
type scheduler struct {
	sample []metrics.Sample
	before []uint64
}

func newScheduler() *scheduler {
	s := &scheduler{sample: []metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	s.waited()
	return s
}

// waited is the median since the last call.
func (s *scheduler) waited() time.Duration {
	metrics.Read(s.sample)
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := s.sample[0].Value.Float64Histogram()
	median := medianSince(s.before, h)
	s.before = append(s.before[:0], h.Counts...)
	return median
}

// medianSince is the upper bound of the bucket with the median of what h has more than before.
func medianSince(before []uint64, h *metrics.Float64Histogram) time.Duration {
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
		if seen += grown(i); all > 0 && 2*seen >= all {
			upper := h.Buckets[i+1]
			if upper > 1e3 { // the last bucket has no end
				upper = h.Buckets[i]
			}
			return time.Duration(upper * float64(time.Second))
		}
	}
	return 0
}
