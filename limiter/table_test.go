package limiter_test

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

// everyKind is one limit of each algorithm, such that nothing refills within a few minutes of
// start.
var everyKind = []limiter.Spec{
	{Name: "gcra", Algorithm: limiter.GCRA, Limit: 5, Per: time.Hour},
	{Name: "fraction", Algorithm: limiter.GCRA, Limit: 7, Per: time.Hour},
	{Name: "fixed", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Hour},
	{Name: "drained", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Hour, Drain: true},
	{
		Name: "rejected", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Hour,
		CountRejected: true,
	},
	{
		Name: "first hit", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Hour,
		Anchor: limiter.FirstHit,
	},
	{Name: "sliding", Algorithm: limiter.SlidingWindow, Limit: 5, Per: time.Hour},
	{Name: "log", Algorithm: limiter.SlidingLog, Limit: 5, Per: time.Hour},
	{
		Name: "log of all", Algorithm: limiter.SlidingLog, Limit: 5, Per: time.Hour,
		CountRejected: true,
	},
	{Name: "bucket", Algorithm: limiter.TokenBucket, Limit: 5, Per: time.Hour, Refill: 2},
	{
		Name: "phase", Algorithm: limiter.TokenBucket, Limit: 5, Per: time.Hour, Refill: 3,
		Anchor: limiter.FirstHit,
	},
	{Name: "drain", Algorithm: limiter.TokenBucket, Limit: 5, Per: time.Hour, Drain: true},
	{Name: "queue", Algorithm: limiter.LeakyBucket, Limit: 5, Per: time.Hour, Burst: 4},
	{
		Name: "harsh", Algorithm: limiter.SlidingCounter, Limit: 5, Per: time.Hour, Buckets: 4,
		CountRejected: true,
	},
	{
		Name: "lenient", Algorithm: limiter.SlidingCounter, Limit: 5, Per: time.Hour, Buckets: 5,
		Lenient: true,
	},
	{Name: "permits", Algorithm: limiter.Concurrency, Limit: 5, Per: time.Hour, Buckets: 4},
	{
		Name: "calendar", Algorithm: limiter.FixedWindow, Limit: 5, Calendar: limiter.Hours,
		Per: time.Hour, TimeZone: "Asia/Kathmandu",
	},
	{Name: "stated window", Algorithm: limiter.StatedWindow, Limit: 5, Per: time.Hour},
	{Name: "stated bucket", Algorithm: limiter.StatedBucket, Limit: 5, Per: time.Hour},
}

// allOver is a time after which nothing is left of any of them.
const allOver = 8 * limiter.Instant(time.Hour)

func forEveryKind(t *testing.T, f func(t *testing.T, spec limiter.Spec, l *limiter.Limit)) {
	for _, s := range everyKind {
		t.Run(s.Name, func(t *testing.T) { f(t, s, mustNew(t, s)) })
	}
}

