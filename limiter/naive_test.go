package limiter_test

import (
	"math"
	"math/big"
	"sort"
	"time"

	"penstock/limiter"
)

// naive is the limiter that the tests believe: one map, big integers, no bounds, and each rule
// written down as facts say it and not as the code does it. Waits are found by trying, since
// waiting alone never makes anything worse.
type naive map[string]*naiveState

type naiveState struct {
	tat      *big.Int                // GCRA: in 2^-64 ns, nil = never seen
	start    *big.Int                // FixedWindow: in ns
	count    *big.Int                // FixedWindow
	credits  bool                    // FixedWindow: the count may be below 0
	windows  map[string]*naiveWindow // SlidingWindow: by number
	lastSeen *big.Int                // SlidingWindow: number of the last window that was counted in
	naiveKinds
}

type naiveWindow struct{ number, count *big.Int }

func newNaiveState() *naiveState {
	return &naiveState{
		count: new(big.Int), windows: map[string]*naiveWindow{},
		naiveKinds: naiveKinds{buckets: map[[2]int64]*naiveBucket{}, parts: map[int64]*big.Int{}},
	}
}

func (s *naiveState) clone() *naiveState {
	c := newNaiveState()
	if s.tat != nil {
		c.tat = new(big.Int).Set(s.tat)
	}
	if s.start != nil {
		c.start = new(big.Int).Set(s.start)
	}
	c.count.Set(s.count)
	c.lastSeen, c.credits = s.lastSeen, s.credits
	c.naiveKinds = s.naiveKinds.clone()
	for k, w := range s.windows {
		c.windows[k] = &naiveWindow{w.number, new(big.Int).Set(w.count)}
	}
	return c
}

// plain is spec, or what a stated limit is as long as it stays the same.
func (s *naiveState) plain(spec limiter.Spec) limiter.Spec {
	switch spec.Algorithm {
	case limiter.StatedWindow:
		spec.Algorithm, spec.Anchor, s.credits = limiter.FixedWindow, limiter.FirstHit, true
	case limiter.StatedBucket:
		spec.Algorithm = limiter.GCRA
	}
	return spec
}

func big64(x int64) *big.Int { return big.NewInt(x) }

