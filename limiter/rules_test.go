package limiter

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestGroupMeetsReclaiming: a group has found its limits and waits for the second of its shards,
// when one of the limits, which has no entries, is marked to be reclaimed. It lets go of what it
// holds, so the reclaimer can pass, and looks again.
func TestGroupMeetsReclaiming(t *testing.T) {
	table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 2})
	l := mustBe(New(Spec{Name: "group", Algorithm: FixedWindow, Limit: 5, Per: time.Hour}))
	r := table.rules.learn(l, table.shards)
	var items []Item
	for i := range 2 { // a key in each shard
		key, n := "", 0
		for Hash(key)>>63 != uint64(i) {
			n++
			key = fmt.Sprint(n)
		}
		items = append(items, Item{l, key, Hash(key), Request{Cost: 2}})
	}

	table.rules.mu.Lock()
	table.shards[1].mu.Lock()
	out := make([]Decision, 2)
	done := make(chan bool)
	go func() { done <- table.TakeAll(5, items, out) }()
	for table.shards[0].mu.TryLock() { // until the group has it, with r not yet marked
		table.shards[0].mu.Unlock()
		runtime.Gosched()
	}
	r.dead.Store(true)
	table.shards[1].mu.Unlock()
	table.rules.reclaimLocked(table.rules.index.Load(), table.shards)
	table.rules.mu.Unlock()

	if !<-done || out[0].Remaining != 3 || out[1].Remaining != 3 {
		t.Errorf("%+v", out)
	}
	if again := table.rules.index.Load().find(l); again == nil || again == r ||
		again.live.Load() != 2 {
		t.Errorf("the entries belong to %+v, and the limit that was reclaimed was %p", again, r)
	}
	table.check(t)
}

// TestNewcomersDoNotReclaimOneByOne: where every limit has entries, a newcomer is refused without a
// look at all of them, but for one of some hundred, which finds what has been forgotten since.
func TestNewcomersDoNotReclaimOneByOne(t *testing.T) {
	table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 1})
	learn := func(i int) *rule {
		return table.rules.learn(mustBe(New(Spec{
			Name: fmt.Sprint(i), Algorithm: GCRA, Limit: 5,
			Per: time.Hour,
		})), table.shards)
	}
	var r *rule
	for i := range maxRules {
		r = learn(i)
		r.live.Add(1)
	}
	if learn(maxRules) != nil {
		t.Fatal("a limit was taken in beside the most there may be")
	}
	r.live.Add(-1)
	refused := 0
	for learn(maxRules) == nil {
		refused++
	}
	if want := maxRules / 64; refused != want {
		t.Errorf("%d newcomers were refused before one looked again, want %d", refused, want)
	}
}