// TestEqualHashes: keys with one hash are never confused, at any lengths.
func TestEqualHashes(t *testing.T) {
	forEveryKind(t, func(t *testing.T, spec limiter.Spec, l *limiter.Limit) {
		table, believed := limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20, Shards: 1}), naive{}
		for round := range int64(lessIfShort(4, 2)) {
			for i := range 200 {
				key := strings.Repeat("k", i)
				got := table.Take(start, l, key, 42, 1+round)
				if want := believed.take(start, spec, key, 1+round, true); got != want {
					t.Fatalf("%d bytes, round %d: got %+v, want %+v", i, round, got, want)
				}
			}
		}
		if s := table.Stats(); s.Keys != 200 || s.Overflowed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestTwoLimitsOfOneKey: a key has a state for each limit, and one limit's shares have states of
// their own.
func TestTwoLimitsOfOneKey(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	hash := limiter.Hash("alice")
	for _, s := range everyKind {
		for _, l := range []*limiter.Limit{mustNew(t, s), mustNew(t, s).Share(3)} {
			if d := table.Take(start, l, "alice", hash, l.Capacity()); !d.Allowed ||
				d.Remaining != 0 {
				t.Errorf("%q: %+v", l.Name, d)
			}
			if d := table.Take(start, l, "alice", hash, 1); d.Allowed {
				t.Errorf("%q: %+v", l.Name, d)
			}
		}
	}
	if n := table.Stats().Keys; n != 2*len(everyKind) {
		t.Errorf("%d entries, want %d", n, 2*len(everyKind))
	}
}

// TestGrowth: no state is lost or mixed up while the table grows from nothing to a hundred thousand
// keys.
func TestGrowth(t *testing.T) {
	l := mustNew(t, limiter.Spec{
		Name: "growth", Algorithm: limiter.FixedWindow, Limit: 1000,
		Per: time.Hour,
	})
	table := limiter.NewTable(limiter.TableConfig{Bytes: 64 << 20, Shards: 4})
	key := func(i int) string { return fmt.Sprintf("%d-%s", i, strings.Repeat("x", i%97)) }
	const keys = 100_000
	for i := range keys {
		if d := table.Take(start, l, key(i), limiter.Hash(key(i)), int64(1+i%500)); !d.Allowed {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
	for i := range keys {
		if d := table.Peek(
			start, l, key(i), limiter.Hash(key(i)), 0,
		); d.Remaining != int64(999-i%500) {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
	s := table.Stats()
	if s.Keys != keys || s.Overflowed != 0 || s.Bytes > s.Budget {
		t.Errorf("%+v", s)
	}
}

// TestFlood: with a budget for some hundred keys and a flood of strangers, the keys that were there
// get exactly what they should, no stranger is admitted more than by a limiter without bounds, and
// the budget is kept.
func TestFlood(t *testing.T) {
	forEveryKind(t, func(t *testing.T, spec limiter.Spec, l *limiter.Limit) {
		for _, maxKey := range []int{8, 300, 1500, 40}[lessIfShort(0, 3):] {
			rnd := rand.New(rand.NewSource(int64(maxKey)))
			table := limiter.NewTable(limiter.TableConfig{Bytes: limiter.MinBytes, Shards: 1})
			believed := naive{}
			known := map[string]bool{}
			for i := range 30 {
				key := fmt.Sprintf("known-%d", i)
				known[key] = true
				table.Take(start, l, key, limiter.Hash(key), 2)
				believed.take(start, spec, key, 2, true)
			}
			now := start
			for range lessIfShort(4000, 3000) {
				now += limiter.Instant(rnd.Int63n(1e6))
				key := fmt.Sprintf("%0*d", 1+rnd.Intn(maxKey), rnd.Intn(4000))
				cost := rnd.Int63n(3) - 1
				if rnd.Intn(10) == 0 {
					key = fmt.Sprintf("known-%d", rnd.Intn(30))
					cost = rnd.Int63n(7) // a refunded key may be nearer to full than new keys
				}
				got := table.Take(now, l, key, limiter.Hash(key), cost)
				if known[key] {
					if want := believed.take(now, spec, key, cost, true); got != want {
						t.Fatalf("keys up to %d bytes: %s, cost %d: got %+v, want %+v", maxKey, key,
							cost, got, want)
					}
				} else {
					believed.follow(t, now, spec, key, cost, got)
				}
				if rnd.Intn(100) == 0 {
					table.Sweep(now, 50)
				}
			}
			s := table.Stats()
			if s.Overflowed == 0 || s.Bytes > s.Budget || s.Budget != limiter.MinBytes {
				t.Errorf("keys up to %d bytes: %+v", maxKey, s)
			}
		}
	})
}

// follow checks that a decision which may refuse too much has not admitted too much, and charges
// what was charged.
func (n naive) follow(t interface {
	Helper()
	Fatalf(string, ...any)
}, now limiter.Instant, spec limiter.Spec, key string, cost int64, got limiter.Decision,
) {
	t.Helper()
	s := n[key]
	if s == nil {
		s = newNaiveState()
		n[key] = s
	}
	spec = s.plain(spec)
	at := big64(int64(now))
	switch {
	case cost == 0:
	case cost < 0:
		s.charge(spec, at, cost)
	case got.Allowed && !s.admits(spec, at, cost):
		t.Fatalf("%.40q, cost %d, is admitted too much: %+v", key, cost, got)
	case got.Allowed:
		s.charge(spec, at, cost)
	default:
		s.refuse(spec, at, limiter.Request{Cost: cost})
	}
}

// TestFloodInTime is TestFlood with windows that end, keys that come back, states that are merged
// in, and sweeps: a key may find room, lose its entry once that is fresh, share a cell, and get an
// entry again. Nobody is ever admitted too much.
func TestFloodInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := rapid.SampledFrom(everyKind).Draw(t, "limit")
		if spec.Algorithm == limiter.TokenBucket && spec.Anchor == limiter.FirstHit {
			t.Skip("a bucket that loses its phase admits no more in a span, but earlier than one " +
				"that has kept it")
		}
		spec.Per, spec.Calendar, spec.TimeZone = time.Second, 0, ""
		l := mustNew(t, spec)
		rnd := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
		believed := naive{}
		keys := rapid.SampledFrom([]int{500, 1500, 5000}).Draw(t, "keys")
		length := rapid.SampledFrom([]int{4, 30, 200}).Draw(t, "length")
		pace := rapid.SampledFrom([]int64{0, 1e5, 2e6, 1e9}).Draw(t, "pace")
		now := start
		for range 3000 {
			now += limiter.Instant(rnd.Int63n(pace + 1))
			key := fmt.Sprintf("%0*d", 4+rnd.Intn(length), rnd.Intn(keys))
			hash := limiter.Hash(key) // of another one an evicted entry is not found again
			cost := rnd.Int63n(6)
			believed.follow(t, now, spec, key, cost, table.Take(now, l, key, hash, cost))
			switch rnd.Intn(300) {
			case 0:
				table.Sweep(now, rnd.Intn(2000))
			case 1:
				table.Reset(start, l, key, hash)
				delete(believed, key)
			}
		}
		if s := table.Stats(); s.Bytes > s.Budget {
			t.Fatalf("%+v", s)
		}
	})
}

// TestCellWindowLasts: a newcomer's window does not end with that of another newcomer, which opened
// their cell before it.
func TestCellWindowLasts(t *testing.T) {
	table, believed := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1}), naive{}
	for i := range 2000 {
		key := fmt.Sprint("full-", i)
		table.Take(start, mustNew(t, everyKind[0]), key, limiter.Hash(key), 1)
	}
	spec := limiter.Spec{
		Name: "cell", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 1000, Per: time.Second,
	}
	l := mustNew(t, spec)
	admitted := 0
	for _, step := range []struct {
		after limiter.Instant
		who   string
		cost  int64
	}{{0, "early", 1}, {900e6, "late", 600}, {1100e6, "late", 600}} {
		for i := range 300 {
			key := fmt.Sprint(step.who, i)
			d := table.Take(start+step.after, l, key, limiter.Hash(key), step.cost)
			believed.follow(t, start+step.after, spec, key, step.cost, d)
			if d.Allowed && step.cost > 1 {
				admitted++
			}
		}
	}
	if admitted == 0 {
		t.Error("nobody came late: the test does not show what it should")
	}
}

