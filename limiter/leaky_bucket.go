package limiter

// The leaky bucket as a queue lets requests leave one after the other, a unit every e = Per/Limit,
// and tells each how long it has to wait for its turn. The state is the instant at which the bucket
// will be idle again.
//
//	start = max(now, idle);  Delay = start − now
//	admit c  iff  the last unit waits at most Burst×e:  start + (c−1)×e − now ≤ Burst×e
//	then idle = start + c×e
//
// Burst is how many units may wait, not counting the one that is leaving. The table keeps no queue:
// the caller sleeps for Delay, which was promised and stays so when another gives its place back.
//
// With n = Burst + 1 that is start + c×e − now ≤ n×e, the condition of GCRA with a burst of n: what
// the meter admits at once, the queue admits with a delay. So the words are those of gcra.go, and
// so is the arithmetic. Whatever comes in, what goes out is at least e apart: at most ceil(T/e) in
// any half-open span T.

// leakyBucketLimit is the arithmetic of a leaky bucket.
type leakyBucketLimit Limit

func (l *leakyBucketLimit) prepare() {
	meter := l.Spec
	meter.Algorithm, meter.Burst = GCRA, l.Burst+1
	l.meter = (*gcraLimit)(bareLimit(meter))
	l.stateWords = l.meter.stateWords
}

func (l *leakyBucketLimit) decide(w []int64, now Instant, cost int64, d *Decision) {
	turn := span{ns: aheadOf(w[0], now)}
	if len(w) > 1 && (turn.ns > 0 || w[0] == int64(now)) {
		turn.fraction = uint64(w[1])
	}
	l.meter.decide(w, now, cost, d)
	if cost > 0 && d.Allowed {
		d.Delay = saturated(turn.roundUp())
	}
}
