package limiter_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"penstock/limiter"
)

// TestHandoverUnderLoad: many goroutines ask one table while its entries are copied to another.
// Changes are copied again, then the first table is closed and the last changes follow. Whenever
// that was, both together have admitted each key's limit to the unit: nothing was decided after the
// last copy, and no copy was lost.
func TestHandoverUnderLoad(t *testing.T) {
	forEveryKind(t, func(t *testing.T, spec limiter.Spec, _ *limiter.Limit) {
		spec.Limit = 300
		if spec.Algorithm == limiter.LeakyBucket {
			spec.Burst = spec.Limit - 1
		}
		l := mustNew(t, spec)
		const keys = 8
		name := func(i int) (string, uint64) {
			key := fmt.Sprint("key ", i)
			return key, limiter.Hash(key)
		}
		for round := range 8 {
			var closed atomic.Bool
			from, to := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20}), limiter.NewTable(
				limiter.TableConfig{Bytes: 1 << 20, Shards: 3})
			from.Track()
			from.Guard(func(limiter.Instant, uint64) bool {
				return !closed.Load()
			}, func(uint64) bool { return true })

			var admitted [keys]atomic.Int64
			var asked atomic.Int64
			parallel(5, func(worker int) {
				if worker == 0 {
					hand := func(_ uint64, e limiter.Entry) {
						if !to.Import(start, &e, true) {
							t.Errorf("%s was refused", e.Key)
						}
					}
					for asked.Load() < int64(round*100) { // the moment: later in each round
						runtime.Gosched()
					}
					for part := range from.Parts() {
						from.Scan(start, part, func(uint64) bool { return true }, hand)
					}
					from.Changed(start, hand)
					closed.Store(true)
					from.Changed(start, hand)
					return
				}
				for i := worker; ; i++ {
					key, hash := name(i % keys)
					d := from.Take(start, l, key, hash, 1)
					if d.Closed {
						return
					}
					asked.Add(1)
					if d.Allowed {
						admitted[i%keys].Add(1)
					}
				}
			})
			for i := range keys {
				key, hash := name(i)
				before := admitted[i].Load()
				if left := to.Peek(start, l, key, hash, 0).Remaining; before+left != spec.Limit {
					t.Errorf("round %d: %d of %s were admitted before and %d are left after, of %d",
						round, before, key, left, spec.Limit)
				}
			}
		}
	})
}