// TestSweep: once all is over, looking at each slot once removes every entry, and the memory is
// free again: for slots, for long keys, for the sketch, round after round.
func TestSweep(t *testing.T) {
	forEveryKind(t, func(t *testing.T, _ limiter.Spec, l *limiter.Limit) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20, Shards: 2})
		now := start
		for round := range lessIfShort(20, 4) {
			before := table.Stats()
			for i := range 1200 {
				key := fmt.Sprintf("%d-%0*d", round, (i*7+round*100)%1000, i)
				if d := table.Take(now, l, key, limiter.Hash(key), 5); !d.Allowed {
					t.Fatalf("round %d, key %d: %+v", round, i, d)
				}
			}
			s := table.Stats()
			if s.Keys != 1200 || s.Overflowed != 0 || s.Bytes > s.Budget {
				t.Fatalf("round %d: %+v", round, s)
			}
			if n := table.Sweep(now, 2*s.Slots); n != 0 {
				t.Fatalf("round %d: %d entries removed that are in use", round, n)
			}
			now += allOver
			if n := table.Sweep(now, s.Slots+1000); n != 1200 {
				t.Fatalf("round %d: %d entries removed, want 1200", round, n)
			}
			if after := table.Stats(); after.Keys != 0 || after.Swept != before.Swept+1200 ||
				round > 0 && after.Bytes > 20_000 {
				t.Fatalf("round %d: %+v", round, after)
			}
		}
	})
}

// TestSweepLooksAtTheLiving: a sweep of as many slots as there are, which is a period of it, costs
// in the order of the keys that are left and not of those that there were.
func TestSweepLooksAtTheLiving(t *testing.T) {
	short := mustNew(t, limiter.Spec{
		Name: "short", Algorithm: limiter.GCRA, Limit: 5,
		Per: time.Minute,
	})
	long := mustNew(t, limiter.Spec{
		Name: "long", Algorithm: limiter.GCRA, Limit: 5,
		Per: 100 * time.Hour,
	})
	for _, live := range []int{0, 100, 3000, 20_000} {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 16 << 20, Shards: 8})
		for i := range 60_000 {
			l := short
			if i < live {
				l = long
			}
			key := fmt.Sprintf("%0*d", 5+i%60, i)
			table.Take(start, l, key, limiter.Hash(key), 5)
		}
		before := table.Stats()
		now := start + limiter.Instant(time.Hour)
		if removed := table.Sweep(now, before.Slots); removed < (60_000-live)*9/10 {
			t.Errorf("%d live: %d removed by a sweep of all slots", live, removed)
		}
		table.Sweep(now, before.Slots)
		s := table.Stats()
		if s.Keys != live || s.Slots > 5*live+8*64 || s.Bytes > int64(live)*400+8*64*64 {
			t.Errorf("%d live: %+v before, %+v after", live, before, s)
		}
	}
}

