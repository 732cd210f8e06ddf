package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// TestNoRoomForALimit: a table that knows as many limits as it can, all with entries, refuses a
// further one through every door, and goes on deciding for those that it has.
func TestNoRoomForALimit(t *testing.T) {
	const most = 32767
	table := limiter.NewTable(limiter.TableConfig{Bytes: 16 << 20})
	limitOf := func(i int) *limiter.Limit {
		return mustNew(t, limiter.Spec{Name: fmt.Sprint("limit ", i), Algorithm: limiter.GCRA, Limit: 2, Per: time.Hour})
	}
	// the limits of one key would lie in one shard, and fill it
	keyOf := func(i int) (string, uint64) {
		key := fmt.Sprint("key ", i)
		return key, limiter.Hash(key)
	}
	for i := range most {
		key, hash := keyOf(i)
		if d := table.Take(start, limitOf(i), key, hash, 1); !d.Allowed {
			t.Fatalf("limit %d: %+v", i, d)
		}
	}
	further := limitOf(most)
	key, hash := keyOf(7)
	state := further.EncodeState([]int64{int64(start) + int64(time.Hour)}, start)
	table.Merge(start, further, key, hash, []int64{int64(start) + int64(time.Hour)})
	if !table.Import(start, &limiter.Entry{Limit: further, Key: key, State: state}, false) {
		t.Error("an entry for which there is no room is called broken")
	}
	none := limiter.Decision{Limit: 2, RetryAfter: time.Hour, ResetAfter: time.Hour}
	if d := table.Take(start, further, key, hash, 1); d != none {
		t.Errorf("a take: %+v", d)
	}
	items := []limiter.Item{
		{Limit: limitOf(7), Key: key, Hash: hash, Request: limiter.Request{Cost: 1}},
		{Limit: further, Key: key, Hash: hash, Request: limiter.Request{Cost: 1}},
	}
	out := make([]limiter.Decision, 2)
	if table.TakeAll(start, items, out) || out[1] != none {
		t.Errorf("a group: %+v", out)
	}
	if s := table.Stats(); s.Keys != most || s.Limits != most {
		t.Errorf("%+v", s)
	}
	if d := table.Take(start, limitOf(7), key, hash, 1); !d.Allowed || d.Remaining != 0 {
		t.Errorf("limit 7 afterwards: %+v", d)
	}
}

// TestBrokenImport: what cannot be read is refused, and what the table knows of the key stays.
func TestBrokenImport(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	l := mustNew(t, limiter.Spec{Name: "broken", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Hour})
	hash := limiter.Hash("k")
	before := table.Take(start, l, "k", hash, 3)
	for _, replace := range []bool{false, true} {
		for _, state := range []string{"\xff", "\x0a\x7f", "penstock"} {
			if table.Import(start, &limiter.Entry{Limit: l, Key: "k", State: []byte(state)}, replace) {
				t.Errorf("%q is accepted", state)
			}
			if after := table.Peek(start, l, "k", hash, 0); after != before {
				t.Errorf("%q, replace %v: %+v became %+v", state, replace, before, after)
			}
		}
	}
}
