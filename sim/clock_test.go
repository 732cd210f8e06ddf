package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"penstock/limiter"
)

// A clock never steps back, gains what its drift says, and when is the first instant at which it
// shows something.
func TestClock(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		c := clock{start: limiter.Instant(r.Int64N(2e18)), drift: r.Int64N(2001) - 1000}
		at := time.Duration(r.Int64N(int64(1000 * time.Hour)))
		if now, next := c.at(at), c.at(at+1); next < now || next > now+2 {
			t.Fatalf("%+v shows %d and a nanosecond later %d", c, now, next)
		}
		if hour := c.at(at+time.Hour) - c.at(at); hour < limiter.Instant(time.Hour)+limiter.Instant(
			3600*c.drift*1000)-1 ||
			hour > limiter.Instant(time.Hour)+limiter.Instant(3600*c.drift*1000)+1 {
			t.Fatalf("%+v goes on by %d ns in an hour", c, hour)
		}
		i := c.at(at) + limiter.Instant(r.Int64N(10))
		when := c.when(i)
		if c.at(when) < i || c.at(when-1) >= i {
			t.Fatalf("%+v: when(%d) is %d, where it shows %d after %d", c, i, when, c.at(when),
				c.at(when-1))
		}
	}
}
