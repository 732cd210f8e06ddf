package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: a replicated limit never waits for a peer; what is admitted beyond it is what others have admitted and not
// said yet, is stated, and is paid back.
func TestReplicated(t *testing.T) {
	const n = 3
	for _, spec := range []limiter.Spec{
		{Name: "l", Algorithm: limiter.GCRA, Limit: 30, Per: 10 * time.Second},
		{Name: "l", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 30, Per: 10 * time.Second},
		{Name: "l", Algorithm: limiter.SlidingLog, Limit: 30, Per: 10 * time.Second},
	} {
		t.Run(spec.Algorithm.String(), func(t *testing.T) {
			spec.Consistency = limiter.Replicated
			w := newWorld(t, n, spec)
			w.pass(time.Second)
			w.calls = 0
			// Slowly, so that every tick's news arrive before the next request: exactly the limit, through all nodes.
			admitted := 0
			for i := range 60 {
				d := w.take(fmt.Sprintf("n%d", i%n+1), "l", "slow")
				if d.Source != SourceReplica || d.Degraded || d.Bound != (n-1)*30 {
					t.Fatalf("%+v", d)
				}
				if d.Allowed {
					admitted++
				}
				w.pass(2 * tickEvery / 5)
			}
			supplied := 30 + int(60*2*tickEvery/5*30/spec.Per) // of the bucket; the others admit no more
			if admitted < 30 || admitted > supplied+n {
				t.Errorf("slowly: %d admitted, want 30 to about %d", admitted, supplied)
			}

			// All at once: each node admits its limit, and says so by its bound; the debt is paid before anybody is admitted.
			admitted = 0
			for i := range 200 {
				if w.take(fmt.Sprintf("n%d", i%n+1), "l", "fast").Allowed {
					admitted++
				}
			}
			if admitted != n*30 {
				t.Errorf("at once: %d admitted, want %d", admitted, n*30)
			}
			w.pass(3 * tickEvery)
			for i := range n {
				d := w.take(fmt.Sprintf("n%d", i+1), "l", "fast")
				if d.Allowed || d.Remaining != 0 {
					t.Errorf("n%d has not heard of the others: %+v", i+1, d)
				}
				if least := 20 * time.Second; spec.Algorithm == limiter.GCRA && d.RetryAfter < least-time.Second {
					t.Errorf("n%d admits again in %v: the debt of %v is forgotten", i+1, d.RetryAfter, least)
				}
			}
			if w.calls != 0 {
				t.Errorf("%d checks went to a peer", w.calls)
			}

			w.check("n2", Item{Limit: "l", Key: "fast", Op: OpReset})
			w.pass(3 * tickEvery)
			for i := range n {
				if left := w.remaining(fmt.Sprintf("n%d", i+1), "l", "fast"); left != 30 {
					t.Errorf("n%d has %d left after a reset by n2", i+1, left)
				}
			}
		})
	}
}

// A node that is away for a while hears of all that was charged, once it is back, and once.
func TestReplicatedAfterSilence(t *testing.T) {
	spec := limiter.Spec{Name: "l", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 100, Per: time.Hour, Consistency: limiter.Replicated}
	w := newWorld(t, 3, spec)
	w.pass(time.Second)
	twice := false
	w.meet = func(c *Call, deliver func() *Answer) {
		a := deliver()
		if twice = !twice; twice && c.Ask.Move != nil && len(c.Ask.Move.Charges) > 0 {
			c.Err = fmt.Errorf("the answer got lost")
			return
		}
		c.Answer = a
	}
	for range 40 {
		w.take("n1", "l", "k")
		w.pass(20 * time.Millisecond)
	}
	w.pass(time.Second)
	for _, id := range []string{"n1", "n2", "n3"} {
		if left := w.remaining(id, "l", "k"); left != 60 {
			t.Errorf("%s has %d left of 100, want 60", id, left)
		}
	}
}
