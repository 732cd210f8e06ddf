package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
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
		limiter.Decision{Limit: 50}, 0)
	got := limiter.Decision{
		Allowed: true, Limit: 10, Remaining: 9, RetryAfter: limiter.Never, ResetAfter: time.Second,
	}
	want, _ := p.shares.decide(p, share(s, 5), 5, &cluster.Item{Key: "k", Cost: 1}, got, 0)
	if want != got {
		t.Errorf("one of 5 shares is said to be due %+v; it has its own bucket: %+v", want, got)
	}
}

// Promise: a share is one of the members that there should be. Where messages get lost for so long
// that one of them is evicted, though nobody has declared it dead, the judge knows that there are
// fewer; and else it takes no other number, whatever that would explain.
func TestAShareIsOneOfTheMembersThatAreLeft(t *testing.T) {
	s := &limiter.Spec{
		Name: "a", Algorithm: limiter.GCRA, Limit: 1000, Burst: 3, Per: time.Second,
	}
	says := func(of time.Duration) *cluster.Decision {
		return &cluster.Decision{Bound: 3, Decision: limiter.Decision{
			Allowed: true, Limit: 1, RetryAfter: limiter.Never, ResetAfter: of,
		}}
	}
	const ofTwo, ofThree = 2 * time.Millisecond, 3003004 * time.Nanosecond // per unit
	any := func(int) bool { return true }
	members := func(n int) *ownership.Configuration {
		return &ownership.Configuration{Members: make([]ownership.Member, n)}
	}
	for _, x := range []struct {
		name    string
		between []int // members, one after the other
		says    time.Duration
		want    int
	}{
		{"all are there", nil, ofThree, 3},
		{"all are there, and it says otherwise", nil, ofTwo, 3},
		{"one is evicted", []int{2}, ofTwo, 2},
		{"one is evicted, since it gave up asking", []int{2}, ofThree, 3},
		{"one is evicted, and comes back", []int{2, 3}, ofThree, 3},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := &world{plan: &plan{}, machines: make([]*machine, 3)}
			p := &process{machine: &machine{world: w}, judged: judged{shares: newShares()}}
			p.stated.agrees(members(3))
			l, it := p.shares, &cluster.Item{Key: "k", Cost: 1}
			split := func(d *cluster.Decision) int {
				return l.split(p, it, s, d, d.Decision, false, any)
			}
			first := says(ofThree)
			n := split(first)
			l.decide(p, share(s, n), n, it, first.Decision, p.stated.resized)
			w.now += time.Second
			for _, left := range x.between {
				p.stated.agrees(members(left))
			}
			if got := split(says(x.says)); n != 3 || got != x.want {
				t.Errorf("it is one of %d shares, then of %d; want 3, then %d", n, got, x.want)
			}
		})
	}
}
