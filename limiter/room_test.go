package limiter

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// Promise: all items are charged, or none, also where a newcomer finds no room when all are stored.
func TestGroupWithoutRoom(t *testing.T) {
	const now, limit, used = Instant(1_700_000_000_000_000_000), 1000, 990
	for _, a := range []Algorithm{GCRA, FixedWindow, SlidingWindow, TokenBucket} {
		spec := Spec{Name: "l", Algorithm: a, Limit: limit, Per: time.Hour}
		if a == TokenBucket {
			spec.Refill = 1
		}
		l := mustBe(New(spec))
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		table.Track()
		s := &table.shards[0]
		item := func(key string) Item { return Item{l, key, Hash(key), Request{Cost: 1}} }
		for i := range 3000 { // they have used so much that no newcomer drives them out
			key := fmt.Sprint("key ", i)
			table.Take(now, l, key, Hash(key), used)
		}
		var known Item
		for i := 0; known.Key == ""; i++ {
			it := item(fmt.Sprint("key ", i))
			if s.entryOf(mixOf(it.Hash, l), l, it.Key) >= 0 {
				known = it
			}
		}
		s.changed.sketchBytes = math.MaxInt32 // what comes into the sketch cannot be told any more
		for _, items := range [][]Item{
			{known, item("newcomer")}, {item("newcomer"), known}, {known, known, item("newcomer")},
		} {
			out := make([]Decision, len(items))
			if table.TakeAll(now, items, out) {
				t.Fatalf("%v: there is room", a)
			}
			if d := table.Peek(now, l, known.Key, known.Hash, 0); d.Remaining != limit-used {
				t.Errorf("%v: %d of the known key remain after a refusal, want %d", a, d.Remaining,
					limit-used)
			}
		}
	}
}
