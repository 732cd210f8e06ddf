package clock

import (
	"runtime"
	"testing"
	"time"
)

// Promise: a machine that was suspended is noticed, and a wall clock that was set is not taken for
// one.
func TestSuspended(t *testing.T) {
	const h = time.Hour
	for _, row := range []struct {
		name       string
		wall, boot time.Duration // by how much each has moved against the monotonic clock
		exact      bool          // there is a boot clock
		want       bool
		reads      int // of the boot clock
	}{
		{"nothing", 0, 0, true, false, 0},
		{"slewed", time.Millisecond, 0, true, false, 0},
		{"suspended", h, h, true, true, 1},
		{"suspended for 20 ms", 20 * time.Millisecond, 20 * time.Millisecond, true, true, 1},
		{"set ahead", h, 0, true, false, 1},
		{"set back", -h, 0, true, false, 1},
		{"suspended, then set back", -h, time.Minute, true, true, 1},
		{"ahead, no boot clock", h, 0, false, true, 1},
		{"back, no boot clock", -h, 0, false, false, 1},
	} {
		reads := 0
		before := clockOffsets{wall: 5 * h, boot: 7 * h}
		after, got := before.next(before.wall+row.wall, func() (time.Duration, bool) {
			reads++
			return before.boot + row.boot, row.exact
		})
		if got != row.want || reads != row.reads {
			t.Errorf("%s: suspended %t after %d readings of the boot clock, want %t after %d",
				row.name, got, reads, row.want, row.reads)
		}
		if _, again := after.next(after.wall, nil); again {
			t.Errorf("%s: said twice", row.name)
		}
	}
}

// The same with the clocks of this machine: their past is moved, for nobody can suspend it here.
func TestSuspendedByRealClocks(t *testing.T) {
	c := New()
	for range 100 {
		if c.Suspended() {
			t.Fatal("a machine that runs is called suspended")
		}
	}
	c.suspensions.last.wall -= time.Minute
	if c.Suspended() != (runtime.GOOS != "linux") {
		t.Error("a wall clock that was set ahead")
	}
	c.suspensions.last.wall -= time.Minute
	c.suspensions.last.boot -= time.Minute
	if !c.Suspended() || c.Suspended() {
		t.Error("a suspension of a minute is not reported once")
	}
}

func BenchmarkSuspended(b *testing.B) {
	c := New()
	for b.Loop() {
		c.Suspended()
	}
}
