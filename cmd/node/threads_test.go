package main

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Promise: all threads may run at the first look that finds 0.7 of a processor in use, and one
// only after a second without a look that found half of one.
func TestThreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var th threadCount
		calm := time.Duration(0) // since the last look that found much
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			passed := time.Duration(rapid.Int64Range(1, int64(200*time.Millisecond)).
				Draw(t, "passed"))
			part := rapid.SampledFrom([]float64{0, 0.1, 0.2, 0.4, 0.6, 1.5}).Draw(t, "part")
			was := th.one
			changed := th.next(time.Duration(part*float64(passed)), passed)
			if calm += passed; part >= 0.55 {
				calm = 0
			}
			switch {
			case changed != (th.one != was):
				t.Fatalf("changed is %v, one was %v and is %v", changed, was, th.one)
			case part >= 0.75 && th.one:
				t.Fatalf("one thread with %v of a processor in use", part)
			case th.one && !was && calm < time.Second:
				t.Fatalf("one thread after %v with little to do", calm)
			case !th.one && calm >= time.Second+200*time.Millisecond:
				t.Fatalf("all threads after %v with little to do", calm)
			}
		}
	})
}

// Promise: a look does not wait for the number to be set, and none is lost: the next one after that
// goes on from there.
func TestThreadsAreSetBesideTheCaller(t *testing.T) {
	now, used := time.Unix(0, 0), time.Duration(0)
	set, done := make(chan bool), make(chan struct{})
	th := &threads{
		now: func() time.Time { return now }, at: now,
		used: func() (time.Duration, bool) { return used, true },
		set:  func(one bool) { set <- one; <-done },
	}
	now = now.Add(2 * time.Second)
	th.look()
	if !<-set {
		t.Fatal("all threads may run after two seconds with nothing to do")
	}
	now, used = now.Add(time.Second), used+time.Second
	th.look() // while the number is being set
	done <- struct{}{}
	th.mu.Lock() // it is set
	one := th.fitted.one
	th.mu.Unlock()
	if !one {
		t.Fatal("a look while the number is being set has changed it")
	}
	th.look()
	if <-set {
		t.Fatal("one thread has to do for a whole processor's work")
	}
	done <- struct{}{}
}
