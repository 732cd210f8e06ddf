package main

import (
	"runtime"
	"strconv"
	"testing"
)

// An idle process runs one thread, and as many as before as soon as something is asked of it, also
// where its environment says how many those are.
func TestIdleProcessRunsOneThread(t *testing.T) {
	many := runtime.NumCPU() + 1 // another number than the default
	before := runtime.GOMAXPROCS(many)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", strconv.Itoa(many))
	var x threads
	for _, step := range []struct {
		idle bool
		want int
	}{{true, 1}, {true, 1}, {false, many}, {false, many}, {true, 1}, {false, many}} {
		x.idle(step.idle)
		if n := runtime.GOMAXPROCS(0); n != step.want {
			t.Errorf("idle: %v: %d threads, want %d", step.idle, n, step.want)
		}
	}
}
