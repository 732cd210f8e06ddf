package main

import (
	"runtime"
	"testing"
)

// An idle process runs one thread, and as many as before as soon as something is asked of it, also
// where its environment says how many those are.
func TestIdleProcessRunsOneThread(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "2")
	var x threads
	for _, step := range []struct {
		idle bool
		want int
	}{{true, 1}, {true, 1}, {false, 2}, {false, 2}, {true, 1}, {false, 2}} {
		x.idle(step.idle)
		if n := runtime.GOMAXPROCS(0); n != step.want {
			t.Errorf("idle: %v: %d threads, want %d", step.idle, n, step.want)
		}
	}
}
