package main

import (
	"os"
	"runtime"
	"time"
)

// threads decides how many threads may run Go code at a time. While a node has little to do, one is
// faster: no other is woken for each goroutine that becomes ready, and what one goroutine has
// written the next one finds in the same core's cache. With more to do, all are needed.
type threads struct {
	one  bool
	calm time.Duration // how long there has been little to do; while all may run
}

const (
	threadsEvery = 50 * time.Millisecond
	// manyFrom is the part of one processor from which all threads may run. Until that is
	// noticed, a request may wait as it does on a machine with one processor.
	manyFrom = 0.7
	// oneBelow is far enough from it that a steady load does not go to and fro.
	oneBelow = 0.5
	oneAfter = time.Second
)

// look is told how much processor time the process has used in the time that has passed, and
// reports whether the number has changed.
func (t *threads) look(used, passed time.Duration) (changed bool) {
	part := used.Seconds() / passed.Seconds()
	switch was := t.one; {
	case t.one:
		t.one, t.calm = part < manyFrom, 0
		return t.one != was
	case part >= oneBelow:
		t.calm = 0
	default:
		t.calm += passed
		t.one = t.calm >= oneAfter
	}
	return t.one
}

// fitThreads keeps the number of threads at what is to be done, until stop is closed. It leaves
// alone what an operator has said by GOMAXPROCS, and a node that writes files while it answers: a
// thread that waits for a disk is replaced only after up to 10 ms.
func fitThreads(s *settings, stop <-chan struct{}) {
	_, known := processorTime()
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 || !known ||
		s.DataDir != "" || s.AuditLog != "" {
		return
	}
	tick := time.NewTicker(threadsEvery)
	defer tick.Stop()
	var t threads
	used, _ := processorTime()
	at := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		u, _ := processorTime()
		now := time.Now()
		if t.look(u-used, now.Sub(at)) {
			if t.one {
				runtime.GOMAXPROCS(1)
			} else {
				runtime.SetDefaultGOMAXPROCS() // and again by the quota of its container
			}
		}
		used, at = u, now
	}
}
