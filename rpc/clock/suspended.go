package clock

import (
	"sync"
	"time"
)

// A monotonic clock stands still while the machine is suspended, so a right to decide that is
// measured with it seems valid afterwards although others have seen it end. Two other clocks go
// on: the wall clock, which anybody may set, and the boot clock, which is exact and costs a system
// call. The wall clock is therefore looked at first, and the boot clock has to agree.

// movesLess is by how much wall time minus monotonic time may move between two looks without
// meaning anything: a time daemon slews by half a millisecond a second at most.
const movesLess = 10 * time.Millisecond

// clockOffsets are how far two clocks are ahead of the monotonic one.
type clockOffsets struct{ wall, boot time.Duration }

// next is what holds after another look, and reports whether the machine was suspended since this
// one. The boot clock is read only if the wall clock has moved; where there is none, the wall
// clock's word counts: then setting it ahead looks like a suspension, and costs the right for a
// moment.
func (o clockOffsets) next(
	wall time.Duration, boot func() (time.Duration, bool),
) (clockOffsets, bool) {
	if d := wall - o.wall; -movesLess < d && d < movesLess {
		return clockOffsets{wall, o.boot}, false
	}
	b, exact := boot()
	if !exact {
		return clockOffsets{wall, o.boot}, wall > o.wall
	}
	return clockOffsets{wall, b}, b-o.boot >= movesLess
}

// suspensions notes the offsets of one process.
type suspensions struct {
	mu   sync.Mutex // guards last
	last clockOffsets
}

// Suspended reports whether the machine was suspended since the last call, or since the Clock was
// made, in a way that Now has not seen. Its cost is that of reading the time, unless the wall
// clock was moved.
func (c *Clock) Suspended() (suspended bool) {
	s := &c.suspensions
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, suspended = s.last.next(c.wallOffset(), c.bootOffset)
	return suspended
}

// wallOffset is how far the wall clock is ahead of the Clock.
func (c *Clock) wallOffset() time.Duration {
	now := time.Now()
	return time.Duration(now.UnixNano()-c.start.UnixNano()) - now.Sub(c.start)
}

// bootOffset is how far the boot clock is ahead of the Clock; false if the machine has none. A
// process that is stopped between two readings would see them apart, so they are read until they
// are close.
func (c *Clock) bootOffset() (offset time.Duration, exact bool) {
	for range 10 {
		before := time.Since(c.start)
		boot, exact := bootTime()
		if !exact {
			return 0, false
		}
		if offset = boot - before; time.Since(c.start)-before < movesLess/2 {
			return offset, true
		}
	}
	return offset, true
}
