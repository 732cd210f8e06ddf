package limiter

import (
	"slices"
	"sort"
	"time"
)

// The sliding log is exact: it keeps the instant of each unit and counts those of the last Per,
// (now − Per, now].
//
//	admit c  iff  live + c ≤ Limit, and MinGap has passed since the last entry
//
// Only the newest Limit entries ever decide: a request is refused as soon as the Limit-th newest is
// live. So a ring of Limit instants is all there is to keep. Where there were more, since refused
// requests are entered as well or the limit was lowered, the older ones are only counted, and live
// as long as the oldest in the ring: a limit that is raised, or a refund, finds them there. A
// request of c units is c entries; a refund drops the newest. MinGap is a gap between requests,
// whatever they cost; Remaining does not know of it, RetryAfter does.
//
// If the clock goes back before the last entry, it counts as standing there. In any span of length
// Per at most Limit are admitted.
//
// The state is a head and the ring: Limit + 1 words.

// MaxLog is the largest Limit of a sliding log. Its state has 16 KiB, for which there is room in
// the smallest table.
const MaxLog = 2048

// slidingLogLimit is the arithmetic of a sliding log.
type slidingLogLimit Limit

func (l *slidingLogLimit) decide(w []int64, now Instant, cost int64, d *Decision) {
	g := logOf(w)
	at := g.clock(now)
	live := g.after(at - int64(l.Per))
	switch {
	case cost > l.Limit:
		d.Allowed = false
	case cost > 0:
		d.Allowed = int64(live) <= l.Limit-cost && (g.n == 0 || at-g.newest() >= int64(l.MinGap))
		if d.Allowed || l.CountRejected {
			g.keep(live)
			g.enter(at, int(cost))
			g.store(w)
			live = g.n + g.older
		}
		if !d.Allowed {
			d.RetryAfter = l.untilAdmits(&g, live, int(cost), now)
		}
	case cost < 0 && live > 0:
		g.keep(live)
		live -= int(min(int64(live), magnitude(cost)))
		g.dropNewest(live)
		g.store(w)
	}
	d.Remaining = max(0, l.Limit-int64(live))
	if live > 0 {
		d.ResetAfter = time.Duration(g.newest() + int64(l.Per) - int64(now))
	}
}

// untilAdmits is the wait for a request that was refused and, where those count, has been
// entered.
func (l *slidingLogLimit) untilAdmits(g *instants, live, cost int, now Instant) time.Duration {
	at := int64(now)
	if stay := int(l.Limit) - cost; live > stay {
		at = g.at(g.n-1-stay) + int64(l.Per)
	}
	if g.n > 0 {
		at = max(at, g.newest()+int64(l.MinGap))
	}
	return time.Duration(at - int64(now))
}

func (l *slidingLogLimit) fresh(w []int64, now Instant) bool {
	g := logOf(w)
	return g.n == 0 || int64(now)-g.newest() >= int64(l.Per)
}

// merge takes the later instant rank by rank, from the newest: of two logs of the same
// requests that is the longer one, and of any two one that counts no less than either at any time.
// If one log is ahead of the other (clocks that differ), what the other counts now must count there
// too, so its entries are brought up to the earliest instant that does.
func (l *slidingLogLimit) merge(w, other []int64, now Instant) {
	l.settle(w, now)
	l.settle(other, now)
	if logOf(w).total() < logOf(other).total() {
		for i := range w {
			w[i], other[i] = other[i], w[i]
		}
	}
	long, short := logOf(w), logOf(other)
	if long.n == 0 {
		return
	}
	most := long.ring[:long.n] // settled: the oldest stands first
	least := most[long.n-short.n:]
	for i := range least {
		least[i] = max(least[i], short.ring[i])
	}
	earliestLive := long.newest() - int64(l.Per) + 1
	for i := range most {
		most[i] = max(most[i], earliestLive)
	}
}

