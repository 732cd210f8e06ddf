// Package clock is the machine's clock as a node wants it: monotonic, aligned to the epoch once,
// with a sense of whether the machine was suspended.
package clock

import (
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// Clock is the machine's clock as a node wants it (cluster.Clock): the wall is read once, when the
// Clock is made, and from then on only the monotonic clock counts. So windows are aligned to the
// epoch, and setting the wall clock changes no decision. A node, its lines and its doors share
// one Clock.
type Clock struct {
	start time.Time
	began limiter.Instant // start, as the node counts

	suspensions suspensions
}

// New reads the wall clock.
func New() *Clock {
	now := time.Now()
	c := &Clock{start: now, began: limiter.Instant(now.UnixNano())}
	c.suspensions.last.wall = c.wallOffset()
	c.suspensions.last.boot, _ = c.bootOffset()
	return c
}

// Now is the present.
func (c *Clock) Now() limiter.Instant { return c.began + limiter.Instant(time.Since(c.start)) }

// At is the Instant of t, which must come from this process (a context's deadline).
func (c *Clock) At(t time.Time) limiter.Instant { return c.began.Add(t.Sub(c.start)) }

// AfterFunc runs f in a goroutine of its own, d from now, unless stop is called first. What is to
// run at once needs no timer, which would wake a thread of the runtime up.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func()) {
	if d <= 0 {
		var stopped atomic.Bool
		go func() {
			if !stopped.Load() {
				f()
			}
		}()
		return func() { stopped.Store(true) }
	}
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}
