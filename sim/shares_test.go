package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Promise: the judge knows that a share of a token bucket that is split anew begins anew also if
// only a refusal had emptied the share before: under a limit that drains it is charged as a yes is.
func TestAShareThatARefusalHasEmptied(t *testing.T) {
	s := &limiter.Spec{
		Name: "drains", Algorithm: limiter.TokenBucket, Limit: 50, Refill: 1, Per: time.Second,
		Drain: true,
	}
	p := &process{machine: &machine{world: &world{}}, judged: judged{shares: newShares()}}
	p.shares.decide(p, share(s, 1), 1, &cluster.Item{Key: "k", Cost: 51},
		limiter.Decision{Limit: 50})
	got := limiter.Decision{
		Allowed: true, Limit: 10, Remaining: 9, RetryAfter: limiter.Never, ResetAfter: time.Second,
	}
	want, _ := p.shares.decide(p, share(s, 5), 5, &cluster.Item{Key: "k", Cost: 1}, got)
	if want != got {
		t.Errorf("one of 5 shares is said to be due %+v; it has its own bucket: %+v", want, got)
	}
}
