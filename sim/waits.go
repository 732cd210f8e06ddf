package sim

import (
	"math"
	"time"
)

// waits counts how long clients have waited, in as much memory for a year as for a second: to the
// µs below finest, and to the ms beyond.
type waits struct {
	n      int
	most   time.Duration
	fine   []uint32 // by µs
	coarse []uint32 // by ms
}

const (
	finest   = 1 << 16 // µs
	coarsest = 1 << 16 // ms
)

func (w *waits) add(took time.Duration) {
	w.n++
	w.most = max(w.most, took)
	if us := int(took / time.Microsecond); us < finest {
		w.fine = counted(w.fine, us, 1)
	} else {
		w.coarse = counted(w.coarse, min(us/1000, coarsest), 1)
	}
}

// reset forgets all, and keeps the memory.
func (w *waits) reset() { *w = waits{fine: w.fine[:0], coarse: w.coarse[:0]} }

// counted is counts with n more at i.
func counted(counts []uint32, i int, n uint32) []uint32 {
	if i >= len(counts) {
		counts = append(counts, make([]uint32, i+1-len(counts))...)
	}
	counts[i] += n
	return counts
}

func (w *waits) addAll(o *waits) {
	w.n += o.n
	w.most = max(w.most, o.most)
	for i, n := range o.fine {
		w.fine = counted(w.fine, i, n)
	}
	for i, n := range o.coarse {
		w.coarse = counted(w.coarse, i, n)
	}
}

// quantiles are the median, the 99th percentile and the longest, in ms.
func (w *waits) quantiles() (p50, p99, most float64) {
	if w.n == 0 {
		return 0, 0, 0
	}
	return w.quantile(0.50), w.quantile(0.99), float64(w.most/time.Microsecond) / 1000
}

func (w *waits) quantile(q float64) float64 {
	left := int(math.Ceil(q * float64(w.n)))
	for us, n := range w.fine {
		if left -= int(n); left <= 0 {
			return float64(us) / 1000
		}
	}
	for ms, n := range w.coarse {
		if left -= int(n); left <= 0 {
			return min(float64(ms+1), float64(w.most/time.Microsecond)/1000)
		}
	}
	panic("sim: more waits than were counted")
}