// TestSketchEnds: what strangers were admitted together is forgotten when it is over, and they get
// entries again.
func TestSketchEnds(t *testing.T) {
	forEveryKind(t, func(t *testing.T, _ limiter.Spec, l *limiter.Limit) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
		take := func(now limiter.Instant, i int) bool {
			key := fmt.Sprintf("key-%d", i)
			return table.Take(now, l, key, limiter.Hash(key), 1).Allowed
		}
		for i := range 5000 {
			take(start, i)
		}
		s := table.Stats()
		if s.Overflowed == 0 || s.Cells == 0 || s.Keys == 0 || take(start, 20_001) {
			t.Fatalf("the flood has found room: %+v", s)
		}
		later := start + allOver
		if !take(later, 20_001) {
			t.Error("a newcomer is refused although all that was there is over")
		}
		table.Sweep(later, 100_000)
		// a state in a block had to wait for the sweep to find room
		if s := table.Stats(); s.Cells+s.Keys != 1 {
			t.Errorf("%+v", s)
		}
		if take(later, 20_002); table.Stats().Keys == 0 {
			t.Errorf("a newcomer has found no room after the sweep: %+v", table.Stats())
		}
	})
}

// TestTakeAll: all items or none, duplicates add up, and a refusal leaves no trace anywhere, under
// any mix of limits.
func TestTakeAll(t *testing.T) {
	limits := map[string]*limiter.Limit{}
	specs := map[string]limiter.Spec{}
	for _, s := range everyKind {
		limits[s.Name], specs[s.Name] = mustNew(t, s), s
	}
	names := slices.Sorted(maps.Keys(limits))
	rapid.Check(t, func(t *rapid.T) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
		believed := map[string]naive{}
		for _, n := range names {
			believed[n] = naive{}
		}
		now := start
		for range rapid.IntRange(1, 15).Draw(t, "requests") {
			now += limiter.Instant(rapid.Int64Range(0, 20*60e9).Draw(t, "step"))
			items := make([]limiter.Item, rapid.IntRange(0, 6).Draw(t, "items"))
			for i := range items {
				key := rapid.SampledFrom(drawnKeys).Draw(t, "key")
				items[i] = limiter.Item{
					Limit: limits[rapid.SampledFrom(names).Draw(t, "limit")], Key: key,
					Hash:    limiter.Hash(key),
					Request: limiter.Request{Cost: rapid.Int64Range(-1, 6).Draw(t, "cost")},
				}
			}
			keys := table.Stats().Keys
			out := make([]limiter.Decision, len(items))
			got := table.TakeAll(now, items, out)

			before := map[string]naive{}
			for n, b := range believed {
				before[n] = naive{}
				for k, s := range b {
					before[n][k] = s.clone()
				}
			}
			all, want := true, make([]limiter.Decision, len(items))
			for i, it := range items {
				name := it.Limit.Name
				want[i] = believed[name].take(now, specs[name], it.Key, it.Cost, it.Cost != 0)
				all = all && want[i].Allowed
			}
			if !all {
				believed = before
				for i, it := range items { // nothing was charged
					name := it.Limit.Name
					left := believed[name].take(now, specs[name], it.Key, 0, false)
					want[i].Remaining, want[i].ResetAfter = left.Remaining, left.ResetAfter
					want[i].Drained = 0
				}
			}
			if got != all || !slices.Equal(out, want) {
				t.Fatalf("%+v:\n got %v, %+v\nwant %v, %+v", items, got, out, all, want)
			}
			if !all {
				if n := table.Stats().Keys; n != keys {
					t.Fatalf("%d keys before and %d after a refusal", keys, n)
				}
			}
			for n, l := range limits {
				for _, key := range drawnKeys {
					compare(t, table, believed[n], now, l, specs[n], key, limiter.Request{}, true)
				}
			}
		}
	})
}

// TestTakeAllInTheSketch: also without room for an entry, a refusal leaves no trace.
func TestTakeAllInTheSketch(t *testing.T) {
	forEveryKind(t, func(t *testing.T, _ limiter.Spec, l *limiter.Limit) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
		for i := range 3000 {
			key := fmt.Sprintf("flood-%d", i)
			table.Take(start, l, key, limiter.Hash(key), 1)
		}
		other := l.Share(1) // of another identity, so its cells are untouched
		items := make([]limiter.Item, 40)
		for i := range items {
			key := fmt.Sprintf("stranger-%d", i)
			items[i] = limiter.Item{
				Limit: other, Key: key, Hash: limiter.Hash(key),
				Request: limiter.Request{Cost: 1},
			}
		}
		items = append(items, limiter.Item{
			Limit: other, Key: "x", Hash: limiter.Hash("x"),
			Request: limiter.Request{Cost: l.Capacity() + 1},
		})
		out := make([]limiter.Decision, len(items))
		before := table.Stats()
		if table.TakeAll(start, items, out) {
			t.Fatal("more than the limit was admitted")
		}
		if after := table.Stats(); after.Cells != before.Cells || after.Keys != before.Keys {
			t.Errorf("%+v before, %+v after", before, after)
		}
		for _, it := range items {
			if d := table.Peek(start, other, it.Key, it.Hash, 0); d.Remaining != d.Limit {
				t.Errorf("%s: %+v", it.Key, d)
			}
		}
	})
}

