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
		return mustNew(t, limiter.Spec{
			Name: fmt.Sprint("limit ", i), Algorithm: limiter.GCRA,
			Limit: 2, Per: time.Hour,
		})
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
	l := mustNew(t, limiter.Spec{
		Name: "broken", Algorithm: limiter.FixedWindow, Limit: 5,
		Per: time.Hour,
	})
	hash := limiter.Hash("k")
	before := table.Take(start, l, "k", hash, 3)
	for _, replace := range []bool{false, true} {
		for _, state := range []string{"\xff", "\x0a\x7f", "penstock"} {
			if table.Import(start, &limiter.Entry{Limit: l, Key: "k", State: []byte(state)},
				replace) {
				t.Errorf("%q is accepted", state)
			}
			if after := table.Peek(start, l, "k", hash, 0); after != before {
				t.Errorf("%q, replace %v: %+v became %+v", state, replace, before, after)
			}
		}
	}
}

// Promise: limits that requests bring along, however many, take no room from limits that are
// configured: 10,000 of them and their shares have room beside. What is refused is counted.
func TestInlineLimitsTakeNothingFromOthers(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 64 << 20})
	take := func(now limiter.Instant, l *limiter.Limit) bool {
		key := "key of " + l.Name
		return table.Take(now, l, key, limiter.Hash(key), 1).Allowed
	}
	brought := func(i int) *limiter.Limit {
		return mustNew(t, limiter.Spec{
			Name: fmt.Sprint("brought ", i), Algorithm: limiter.GCRA,
			Limit: 2, Per: 30 * 24 * time.Hour, Inline: true,
		})
	}
	const attempts = 40_000
	admitted := 0
	for i := range attempts {
		if take(start, brought(i)) {
			admitted++
		}
	}
	s := table.Stats()
	if admitted != limiter.MaxInline || s.Inline != admitted ||
		s.RefusedInline != attempts-limiter.MaxInline || s.Refused != s.RefusedInline ||
		s.RefusedLimits != 0 {
		t.Errorf("%d of %d are admitted, want %d: %+v", admitted, attempts, limiter.MaxInline, s)
	}
	for i := range 10_000 {
		l := mustNew(t, limiter.Spec{
			Name: fmt.Sprint("configured ", i), Algorithm: limiter.GCRA,
			Limit: 2, Per: time.Hour,
		})
		if !take(start, l) || !take(start, l.Share(3)) {
			t.Fatalf("limit %d of a file has no room", i)
		}
	}
	if !take(start, brought(0)) || take(start, brought(attempts)) {
		t.Error("what was brought first goes on, and nothing new is admitted")
	}
	later := start.Add(31 * 24 * time.Hour)
	table.Sweep(later, 1<<30)
	for i := range attempts {
		if i < 600 {
			take(later, brought(attempts+i)) // until it is looked again for numbers
		} else if i < limiter.MaxInline && !take(later, brought(2*attempts+i)) {
			t.Fatalf("limit %d has no room, and no other one has entries", i)
		}
	}
}

// Promise: a limit of which a state had no room admits nothing until that state has run out,
// although there is room by then. Limits that are configured are not refused for that.
func TestWhatHadNoRoomIsNotForgotten(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 64 << 20})
	spec := limiter.Spec{Algorithm: limiter.GCRA, Limit: 2, Per: time.Hour, Inline: true}
	limitOf := func(i int, per time.Duration) *limiter.Limit {
		s := spec
		s.Name, s.Per = fmt.Sprint("brought ", i), per
		return mustNew(t, s)
	}
	for i := range limiter.MaxInline {
		key := fmt.Sprint("key ", i)
		if d := table.Take(start, limitOf(i, time.Minute), key, limiter.Hash(key), 1); !d.Allowed {
			t.Fatalf("limit %d: %+v", i, d)
		}
	}
	merged, imported := limitOf(-1, time.Hour), limitOf(-2, time.Hour)
	hash := limiter.Hash("k")
	words := []int64{int64(start) + int64(time.Hour)}
	table.Merge(start, merged, "k", hash, words)
	if !table.Import(start, &limiter.Entry{
		Limit: imported, Key: "k",
		State: imported.EncodeState(words, start),
	}, false) {
		t.Fatal("an entry for which there is no room is called broken")
	}
	half := start.Add(30 * time.Minute)
	table.Sweep(half, 1<<30)
	for range 1000 { // until it is looked again for numbers
		table.Take(half, limitOf(-3, time.Minute), "other", limiter.Hash("other"), 1)
	}
	if s := table.Stats(); s.Inline > 10 {
		t.Fatalf("there is no room yet: %+v", s)
	}
	for name, l := range map[string]*limiter.Limit{"merged": merged, "imported": imported} {
		if d := table.Take(half, l, "k", hash, 1); d.Allowed {
			t.Errorf("%s: what had no room is forgotten: %+v", name, d)
		}
		named := l.Spec
		named.Inline = false
		if d := table.Take(half, mustNew(t, named), "k", hash, 1); !d.Allowed {
			t.Errorf("%s: a configured limit is refused: %+v", name, d)
		}
	}
	if d := table.Take(half, limitOf(-1, 2*time.Hour), "k", hash, 1); !d.Allowed {
		t.Errorf("another limit, of which nothing was lost: %+v", d)
	}
}
