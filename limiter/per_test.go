package limiter_test

import (
	"testing"
	"time"

	"penstock/limiter"
)

func TestParsePer(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"10ms": 10 * time.Millisecond, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour, "2w": 14 * 24 * time.Hour,
		"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
	} {
		if d, err := limiter.ParsePer(s); err != nil || d != want {
			t.Errorf("%s: %v, %v; want %v", s, d, err, want)
		}
	}
	for _, s := range []string{"", "d", "w", "-1d", "1.5d", "99999999999999d", "1 m", "year", "1y", "1mo"} {
		if d, err := limiter.ParsePer(s); err == nil {
			t.Errorf("%q is %v", s, d)
		}
	}
}