// TestEachAndMerge: the entries of one table, merged into another, are all that it needs to decide
// the same.
func TestEachAndMerge(t *testing.T) {
	one := limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20})
	two := limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20, Shards: 1})
	seen := 0
	for i := range 3000 {
		l := mustNew(t, everyKind[i%len(everyKind)])
		key := fmt.Sprintf("%0*d", 1+i%90, i)
		one.Take(start, l, key, limiter.Hash(key), int64(1+i%5))
	}
	one.Each(start, func(l *limiter.Limit, key string, state []int64, d limiter.Decision) bool {
		seen++
		if want := one.Peek(start, l, key, limiter.Hash(key), 0); d != want {
			t.Fatalf("%s of %s: %+v, want %+v", key, l.Name, d, want)
		}
		two.Merge(start, l, key, limiter.Hash(key), state)
		two.Merge(start, l, key, limiter.Hash(key), slices.Clone(state))
		return true
	})
	if seen != 3000 || two.Stats().Keys != 3000 {
		t.Fatalf("%d entries seen, merged: %+v", seen, two.Stats())
	}
	for i := range 3000 {
		l := mustNew(t, everyKind[i%len(everyKind)])
		key := fmt.Sprintf("%0*d", 1+i%90, i)
		a, b := one.Take(start, l, key, limiter.Hash(key), 1), two.Take(start, l, key,
			limiter.Hash(key), 1)
		if a != b {
			t.Fatalf("%s of %s: %+v and %+v", key, l.Name, a, b)
		}
	}
	one.Each(start, func(*limiter.Limit, string, []int64, limiter.Decision) bool {
		seen++
		return false
	})
	if seen != 3001 {
		t.Errorf("%d calls after the end", seen-3001)
	}
}

// TestEachFillsEvenly: a large table can be merged into an empty one of its size, entry by entry as
// Each gives them.
func TestEachFillsEvenly(t *testing.T) {
	l := mustNew(t, everyKind[0])
	for _, shards := range [][2]int{{1, 1}, {16, 1}, {1, 16}, {8, 8}} {
		one := limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20, Shards: shards[0]})
		two := limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20, Shards: shards[1]})
		for i := range 20_000 {
			one.Take(start, l, fmt.Sprint(i), limiter.Hash(fmt.Sprint(i)), 1)
		}
		one.Each(start, func(l *limiter.Limit, key string, state []int64, _ limiter.Decision) bool {
			two.Merge(start, l, key, limiter.Hash(key), state)
			return true
		})
		if s := two.Stats(); s.Keys != 20_000 || s.Overflowed != 0 {
			t.Errorf("%v shards: %+v", shards, s)
		}
	}
}

// TestMergeOddStates: a state that is too short, too long or broken neither panics nor gives
// anything back.
func TestMergeOddStates(t *testing.T) {
	forEveryKind(t, func(t *testing.T, _ limiter.Spec, l *limiter.Limit) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
		table.Take(start, l, "k", 1, 3)
		left := table.Peek(start, l, "k", 1, 0).Remaining
		for _, state := range [][]int64{
			nil,
			{},
			{0},
			{0, 0, 0},
			{1},
			{-1 << 63},
			{-1 << 63, -1, -1},
			{-5, -5, -5, -5},
			{int64(start), -1 << 63, -1 << 63},
			make([]int64, 100),
			{1<<63 - 1, 1<<63 - 1, 1<<63 - 1, 1<<63 - 1},
			slices.Repeat([]int64{1<<63 - 1}, 10),
		} {
			table.Merge(start, l, "k", 1, state)
			table.Merge(start, l, "new", 2, state)
			d := table.Peek(start, l, "k", 1, 0)
			if d.Remaining > left {
				t.Errorf("%v: %d remain, %d before", state, d.Remaining, left)
			}
			left = d.Remaining
			table.Take(start, l, "new", 2, 1)
			table.Take(start, l, "new", 2, -1)
		}
		if left != 0 {
			t.Error("the largest state there is has not been kept")
		}
	})
}

