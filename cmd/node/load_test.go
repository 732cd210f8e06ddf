package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A server that stalls makes every request late that should have been sent meanwhile: the latency
// that is reported must show the whole stall, although only one request was under way in it.
func TestLatencyCountsFromTheIntendedSendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		l := load{
			rate: 100, duration: 2 * time.Second, workers: 1, pause: time.Sleep,
			sender: func(*rand.Rand) sendFunc {
				return func(context.Context) outcome {
					if sent.Add(1) == 50 {
						time.Sleep(time.Second)
					}
					return outcome{allowed: 1}
				}
			},
		}
		counts := new(tally)
		m := l.run(t.Context(), counts)
		if n := counts.allowed.Load(); n != 200 || m.unsent != 0 {
			t.Fatalf("%d requests were sent and %d were not; want 200 and 0", n, m.unsent)
		}
		// 100 of the 200 fell due while the server stalled, evenly over that second.
		if p := time.Duration(m.latency.ValueAtQuantile(
			75)) * time.Microsecond; p < 450*time.Millisecond || p > 550*time.Millisecond {
			t.Errorf("the 75th percentile is %v; want about 500ms", p)
		}
		if p := time.Duration(m.lag.ValueAtQuantile(
			75)) * time.Microsecond; p < 450*time.Millisecond || p > 550*time.Millisecond {
			t.Errorf("the 75th percentile of the lag is %v; want about 500ms", p)
		}
	})
}

// A rate beyond reach must end on time, and say how much was not sent.
func TestLoadEndsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := load{
			rate: 1000, duration: time.Second, workers: 2, pause: time.Sleep,
			sender: func(*rand.Rand) sendFunc {
				return func(context.Context) outcome {
					time.Sleep(10 * time.Millisecond)
					return outcome{failed: 1, err: errors.New("slow")}
				}
			},
		}
		counts := new(tally)
		begin := time.Now()
		m := l.run(t.Context(), counts)
		if took := time.Since(begin); took > 1200*time.Millisecond {
			t.Errorf("a run of 1s took %v", took)
		}
		if sent := counts.requests.Load(); sent < 190 || sent+m.unsent != 1000 {
			t.Errorf("%d sent and %d unsent; want about 200, and 1000 together", sent, m.unsent)
		}
		if err := counts.firstErr.Load(); err == nil || (*err).Error() != "slow" {
			t.Errorf("the first error is lost: %v", err)
		}
	})
}

// Without a rate each worker sends as soon as it has its answer, until the time is over.
func TestClosedLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := load{
			duration: time.Second, workers: 3, pause: time.Sleep,
			sender: func(*rand.Rand) sendFunc {
				return func(context.Context) outcome {
					time.Sleep(10 * time.Millisecond)
					return outcome{denied: 1}
				}
			},
		}
		counts := new(tally)
		l.run(t.Context(), counts)
		if n := counts.denied.Load(); n != 300 {
			t.Errorf("3 workers and answers after 10 ms made %d requests in a second; want 300", n)
		}
	})
}
