package limiter_test

import (
	"fmt"
	"testing"

	"penstock/limiter"
)

// Promise: a node that joins loses no count. A table that is copied into an empty one of the same
// size, part by part, finds room there for every entry: none is driven into cells that it would
// have to share.
func TestCopyOfATableHasRoomForAll(t *testing.T) {
	for _, keys := range []int{1000, 20_000} {
		from, to := limiter.NewTable(limiter.TableConfig{
			Bytes:  8 << 20,
			Shards: 1,
		}), limiter.NewTable(limiter.TableConfig{Bytes: 8 << 20, Shards: 1})
		l := mustNew(t, limiter.Spec{Name: "five", Algorithm: limiter.GCRA, Limit: 5, Per: 1 << 40})
		for i := range keys {
			key := fmt.Sprint("key ", i)
			from.Take(start, l, key, limiter.Hash(key), 2)
		}
		for part := range from.Parts() {
			from.Scan(start, part, func(uint64) bool {
				return true
			}, func(_ uint64, e limiter.Entry) { to.Import(start, &e, true) })
		}
		if s := to.Stats(); s.Keys != keys || s.Evicted+s.Overflowed+s.Refused > 0 {
			t.Errorf("of %d entries %d have come; %d were driven out, %d share cells", keys, s.Keys,
				s.Evicted, s.Overflowed)
		}
	}
}