// TestReset: a key that is forgotten begins anew, and its neighbours do not.
func TestReset(t *testing.T) {
	forEveryKind(t, func(t *testing.T, _ limiter.Spec, l *limiter.Limit) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20, Shards: 1})
		table.Reset(start, l, "k0", 1)
		if s := table.Stats(); s.Limits != 0 {
			t.Error("a reset has made its limit known")
		}
		for i := range 50 {
			table.Take(start, l, fmt.Sprint("k", i), 1, 5)
		}
		if d := table.Reset(start, l, "k20", 1); d.Remaining != d.Limit {
			t.Errorf("after a reset: %+v", d)
		}
		for i := range 50 {
			if d := table.Peek(start, l, fmt.Sprint("k", i), 1, 5); d.Allowed != (i == 20) {
				t.Errorf("k%d: %+v", i, d)
			}
		}
	})
}

// TestPeekWritesNothing: peeks and costs of 0 make no entry and no limit known.
func TestPeekWritesNothing(t *testing.T) {
	forEveryKind(t, func(t *testing.T, spec limiter.Spec, l *limiter.Limit) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		table.Peek(start, l, "k", 1, 1)
		table.Take(start, l, "k", 1, 0)
		if s := table.Stats(); s.Keys != 0 || s.Limits != 0 {
			t.Errorf("%+v", s)
		}
		if spec.Algorithm != limiter.StatedWindow { // which keeps a credit
			table.Take(start, l, "k", 1, -5)
		}
		if !spec.Drain {
			table.Take(start, l, "k", 1, l.Capacity()+1)
		}
		if s := table.Stats(); s.Keys != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestManyLimits: limits without entries make room for new ones; when all have entries, a further
// limit is refused and disturbs nobody; no counter is ever taken for that of another limit.
func TestManyLimits(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 16 << 20, Shards: 4})
	limit := func(i int) *limiter.Limit {
		return mustNew(t, limiter.Spec{
			Name:      fmt.Sprint("limit-", i),
			Algorithm: limiter.FixedWindow, Limit: 2, Per: time.Second,
		})
	}
	now := start
	for i := range 40_000 {
		now += 1e6 // a thousand limits a second, so few have live entries at once
		if d := table.Take(now, limit(i), "k", 1, 1); !d.Allowed || d.Remaining != 1 {
			t.Fatalf("limit %d: %+v", i, d)
		}
		if i%100 == 0 {
			table.Sweep(now, 100_000)
		}
	}
	if s := table.Stats(); s.Limits > 32767 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
	for i := range 32_800 { // all within one window
		table.Take(now, limit(i), "k", 1, 2)
	}
	refused := limit(1 << 20)
	if d := table.Take(now, refused, "k", 1, 1); d.Allowed || d.RetryAfter <= 0 {
		t.Errorf("%+v", d)
	}
	items := []limiter.Item{
		{Limit: limit(32_000), Key: "new", Request: limiter.Request{Cost: 1}},
		{Limit: refused, Key: "k", Request: limiter.Request{Cost: 1}},
	}
	out := make([]limiter.Decision, 2)
	if table.TakeAll(now, items, out) || out[1].Allowed ||
		table.Peek(now, limit(32_000), "new", 0, 0).Remaining != 2 {
		t.Errorf("%+v", out)
	}
}

// TestShardsAreNotPartitions: the keys of one partition, which one node owns, are spread over all
// of its shards.
func TestShardsAreNotPartitions(t *testing.T) {
	l := mustNew(t, everyKind[0])
	table := limiter.NewTable(limiter.TableConfig{Bytes: 2 << 20, Shards: 64})
	rnd := rand.New(rand.NewSource(1))
	const keys = 10_000 // shards hold some 300 each
	for i := range keys {
		partition := uint64(17)
		hash := rnd.Uint64()/4093*4093 + partition
		table.Take(start, l, fmt.Sprint(i), hash, 1)
	}
	if s := table.Stats(); s.Overflowed != 0 || s.Keys != keys {
		t.Errorf("the keys of one partition overflow some shards: %+v", s)
	}
}

// TestOneKeyFromManyGoroutines: of ten thousand, exactly ten thousand are admitted, to all callers
// together.
func TestOneKeyFromManyGoroutines(t *testing.T) {
	forEveryKind(t, func(t *testing.T, s limiter.Spec, _ *limiter.Limit) {
		s.Limit = 10_000
		switch s.Algorithm {
		case limiter.SlidingLog:
			s.Limit = limiter.MaxLog
		case limiter.LeakyBucket:
			s.Burst = s.Limit - 1
		}
		l := mustNew(t, s)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
		var admitted atomic.Int64
		parallel(8, func(int) {
			for range 2000 {
				if table.Take(start, l, "k", limiter.Hash("k"), 1).Allowed {
					admitted.Add(1)
				}
			}
		})
		if admitted.Load() != s.Limit {
			t.Errorf("%d admitted of %d", admitted.Load(), s.Limit)
		}
	})
}

