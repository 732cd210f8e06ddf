package limiter_test

import (
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: a lease is wanted when a key is asked for often, spends no more than it has, and nothing
// from its deadline on, which counts from when it was asked for.
func TestLease(t *testing.T) {
	const ms = limiter.Instant(time.Millisecond)
	var l limiter.Lease
	for i, row := range []struct {
		now                   limiter.Instant
		cost                  int64
		decided, allowed, ask bool
		remaining             int64
		then                  func()
	}{
		{0, 2, false, false, false, 0, nil},
		{0, 2, false, false, false, 0, nil},
		{0, 2, false, false, false, 0, l.Tick},
		{0, 3, false, false, true, 0, func() {
			if got := l.Want(); got != 12 {
				t.Errorf("wants %d, want twice the 6 of the last tick", got)
			}
			l.NotGranted(0)
		}},
		{19 * ms, 1, false, false, false, 0, nil},
		{20 * ms, 1, false, false, true, 0, func() {
			l.Granted(20*ms, 10, &limiter.Decision{Remaining: 50})
		}},
		{21 * ms, 7, true, true, false, 53, nil},
		{21 * ms, 4, false, false, true, 0, nil}, // more than is left: the deciding node is asked
		{22 * ms, 1, true, true, true, 52, nil},  // 80 %
		{1019 * ms, 1, true, true, true, 51, nil},
		{1020 * ms, 1, false, false, true, 0, func() {
			if !l.Ended(1020*ms) || l.Ended(1019*ms) || !l.Ends(720*ms) || l.Ends(719*ms) {
				t.Error("ends 300 ms early, or late")
			}
			l.Heard(1500*ms, 5, &limiter.Decision{Remaining: 4, RetryAfter: time.Second})
		}},
		// a denial by the key itself is not cached here
		{1501 * ms, 5, false, false, true, 0, func() {
			l.Heard(2000*ms, 5, &limiter.Decision{
				Remaining: 4, RetryAfter: time.Second,
				Hold: limiter.HoldInTheWay,
			})
		}},
		{2004 * ms, 5, true, false, false, 4, nil},
		{2004 * ms, 4, false, false, true, 0, nil}, // less than what was denied
		{2005 * ms, 5, false, false, true, 0, nil}, // one asks again,
		{2005 * ms, 5, true, false, false, 4, l.FreeAgain},
		{2005 * ms, 5, false, false, true, 0, nil},
	} {
		var d limiter.Decision
		decided, ask := l.Decide(row.now, row.cost, 100, &d)
		if decided != row.decided || ask != row.ask || decided &&
			(d.Allowed != row.allowed || d.Remaining != row.remaining || d.Limit != 100) {
			t.Errorf("row %d: decided %v, ask %v, %+v", i, decided, ask, d)
		}
		if row.then != nil {
			row.then()
		}
	}
}

// Promise: what is said of a lease is no more than the limit, and of a denial less than was asked
// for; a yes ends a denial.
func TestLeaseSays(t *testing.T) {
	const ms = limiter.Instant(time.Millisecond)
	var l limiter.Lease
	var d limiter.Decision
	l.Granted(0, 10, &limiter.Decision{Remaining: 95})
	if l.Decide(1, 1, 100, &d); !d.Allowed || d.Remaining != 100 {
		t.Errorf("95 remain besides a lease of 9, of 100: %+v", d)
	}
	l = limiter.Lease{}
	l.Heard(0, 5, &limiter.Decision{
		Remaining: 7, RetryAfter: 3 * time.Millisecond,
		Hold: limiter.HoldInTheWay,
	})
	if decided, _ := l.Decide(1*ms, 5, 100, &d); !decided || d.Allowed || d.Remaining != 4 ||
		d.RetryAfter != 2*time.Millisecond {
		t.Errorf("7 remained, and 5 were refused: %t, %+v", decided, d)
	}
	if decided, _ := l.Decide(3*ms, 5, 100, &d); decided {
		t.Errorf("when the denial has ended: %+v", d)
	}
	l.Heard(3*ms, 5, &limiter.Decision{RetryAfter: time.Second, Hold: limiter.HoldInTheWay})
	// what is in the way may go any moment
	for at, want := range map[limiter.Instant]bool{4 * ms: true, 8 * ms: false} {
		again := l
		if decided, _ := again.Decide(at, 5, 100, &d); decided != want {
			t.Errorf("at %d ms: decided is %t", at/ms, decided)
		}
	}
	l.Heard(4*ms, 1, &limiter.Decision{Allowed: true, Remaining: 1, RetryAfter: limiter.Never})
	if decided, _ := l.Decide(5*ms, 5, 100, &d); decided {
		t.Errorf("denied after a yes: %+v", d)
	}
}
