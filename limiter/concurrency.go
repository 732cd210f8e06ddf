package limiter

// Concurrency bounds how many permits are out at once. A cost takes permits, a negative cost returns them, and a permit
// whose holder never returns it, because it has died, comes back when its time, Per, is over.
//
//	admit c  iff  permits out + c ≤ Limit
//
// The state does not know holders, only when permits were taken: how many in each part of Per, as a sliding counter
// that is harsh keeps it. So a permit comes back by itself between Per and Per + Per/Buckets after it was taken. One
// that is returned counts as the oldest that is out: whichever it really was, the others are then believed to be taken
// no earlier than they were. So as long as all return what they took within Per, no more than Limit are ever out, and
// one that dies costs a permit for Per + Per/Buckets at most. Who holds a permit for longer than Per has lost it.
//
// RetryAfter is when permits come back by themselves; mostly one is returned before. A merger counts each part as the
// state that has more of it does: permits whose return only one of them has seen are out until their time is over.
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