func add(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }
func sub(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
func mul(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

// floorDiv is floor(a/b) for b > 0.
func floorDiv(a, b *big.Int) *big.Int {
	q, m := new(big.Int).QuoRem(a, b, new(big.Int))
	if m.Sign() < 0 {
		q.Sub(q, big64(1))
	}
	return q
}

func larger(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

var nanosecond = new(big.Int).Lsh(big64(1), 64) // in units of 2^-64 ns

// interval is Per/Limit, rounded down to 2^-64 ns.
func interval(s limiter.Spec) *big.Int {
	return floorDiv(mul(big64(int64(s.Per)), nanosecond), big64(s.Limit))
}

func capacity(s limiter.Spec) int64 {
	if s.Algorithm == limiter.LeakyBucket {
		return s.Burst + 1
	}
	if s.Algorithm == limiter.GCRA && s.Burst != 0 {
		return s.Burst
	}
	return s.Limit
}

// isMeter reports whether a limit is one of those that keep the instant at which the bucket is
// full, or idle.
func isMeter(s limiter.Spec) bool {
	return s.Algorithm == limiter.GCRA || s.Algorithm == limiter.LeakyBucket
}

// used is how much of the capacity is taken at now, in the unit of full.
func (s *naiveState) used(spec limiter.Spec, now *big.Int) *big.Int {
	switch spec.Algorithm {
	case limiter.SlidingLog:
		_, live := s.logAt(spec, now.Int64())
		return big64(int64(live))
	case limiter.TokenBucket:
		return sub(big64(spec.Limit), s.bucket(spec, now).value)
	case limiter.SlidingCounter, limiter.Concurrency:
		return s.sumOfParts(spec, now.Int64())
	case limiter.GCRA, limiter.LeakyBucket:
		if s.tat == nil {
			return new(big.Int)
		}
		return larger(new(big.Int), sub(s.tat, mul(now, nanosecond)))
	case limiter.FixedWindow:
		if _, _, open := s.window(spec, now); open {
			return s.count
		}
		return new(big.Int)
	}
	k := s.current(spec, now)
	per := big64(int64(spec.Per))
	elapsed := larger(new(big.Int), sub(now, mul(k, per)))
	previous := s.in(sub(k, big64(1)))
	return add(s.in(k), floorDiv(mul(previous, sub(per, elapsed)), per))
}

func unit(spec limiter.Spec) *big.Int {
	if isMeter(spec) {
		return interval(spec)
	}
	return big64(1)
}

// window is the fixed window that counts at now, and whether something is counted in it.
func (s *naiveState) window(spec limiter.Spec, now *big.Int) (start, end *big.Int, open bool) {
	if s.count.Sign() != 0 {
		if start, end = windowOf(spec, s.start); now.Cmp(end) < 0 {
			return start, end, true
		}
	}
	if s.credits {
		now = mul(floorDiv(now, big64(1e6)), big64(1e6))
	}
	start, end = windowOf(spec, now)
	return start, end, false
}

// windowOf is the window that begins with t, or in which it lies.
func windowOf(spec limiter.Spec, t *big.Int) (start, end *big.Int) {
	if spec.Calendar > limiter.Hours {
		return calendarOf(spec, t)
	}
	per, ahead := big64(int64(spec.Per)), new(big.Int)
	if spec.Calendar != 0 {
		_, seconds := time.Unix(0, t.Int64()).In(place(spec)).Zone()
		ahead = big64(int64(seconds) * int64(time.Second))
	}
	if spec.Anchor == limiter.Epoch {
		t = sub(mul(floorDiv(add(t, ahead), per), per), ahead)
	}
	return t, add(t, per)
}

func place(spec limiter.Spec) *time.Location {
	place, err := time.LoadLocation(spec.TimeZone)
	if err != nil {
		panic(err)
	}
	return place
}

// calendarOf is for places where midnight comes once on every day.
func calendarOf(spec limiter.Spec, t *big.Int) (start, end *big.Int) {
	at := time.Unix(0, t.Int64()).In(place(spec))
	year, month, date := at.Date()
	midnight := func(year int, month time.Month, date int) *big.Int {
		return big64(time.Date(year, month, date, 0, 0, 0, 0, at.Location()).UnixNano())
	}
	switch spec.Calendar {
	case limiter.Days:
		return midnight(year, month, date), midnight(year, month, date+1)
	case limiter.Weeks:
		monday := date - (int(at.Weekday())+6)%7
		return midnight(year, month, monday), midnight(year, month, monday+7)
	case limiter.Months:
		return midnight(year, month, 1), midnight(year, month+1, 1)
	}
	return midnight(year, 1, 1), midnight(year+1, 1, 1)
}

// current is the window of the sliding counter that counts at now: never one before the last that
// was counted in.
func (s *naiveState) current(spec limiter.Spec, now *big.Int) *big.Int {
	k := floorDiv(now, big64(int64(spec.Per)))
	if s.lastSeen != nil && s.in(s.lastSeen).Sign()+s.in(sub(s.lastSeen, big64(1))).Sign() > 0 {
		k = larger(k, s.lastSeen)
	}
	return k
}

func (s *naiveState) in(k *big.Int) *big.Int {
	if w := s.windows[k.String()]; w != nil {
		return w.count
	}
	return new(big.Int)
}

func (s *naiveState) set(k, count *big.Int) { s.windows[k.String()] = &naiveWindow{k, count} }

// admits reports whether a positive cost is admitted at now.
func (s *naiveState) admits(spec limiter.Spec, now *big.Int, cost int64) bool {
	u := unit(spec)
	if spec.Algorithm == limiter.SlidingLog && !s.gapIsOver(spec, now.Int64()) {
		return false
	}
	return add(s.used(spec, now), mul(big64(cost), u)).Cmp(mul(big64(capacity(spec)), u)) <= 0
}

// delay reports whether a positive cost is admitted at now, and after which wait.
func (s *naiveState) delay(
	spec limiter.Spec, now *big.Int, r limiter.Request,
) (delay time.Duration, allowed bool) {
	switch longest := maxDelay(spec); {
	case spec.Algorithm == limiter.LeakyBucket:
		turn := s.used(spec, now) // what is before it, in 2^-64 ns
		delay = time.Duration(floorDiv(add(turn, sub(nanosecond, big64(1))), nanosecond).Int64())
		return delay, s.admits(spec, now, r.Cost) && (!r.Bounded || delay <= r.MaxDelay)
	case s.admits(spec, now, r.Cost):
		return 0, true
	case !spec.Delays() || r.Cost > capacity(spec):
		return 0, false
	default:
		if r.Bounded {
			longest = min(longest, r.MaxDelay)
		}
		delay = wait(func(w *big.Int) bool { return s.admits(spec, add(now, w), r.Cost) })
		return delay, delay <= longest
	}
}

func maxDelay(spec limiter.Spec) time.Duration {
	if spec.MaxDelay == 0 {
		return min(spec.Per, 5*time.Second)
	}
	return spec.MaxDelay
}

// waiting is how many units come back within the longest delay.
func waiting(spec limiter.Spec) *big.Int {
	longest, per := big64(int64(maxDelay(spec))), big64(int64(spec.Per))
	switch {
	case !spec.Delays():
		return new(big.Int)
	case spec.Algorithm == limiter.GCRA:
		return add(floorDiv(mul(longest, big64(spec.Limit)), per), big64(1))
	}
	marks := floorDiv(add(longest, sub(per, big64(1))), per)
	return add(mul(marks, big64(refill(spec))), big64(1))
}

// charge adds a cost, or gives back a negative one.
func (s *naiveState) charge(spec limiter.Spec, now *big.Int, cost int64) {
	c := big64(cost)
	switch spec.Algorithm {
	case limiter.SlidingLog:
		s.chargeLog(spec, now.Int64(), cost)
	case limiter.TokenBucket:
		s.chargeBucket(spec, now, c)
	case limiter.SlidingCounter, limiter.Concurrency:
		s.chargeParts(spec, now.Int64(), c)
	case limiter.GCRA, limiter.LeakyBucket:
		used := s.used(spec, now)
		if cost < 0 && used.Sign() == 0 {
			return
		}
		if used = add(used, mul(c, interval(spec))); used.Sign() <= 0 {
			s.tat = nil // all given back
			return
		}
		s.tat = add(mul(now, nanosecond), used)
		// a word of 0 means never seen: one nanosecond late
		if floorDiv(s.tat, nanosecond).Sign() == 0 {
			s.tat.Add(s.tat, nanosecond)
		}
	case limiter.FixedWindow:
		start, _, open := s.window(spec, now)
		if !open {
			if cost < 0 && !s.credits {
				return
			}
			s.count = new(big.Int)
		}
		if limit := big64(spec.Limit); spec.Drain && cost < 0 &&
			sub(s.count, limit).Cmp(big64(1)) == 0 {
			s.count = limit // the mark of a refusal is nothing that could be given back
		}
		if s.start, s.count = start, add(s.count, c); !s.credits {
			s.count = larger(new(big.Int), s.count)
		}
	default:
		k := s.current(spec, now)
		before := sub(k, big64(1))
		if cost < 0 && s.in(k).Sign()+s.in(before).Sign() == 0 {
			return
		}
		s.lastSeen = k
		// of older ones nothing is left, also when the clock goes back
		for name, w := range s.windows {
			if w.number.Cmp(before) < 0 {
				delete(s.windows, name)
			}
		}
		rest := add(s.in(k), c)
		s.set(k, larger(new(big.Int), rest))
		if rest.Sign() < 0 {
			s.set(before, larger(new(big.Int), add(s.in(before), rest)))
		}
	}
}

// refuse is what a refusal charges, and how much of what there was it has taken along.
func (s *naiveState) refuse(spec limiter.Spec, now *big.Int, r limiter.Request) (drained int64) {
	// and one more, so that a cost of 0 hears of it
	if spec.Algorithm == limiter.FixedWindow && spec.Drain {
		left := s.left(spec, now).Int64()
		if left >= 0 {
			s.charge(spec, now, left+1)
		}
		return max(0, left)
	}
	if spec.CountRejected {
		if r.Cost <= capacity(spec) {
			s.charge(spec, now, r.Cost)
		}
		return 0
	}
	if n := s.left(spec, now).Int64(); (r.Drain || spec.Drain) && n > 0 && s.admits(spec, now, n) {
		s.charge(spec, now, n)
		return n
	}
	if spec.Algorithm == limiter.TokenBucket {
		s.refuseBucket(spec, now)
	}
	return 0
}

// left is how many whole units could still be admitted; less than none is a debt.
func (s *naiveState) left(spec limiter.Spec, now *big.Int) *big.Int {
	return floorDiv(sub(mul(big64(capacity(spec)), unit(spec)), s.used(spec, now)), unit(spec))
}

// report charges what there is, and what may be owed.
func (s *naiveState) report(spec limiter.Spec, now *big.Int, cost int64) {
	most := larger(new(big.Int), add(s.left(spec, now), add(big64(spec.MaxDebt), waiting(spec))))
	if big64(cost).Cmp(most) < 0 {
		most = big64(cost)
	}
	if most.Sign() > 0 {
		spec.Strict = false
		s.charge(spec, now, most.Int64())
	}
}

// take decides, and if write is set, charges.
func (n naive) take(
	now limiter.Instant, spec limiter.Spec, key string, cost int64, write bool,
) limiter.Decision {
	return n.do(now, spec, key, limiter.Request{Cost: cost}, write)
}

// do is take for any request.
func (n naive) do(
	now limiter.Instant, spec limiter.Spec, key string, r limiter.Request, write bool,
) limiter.Decision {
	d, waits := n.decide(now, spec, key, r, write)
	waits(&d)
	return d
}

// decide is do without the waits, which are found by trying and take most of the time.
func (n naive) decide(
	now limiter.Instant, spec limiter.Spec, key string, r limiter.Request, write bool,
) (d limiter.Decision, waits func(*limiter.Decision)) {
	spec.Strict = spec.Strict || spec.Sessions || r.Strict && !spec.Delays() &&
		spec.Algorithm == limiter.TokenBucket && spec.Anchor == limiter.FirstHit
	t, cost := big64(min(max(int64(now), -1<<61), 1<<62)), r.Cost
	if r.Timed && spec.ClientTime {
		t = mul(big64(max(int64(r.At), -1<<61)), big64(1e6))
	}
	s := n[key]
	if s == nil {
		s = newNaiveState()
		if write {
			n[key] = s
		}
	}
	if !write {
		s = s.clone()
	}
	spec = s.plain(spec)
	if spec.Algorithm == limiter.SlidingLog && cost != 0 {
		s.bound(spec.Limit)
	}
	if isMeter(spec) && s.tat != nil && int64(spec.Per)%spec.Limit == 0 && cost != 0 {
		// whole nanoseconds suffice
		s.tat = mul(floorDiv(add(s.tat, sub(nanosecond, big64(1))), nanosecond), nanosecond)
	}
	d = limiter.Decision{Allowed: true, Limit: capacity(spec), RetryAfter: limiter.Never}
	admits := func(*big.Int) bool { return true }
	before := s.buckets[bucketName(spec)]
	switch {
	case cost > 0 && r.Report:
		s.report(spec, t, cost)
	case cost > 0:
		if d.Delay, d.Allowed = s.delay(spec, t, r); d.Allowed {
			s.charge(spec, t, cost)
			break
		}
		d.Delay, d.Drained = 0, s.refuse(spec, t, r)
		if r.Bounded && cost <= capacity(spec) {
			d.Delay, _ = s.delay(spec, t, r)
		}
		admits = func(w *big.Int) bool {
			_, allowed := s.delay(spec, add(t, w), r)
			return allowed
		}
	case cost < 0 && spec.Delays() && s.left(spec, t).Sign() < 0:
		// callers wait, and the moments of those behind were promised
	case cost < 0:
		s.charge(spec, t, cost)
	case spec.Algorithm == limiter.FixedWindow && spec.Drain:
		admits = func(w *big.Int) bool {
			return s.used(spec, add(t, w)).Cmp(big64(spec.Limit)) <= 0
		}
		d.Allowed = admits(new(big.Int))
	}
	d.Remaining = larger(new(big.Int), s.left(spec, t)).Int64()
	if spec.Sessions {
		if d.Session = limiter.Millis(floorDiv(t, big64(1e6)).Int64()); before != nil &&
			!(d.Allowed && cost > 0) {
			d.Session = before.session
		}
		if b := s.buckets[bucketName(spec)]; b != nil {
			b.session = d.Session
		}
	}
	return d, func(d *limiter.Decision) {
		if !d.Allowed && cost <= d.Limit {
			d.RetryAfter = wait(admits)
		}
		if _, end, open := s.window(spec, t); spec.Algorithm == limiter.FixedWindow &&
			(open || spec.Anchor == limiter.Epoch) {
			d.ResetAfter = time.Duration(sub(end, t).Int64())
		} else {
			d.ResetAfter = wait(func(w *big.Int) bool {
				return s.used(spec, add(t, w)).Sign() == 0
			})
		}
	}
}

// wait is the smallest wait for which done holds, and the longest there is if that is farther away.
func wait(done func(*big.Int) bool) time.Duration {
	if done(new(big.Int)) {
		return 0
	}
	high := int64(1)
	for !done(big64(high)) {
		if high > math.MaxInt64/2 {
			high = math.MaxInt64
			break
		}
		high *= 2
	}
	low := high / 2
	// The answer lies in (low, high].
	return time.Duration(low + 1 + int64(sort.Search(int(high-low-1), func(i int) bool {
		return done(big64(low + 1 + int64(i)))
	})))
}
