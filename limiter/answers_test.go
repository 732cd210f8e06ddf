package limiter_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
)

func spreading(t *testing.T, percent int) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(limiter.Spec{
		Name: "x", Algorithm: limiter.FixedWindow, Limit: 1, Per: time.Minute,
		Answers: limiter.Answers{Spread: percent},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Promise: a spread answer is never earlier than the true one, is at most the stated share later,
// and follows from the key and the time alone.
func TestSpreadIsNeverEarlier(t *testing.T) {
	for _, percent := range []int{0, 1, 10, 99, 100} {
		l := spreading(t, percent)
		for i := range 20_000 {
			hash, now := limiter.Hash(
				fmt.Sprint("key", i%7),
			), limiter.Instant(
				i,
			)*limiter.Instant(
				time.Millisecond,
			)
			retry := time.Duration(i*i*i + i%3 - 1)
			got := l.Answers.SpreadRetry(now, hash, retry)
			switch {
			case got != l.Answers.SpreadRetry(now, hash, retry):
				t.Fatal("the same question has two answers")
			case retry <= 0 && got != retry:
				t.Fatalf("%v became %v", retry, got)
			case got < retry || retry > 0 && got-retry > retry*time.Duration(percent)/100:
				t.Fatalf("%d%% of %v: %v", percent, retry, got)
			}
		}
		for _, far := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, 1 << 62} {
			if got := l.Answers.SpreadRetry(1, 1, far); got < far {
				t.Errorf("%v became %v", far, got)
			}
		}
	}
	if got := spreading(t, 50).Answers.SpreadRetry(1, 1, limiter.Never); got != limiter.Never {
		t.Error(got)
	}
}

// Promise: callers that are denied one after the other, or with keys of their own, come back evenly
// over the whole of the stated share: each tenth of it gets about a tenth of them.
func TestSpreadReachesItsShare(t *testing.T) {
	const n, wait = 20_000, 10 * time.Second
	l := spreading(t, 20)
	for name, ask := range map[string]func(i int) (limiter.Instant, uint64){
		"one key, a microsecond apart": func(i int) (limiter.Instant, uint64) {
			return limiter.Instant(i) * 1000, limiter.Hash("k")
		},
		"many keys in one instant": func(i int) (limiter.Instant, uint64) {
			return 5, limiter.Hash(fmt.Sprint("k", i))
		},
		"a nanosecond apart": func(i int) (limiter.Instant, uint64) {
			return limiter.Instant(i), limiter.Hash("k")
		},
	} {
		var tenths [10]int
		var latest time.Duration
		for i := range n {
			now, hash := ask(i)
			more := l.Answers.SpreadRetry(now, hash, wait) - wait
			tenths[min(9, more*10/(wait/5))]++
			latest = max(latest, more)
		}
		if latest < wait/5*99/100 {
			t.Errorf("%s: at most %v of %v", name, latest, wait/5)
		}
		if least, most := slices.Min(tenths[:]), slices.Max(tenths[:]); least < n/10*9/10 ||
			most > n/10*11/10 {
			t.Errorf("%s: %v", name, tenths)
		}
	}
}

// Promise: an override and a share answer as their limit does; a candidate has no answers, and one
// that is promoted gets those of the limit.
func TestAnswersStayWithTheLimit(t *testing.T) {
	l, err := limiter.New(limiter.Spec{
		Name: "x", Algorithm: limiter.GCRA, Limit: 10, Per: time.Minute,
		Answers: limiter.Answers{Spread: 10, Status: 503, Body: "later"},
	}, limiter.Override{Key: "a", Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	want := limiter.Answers{
		Spread:      10,
		Status:      503,
		Body:        "later",
		ContentType: "text/plain; charset=utf-8",
	}
	if l, err = l.WithCandidate(limiter.Spec{
		Name: "x", Algorithm: limiter.GCRA, Limit: 5, Per: time.Minute,
		Answers: limiter.Answers{Spread: 90},
	}); err != nil {
		t.Fatal(err)
	}
	promoted, err := l.Promoted()
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]limiter.Answers{
		"limit": l.Answers, "override": l.For("a").Answers, "share": l.Share(3).Answers,
		"promoted": promoted.Answers,
	} {
		if got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if l.Candidate().Answers != (limiter.Answers{}) {
		t.Error(l.Candidate().Answers)
	}
}
