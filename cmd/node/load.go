package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// load is an open-model generator: requests have their times from the beginning, independent of
// those before them. A request that has to wait because all workers are busy is late by that much,
// and its latency says so: it counts from when it should have been sent. (Counting from when it was
// sent hides exactly the moments in which a system stalls.)
//
// One goroutine keeps the time and hands each request that is due to a worker; workers send and
// wait for the answer.
type load struct {
	// requests per second; 0: each worker sends as soon as it has its answer (a closed model)
	rate     float64
	duration time.Duration // of sending; what is under way then is waited for
	workers  int           // requests under way at once, at most
	seed     uint64        // of what the workers draw
	pause    func(time.Duration)
	// sender makes the function by which one worker sends its requests. r is that worker's own.
	sender func(r *rand.Rand) sendFunc
}

// sendFunc performs one request and says what became of its checks.
type sendFunc func(ctx context.Context) outcome

// outcome counts the checks of one request.
type outcome struct {
	allowed, denied int
	degraded        int // of allowed and denied
	failed          int // no answer: whether they were charged is unknown
	err             error
}

// tally is what a run counts while it goes on. Read it at any time.
type tally struct {
	requests, allowed, denied, degraded, failed atomic.Int64
	firstErr                                    atomic.Pointer[error]
}

func (t *tally) add(o outcome) {
	t.requests.Add(1)
	t.allowed.Add(int64(o.allowed))
	t.denied.Add(int64(o.denied))
	t.degraded.Add(int64(o.degraded))
	t.failed.Add(int64(o.failed))
	if o.err != nil {
		t.firstErr.CompareAndSwap(nil, &o.err)
	}
}

// measured is what a run leaves behind.
type measured struct {
	latency *hdrhistogram.Histogram // µs, from the intended send time
	// µs from the intended send time to the real one: the generator's own part
	lag         *hdrhistogram.Histogram
	first, last time.Time // all requests lie between
	// requests that were due, but no worker was free before the end
	unsent int64
}

const (
	latencyMax    = int64(time.Minute / time.Microsecond)
	latencyDigits = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, latencyMax,
		latencyDigits)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(1, d.Microseconds()), latencyMax)) // in range, hence no error
}

// run sends until duration is over or ctx ends, and returns when every answer is there.
func (l *load) run(ctx context.Context, t *tally) measured {
	due := make(chan time.Time, l.workers)
	m := measured{latency: newHistogram(), lag: newHistogram(), first: time.Now()}
	end := m.first.Add(l.duration)
	var mu sync.Mutex // guards m.latency and m.lag
	var workers sync.WaitGroup
	for w := range l.workers {
		workers.Go(func() {
			send := l.sender(rand.New(rand.NewPCG(l.seed, uint64(w))))
			latency, lag := newHistogram(), newHistogram()
			next := func() (time.Time, bool) {
				intended, open := <-due
				return intended, open
			}
			if l.rate == 0 {
				next = func() (time.Time, bool) {
					now := time.Now()
					return now, now.Before(end) && ctx.Err() == nil
				}
			}
			for intended, ok := next(); ok; intended, ok = next() {
				record(lag, time.Since(intended))
				t.add(send(ctx))
				record(latency, time.Since(intended))
			}
			mu.Lock()
			defer mu.Unlock()
			m.latency.Merge(latency)
			m.lag.Merge(lag)
		})
	}
	if l.rate > 0 {
		sending, cancel := context.WithDeadline(ctx, end.Add(sendGrace))
		m.unsent = l.pace(sending, m.first, due)
		cancel()
	}
	close(due)
	workers.Wait()
	m.last = time.Now()
	return m
}

// sendGrace lets the last requests of a run find a worker.
const sendGrace = 100 * time.Millisecond

// pace hands out each request when it is due. It returns how many were not handed out before ctx
// ended.
func (l *load) pace(ctx context.Context, begin time.Time, due chan<- time.Time) int64 {
	total := int64(l.rate * l.duration.Seconds())
	for i := range total {
		intended := begin.Add(time.Duration(float64(i) / l.rate * float64(time.Second)))
		for wait := time.Until(intended); wait > 0; wait = time.Until(intended) {
			l.pause(min(wait, 100*time.Millisecond))
			if ctx.Err() != nil {
				return total - i
			}
		}
		select {
		case due <- intended:
		case <-ctx.Done():
			return total - i
		}
	}
	return 0
}
