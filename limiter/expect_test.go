package limiter_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"penstock/limiter"
)

// TestExpectWaitsForNobody: one may say what one will ask for while others decide and the table
// grows, and whether or not the key is there; nothing changes by it.
func TestExpectWaitsForNobody(t *testing.T) {
	l := mustNew(t, limiter.Spec{Name: "rate", Algorithm: limiter.GCRA, Limit: 10, Per: time.Hour})
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20, Shards: 1})
	const keys = 5000
	var growing sync.WaitGroup
	growing.Go(func() {
		for i := range keys {
			table.Take(start, l, fmt.Sprint(i), limiter.Hash(fmt.Sprint(i)), 1)
		}
	})
	for i := range keys {
		table.Expect(l, fmt.Sprint(i), limiter.Hash(fmt.Sprint(i)))
	}
	table.Expect(l, "", 0)
	table.Expect(l, "x", math.MaxUint64)
	growing.Wait()
	before := table.Stats()
	stranger := mustNew(t, limiter.Spec{
		Name: "another", Algorithm: limiter.GCRA, Limit: 10,
		Per: time.Hour,
	})
	table.Expect(stranger, "alice", limiter.Hash("alice"))
	if after := table.Stats(); after != before || after.Keys != keys {
		t.Errorf("%d keys, want %d: %+v, then %+v", after.Keys, keys, before, after)
	}
}
