package breaker

import (
	"testing"

	"penstock/limiter"
)

// Promise: a peer that does not answer costs a few calls, and then one call a pause.
func TestBreaker(t *testing.T) {
	var b Breaker
	now := limiter.Instant(1 << 40)
	for i := range Trips {
		if b.Open(now) || !b.Pass(now) {
			t.Fatalf("closed to call %d of %d", i+1, Trips)
		}
		b.Fail(now)
	}
	for pause := Pause; pause <= MaxPause; pause = min(2*pause, MaxPause+1) {
		if early := now.Add(pause - 1); !b.Open(early) || b.Pass(early) {
			t.Fatalf("a call passes before %v are over", pause)
		}
		now = now.Add(pause)
		if !b.Pass(now) || b.Pass(now) {
			t.Fatalf("after %v not one call passes", pause)
		}
		b.Fail(now)
	}
	b.Succeed()
	if b.Open(now) || !b.Pass(now) || !b.Pass(now) {
		t.Error("open after an answer")
	}
	if b.Trip(now); !b.Open(now) {
		t.Error("closed to a peer that is known to be away")
	}
}
