package limiter

import (
	"math"
	"testing"
	"time"
)

// What is reserved of a key: it is said as spent, it is not drained, no cost is large enough to
// get past it, and nothing is left of it when all is settled.
func TestTakesBesideHolds(t *testing.T) {
	l, err := New(Spec{Name: "tokens", Algorithm: TokenBucket, Limit: 100, Per: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(TableConfig{Bytes: 1 << 20})
	book, now, hash := NewLedger(table, nil), Instant(time.Hour), Hash("key")
	for i := range uint64(2) {
		r := HoldRequest{
			ID: HoldID{1, i}, Limit: l, Key: "key", Hash: hash, Units: 20,
			TTL: time.Minute,
		}
		if !book.Open(now, []HoldRequest{r}, make([]Decision, 1)) {
			t.Fatal("refused")
		}
	}
	for _, c := range []struct {
		Request
		allowed            bool
		remaining, drained int64
	}{
		{Request{Cost: 10}, true, 50, 0},
		{Request{Cost: 51}, false, 50, 0},
		{Request{Cost: 51, Drain: true}, false, 50, 0},
		{Request{Cost: math.MaxInt64}, false, 50, 0},
		{Request{Cost: math.MaxInt64 - 39}, false, 50, 0},
		{Request{Cost: 50}, true, 0, 0},
		{Request{Cost: -30}, true, 30, 0},
	} {
		if d := table.Do(now, l, "key", hash, c.Request); d.Allowed != c.allowed ||
			d.Remaining != c.remaining || d.Drained != c.drained {
			t.Errorf("%+v: %+v; want %t, %d and %d", c.Request, d, c.allowed, c.remaining,
				c.drained)
		}
	}
	for i := range uint64(2) {
		if d := book.Settle(now, HoldID{1, i}, hash, "", 5); d.Hold != HoldSettled {
			t.Fatalf("%+v", d)
		}
	}
	if d := table.Peek(now, l, "key", hash, 0); d.Remaining != 60 {
		t.Errorf("%d remain, want 60", d.Remaining)
	}
	for i := range table.shards {
		if table.shards[i].reserved != nil {
			t.Error("what was reserved is kept")
		}
	}
	if len(book.count) != 0 {
		t.Errorf("%v are counted, and nothing is open", book.count)
	}
}

// A request that no window holds beside what is reserved is asked to try again soon, for a hold may
// be settled at any time; but no sooner than what was taken allows it without the hold.
func TestRetryAfterBesideAHold(t *testing.T) {
	for _, c := range []struct {
		algorithm             Algorithm
		taken, reserved, cost int64
		drain                 bool
		wait                  time.Duration
	}{
		{FixedWindow, 0, 3, 8, false, reservedRetry},    // the hold alone is in the way
		{FixedWindow, 7, 3, 8, false, 45 * time.Minute}, // what was taken is as well
		{FixedWindow, 7, 3, 4, false, 45 * time.Minute},
		{GCRA, 7, 3, 8, false, 15 * time.Minute},
		{GCRA, 7, 3, 8, true, 15 * time.Minute}, // nothing is drained beside a hold
	} {
		l, err := New(Spec{Name: "limit", Algorithm: c.algorithm, Limit: 10, Per: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		table := NewTable(TableConfig{Bytes: 1 << 20})
		book, now, hash := NewLedger(table, nil), Instant(time.Hour), Hash("key")
		if c.taken > 0 {
			table.Take(now, l, "key", hash, c.taken)
		}
		r := HoldRequest{
			ID: HoldID{1, 1}, Limit: l, Key: "key", Hash: hash, Units: c.reserved, TTL: time.Minute,
		}
		if !book.Open(now, []HoldRequest{r}, make([]Decision, 1)) {
			t.Fatal("refused")
		}
		now += Instant(15 * time.Minute)
		d := table.Do(now, l, "key", hash, Request{Cost: c.cost, Drain: c.drain})
		if d.Allowed || d.Hold != HoldInTheWay || d.RetryAfter != c.wait || d.Drained != 0 {
			t.Errorf("%+v: %+v", c, d)
		}
	}
}
