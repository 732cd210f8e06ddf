package limiter_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

// Promise: if a limit keeps its denials, a denied key may be denied until RetryAfter is over
// without asking. With any charges and peeks in between, the same cost or a larger one is refused,
// and the requests left out change nothing.
func TestDenialsAreKept(t *testing.T) {
	var kept sync.Map // by algorithm
	forEveryAlgorithm(t, func(t *rapid.T, a limiter.Algorithm) {
		s := drawParams(t, drawShapeOf(t, a))
		s.CountRejected, s.Drain, s.Strict, s.Sessions, s.ClientTime = false, false, false, false,
			false
		if s.Limit, s.Refill = min(
			s.Limit, limiter.MaxLimit,
		), min(s.Refill, limiter.MaxLimit); s.Algorithm == limiter.TokenBucket {
			if _, err := limiter.New(s); err != nil {
				s.Refill = 0
			}
		}
		l, err := limiter.New(s)
		if err != nil {
			t.Fatal(err)
		}
		if !l.KeepsDenials() { // permits
			return
		}
		tables := [2]*limiter.Table{limiter.NewTable(limiter.TableConfig{
			Bytes:  1 << 20,
			Shards: 1,
		}), limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20, Shards: 1})}
		hash := limiter.Hash("k")
		now := start
		var denied limiter.Decision
		var cost int64
		// with refunds, until something is denied
		for range rapid.IntRange(1, 30).Draw(t, "before") {
			now += limiter.Instant(rapid.Int64Range(0, int64(s.Per)/4).Draw(t, "step"))
			r := limiter.Request{
				Cost:   drawCost(t, s),
				Report: rapid.IntRange(0, 4).Draw(t, "report") == 0,
			}
			for _, table := range tables {
				denied = table.Do(now, l, "k", hash, r)
			}
			if cost = r.Cost; !denied.Allowed && denied.RetryAfter > 0 {
				break
			}
		}
		if denied.Allowed || denied.RetryAfter <= 0 {
			return
		}
		kept.Store(a, true)
		steps := rapid.SliceOfN(rapid.Int64Range(0, int64(denied.RetryAfter)-1), 1, 20).Draw(t,
			"after")
		slices.Sort(steps)
		for _, step := range steps {
			at := now + limiter.Instant(step)
			if d := tables[0].Do(
				at, l, "k", hash, limiter.Request{Cost: cost +
					rapid.Int64Range(0, 3).Draw(t, "more")},
			); d.Allowed {
				t.Fatalf("%+v: %d were denied for %v, and admitted %v later: %+v", s, cost,
					denied.RetryAfter, time.Duration(step), d)
			}
			charge := limiter.Request{
				Cost:   rapid.Int64Range(1, max(1, cost)).Draw(t, "other"),
				Report: rapid.Bool().Draw(t, "report"),
			}
			got, want := tables[0].Do(at, l, "k", hash, charge), tables[1].Do(at, l, "k", hash,
				charge)
			if got != want {
				t.Fatalf("%+v: where something was denied before: %+v, and else %+v", s, got, want)
			}
		}
	})
	for _, a := range algorithms {
		if _, denied := kept.Load(a); !denied && a != limiter.Concurrency {
			t.Errorf("nothing was ever denied by a %v", a)
		}
	}
}

// Promise: a limit is asked each time if its refusals cost something, or may be over at any time.
func TestSomeDenialsAreNotKept(t *testing.T) {
	window := limiter.Spec{Name: "w", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Minute}
	bucket := limiter.Spec{
		Name: "b", Algorithm: limiter.TokenBucket, Anchor: limiter.FirstHit,
		Limit: 5, Per: time.Minute,
	}
	with := func(s limiter.Spec, change func(*limiter.Spec)) limiter.Spec {
		change(&s)
		return s
	}
	if !mustNew(t, window).KeepsDenials() || !mustNew(t, bucket).KeepsDenials() {
		t.Error("plain limits are asked each time")
	}
	for name, s := range map[string]limiter.Spec{
		"counts what it refuses": with(window, func(s *limiter.Spec) { s.CountRejected = true }),
		"drains":                 with(window, func(s *limiter.Spec) { s.Drain = true }),
		"never denies":           with(window, func(s *limiter.Spec) { s.DryRun = true }),
		"denies in the shadow": with(window, func(s *limiter.Spec) {
			s.OnDeny = limiter.DenyShadow
		}),
		"is decided anywhere": with(window, func(s *limiter.Spec) {
			s.Consistency = limiter.Replicated
		}),
		"counts nothing": with(window, func(s *limiter.Spec) {
			s.Override, s.Unlimited = "x", true
		}),
		"puts refills off":   with(bucket, func(s *limiter.Spec) { s.Strict = true }),
		"has sessions":       with(bucket, func(s *limiter.Spec) { s.Sessions = true }),
		"goes by its client": with(bucket, func(s *limiter.Spec) { s.ClientTime = true }),
		"has permits": {
			Name: "c", Algorithm: limiter.Concurrency, Limit: 5,
			Per: time.Minute,
		},
		"has a window as stated": {
			Name: "sw", Algorithm: limiter.StatedWindow, Limit: 5,
			Per: time.Minute,
		},
		"has a bucket as stated.": {
			Name: "sb", Algorithm: limiter.StatedBucket, Limit: 5,
			Per: time.Minute,
		},
	} {
		if mustNew(t, s).KeepsDenials() {
			t.Errorf("a limit that %s keeps its denials", name)
		}
	}
}