// TestManyKeysFromManyGoroutines: with growth, sweeps, walks, groups, refunds and limits replaced
// all at once, each key is admitted exactly its limit.
func TestManyKeysFromManyGoroutines(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 8 << 20, Shards: 8})
	const keys = 2000
	var admitted [keys]atomic.Int64
	parallel(8, func(worker int) {
		l := mustNew(t, everyKind[0])
		rnd := rand.New(rand.NewSource(int64(worker)))
		order := rnd.Perm(keys)
		for round := range 8 {
			for _, i := range order {
				key := fmt.Sprintf("%0*d", 1+i%70, i)
				hash := limiter.Hash(key)
				switch rnd.Intn(10) {
				case 0:
					partner := fmt.Sprintf("pair-%d-%d-%d", worker, round, i)
					items := []limiter.Item{
						{l, key, hash, limiter.Request{Cost: 1}},
						{l, partner, limiter.Hash(partner), limiter.Request{Cost: 1}},
					}
					if worker%2 == 0 {
						slices.Reverse(items)
					}
					if table.TakeAll(start, items, make([]limiter.Decision, 2)) {
						admitted[i].Add(1)
					}
				case 1:
					if table.Take(start, l, key, hash, 2).Allowed {
						table.Take(start, l, key, hash, -2)
					}
				default:
					if table.Take(start, l, key, hash, 1).Allowed {
						admitted[i].Add(1)
					}
				}
				if i%500 == 0 {
					l = mustNew(t, everyKind[0])
					table.Sweep(start, 1000)
					table.Stats()
					table.Each(start, func(*limiter.Limit, string, []int64, limiter.Decision) bool {
						return rnd.Intn(100) != 0
					})
				}
			}
		}
	})
	l := mustNew(t, everyKind[0])
	for i := range admitted {
		key := fmt.Sprintf("%0*d", 1+i%70, i)
		left := table.Peek(start, l, key, limiter.Hash(key), 0).Remaining
		if got := admitted[i].Load(); got+left != 5 {
			t.Errorf("key %d: %d admitted and %d left of 5", i, got, left)
		}
	}
}

// TestManyLimitsFromManyGoroutines: limits that come and go while others are used lose and mix up
// nothing.
func TestManyLimitsFromManyGoroutines(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 8 << 20, Shards: 2})
	var admitted atomic.Int64
	steady := mustNew(t, limiter.Spec{
		Name: "steady", Algorithm: limiter.GCRA, Limit: 5000,
		Per: 1000 * time.Hour,
	})
	parallel(4, func(worker int) {
		for i := range 2000 {
			l := mustNew(t, limiter.Spec{
				Name:      fmt.Sprint(worker, "-", i),
				Algorithm: limiter.FixedWindow, Limit: 2, Per: time.Millisecond,
			})
			now := start + limiter.Instant(i)*1e6
			if d := table.Take(now, l, "k", 1, 2); !d.Allowed {
				t.Errorf("limit %s: %+v", l.Name, d)
			}
			if table.Take(start, steady, "k", 1, 1).Allowed {
				admitted.Add(1)
			}
			if i%20 == 0 {
				table.Sweep(now+1e9, 100_000)
			}
		}
	})
	if admitted.Load() != 5000 {
		t.Errorf("%d admitted of 5000", admitted.Load())
	}
}

