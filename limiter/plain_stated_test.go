package limiter

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// plainStatedWindow is a window that requests with any period meet.
type plainStatedWindow struct {
	start, end, count int64
	open              bool
}

// take is a request of cost units with a limit per period. The window lasts as long as the request
// says, but no longer than the last one that was charged has said.
func (p *plainStatedWindow) take(now, limit, per, cost int64) Decision {
	const ms = int64(time.Millisecond)
	start, count := now-((now%ms)+ms)%ms, int64(0)
	over := start + per
	if p.open && now < p.end && now < p.start+per {
		start, count = p.start, p.count
		over = min(p.end, start+per)
	}
	d := Decision{Allowed: cost <= 0 || cost <= limit-count, Limit: limit, RetryAfter: Never}
	switch {
	case !d.Allowed && cost <= limit:
		d.RetryAfter = time.Duration(over - now)
	case d.Allowed && cost != 0:
		if count += cost; count == 0 {
			*p = plainStatedWindow{}
		} else {
			*p, over = plainStatedWindow{start, start + per, count, true}, start+per
		}
	}
	if d.Remaining = max(0, limit-count); count != 0 {
		d.ResetAfter = time.Duration(over - now)
	}
	return d
}

// plainStatedBucket is a bucket that requests with any rate meet: its level in parts of which a
// token has 2^64, when it was left, and when it is full.
type plainStatedBucket struct {
	level    *big.Int
	at, full int64
}

var token = new(big.Int).Lsh(big.NewInt(1), 64)

func tokens(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), token) }

// until is how long it takes from a level to so many tokens.
func until(level *big.Int, to, limit, per int64) int64 {
	missing := new(big.Int).Sub(tokens(to), level)
	return upwards(missing.Mul(missing, product(per)), tokens(limit)).Int64()
}

// take is a request of cost units with a rate and a burst. The units that have come in since the
// last charge have come at the rate of this one.
func (p *plainStatedBucket) take(now, limit, burst, per, cost int64) Decision {
	level, seen := tokens(burst), p.level != nil && now < p.full
	if seen {
		level = new(big.Int).Set(p.level)
		if passed := now - p.at; passed > 0 {
			come := new(big.Int).Mul(tokens(limit), product(passed))
			level.Add(level, upwards(come, product(per)))
		}
		if level.Cmp(tokens(burst)) > 0 {
			level = tokens(burst)
		}
	}
	whole := new(big.Int).Rsh(level, 64).Int64()
	d := Decision{Allowed: true, Limit: burst, RetryAfter: Never}
	switch {
	case cost > burst:
		d.Allowed = false
	case cost > 0 && cost > whole:
		d.Allowed = false
		behind := max(0, p.at-now)
		d.RetryAfter = time.Duration(min(behind+until(level, cost, limit, per), p.full-now))
	case cost > 0 || cost < 0 && whole < burst:
		level.Sub(level, tokens(cost))
		if whole -= cost; whole >= burst {
			p.level, whole, seen = nil, burst, false
			break
		}
		if !seen || p.at < now {
			p.at = now
		}
		p.level, seen = level, true
		if p.full = p.at + until(level, burst, limit, per); p.full == 0 {
			p.full = 1
		}
	}
	if d.Remaining = whole; seen {
		d.ResetAfter = time.Duration(p.full - now)
	}
	return d
}

// Promise: a stated limit decides as it is said at its naive forms, whatever the requests state one
// after the other, before 1970 and when the clock goes back as well.
func TestStatedInPlainWords(t *testing.T) {
	denied := 0
	for seed := range uint64(3000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		now := oneOf(draw, Instant(0), -1e9, 1e9, Instant(1e18), -Instant(1e18))
		var window plainStatedWindow
		var bucket plainStatedBucket
		inWindow, inBucket := make([]int64, 3), make([]int64, 4)
		s := Spec{Name: "l", Limit: 5, Per: time.Second, Burst: 5}
		for range 40 {
			if draw.IntN(4) == 0 {
				s.Limit = oneOf[int64](draw, 1, 2, 3, 7, 10, 1000, MaxLimit)
				s.Burst = oneOf(draw, 1, 3, 10, s.Limit, 500)
				s.Per = oneOf(draw, time.Millisecond, time.Second, 7*time.Second, time.Hour, MaxPer)
				if !fills(s.Burst, s.Limit, s.Per) {
					s.Burst = s.Limit
				}
			}
			now = now.Add(time.Duration(oneOf(draw, 0, 0, 1, int64(s.Per)/s.Limit,
				draw.Int64N(int64(s.Per)), int64(s.Per), -draw.Int64N(int64(s.Per)))))
			cost := oneOf(draw, 0, 1, 1, 2, -1, draw.Int64N(s.Limit+2), s.Burst, s.Limit)
			var got Decision
			w := s
			w.Algorithm, w.Burst = StatedWindow, 0
			mustBe(New(w)).decide(inWindow, now, cost, &got)
			if want := window.take(int64(now), s.Limit, int64(s.Per), cost); got != want {
				t.Fatalf("seed %d at %d: %d of %+v are answered\n%+v, want\n%+v", seed, now,
					cost, w, got, want)
			}
			if !got.Allowed {
				denied++
			}
			b := s
			b.Algorithm = StatedBucket
			mustBe(New(b)).decide(inBucket, now, cost, &got)
			if want := bucket.take(int64(now), s.Limit, s.Burst, int64(s.Per), cost); got != want {
				t.Fatalf("seed %d at %d: %d of %+v are answered\n%+v, want\n%+v", seed, now,
					cost, b, got, want)
			}
		}
	}
	if denied < 3000 {
		t.Errorf("%d are denied; that proves little", denied)
	}
}

// Promise: a lease is asked for, ended, renewed and forgotten as its numbers say.
func TestLeaseInPlainWords(t *testing.T) {
	for asked := range int64(4) {
		for rate := range int64(4) {
			l := Lease{asked: 40 * asked, rate: 40 * rate, hits: 3, past: 5}
			l.Until = Instant(time.Second)
			idle := asked == 0
			if l.Forgotten() != (idle && rate == 0) {
				t.Errorf("after %d, and %d lately, it is forgotten: %t", asked, rate, l.Forgotten())
			}
			if want := max(LeaseMin, 80*asked, 80*rate); l.Want() != want {
				t.Errorf("after %d, and %d lately, it wants %d, not %d", asked, rate, l.Want(),
					want)
			}
			for _, before := range []time.Duration{-1, 0, 1, leaseEarly, leaseEarly + 1} {
				now := l.Until.Add(-before)
				if l.Ended(now) != (idle || before <= 0) || l.Ends(now) != (before <= leaseEarly) {
					t.Errorf("%v before its end it has ended: %t, ends: %t", before, l.Ended(now),
						l.Ends(now))
				}
			}
			l.Tick()
			if l.asked != 0 || l.rate != max(40*asked, 20*rate) || l.hits != 0 || l.past != 3 {
				t.Errorf("after a tick it is %+v", l)
			}
		}
	}
}
