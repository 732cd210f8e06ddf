package main

import (
	"testing"
	"time"

	"penstock/sim"
)

// Promise: a plot of a log has a bounded number of points, whatever the log's length is, and counts
// each request once.
func TestTimeline(t *testing.T) {
	var line timeline
	began := time.Date(2026, 10, 10, 13, 55, 36, 900e6, time.UTC)
	for i, r := range []ruling{{}, {refuses: "x"}, {delay: time.Millisecond}, {}} {
		line.count(began.Add(time.Duration(i)*time.Second), r)
	}
	if line.step() != time.Second || len(line.counts) != 4 || line.from.Nanosecond() != 0 ||
		line.counts[1] != (sim.ReplayCount{Denied: 1}) ||
		line.counts[2] != (sim.ReplayCount{Delayed: 1}) {
		t.Errorf("steps of %v from %v: %v", line.step(), line.from, line.counts)
	}
	line.count(began.Add(30*24*time.Hour), ruling{refuses: "x"})
	var sum sim.ReplayCount
	for _, c := range line.counts {
		sum = sum.Plus(c)
	}
	if want := (sim.ReplayCount{Allowed: 2, Delayed: 1, Denied: 2}); sum != want {
		t.Errorf("counted %+v, want %+v", sum, want)
	}
	if n := len(line.counts); n > mostSteps || n <= mostSteps/2 {
		t.Errorf("%d steps of %v, want %d at most, and more than half of that", n, line.step(),
			mostSteps)
	}
}
