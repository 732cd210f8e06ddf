package denial

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
)

// naive is a cache of one shard: what was said last of each key, and when something was forgotten.
type naive struct {
	said          map[Key]*said
	forgot, swept limiter.Instant
}

// said is a denial as it was told.
type said struct {
	Answer
	at    limiter.Instant // when the answer arrived
	void  bool            // nobody tells when it ends
	since limiter.Instant // of the first of a row without a gap
	asks  limiter.Instant // from here on one request asks again
}

// over is when the denial may end: clocks may differ.
func (s *said) over() limiter.Instant {
	return s.Sent.Add(s.Denied.RetryAfter - s.Denied.RetryAfter/ClockGain)
}

// until is the end of what is denied without asking.
func (s *said) until() limiter.Instant {
	if s.void {
		return 0
	}
	return min(s.over(), s.Sent.Add(Lasts))
}

// watched is until when the owner tells.
func (s *said) watched() limiter.Instant {
	if s.void {
		return 0
	}
	return min(s.over(), s.Sent.Add(WatchLasts-WatchLasts/ClockGain))
}

func (n *naive) note(now limiter.Instant, k Key, a *Answer) {
	if a.Denied.RetryAfter < worth {
		return
	}
	s := &said{Answer: *a, at: now, void: !a.Told || a.Sent <= n.forgot, since: a.Sent}
	s.asks = s.until()
	if s.over() > s.until() { // the owner denies for longer
		s.asks = s.asks.Add(-Renew)
	}
	if old := n.said[k]; old != nil {
		if now < old.until() && (s.void || a.Cost > old.Cost) {
			return
		}
		if a.Cost >= old.Cost && a.Sent <= old.watched() {
			s.since = old.since
		}
	}
	n.said[k] = s
}

func (n *naive) find(
	now limiter.Instant, k Key, cost int64, named bool, remembered time.Duration,
) Verdict {
	s := n.said[k]
	if s == nil {
		return Verdict{}
	}
	v := Verdict{Known: true, Tell: now < s.over().Add(Lasts)}
	switch {
	case now >= s.until(), cost != s.Cost: // another cost has another answer
		return v
	case named && now < s.since.Add(remembered): // it may be a repeat
		return v
	case now >= s.asks:
		s.asks = now.Add(again)
		return v
	}
	v.Denied, v.By = true, s.By
	v.Answer = limiter.Decision{
		Limit: k.Limit.Capacity(), Remaining: s.Denied.Remaining,
		RetryAfter: time.Duration(s.at.Add(s.Denied.RetryAfter) - now),
		ResetAfter: max(0, time.Duration(s.at.Add(s.Denied.ResetAfter)-now)),
	}
	return v
}

func (n *naive) sweep(now limiter.Instant) {
	if len(n.said) == 0 || now < n.swept.Add(Lasts/2) {
		return
	}
	n.swept = now
	maps.DeleteFunc(n.said, func(_ Key, s *said) bool { return now >= s.over().Add(Lasts) })
}

