package limiter

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Reserved units belong to open holds (see Ledger). They are not part of their key's state: a state
// refills or its window ends, and a reservation must outlive that. They are kept beside it, and a
// request is admitted only if the state admits it together with them:
//
//	admit c  iff  the algorithm admits c + reserved;  then charge c
//
// So they count as spent in every window until they are charged or released, and no algorithm knows
// of them. Remaining and ResetAfter of an answer are as if they were charged now. While a key has
// reserved units, a limit with count_rejected or drain does neither to a refused request. A shard
// without holds pays one look at a nil map.

// reservedKey is a key under all limits of one identity.
type reservedKey struct {
	seed uint64
	key  string
}

// reservedRetry is the RetryAfter of a denial that ends only when a hold is settled: that time
// is unknown.
const reservedRetry = 100 * time.Millisecond

// reservedOf is how many units of the key are reserved.
func (s *shard) reservedOf(t *target) int64 {
	if s.reserved == nil {
		return 0
	}
	if n := s.reserved[reservedKey{t.limit.seed, t.key}]; n != nil {
		return *n
	}
	return 0
}

// addReserved adds units, which may be negative. The key may be borrowed: a key that is in the map
// already is never written to it again, since an assignment keeps the bytes of the later one.
func (s *shard) addReserved(t *target, units int64) {
	k := reservedKey{t.limit.seed, t.key}
	n := s.reserved[k]
	switch {
	case n == nil && units > 0:
		if s.reserved == nil {
			s.reserved = make(map[reservedKey]*int64)
		}
		k.key = strings.Clone(k.key)
		s.reserved[k] = &units
	case n != nil && *n+units > 0:
		*n += units
	case n != nil:
		if delete(s.reserved, k); len(s.reserved) == 0 {
			s.reserved = nil
		}
	}
}

// takeBeside is take where units of some keys are reserved.
func (s *shard) takeBeside(now Instant, t *target, r *Request, d *Decision) {
	if n, delay, refused := s.refusesBeside(now, t, r, d); !refused {
		s.take(now, t, r, d)
		s.standBeside(now, t, n, delay, d)
	}
}

// peekBeside is what takeBeside would answer.
func (s *shard) peekBeside(now Instant, t *target, r *Request, d *Decision) {
	if n, delay, refused := s.refusesBeside(now, t, r, d); !refused {
		s.peek(now, t, r, d)
		s.standBeside(now, t, n, delay, d)
	}
}

// standBeside makes d, which says nothing of the n units of t that are reserved, the answer beside
// them.
func (s *shard) standBeside(now Instant, t *target, n int64, delay time.Duration, d *Decision) {
	if n > 0 {
		w, _, _ := s.read(now, t)
		t.limit.standBeside(w, now, n, delay, d)
	}
}

// standBeside makes d, the answer that has left w, the answer beside n units that are reserved: its
// caller waits for the delay that it would have if they had been charged (OnDeny DenyDelay). It
// changes w.
func (l *Limit) standBeside(
	w []int64, now Instant, n int64, delay time.Duration, d *Decision,
) {
	d.Remaining = max(0, d.Remaining-n)
	if d.Allowed {
		d.Delay = max(d.Delay, delay)
	}
	l.resetBeside(w, now, n, d)
}

// resetBeside has d say until when n units count that are reserved beside w, if they were charged
// now. It changes w.
func (l *Limit) resetBeside(w []int64, now Instant, n int64, d *Decision) {
	var charged Decision
	l.answer(w, now, &Request{Cost: n, Report: true}, &charged)
	d.ResetAfter = max(d.ResetAfter, charged.ResetAfter)
}

// refusesBeside reports whether r is refused because of the n units that are reserved; then d is
// the answer. Else delay is how long its caller waits because of them.
func (s *shard) refusesBeside(
	now Instant, t *target, r *Request, d *Decision,
) (n int64, delay time.Duration, refused bool) {
	n = s.reservedOf(t)
	if n > 0 && r.Cost > 0 && !r.Report {
		w, _, _ := s.read(now, t)
		refused = !t.limit.admitsBeside(w, now, r, n, d)
		delay = d.Delay
	}
	if refused {
		w, _, _ := s.read(now, t)
		t.limit.resetBeside(w, now, n, d)
	}
	return n, delay, refused
}

// admitsBeside reports whether w admits the cost of r, which is above 0, together with n units that
// are reserved; d is the answer if it does not. It changes w.
func (l *Limit) admitsBeside(w []int64, now Instant, r *Request, n int64, d *Decision) bool {
	more := *r
	more.Drain = false
	if more.Cost += n; more.Cost < 0 {
		more.Cost = math.MaxInt64
	}
	var alone Decision
	never := r.Cost <= l.Capacity() && more.Cost > l.Capacity() // as long as n units are reserved
	if never {
		waits := more
		waits.Cost = r.Cost
		l.answer(slices.Clone(w), now, &waits, &alone)
	}
	l.answer(w, now, &more, d)
	if d.Allowed || n == 0 {
		return d.Allowed
	}
	if never {
		d.RetryAfter = max(alone.RetryAfter, min(l.Per, reservedRetry))
	}
	d.Remaining, d.Drained, d.Hold = max(0, d.Remaining-n), 0, HoldInTheWay
	return false
}

