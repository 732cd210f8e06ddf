package door

import (
	"math"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: a client that waits as long as a door says has waited long enough.
func TestMillisRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		limiter.Never: -1, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		time.Hour:     3_600_000,
		math.MaxInt64: math.MaxInt64/1_000_000 + 1,
	} {
		if got := Millis(d); got != want {
			t.Errorf("%v is %d ms, want %d", d, got, want)
		}
	}
	for ms, want := range map[int64]time.Duration{
		0: 0, 5: 5 * time.Millisecond,
		-1: -time.Millisecond, math.MaxInt64: math.MaxInt64, math.MinInt64: math.MinInt64,
	} {
		if got := FromMillis(ms); got != want {
			t.Errorf("%d ms are %v, want %v", ms, got, want)
		}
	}
}
