package limiter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
)

func TestParsePer(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"10ms": 10 * time.Millisecond, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour,
		"2w":     14 * 24 * time.Hour,
		"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
	} {
		if d, err := limiter.ParsePer(s); err != nil || d != want {
			t.Errorf("%s: %v, %v; want %v", s, d, err, want)
		}
	}
	for _, s := range []string{
		"", "d", "w", "-1d", "1.5d", "99999999999999d", "1 m", "year", "1y",
		"1mo",
	} {
		if d, err := limiter.ParsePer(s); err == nil {
			t.Errorf("%q is %v", s, d)
		}
	}
}

// Promise: whatever a period says, it is a length that can be written and read again, or an error
// that shows the text.
func FuzzPer(f *testing.F) {
	for _, text := range []string{
		"1h30m", "minute", "month", "1w1d", "0s", "99999999999999999999w", "1ms1ms", "", "-1s",
		"٣s",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := limiter.ParsePer(text)
		if err != nil {
			shown := text == "month" || text == "year" ||
				strings.Contains(err.Error(), fmt.Sprintf("%.40q", text))
			if d != 0 || !shown {
				t.Fatalf("%q is %v and the error %v", text, d, err)
			}
			return
		}
		if d < 0 || d > limiter.MaxPer {
			t.Fatalf("%q is %v", text, d)
		}
		again, err := limiter.ParsePer(fmt.Sprintf("%dms", d/time.Millisecond))
		if err != nil || again != d {
			t.Fatalf("%q is %v, written in milliseconds %v, %v", text, d, again, err)
		}
		for _, a := range []limiter.Algorithm{limiter.FixedWindow, limiter.GCRA} {
			s := limiter.Spec{Algorithm: a}
			if err := s.ReadPer(text); err != nil || s.Calendar == 0 && s.Per != d {
				t.Fatalf("%q is %v, and for %v %v, %v", text, d, a, s.Per, err)
			}
		}
	})
}
