package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"penstock/limiter"
)

// Promise: the node's clock begins at the wall's time and goes on by itself.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		began := c.Now()
		if want := limiter.Instant(time.Now().UnixNano()); began != want {
			t.Errorf("begins at %d, the wall says %d", began, want)
		}
		if got := c.At(time.Now().Add(time.Minute)); got != began.Add(time.Minute) {
			t.Errorf("a minute from now is %v from now", time.Duration(got-began))
		}
		fired := limiter.Instant(0)
		c.AfterFunc(time.Second, func() { fired = c.Now() })
		stop := c.AfterFunc(time.Second, func() { t.Error("a timer that was stopped has fired") })
		stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if fired != began.Add(time.Second) {
			t.Errorf("AfterFunc(1 s) fired after %v", time.Duration(fired-began))
		}
		if now := c.Now(); now != began.Add(time.Hour) {
			t.Errorf("after an hour %v have passed", time.Duration(now-began))
		}
	})
}

// Promise: wall clock stepped by hours: decisions identical. A difference of two times ignores the
// wall as long as both have a monotonic reading, so the clock's start must keep the one that it was
// born with.
func TestClockDoesNotFollowTheWall(t *testing.T) {
	if c := New(); c.start == c.start.Round(0) { // Round(0) strips it
		t.Errorf("the start %v has no monotonic reading: whoever sets the wall clock moves this "+
			"one", c.start)
	}
}