// reserveAll reserves the costs of all items if each is admitted, or none. A limit that never
// denies has no say: what it refuses, it reserves nothing for. It reports whether they are, and
// out says for each what it got or would have got.
func (t *Table) reserveAll(now Instant, items []Item, out []Decision) bool {
	if slices.ContainsFunc(items, Item.uncounted) {
		return onlyCounted(items, out, func(items []Item, out []Decision) bool {
			return t.reserveAll(now, items, out)
		})
	}
	targets, locks := targetsOf(t, items)
	if !t.lockAll(now, &locks, targets) {
		for i, it := range items {
			out[i] = noRoom(it.Limit)
		}
		return false
	}
	defer t.unlockAll(&locks)
	if closedAll(t, now, items, out) {
		return false
	}
	now = within(now)
	all := true
	for i := range items {
		x, s := &targets[i], t.shardOf(&items[i])
		if w, _, entry := s.read(now, x); !entry && x.shut(now) {
			s.refused++
			out[i] = noRoom(x.limit)
		} else {
			x.limit.admitsBeside(slices.Clone(w), now, &items[i].Request, s.reservedOf(x), &out[i])
		}
		if out[i].Allowed {
			s.addReserved(x, items[i].Cost)
		}
		all = all && (out[i].Allowed || x.limit.NeverDenies())
	}
	if !all {
		for i := range items {
			if out[i].Allowed {
				t.shardOf(&items[i]).addReserved(&targets[i], -items[i].Cost)
			}
		}
		t.sayWhatIsLeft(now, items, targets, out)
	}
	return all
}

// putBack takes units away from what is reserved and charges some of them, or more: that is never
// refused, and leaves a debt of at most the limit's MaxDebt where it must. l is the limit as it was
// when they were reserved.
func (t *Table) putBack(
	now Instant, l *Limit, key string, hash uint64, units, charge int64,
) (d Decision) {
	if l.Unlimited {
		return without(l)
	}
	s, x := t.shard(l, key, hash)
	if r := t.rules.index.Load().find(l); r != nil {
		x.limit = r.limit.Load() // which stays what was asked for last
	}
	if x.rule = t.lock(now, s, x.limit); x.rule == nil {
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if t.closed(now, l, hash) {
		return Decision{Closed: true}
	}
	s.addReserved(&x, -units)
	if x.rule == nil { // no room for the limit: its requests are refused while the charge counts
		w := make([]int64, l.words())
		l.answer(w, within(now), &Request{Cost: charge, Report: true}, &d)
		t.lose(within(now), l, w)
		return without(l)
	}
	s.chargeBy(within(now), &x, l, charge)
	s.takeOrPeek(within(now), &x, charge, &d)
	d.Allowed, d.RetryAfter = true, Never
	s.standBeside(within(now), &x, s.reservedOf(&x), 0, &d)
	return d
}

// chargeBy makes t the target of a charge for units that were reserved under l: by the limit under
// which the key was asked last, as that is now. The one of the two that has less room could lose
// some of the charge: a limit that was raised since by l, and one that was lowered by itself.
func (s *shard) chargeBy(now Instant, t *target, l *Limit, charge int64) {
	if i := s.find(t); i >= 0 {
		t.rule = s.rules.index.Load().byID(s.entries.slots[i].rule())
		t.limit = t.rule.limit.Load()
	}
	if t.limit == l {
		return
	}
	by := *t
	by.limit = l
	if room := s.roomFor(now, t); room < charge && room < s.roomFor(now, &by) {
		t.limit = l
	}
}

// roomFor is the most that a report would charge to t.
func (s *shard) roomFor(now Instant, t *target) int64 {
	var d Decision
	w, _, _ := s.read(now, t)
	t.limit.debtor.decide(w, now, 0, &d)
	return d.Remaining
}

func (s *shard) takeOrPeek(now Instant, t *target, charge int64, d *Decision) {
	if charge > 0 {
		s.take(now, t, &Request{Cost: charge, Report: true}, d)
	} else {
		s.peek(now, t, &Request{}, d)
	}
}

// adjustReserved adds to what is reserved of a key, without asking anybody: for holds that come
// from elsewhere, and that go.
func (t *Table) adjustReserved(l *Limit, key string, hash uint64, units int64) {
	if l.Unlimited {
		return
	}
	s, x := t.shard(l, key, hash)
	s.mu.Lock()
	s.addReserved(&x, units)
	s.mu.Unlock()
}
