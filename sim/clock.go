package sim

import (
	"time"

	"penstock/limiter"
)

// clock is a machine's clock: it began wrong by some offset and runs a little too fast or too slow,
// but it never steps. The world's own time is known to nobody inside it.
type clock struct {
	start limiter.Instant // what it shows when the world begins
	drift int64           // microseconds that it gains in a second, -1000 … 1000
}

// at is what the clock shows at an instant of the world.
func (c *clock) at(t time.Duration) limiter.Instant {
	if c.drift == 0 {
		return c.start + limiter.Instant(t)
	}
	n := int64(t)
	gained := n/1e6*c.drift + n%1e6*c.drift/1e6
	return c.start + limiter.Instant(n+gained)
}

// when is the first instant of the world at which the clock shows i or later.
func (c *clock) when(i limiter.Instant) time.Duration {
	t := time.Duration(i - c.start)
	if c.drift == 0 {
		return t
	}
	for range 4 { // each round shrinks what is missing to a thousandth of it
		missing := time.Duration(i - c.at(t))
		if missing == 0 {
			break
		}
		t += missing
	}
	for c.at(t) < i {
		t++
	}
	for c.at(t-1) >= i {
		t--
	}
	return t
}
