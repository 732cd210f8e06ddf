package limiter

// Concurrency bounds how many permits are out at once. A cost takes permits, and a negative cost
// returns them. If the holder crashes, its permit is returned when its time, Per, is over.
//
//	admit c  iff  permits out + c ≤ Limit
//
// The state does not know holders, only when permits were taken: their number in each part of Per,
// as a harsh sliding counter keeps it. So a permit expires between Per and Per + Per/Buckets after
// it was taken. A returned permit counts as the oldest one that is out. If it was another, the rest
// are believed to be taken no earlier than they were. So as long as all permits are returned within
// Per, no more than Limit are ever out. A crashed holder costs a permit for at most Per +
// Per/Buckets. A permit held for longer than Per is lost.
//
// RetryAfter is when permits expire; mostly one is returned before. A merge takes the larger count
// of each part: a permit stays out until it expires if only one of the states has seen its return.
//
// The state is as that of a sliding counter, Buckets + 2 words.
const concurrencyBuckets = 16

// takeOldest takes n out of the counters, the oldest first, and returns how much there was.
func takeOldest(counters []int64, n int64) (taken int64) {
	for i := len(counters) - 1; i >= 0; i-- {
		part := min(counters[i], n-taken)
		counters[i] -= part
		taken += part
	}
	return taken
}