// Promise: whatever is denied, renewed, given back and asked for, a cache says what the last word
// of the owner says, and asks the owner when that is due.
func TestCacheAgainstNaive(t *testing.T) {
	l, other := limitOf(t, "five"), limitOf(t, "other")
	keys := []Key{
		{l, "a", 64}, {l, "b", 64}, {other, "a", 64}, {l, "c", 128},
	}
	spans := []time.Duration{
		0, 1, worth - 1, worth, again, Renew, 2 * Lasts / 5, Lasts / 2, Lasts - Renew, Lasts - 1,
		Lasts, 2 * Lasts, time.Minute,
	}
	for seed := range uint64(100) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var c Cache
		n := naive{said: map[Key]*said{}}
		now := start
		span := func() time.Duration { return pick(draw, spans) }
		few := func() int64 { return draw.Int64N(7) } // more than the limit has
		for range 200 {
			if draw.IntN(2) == 0 {
				now = now.Add(span())
			}
			k, sent := pick(draw, keys), now.Add(-min(span(), Lasts))
			if s := n.said[k]; s != nil && draw.IntN(3) == 0 { // to where one of its times ends
				end := pick(draw, []limiter.Instant{
					s.over(), s.over().Add(Lasts), s.until(), s.asks, s.since.Add(2 * Lasts),
				})
				now = max(now, end)
				sent = min(now, max(s.watched(), now.Add(-2*Lasts)))
			}
			switch draw.IntN(10) {
			case 0, 1, 2, 3:
				a := &Answer{
					By: 1 + draw.Uint64N(2), Cost: few(),
					Sent: sent,
					Told: draw.IntN(4) > 0,
					Denied: limiter.Decision{
						Remaining:  few(),
						RetryAfter: span() + span(),
						ResetAfter: span(),
					},
				}
				n.note(now, k, a)
				c.Note(now, k, a)
			case 4:
				n.forgot = now
				maps.DeleteFunc(n.said, func(o Key, _ *said) bool { return o.Hash == k.Hash })
				c.Forget(now, k.Hash)
			case 5:
				n.sweep(now)
				c.Sweep(now)
			default:
				cost, named := few(), (draw.IntN(2) == 0)
				remembered := span()
				want := n.find(now, k, cost, named, remembered)
				if want.Denied && want.Answer.RetryAfter < 1 {
					t.Fatalf("%+v sends nobody away", want)
				}
				if got := c.Find(now, k, cost, named, remembered); got != want {
					t.Fatalf("%d of %q at %v: %+v, want %+v", cost, k.Key, now-start, got, want)
				}
			}
			if c.Len() != len(n.said) {
				t.Fatalf("%d denials, want %d", c.Len(), len(n.said))
			}
		}
	}
}

// vow is a promise to tell.
type vow struct{ boot, hash uint64 }

// Promise: an owner tells each boot that it has promised to, for as long as it has promised, and
// nobody else; what is told, or over and swept, leaves nothing behind.
func TestWatchesAgainstNaive(t *testing.T) {
	for seed := range uint64(100) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var w Watches
		vows := map[vow]limiter.Instant{} // when they were made
		now := start
		later := func() time.Duration {
			return pick(draw, []time.Duration{0, 0, 1, Lasts, WatchLasts - 1, WatchLasts})
		}
		hash := func() uint64 { return pick(draw, []uint64{3, 3 + watchShards, 4}) }
		boot := func() uint64 { return 1 + draw.Uint64N(3) }
		sorted := func(of map[vow]bool) string { return fmt.Sprint(of) }
		for range 200 {
			now = now.Add(later())
			v := vow{boot(), hash()}
			switch draw.IntN(6) {
			case 0, 1, 2:
				able := draw.IntN(4) > 0
				if w.Promise(now, v.boot, v.hash, func() bool { return able }) != able {
					t.Fatalf("able: %t, and it promises the contrary", able)
				}
				if able {
					vows[v] = now
				}
			case 3:
				at := now.Add(-later())
				hashes := []uint64{v.hash, hash()}
				w.Told(at, v.boot, hashes)
				maps.DeleteFunc(vows, func(o vow, made limiter.Instant) bool {
					return o.boot == v.boot && slices.Contains(hashes, o.hash) && made < at
				})
			case 4:
				turn := v.hash + watchShards*v.boot
				w.Sweep(now, turn)
				maps.DeleteFunc(vows, func(o vow, made limiter.Instant) bool {
					return o.hash%watchShards == v.hash%watchShards && now >= made.Add(WatchLasts)
				})
			}
			tells, watched, hashes := map[vow]bool{}, false, map[uint64]bool{}
			for o, made := range vows {
				if o.boot != v.boot && now < made.Add(WatchLasts) {
					tells[o] = true
				}
				watched = watched || o.hash == v.hash && o.boot != v.boot
				if o.hash != v.hash {
					hashes[o.hash] = true
				}
			}
			told := map[vow]bool{}
			w.Each(now, []uint64{3, 3 + watchShards, 4}, v.boot,
				func(boot, hash uint64) { told[vow{boot, hash}] = true })
			if sorted(told) != sorted(tells) || w.Watched(v.hash, v.boot) != watched {
				t.Fatalf("but for %d, told are %v, want %v", v.boot, told, tells)
			}
			found := w.Hashes(func(h uint64) bool { return h != v.hash })
			if !slices.Equal(found, slices.Sorted(maps.Keys(hashes))) || w.Len() != len(vows) {
				t.Fatalf("%d promises about %v, want %v", w.Len(), found, vows)
			}
		}
	}
}

func pick[T any](draw *rand.Rand, from []T) T { return from[draw.IntN(len(from))] }
