package limiter_test

import (
	"math"
	"testing"
	"time"

	"penstock/limiter"
)

// TestHugeRefund: a bucket by clients' clocks may be larger than what other limits count up to, and
// a refund gives back all of it, whether it is asked for to the token or with more.
func TestHugeRefund(t *testing.T) {
	for _, limit := range []int64{1<<61 - 1, 1 << 61, 1<<61 + 1, math.MaxInt64} {
		for _, refund := range []int64{-limit, math.MinInt64, math.MinInt64 + 1} {
			spec := limiter.Spec{
				Name: "huge", Algorithm: limiter.TokenBucket, Limit: limit, Refill: 1,
				Per: time.Millisecond, ClientTime: true,
			}
			l, table, believed := mustNew(t, spec), limiter.NewTable(
				limiter.TableConfig{Bytes: 1}), naive{}
			compare(t, table, believed, start, l, spec, "k", limiter.Request{Cost: limit}, false)
			compare(t, table, believed, start, l, spec, "k", limiter.Request{Cost: refund}, true)
			compare(t, table, believed, start, l, spec, "k", limiter.Request{Cost: refund}, false)
			compare(t, table, believed, start, l, spec, "k", limiter.Request{Cost: limit}, false)
		}
	}
}
