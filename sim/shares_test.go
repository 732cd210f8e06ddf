package sim

import (
	"math/rand/v2"
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

// Promise: the judge follows the share of a bucket to the nanosecond when its limit is split in
// more or fewer, as when an agent hears that a member leaves: what is missing then comes back when
// it would have before, in fewer units or more (world 74000027).
func TestABucketThatIsSplitAnew(t *testing.T) {
	for _, x := range []struct {
		limiter.Spec
		whole bool // each share has a unit in a whole number of nanoseconds
	}{
		{limiter.Spec{Algorithm: limiter.LeakyBucket, Limit: 300, Burst: 10}, true},
		{limiter.Spec{Algorithm: limiter.GCRA, Limit: 300, Burst: 12}, true},
		{limiter.Spec{Algorithm: limiter.GCRA, Limit: 420, Burst: 7}, false},
		// shares of all numbers are refilled alike, and one of many has room for less
		{limiter.Spec{Algorithm: limiter.LeakyBucket, Limit: 1, Burst: 10}, true},
	} {
		x.Name, x.Per = "a", time.Minute
		limit, err := limiter.New(x.Spec)
		if err != nil {
			t.Fatal(err)
		}
		draw, anew := rand.New(rand.NewPCG(1, 2)), 0
		for range 300 {
			w := &world{plan: &plan{}, machines: make([]*machine, 6)}
			p := &process{machine: &machine{world: w}, judged: judged{shares: newShares()}}
			table := limiter.NewTable(limiter.TableConfig{Bytes: limiter.MinBytes})
			for range 12 {
				w.now += time.Duration(draw.Int64N(int64(time.Second)))
				n, cost := 1+draw.IntN(6), oneOf[int64](draw, 1, 1, 2, 2, 5, -1, -4)
				got := soon(table.Take(p.now(), limit.Share(n), "k", limiter.Hash("k"), cost))
				before, told, want := followsShare(p, &x.Spec, n, cost, got)
				if got.ResetAfter > 0 && got.Allowed && told != share(&x.Spec, n).Limit ||
					want != got {
					t.Fatalf("%v: one of %d shares, after %d, says\n%+v; it is thought to have "+
						"%d units a minute, and due is\n%+v", x.Algorithm, n, before, got, told,
						want)
				}
				if before > 0 && before != n {
					anew++
				}
				if parts := p.shares.parts[naiveKey{share(&x.Spec, 1).Name, "k"}]; parts < 0 {
					if x.whole {
						t.Fatalf("%v: one of %d shares, after %d, is not followed", x.Algorithm, n,
							before)
					}
					break
				}
			}
		}
		if anew < 200 {
			t.Errorf("%v: split anew %d times; want more", x.Algorithm, anew)
		}
	}
}

// followsShare has the judge follow what p, which has just come to count on other members, answers
// from one of n shares. It returns in how many the limit was split before, the limit of the share
// that it is thought to be now, and what is due.
func followsShare(p *process, s *limiter.Spec, n int, cost int64, got limiter.Decision,
) (before int, limit int64, want limiter.Decision) {
	l, it := p.shares, &cluster.Item{Key: "k", Cost: cost}
	before = l.parts[naiveKey{share(s, 1).Name, it.Key}]
	p.stated.resized++
	says := &cluster.Decision{
		Decision: got, Bound: max(capacityOf(s), int64(n)*capacityOf(share(s, n))),
	}
	told := l.split(p, it, s, says, got, false, func(int) bool { return true })
	of := share(s, max(1, told))
	want, _ = l.decide(p, of, told, it, got, p.stated.resized)
	return before, of.Limit, want
}
