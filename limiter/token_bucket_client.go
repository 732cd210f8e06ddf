package limiter

import (
	"math"
	"math/bits"
	"time"
)

// A token bucket may go by the clocks of its clients (ClientTime), as Smyte's limiter does. Its
// arithmetic is the same to the digit, in whole milliseconds, for all numbers that an int64 holds
// and time that goes back:
//
//	k = floor(max(0, at − mark) / Per);  mark += k×Per;  tokens = min(Limit, tokens + k×Refill)
//	after = max(0, tokens − c), which is stored if c > 0; strict and after = 0: mark = at
//
// So a strict request with a clock that is behind moves the mark back, and the bucket refills
// earlier: such clients are believed. A refusal stores that if it drains. Costs below 0, debts, and
// marks at the epoch, which Smyte's limiter does not have, work as in other buckets.
//
// A bucket may also tell how long it has refused requests (Sessions). Both are extra words of its
// state, in this order:
//
//   - The instant of the table at which the bucket was last asked for tokens. With client times,
//     the mark is in their milliseconds, and the table's clock cannot tell whether the bucket is
//     full: their time may stand still, or be years away. So it is forgotten only when no request
//     has come for as long as an empty bucket takes to fill. That also frees a bucket that was
//     frozen by a client with a clock far ahead.
//   - When the session began: the time of the last admitted request, in milliseconds by the
//     clients' clocks and else in nanoseconds. The bucket is strict: with one token, a caller that
//     goes on asking is refused and stays in the session. The first request after a pause of Per is
//     admitted and begins another. (Smyte's RL.SESSIONIZE.)
func (s *Spec) bucketWords() int {
	n := tokenBucketWords
	if s.ClientTime {
		n++
	}
	if s.Sessions {
		n++
	}
	return n
}

// askedAt is the word of the last request.
const askedAt = tokenBucketWords

// earliestMillis bounds the marks of clients' clocks, so that the mark before it is an int64 as
// well.
const earliestMillis = -1 << 61

// clientMark is what a bucket with ClientTime holds at a time of its clients.
type clientMark struct {
	missing, mark int64 // tokens; ms
	at            int64 // ms
	rest          int64 // ns of the table's time since at, 0 by a client's clock
}

// clientBucketLimit is the arithmetic of a token bucket that goes by the clocks of its clients.
type clientBucketLimit Limit

// answer answers by the time that the request says, or the table's.
func (l *clientBucketLimit) answer(w []int64, now Instant, r *Request, d *Decision) {
	*d = Decision{Allowed: true, Limit: l.Limit, RetryAfter: Never}
	begins := zero(w[:tokenBucketWords])
	b := l.markAt(w, now, r)
	l.charge(w, &b, r, d)
	d.Remaining = max(0, l.Limit-b.missing)
	if b.missing > 0 {
		d.ResetAfter = l.until(0, &b)
	}
	begins = begins || d.Allowed && r.Cost > 0
	if zero(w[:tokenBucketWords]) { // nothing was charged, or all was given back
		clear(w)
	} else if r.Cost != 0 {
		w[askedAt] = int64(now)
	}
	if l.Sessions {
		d.Session = Millis(keepSession(w, b.at, begins))
	}
}

// keepSession stores when the session of a bucket began, and returns it.
func keepSession(w []int64, at int64, begins bool) int64 {
	session := &w[len(w)-1]
	began := *session
	if begins {
		began = at
	}
	if !zero(w[:tokenBucketWords]) {
		*session = began
	}
	return began
}

// charge decides r on b, and stores what is left.
func (l *clientBucketLimit) charge(w []int64, b *clientMark, r *Request, d *Decision) {
	strict, left := l.Strict || r.Strict && l.Anchor == FirstHit, l.Limit-b.missing
	switch {
	case r.Cost > 0 && r.Report:
		if n := min(r.Cost, left+l.MaxDebt); n > 0 { // no overflow: see mostTokens
			b.missing += n
			l.store(w, b, false)
		}
	case r.Cost > left && r.Cost > 0:
		l.refuse(w, b, r, strict, d)
	case r.Cost > 0:
		b.missing += r.Cost
		l.store(w, b, strict)
	case r.Cost < 0 && b.missing > 0:
		b.missing -= min(b.missing, magnitude(r.Cost))
		l.store(w, b, false)
	}
}

// refuse refuses r, which asks for more tokens than there are.
func (l *clientBucketLimit) refuse(w []int64, b *clientMark, r *Request, strict bool, d *Decision) {
	d.Allowed = false
	left := l.Limit - b.missing
	if (r.Drain || l.Drain) && left > 0 {
		d.Drained, b.missing = left, l.Limit
		l.store(w, b, strict)
	} else if strict && left <= 0 {
		l.store(w, b, true)
	}
	if r.Cost <= l.Limit {
		d.RetryAfter = l.until(l.Limit-r.Cost, b)
	}
}