func parallel(n int, f func(worker int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// TestTakeAllocatesNothing: not for a known key, nor a new one, nor a refused one, nor a peek.
func TestTakeAllocatesNothing(t *testing.T) {
	forEveryKind(t, func(t *testing.T, _ limiter.Spec, l *limiter.Limit) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20, Shards: 1})
		keys := make([]string, 2000)
		for i := range keys {
			keys[i] = fmt.Sprintf("%0*d", 1+i%50, i)
		}
		table.Take(start, l, "first", 0, 1)
		i := 0
		if n := testing.AllocsPerRun(5000, func() {
			key := keys[i%len(keys)]
			table.Take(start, l, key, limiter.Hash(key), 1)
			table.Take(start, l, key, limiter.Hash(key), 6)
			table.Take(start, l, key, limiter.Hash(key), -1)
			table.Peek(start, l, key, limiter.Hash(key), 1)
			i++
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// TestSketchIsFull: when even the sketch has no room for another limit's cells, its newcomers are
// refused, told to come back, and nobody else is disturbed.
func TestSketchIsFull(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
	believed := map[string]naive{}
	var refused limiter.Decision
	for i := range 4000 {
		s := everyKind[i%len(everyKind)]
		s.Name = fmt.Sprint(s.Name, i%60)
		if believed[s.Name] == nil {
			believed[s.Name] = naive{}
		}
		key := fmt.Sprint("key-", i%977)
		before := table.Stats().Refused
		d := table.Take(start, mustNew(t, s), key, limiter.Hash(key), 1+int64(i%3))
		believed[s.Name].follow(t, start, s, key, 1+int64(i%3), d)
		if table.Stats().Refused > before {
			refused = d
		}
	}
	s := table.Stats()
	if s.Refused == 0 || s.Bytes > s.Budget || refused.Allowed || refused.RetryAfter != time.Hour {
		t.Errorf("%+v, %+v", s, refused)
	}
}

// TestSweepAfterChange: an entry that was written while its limit had another kind of interval is
// swept like others.
func TestSweepAfterChange(t *testing.T) {
	for _, limits := range [][2]int64{{6, 7}, {7, 6}} {
		s := limiter.Spec{
			Name: "changed", Algorithm: limiter.GCRA, Limit: limits[0],
			Per: time.Minute,
		}
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
		table.Take(start, mustNew(t, s), "old", 1, 1)
		s.Limit = limits[1]
		table.Take(start, mustNew(t, s), "new", 2, 1)
		if n := table.Sweep(start+1, 1000); n != 0 {
			t.Errorf("%v: %d entries swept at once", limits, n)
		}
		if n := table.Sweep(start+11e9, 1000); n != 2 {
			t.Errorf("%v: %d entries swept, want 2", limits, n)
		}
	}
}

// TestChangeWithoutRoom: an entry that needs more words after its limit was changed, and finds no
// room, is refused and keeps its state.
func TestChangeWithoutRoom(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
	s := limiter.Spec{Name: "changed", Algorithm: limiter.GCRA, Limit: 6, Per: time.Hour}
	whole := mustNew(t, s)
	s.Limit = 7
	fraction := mustNew(t, s)
	// of 48 bytes: with one word they fit into a slot, with two they do not
	keys := make([]string, 2000)
	for i := range keys {
		keys[i] = fmt.Sprintf("%048d", i)
		table.Take(start, whole, keys[i], limiter.Hash(keys[i]), 6)
	}
	full := table.Stats()
	if full.Overflowed == 0 {
		t.Fatalf("%+v", full)
	}
	for _, key := range keys {
		if d := table.Take(start, fraction, key, limiter.Hash(key), 1); d.Allowed {
			t.Fatalf("%s: %+v", key, d)
		}
	}
	if s := table.Stats(); s.Refused == full.Refused || s.Keys != full.Keys {
		t.Errorf("%+v, then %+v", full, s)
	}
	for _, key := range keys {
		if d := table.Take(start, whole, key, limiter.Hash(key), 1); d.Allowed {
			t.Fatalf("%s has lost its state: %+v", key, d)
		}
	}
}

// TestTakeAllLeavesNoTrace: a call that is refused as a whole has changed nothing, with charges,
// refunds and a lack of room in any order.
func TestTakeAllLeavesNoTrace(t *testing.T) {
	forEveryKind(t, func(t *testing.T, _ limiter.Spec, l *limiter.Limit) {
		for _, others := range []int{10, 3000} {
			table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
			for i := range others {
				table.Take(start, l, fmt.Sprint("other", i), limiter.Hash(fmt.Sprint("other", i)),
					1)
			}
			table.Take(start, l, "debtor", 1, 5)
			before, stats := table.Peek(start, l, "debtor", 1, 0), table.Stats()
			items := []limiter.Item{{
				Limit: l, Key: "debtor", Hash: 1,
				Request: limiter.Request{Cost: -5},
			}}
			for i := range 100 {
				items = append(items, limiter.Item{
					Limit: l, Key: fmt.Sprint(i),
					Hash: limiter.Hash(fmt.Sprint(i)), Request: limiter.Request{Cost: 1},
				})
			}
			items = append(items, limiter.Item{
				Limit: l, Key: "x", Hash: 9,
				Request: limiter.Request{Cost: l.Capacity() + 1},
			})
			if table.TakeAll(start, items, make([]limiter.Decision, len(items))) {
				t.Fatal("admitted")
			}
			if after := table.Peek(start, l, "debtor", 1, 0); after != before ||
				table.Stats() != stats {
				t.Errorf("%+v %+v before, %+v %+v after", before, stats, after, table.Stats())
			}
		}
	})
}

// lessIfShort is n, or a few of them with -short, as the race detector is asked for: it multiplies
// the time, and what it looks for is in the tests with goroutines.
func lessIfShort(n, few int) int {
	if testing.Short() {
		return few
	}
	return n
}