// settle drops what is over, turns the ring until its oldest entry stands first, and puts
// bad numbers right.
func (l *slidingLogLimit) settle(w []int64, now Instant) {
	g := logOf(w)
	slices.Reverse(g.ring[:g.oldest])
	slices.Reverse(g.ring[g.oldest:])
	slices.Reverse(g.ring)
	g.oldest = 0
	entries := g.ring[:g.n]
	for i, t := range entries {
		entries[i] = min(max(t, int64(earliest)), int64(latest))
	}
	if !slices.IsSorted(entries) {
		slices.Sort(entries)
	}
	g.keep(g.after(g.clock(now) - int64(l.Per)))
	g.n, g.oldest = copy(g.ring, g.ring[g.oldest:g.oldest+g.n]), 0
	clear(g.ring[g.n:])
	g.store(w)
}

// refitSlidingLog keeps the newest entries of a log with another Limit, as many as there is room
// for.
func refitSlidingLog(w, old []int64) {
	g, from := logOf(w), logOf(old)
	if from.n == 0 {
		return
	}
	g.n = min(from.total(), len(g.ring))
	g.older = from.total() - g.n
	for i := range g.n {
		g.ring[g.n-1-i] = from.at(max(0, from.n-1-i))
	}
	g.store(w)
}

// instants is a log as it lies in a state: n entries of a ring, from the oldest on, in ascending
// order. If there are older ones, which are counted as if they were as old as the oldest, the ring
// is full.
type instants struct {
	n, oldest, older int
	ring             []int64
}

// logOf reads w, which has at least the word of the head: n | oldest<<16 | older<<32. If the head
// is invalid, all of the ring counts.
func logOf(w []int64) instants {
	g := instants{int(w[0] & 0xffff), int(w[0] >> 16 & 0xffff), int(w[0] >> 32), w[1:]}
	size := len(g.ring)
	if g.n > size || g.oldest > max(0, size-1) || g.older < 0 || g.older > MaxLog || g.older > 0 &&
		(g.n < size || size == 0) {
		return instants{n: size, ring: g.ring}
	}
	return g
}

// store writes the head into w, from which g was read.
func (g *instants) store(w []int64) {
	if g.n == 0 {
		g.oldest = 0
	}
	w[0] = int64(g.n) | int64(g.oldest)<<16 | int64(min(g.older, MaxLog))<<32
}

func (g instants) total() int { return g.n + g.older }

// at is entry i, 0 the oldest.
func (g *instants) at(i int) int64 { return g.ring[g.place(i)] }

func (g *instants) place(i int) int {
	if i += g.oldest; i >= len(g.ring) {
		i -= len(g.ring)
	}
	return i
}

func (g *instants) newest() int64 { return g.at(g.n - 1) }

// clock is now, or the last entry if the clock has gone back.
func (g *instants) clock(now Instant) int64 {
	if g.n == 0 {
		return int64(now)
	}
	return max(int64(now), g.newest())
}

// after counts the entries later than t.
func (g *instants) after(t int64) int {
	if g.n == 0 || g.at(0) > t {
		return g.total()
	}
	return g.n - sort.Search(g.n, func(i int) bool { return g.at(i) > t })
}

// keep drops all but the newest entries, as many as are live, which is what after has counted.
func (g *instants) keep(live int) {
	if k := g.n - live; k > 0 {
		g.oldest, g.n, g.older = g.place(k), live, 0
	}
}

// enter adds c entries. Where there is no room, the oldest become older.
func (g *instants) enter(t int64, c int) {
	for ; c > len(g.ring); c -= len(g.ring) {
		g.enter(t, len(g.ring))
	}
	if k := g.n + c - len(g.ring); k > 0 {
		g.oldest, g.n = g.place(k), g.n-k
		g.older = min(g.older+k, MaxLog)
	}
	for range c {
		g.ring[g.place(g.n)] = t
		g.n++
	}
}

// dropNewest drops the newest entries until rest are left.
func (g *instants) dropNewest(rest int) {
	first, drop := g.at(0), g.total()-rest
	ofRing := min(drop, g.n)
	g.n -= ofRing
	g.older -= drop - ofRing
	for g.n < len(g.ring) && g.older > 0 { // there is room in the ring again
		g.oldest = g.place(len(g.ring) - 1)
		g.ring[g.oldest] = first
		g.n++
		g.older--
	}
}
