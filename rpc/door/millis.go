package door

import (
	"math"
	"time"
)

// Millis is d in milliseconds, rounded up: a client that waits that long has waited long enough.
// Never (-1) stays -1. All that a door writes as *_ms goes through here.
func Millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond != 0 {
		ms++
	}
	return ms
}

// FromMillis is ms milliseconds; what no Duration can hold becomes the longest or shortest of them.
func FromMillis(ms int64) time.Duration {
	switch {
	case ms > math.MaxInt64/int64(time.Millisecond):
		return math.MaxInt64
	case ms < math.MinInt64/int64(time.Millisecond):
		return math.MinInt64
	}
	return time.Duration(ms) * time.Millisecond
}
