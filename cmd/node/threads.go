package main

import (
	"os"
	"runtime"
	"sync"
	"time"
)

// threads keeps the number of threads that may run Go code at a time at what is to be done. While a
// node has little to do, one is faster: no other is woken for each goroutine that becomes ready,
// and what one goroutine has written the next one finds in the same core's cache. With more to do,
// all are needed.
//
// It has no timer, since one that runs out twenty times a second costs an idle node a quarter of
// what it takes in all. It looks when something else has woken the node up.
type threads struct {
	now  func() time.Time
	used func() (time.Duration, bool) // processor time of this process; false: it is not known
	set  func(one bool)

	mu     sync.Mutex // guards what follows
	at     time.Time  // of the last look
	had    time.Duration
	fitted threadCount
}

// threadCount is what threads has decided.
type threadCount struct {
	one  bool
	calm time.Duration // how long there has been little to do; while all may run
}

const (
	// threadsEvery is the least time between two looks.
	threadsEvery = 20 * time.Millisecond
	// manyFrom is the part of one processor from which all threads may run. Until that is
	// noticed, a request may wait as it does on a machine with one processor.
	manyFrom = 0.7
	// oneBelow is far enough from it that a steady load does not go to and fro.
	oneBelow = 0.5
	oneAfter = time.Second
)

// next is told how much processor time the process has used in the time that has passed, and
// reports whether the number has changed.
func (c *threadCount) next(used, passed time.Duration) (changed bool) {
	part := used.Seconds() / passed.Seconds()
	switch {
	case c.one && part >= manyFrom:
		*c = threadCount{}
		return true
	case c.one:
		return false
	case part >= oneBelow:
		c.calm = 0
	default:
		c.calm += passed
		c.one = c.calm >= oneAfter
	}
	return c.one
}

// newThreads is nil where the number is left alone: where an operator has said it by GOMAXPROCS,
// and where a node writes files while it answers, since a thread that waits for a disk is replaced
// only after up to 10 ms.
func newThreads(s *settings) *threads {
	used, known := processorTime()
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 || !known ||
		s.DataDir != "" || s.AuditLog != "" {
		return nil
	}
	return &threads{
		now: time.Now, used: processorTime, set: setThreads, at: time.Now(), had: used,
	}
}

// setThreads waits for the end of a collection of garbage.
func setThreads(one bool) {
	if one {
		runtime.GOMAXPROCS(1)
	} else {
		runtime.SetDefaultGOMAXPROCS() // and again by the quota of its container
	}
}

// look may be called at any time, and does not wait.
func (t *threads) look() {
	if !t.mu.TryLock() {
		return
	}
	now := t.now()
	passed := now.Sub(t.at)
	if passed < threadsEvery {
		t.mu.Unlock()
		return
	}
	used, _ := t.used()
	changed := t.fitted.next(used-t.had, passed)
	t.at, t.had = now, used
	if !changed {
		t.mu.Unlock()
		return
	}
	go func() { // it holds the lock: there is no other look until it is done
		defer t.mu.Unlock()
		t.set(t.fitted.one)
	}()
}
