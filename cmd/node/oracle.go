package main

import (
	"math/bits"
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// oracle knows the most that one limiter, alone and never wrong, would have admitted. It counts
// what the cluster admitted of each key and compares. Its keys must be new when the run begins.
type oracle struct {
	limit    *limiter.Limit
	cost     int64          // of every check
	offered  []atomic.Int64 // units asked for and decided, by key
	admitted []atomic.Int64 // units allowed, by key
}

func newOracle(l *limiter.Limit, cost int64, keys int) *oracle {
	return &oracle{
		limit: l, cost: cost, offered: make([]atomic.Int64, keys),
		admitted: make([]atomic.Int64, keys),
	}
}

func (o *oracle) count(key int, allowed bool) {
	o.offered[key].Add(o.cost)
	if allowed {
		o.admitted[key].Add(o.cost)
	}
}

// verdict is the oracle's finding over all keys.
type verdict struct {
	Exact    bool   `json:"exact"`
	Admitted int64  `json:"admitted"`
	Bound    int64  `json:"bound"` // most that may be admitted of all keys that were asked for
	Extra    int64  `json:"extra"` // admitted beyond the bound, added up key by key
	Keys     int    `json:"keys"`  // that were asked for
	Over     int    `json:"keys_over"`
	Rule     string `json:"rule"` // how Bound follows from the limit and the run
	// Missing counts units refused that one limiter would have admitted. It is known only if a
	// single window spans the run and every check was answered; otherwise it is -1.
	Missing int64 `json:"missing"`
}

// judge compares after a run in which every decision was taken between first and last. Of
// unanswered checks nobody knows whether they were charged.
func (o *oracle) judge(first, last time.Time, unanswered int64) verdict {
	bound, single, rule := admissionBound(o.limit, first, last)
	if single {
		bound -= bound % o.cost // the rest is too little for another check
	}
	v := verdict{Rule: rule}
	for k := range o.offered {
		offered, admitted := o.offered[k].Load(), o.admitted[k].Load()
		if offered == 0 {
			continue
		}
		v.Keys++
		v.Admitted += admitted
		v.Bound += min(bound, offered)
		if admitted > bound {
			v.Over++
			v.Extra += admitted - bound
		}
		v.Missing += min(bound, offered) - min(bound, admitted)
	}
	if !single || unanswered > 0 {
		v.Missing = -1
	}
	v.Exact = v.Extra == 0 && v.Missing <= 0
	return v
}

// clockSlack is how far the wall clocks of this process and of the nodes may be apart where windows
// follow them.
const clockSlack = time.Second

// admissionBound is the most units that l admits for one new key between first and last. single
// says that one window spans the run, so that exactly the bound is admitted if it is asked for.
func admissionBound(l *limiter.Limit, first,
	last time.Time,
) (bound int64, single bool, rule string) {
	run := last.Sub(first)
	switch {
	case l.Algorithm == limiter.GCRA:
		return satAdd(l.Burst, refill(run, l.Limit, l.Per)), false, "burst + elapsed × limit / per"
	case l.Algorithm == limiter.FixedWindow && l.Anchor == limiter.FirstHit:
		n := int64(run/l.Per) + 1
		return satMul(n, l.Limit), n == 1, "limit × windows that can begin in the run"
	}
	per := int64(l.Per)
	n := last.Add(clockSlack).UnixNano()/per - first.Add(-clockSlack).UnixNano()/per + 1
	return satMul(n, l.Limit), n == 1 && l.Algorithm == limiter.FixedWindow,
		"limit × windows that the run touches"
}

// refill is elapsed × limit / per, rounded down, in 128 bits, saturating.
func refill(elapsed time.Duration, limit int64, per time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(max(0, elapsed)), uint64(limit))
	if hi >= uint64(per) {
		return maxUnits
	}
	q, _ := bits.Div64(hi, lo, uint64(per))
	return int64(min(q, uint64(maxUnits)))
}

// maxUnits is more than any run can offer, and far from overflow when it is added up over keys.
const maxUnits = int64(1) << 40

func satAdd(a, b int64) int64 { return min(min(a, maxUnits)+min(b, maxUnits), maxUnits) }

func satMul(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > uint64(maxUnits) {
		return maxUnits
	}
	return int64(lo)
}