// markAt is the state at the time of r.
func (l *clientBucketLimit) markAt(w []int64, now Instant, r *Request) clientMark {
	b := clientMark{missing: w[0], mark: w[1], at: int64(now.Millis())}
	if r.Timed {
		b.at = max(int64(r.At), earliestMillis)
	} else {
		b.rest = int64(now) - b.at*int64(time.Millisecond)
	}
	per := l.perMillis()
	if zero(w[:tokenBucketWords]) {
		b.mark = b.at
		if l.Anchor == Epoch {
			b.mark = floorTo(b.at, per)
		}
		return b
	}
	if b.at > b.mark {
		// all three may be more than an int64
		if k := (uint64(b.at) - uint64(b.mark)) / uint64(per); k > 0 {
			b.missing = (*tokenBucketLimit)(l).refilled(b.missing, int64(min(k, math.MaxInt64)))
			b.mark = int64(uint64(b.mark) + k*uint64(per))
		}
	}
	return b
}

func (l *clientBucketLimit) perMillis() int64 { return int64(l.Per / time.Millisecond) }

// store writes b. Two zeros mean never seen: see tokenBucketLimit.store.
func (l *clientBucketLimit) store(w []int64, b *clientMark, strict bool) {
	if strict && b.missing >= l.Limit {
		b.mark = b.at
	}
	w[0], w[1] = b.missing, b.mark
	switch {
	case b.missing == 0 && l.Anchor == Epoch:
		w[1] = 0
	case b.missing == 0 && b.mark == 0:
		w[1] = -l.perMillis()
	}
}

// until is the wait until at most k tokens are missing, k < missing.
func (l *clientBucketLimit) until(k int64, b *clientMark) time.Duration {
	high, low := bits.Mul64(uint64((*tokenBucketLimit)(l).refills(b.missing-k)),
		uint64(l.perMillis()))
	var carry uint64
	if b.mark >= b.at {
		low, carry = bits.Add64(low, uint64(b.mark)-uint64(b.at), 0)
		high += carry
	} else {
		low, carry = bits.Sub64(low, uint64(b.at)-uint64(b.mark), 0)
		high -= carry
	}
	if high != 0 || low > math.MaxInt64/uint64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(low)*time.Millisecond - time.Duration(b.rest)
}

// sessionBucket is a bucket with sessions that goes by the table's clock.
func (l *Limit) sessionBucket(w []int64, now Instant, r *Request, d *Decision) {
	bucket := w[:tokenBucketWords]
	begins := zero(bucket)
	l.answer(bucket, now, r, d)
	begins = begins || d.Allowed && r.Cost > 0
	if zero(bucket) {
		clear(w)
	}
	d.Session = Instant(keepSession(w, int64(now), begins)).Millis()
}

// fresh goes by the last request, since the mark is a time of the clients.
func (l *clientBucketLimit) fresh(w []int64, now Instant) bool {
	n := max((*tokenBucketLimit)(l).refills(w[0]), (*tokenBucketLimit)(l).refills(l.Limit))
	return zero(w[:tokenBucketWords]) || (int64(now)-w[askedAt])/int64(l.Per) >= n
}

// merge keeps the larger of each word. It cannot refill the older state up to now first, which is
// an instant of the table. With marks at whole periods it is refilled up to the newer mark, which
// the clients' clocks have reached, but not beyond now: a client with a clock that is right gets
// nothing back where that of another is ahead. Other marks have no phase in common, and a strict
// bucket that is emptied moves its mark back: until the clients' time has gone on as far, that
// merger is stricter than either. A copy is not merged with the one before it, so it has the mark
// of the original.
func (l *clientBucketLimit) merge(w, other []int64, now Instant) {
	l.settle(w, now)
	l.settle(other, now)
	if l.Anchor == Epoch && !zero(w) && !zero(other) {
		reached := min(max(w[1], other[1]), floorTo(int64(now.Millis()), l.perMillis()))
		l.refillUpTo(reached, w)
		l.refillUpTo(reached, other)
	}
	keepLarger(w, other)
}

// refillUpTo refills w, which has a mark whole periods from the one given, up to it.
func (l *clientBucketLimit) refillUpTo(mark int64, w []int64) {
	if w[1] >= mark {
		return
	}
	k := (uint64(mark) - uint64(w[1])) / uint64(l.perMillis())
	w[0] = (*tokenBucketLimit)(l).refilled(w[0], int64(min(k, math.MaxInt64)))
	w[1] = mark
}

// settle drops what is fresh, and puts bad numbers right.
func (l *clientBucketLimit) settle(w []int64, now Instant) {
	w[0] = min(max(w[0], 0), max(l.Limit, 2*MaxLimit)) // max_debt may have been lowered
	for i := 1; i < len(w); i++ {
		w[i] = max(w[i], earliestMillis) // which is as many nanoseconds as earliest
	}
	w[askedAt] = min(w[askedAt], int64(latest))
	if l.Anchor == Epoch {
		if w[1] = floorTo(w[1], l.perMillis()); w[1] < earliestMillis {
			w[1] += l.perMillis()
		}
	}
	if l.Anchor == Epoch && w[0] == 0 || l.fresh(w, now) {
		clear(w)
	}
}
