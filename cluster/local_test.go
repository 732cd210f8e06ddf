package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"penstock/cluster/breaker"
	"penstock/cluster/denial"
	"penstock/limiter"
)

// hammer asks node n times for one unit of limit for key, a millisecond apart, and counts the
// sources of the decisions.
func (w *world) hammer(n int, node, limit, key string) sources {
	w.t.Helper()
	by := sources{}
	for range n {
		by[w.take(node, limit, key).Source]++
		w.pass(time.Millisecond)
	}
	return by
}

// denying makes n1 remember a denial of key under limit, of which the owner has promised to say
// when it ends.
func (w *world) denying(limit, key string) {
	w.t.Helper()
	for range 20 {
		if d := w.take("n1", limit, key); d.Source == SourceDenied {
			return
		}
		w.pass(time.Millisecond)
	}
	w.t.Fatalf("n1 goes on asking for %s of %s", key, limit)
}

// losesForget has every message that would end a denial get lost.
func (w *world) losesForget() {
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Forget) > 0 {
			c.Err = errors.New("lost")
			return
		}
		c.Answer = deliver()
	}
}

// Promise: a node that is denied asks once more, and then no more until the next token; what it
// says is what the owner has said, less the time that has gone by.
func TestDenialIsRemembered(t *testing.T) {
	for _, s := range []limiter.Spec{
		{
			Name: "l", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 5,
			Per: time.Second,
		},
		{Name: "l", Algorithm: limiter.GCRA, Limit: 5, Per: 5 * time.Second, Burst: 5},
		{
			Name: "l", Algorithm: limiter.TokenBucket, Anchor: limiter.FirstHit, Limit: 5,
			Refill: 1,
			Per:    time.Second,
		},
		{Name: "l", Algorithm: limiter.LeakyBucket, Limit: 5, Per: 5 * time.Second, Burst: 4},
		{Name: "l", Algorithm: limiter.SlidingLog, Limit: 5, Per: time.Second},
		{
			Name: "l", Algorithm: limiter.SlidingLog, Limit: 50, Per: 2 * time.Second,
			MinGap: time.Second,
		},
		{Name: "l", Algorithm: limiter.SlidingCounter, Limit: 5, Per: time.Second, Buckets: 10},
		{Name: "l", Algorithm: limiter.SlidingWindow, Limit: 5, Per: time.Second},
		{Name: "l", Algorithm: limiter.GCRA, Limit: 5, Per: 5 * time.Second, Burst: 5, Sync: true},
		{
			Name: "l", Algorithm: limiter.GCRA, Limit: 5, Per: 5 * time.Second, Burst: 5,
			Consistency: limiter.Leased,
		},
	} {
		t.Run(fmt.Sprint(s.Algorithm, s.Sync, s.Consistency), func(t *testing.T) {
			w := newWorld(t, 3, s)
			key := w.key("n2", 0)
			w.pass(time.Duration(-w.now) & (1<<20 - 1)) // no window of the clock ends soon
			var denied Decision
			for denied.Limit == 0 || denied.Allowed {
				denied = w.take("n1", "l", key)
			}
			until := w.now.Add(denied.RetryAfter)
			if d := w.take("n1", "l", key); d.Source != SourceForwarded || d.Allowed {
				t.Fatalf("asked for the second time: %+v", d)
			}
			calls := w.calls
			last := min(until.Add(-denied.RetryAfter/denial.ClockGain),
				w.now.Add(denial.Lasts-denial.Renew))
			for ; w.now < last; w.pass(7 * time.Millisecond) {
				d := w.take("n1", "l", key)
				if d.Source != SourceDenied || d.Allowed || d.Owner != "n2" || d.Degraded ||
					d.Limit != denied.Limit || d.Remaining != denied.Remaining ||
					d.RetryAfter != time.Duration(until-w.now) || d.Rule.Name != "l" {
					t.Fatalf("%v before the next token: %+v; the owner had said %+v",
						time.Duration(until-w.now), d, denied)
				}
			}
			// a node may ask for leases as well
			if w.calls != calls && s.Consistency != limiter.Leased {
				t.Errorf("%d calls while a denial lasts", w.calls-calls)
			}
			w.Wait(until - 1)
			if d := w.take("n1", "l", key); d.Allowed {
				t.Errorf("admitted before the next token: %+v", d)
			}
			w.Wait(until)
			if d := w.take("n1", "l", key); !d.Allowed {
				t.Errorf("denied with a token there: %+v", d)
			}
		})
	}
}

// Promise: a node that is denied a hundred times asks twice; one that is denied once costs the
// owner nothing; in the long run one request a second asks.
func TestDenialsCostFewMessages(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.calls = 0
	w.take("n1", "five", key)
	if n := w.nodes["n2"].notices.watches.Len(); n != 0 {
		t.Errorf("the owner remembers %d who were denied once", n)
	}
	if by := w.hammer(99, "n1", "five", key); w.calls != 2 || by[SourceDenied] != 98 {
		t.Errorf("%d calls for 100 denials; by source %v", w.calls, by)
	}
	if got := w.nodes["n1"].Stats().Cached.Load(); got != 98 {
		t.Errorf("counted %d denials from memory, want 98", got)
	}
	w.calls = 0
	if by := w.hammer(10_000, "n1", "five", key); w.calls > 14 || w.calls < 10 {
		t.Errorf("%d calls in 10 s; by source %v", w.calls, by)
	}
	w.pass(3 * denial.WatchLasts)
	if n, m := w.nodes["n1"].local.denials.Len(), w.nodes["n2"].notices.watches.Len(); m != 0 {
		t.Errorf("%d denials are remembered, and %d promises, of a key that nobody asks for", n, m)
	}
	w.pass(five.Per)
	if n := w.nodes["n1"].local.denials.Len(); n != 0 {
		t.Errorf("%d denials are remembered that are over", n)
	}
}

// Promise: while one request renews a denial, all others are denied from memory.
func TestOneRequestRenewsADenial(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	w.pass(denial.Lasts - denial.Renew + 10*time.Millisecond)
	asked, inside := 0, sources{}
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Items) > 0 && c.To.ID == "n2" {
			asked++
			for range 5 { // meanwhile
				if asked == 1 {
					inside[w.take("n1", "five", key).Source]++
				}
			}
		}
		c.Answer = deliver()
	}
	for asked == 0 {
		w.take("n1", "five", key)
		w.pass(10 * time.Millisecond)
	}
	if asked != 1 || inside[SourceDenied] != 5 {
		t.Errorf("asked %d times; those that came meanwhile by source: %v", asked, inside)
	}
}

// Promise: of a key that is asked for more often than it has tokens, each token costs two asks: the
// one that gets it, and one that is denied.
func TestDenialsBetweenTokens(t *testing.T) {
	w := newWorld(t, 3,
		limiter.Spec{Name: "rate", Algorithm: limiter.GCRA, Limit: 10, Per: time.Second, Burst: 1})
	key := w.key("n2", 0)
	w.hammer(200, "n1", "rate", key)
	w.calls = 0
	allowed := 0
	for range 1000 {
		if w.take("n1", "rate", key).Allowed {
			allowed++
		}
		w.pass(time.Millisecond)
	}
	if allowed != 10 || w.calls > 20 {
		t.Errorf("%d admitted in a second, with %d calls", allowed, w.calls)
	}
}

// Promise: a client that has seen a refund or a reset answered meets no denial from before it,
// whichever node it asks.
func TestGivenBackEndsDenials(t *testing.T) {
	for _, at := range []string{
		"n1", "n2",
		"n3",
	} { // the one that remembers, the owner, another one
		for name, back := range map[string]Item{"refund": {Cost: -2}, "reset": {Op: OpReset}} {
			t.Run(name+" at "+at, func(t *testing.T) {
				w := newWorld(t, 3, five)
				key := w.key("n2", 0)
				w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
				w.denying("five", key)
				w.calls = 0
				for range 3 {
					back.Limit, back.Key = "five", key
					if d := w.check(at, back)[0]; !d.Allowed || d.Remaining < 2 {
						t.Fatalf("%+v", d)
					}
					if d := w.check("n1", Item{Limit: "five", Key: key, Cost: 2})[0]; !d.Allowed ||
						d.Source != SourceForwarded {
						t.Fatalf("after what was given back at %s: %+v", at, d)
					}
					w.check("n2", Item{Limit: "five", Key: key, Cost: 3}) // what a reset has left
					w.denying("five", key)
				}
			})
		}
	}
}

// Promise: all nodes that remember are told, and of other keys none is.
func TestAllWhoRememberAreTold(t *testing.T) {
	w := newWorld(t, 4, five)
	key, other := w.key("n2", 0), w.key("n2", 1)
	for _, k := range []string{key, other} {
		w.check("n2", Item{Limit: "five", Key: k, Cost: 5})
		for _, id := range []string{"n1", "n3", "n4"} {
			if by := w.hammer(3, id, "five", k); by[SourceDenied] != 1 {
				t.Fatalf("%s: by source %v", id, by)
			}
		}
	}
	told := map[string]int{}
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Forget) > 0 {
			told[c.To.ID]++
		}
		c.Answer = deliver()
	}
	w.check("n3", Item{Limit: "five", Key: key, Cost: -2})
	if told["n1"] != 1 || told["n4"] != 1 || len(told) != 2 {
		t.Errorf("told, and how often: %v; n3 knows", told)
	}
	for _, id := range []string{"n1", "n3"} {
		if d := w.take(id, "five", key); !d.Allowed {
			t.Errorf("%s: %+v", id, d)
		}
	}
	for _, id := range []string{"n1", "n3", "n4"} {
		if d := w.take(id, "five", other); d.Source != SourceDenied {
			t.Errorf("%s, of another key: %+v", id, d)
		}
	}
	w.check("n1",
		Item{Limit: "five", Key: key, Cost: -1}) // nodes that have been told are not told again
	if told["n4"] != 1 {
		t.Errorf("told, and how often: %v", told)
	}
}

// Promise: in one request, what comes after a refund is asked for after it, and what comes before
// it is not.
func TestGivenBackInTheSameRequest(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	take, back := Item{Limit: "five", Key: key, Cost: 1}, Item{Limit: "five", Key: key, Cost: -1}
	if d := w.check("n1", take, back, take); d[0].Allowed || !d[1].Allowed || !d[2].Allowed {
		t.Errorf("%+v", d)
	}
	w.denying("five", key)
	out := make([]Decision, 2)
	if err := w.nodes["n3"].Check(&Request{Atomic: true, Items: []Item{
		back,
		{Limit: "five", Key: key, Cost: 0},
	}}, out); err != nil || !out[0].Allowed {
		t.Fatal(err, out)
	}
	if d := w.take("n1", "five", key); !d.Allowed {
		t.Errorf("after a refund that stands with something else: %+v", d)
	}
}

// Promise: takes of several owners give back a moment after their answer, and tell.
func TestRefundOfSeveralOwnersEndsDenials(t *testing.T) {
	w := newWorld(t, 3, five)
	key, other := w.key("n2", 0), w.key("n3", 0)
	for _, at := range []string{"n2", "n3"} { // the owner itself, or another one
		w.check("n2", Item{Limit: "five", Key: key, Cost: w.remaining("n2", "five", key)})
		w.denying("five", key)
		out := make([]Decision, 2)
		items := []Item{{Limit: "five", Key: key, Cost: -1}, {Limit: "five", Key: other, Cost: 1}}
		r := Request{Atomic: true, Items: items}
		if err := w.nodes[at].Check(&r, out); err != nil || !out[0].Allowed || !out[1].Allowed {
			t.Fatal(err, out)
		}
		w.settle()
		if d := w.take("n1", "five", key); !d.Allowed {
			t.Errorf("given back at %s: %+v", at, d)
		}
		w.denying("five", key)
		r.Items, r.Atomic, r.Deadline = []Item{{
			Limit: "five", Key: key,
			Cost: -1,
		}}, false, 0 // a request may be used again
		if err := w.nodes[at].Check(&r, out[:1]); err != nil || !out[0].Allowed {
			t.Fatal(err, out)
		}
		if d := w.take("n1", "five", key); !d.Allowed {
			t.Errorf("given back at %s with a request that was used before: %+v", at, d)
		}
	}
}

// Promise: a denial that is overtaken by what ends it is not remembered.
func TestLateDenialIsNotRemembered(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.take("n1", "five", key)
	w.meet = func(c *Call, deliver func() *Answer) {
		c.Answer = deliver()
		// the answer is still under way
		if c.Ask.From == 1 && len(c.Ask.Items) > 0 && c.Ask.Items[0].Tell {
			w.meet = nil
			w.check("n3", Item{Limit: "five", Key: key, Cost: -1})
		}
	}
	if d := w.take("n1", "five", key); d.Allowed {
		t.Fatalf("%+v", d)
	}
	if d := w.take("n1", "five", key); !d.Allowed {
		t.Errorf("a denial from before a refund: %+v", d)
	}
}

// Promise: what a node has remembered while its own refund was under way ends with the refund's
// answer.
func TestOwnRefundEndsWhatCameBefore(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Items) > 0 && c.Ask.Items[0].Cost < 0 { // others ask while it is on its way
			w.pass(time.Millisecond)
			w.denying("five", key)
			w.pass(time.Millisecond)
		}
		c.Answer = deliver()
	}
	if d := w.check("n1", Item{Limit: "five", Key: key, Cost: -1})[0]; !d.Allowed {
		t.Fatalf("%+v", d)
	}
	if d := w.take("n1", "five", key); !d.Allowed {
		t.Errorf("after its own refund: %+v", d)
	}
}

// Promise: where nodes that remember are not reached, a denial outlives what ended it by a second
// at most, and a refund is answered nevertheless.
func TestLostWordOfRefund(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	began := w.now
	w.losesForget()
	if d := w.check("n3", Item{Limit: "five", Key: key, Op: OpReset})[0]; !d.Allowed || d.Degraded {
		t.Fatalf("%+v", d)
	}
	w.Wait(began.Add(denial.Lasts - denial.Renew - 10*time.Millisecond))
	if d := w.take("n1", "five", key); d.Source != SourceDenied {
		t.Fatalf("this world loses nothing: %+v", d)
	}
	w.Wait(began.Add(denial.Lasts))
	if d := w.take("n1", "five", key); !d.Allowed {
		t.Errorf("after %v: %+v", denial.Lasts, d)
	}
}

// Promise: a node that was not reached is told again by what is given back next; and one that does
// not answer three times is not waited for.
func TestLostWordIsSaidAgain(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	refund := Item{Limit: "five", Key: key, Cost: -1}
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	w.losesForget()
	w.check("n3", refund)
	w.meet = nil
	w.pass(time.Millisecond)
	w.check("n3", refund)
	if d := w.take("n1", "five", key); !d.Allowed {
		t.Errorf("told the second time: %+v", d)
	}
	w.check("n2", Item{Limit: "five", Key: key, Cost: 1})
	w.denying("five", key)
	told := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Forget) > 0 {
			told++
			c.Err = errors.New("silence")
			return
		}
		c.Answer = deliver()
	}
	for range 6 {
		w.check("n3", refund)
	}
	if told != breaker.Trips {
		t.Errorf("waited %d times for who does not answer, want %d", told, breaker.Trips)
	}
}

// Promise: an answer says the smallest wait after which that cost is admitted, whichever node gives
// it. So a node that remembers the denial of one cost asks for another one: less may be admitted,
// and more waits longer.
func TestOtherCostIsAskedFor(t *testing.T) {
	const wait = 12 * time.Second // for a unit
	w := newWorld(t, 3, limiter.Spec{
		Name: "rate", Algorithm: limiter.GCRA, Limit: 5, Per: 5 * wait, Burst: 5,
	})
	key := w.key("n2", 0)
	ask := func(cost int64) Decision {
		return w.check("n1", Item{Limit: "rate", Key: key, Cost: cost})[0]
	}
	ask(3)
	ask(4)
	for _, row := range []struct {
		cost    int64
		allowed bool
		source  Source
		left    int64
		retry   time.Duration
	}{
		{4, false, SourceForwarded, 2, 2 * wait},
		{4, false, SourceDenied, 2, 2 * wait},
		{5, false, SourceForwarded, 2, 3 * wait},
		{5, false, SourceForwarded, 2, 3 * wait}, // one cost is remembered, and that the smallest
		{4, false, SourceDenied, 2, 2 * wait},
		{6, false, SourceForwarded, 2, limiter.Never},
		{1, true, SourceForwarded, 1, limiter.Never},
		{3, false, SourceForwarded, 1, 2 * wait},
		{3, false, SourceDenied, 1, 2 * wait},
		{4, false, SourceForwarded, 1, 3 * wait},
	} {
		if d := ask(row.cost); d.Allowed != row.allowed || d.Source != row.source ||
			d.Remaining != row.left || d.RetryAfter != row.retry {
			t.Errorf("cost %d: %+v, want %+v", row.cost, d, row)
		}
	}
}

// Promise: what a node remembers of one limit says nothing of another one: after a change of limits
// it asks.
func TestChangedLimitIsAskedFor(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	l, err := limiter.New(five, limiter.Override{Key: key, Limit: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		n.SetLimits(Limits{"five": l})
	}
	if d := w.take("n1", "five", key); !d.Allowed || d.Limit != 7 {
		t.Errorf("with an override to 7: %+v", d)
	}
}

// Promise: limits that are decided here, never deny, or make a refusal cost something, and requests
// with terms, are not answered from memory.
func TestWhatIsNotRemembered(t *testing.T) {
	with := func(change func(*limiter.Spec)) limiter.Spec {
		s := five
		change(&s)
		return s
	}
	for name, s := range map[string]limiter.Spec{
		"count_rejected": with(func(s *limiter.Spec) { s.CountRejected = true }),
		"drain":          with(func(s *limiter.Spec) { s.Drain = true }),
		"dry_run":        with(func(s *limiter.Spec) { s.DryRun = true }),
		"shadow":         with(func(s *limiter.Spec) { s.OnDeny = limiter.DenyShadow }),
		"replicated":     with(func(s *limiter.Spec) { s.Consistency = limiter.Replicated }),
	} {
		w := newWorld(t, 3, s)
		if by := w.hammer(30, "n1", "five", w.key("n2", 0)); by[SourceDenied] != 0 {
			t.Errorf("%s: by source %v", name, by)
		}
	}
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	for name, it := range map[string]Item{
		"a look": {
			Cost: 1,
			Op:   OpPeek,
		}, "a look at nothing": {Op: OpPeek}, "nothing": {}, "a report": {
			Cost:  1,
			Terms: Terms{Report: true},
		},
		"what is left": {Cost: 1, Terms: Terms{Drain: true}},
	} {
		it.Limit, it.Key = "five", key
		if d := w.check("n1", it)[0]; d.Source != SourceForwarded {
			t.Errorf("%s: %+v", name, d)
		}
		if d := w.take("n1", "five", key); d.Source != SourceDenied {
			t.Errorf("after %s: %+v", name, d)
		}
	}
	n := w.nodes["n1"]
	five := n.Limits()["five"]
	it := (&AskItem{Key: key, Cost: 1}).arrive(five)
	if n.local.decideAway(w.now, &it, new(Decision)) {
		t.Error("who was asked as the owner answers for it from memory")
	}
	out := make([]Decision, 2)
	items := []Item{{Limit: "five", Key: key, Cost: 1}, {Limit: "five", Key: key, Cost: 0}}
	if err := w.nodes["n1"].Check(&Request{Atomic: true, Items: items}, out); err != nil ||
		out[0].Source != SourceForwarded {
		t.Errorf("all or nothing: %v, %+v", err, out)
	}
}

// Promise: a denial because of what others have set aside ends whenever they like; it is not
// remembered.
func TestDenialByHoldsIsNotRemembered(t *testing.T) {
	w := newWorld(t, 3, hundred)
	key := w.key("n2", 0)
	hold, d := w.reserve("n3", "hundred", key, 60, time.Minute)
	if !d.Allowed {
		t.Fatalf("%+v", d)
	}
	for range 5 {
		if d := w.check("n1", Item{Limit: "hundred", Key: key, Cost: 50})[0]; d.Allowed ||
			d.Source != SourceForwarded {
			t.Fatalf("%+v", d)
		}
	}
	w.settleHold("n3", hold, 0)
	if d := w.check("n1", Item{Limit: "hundred", Key: key, Cost: 50})[0]; !d.Allowed {
		t.Errorf("nothing is set aside: %+v", d)
	}
}

// Promise: a client that repeats what it was given hears so, whichever client was denied since;
// when that is long enough ago, clients that draw IDs are denied as all others.
func TestRepeatIsNotDeniedFromMemory(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	take := func(sequence uint64) Decision {
		return w.check("n1",
			Item{Limit: "five", Key: key, Cost: 1, ID: ID{Origin: 77, Sequence: sequence}})[0]
	}
	if d := take(1); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	w.check("n1", Item{Limit: "five", Key: key, Cost: 4})
	w.hammer(1900, "n1", "five", key)
	if d := take(1); !d.Allowed || d.Source != SourceForwarded {
		t.Errorf("repeated: %+v", d)
	}
	if d := take(2); d.Allowed || d.Source != SourceForwarded {
		t.Errorf("a new one, that nobody can tell from a repeat: %+v", d)
	}
	w.hammer(200, "n1", "five", key)
	if d := take(3); d.Source != SourceDenied {
		t.Errorf("denied for more than two seconds: %+v", d)
	}
	w.check("n3", Item{Limit: "five", Key: key, Cost: -1})
	if d := take(4); !d.Allowed {
		t.Errorf("after a refund: %+v", d)
	}
	w.denying("five", key)
	if d := take(4); !d.Allowed {
		t.Errorf("repeated, with a new denial in between: %+v", d)
	}
}

// Promise: what an owner has decided once and says again is as old as it is: it says nothing of
// when the denial ends.
func TestRepeatedDenialIsNotRemembered(t *testing.T) {
	w := newWorld(t, 3,
		limiter.Spec{Name: "rate", Algorithm: limiter.GCRA, Limit: 1, Per: time.Second, Burst: 1})
	key := w.key("n2", 0)
	w.take("n1", "rate", key)
	again := func() Decision {
		return w.check("n1",
			Item{Limit: "rate", Key: key, Cost: 1, ID: ID{Origin: 77, Sequence: 1}})[0]
	}
	first := again()
	w.pass(first.RetryAfter - 10*time.Millisecond)
	if d := again(); d.RetryAfter != first.RetryAfter {
		t.Fatalf("%+v, then %+v", first, d)
	}
	w.pass(10 * time.Millisecond)
	if d := w.take("n1", "rate", key); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// Promise: an owner of an older release promises nothing, so nothing is remembered; what it cannot
// read it does not see.
func TestOlderOwnersPromiseNothing(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.meet = func(c *Call, deliver func() *Answer) {
		c.Ask.From, c.Ask.Forget = 0, nil
		for i := range c.Ask.Items {
			c.Ask.Items[i].Tell = false
		}
		c.Answer = deliver()
	}
	if by := w.hammer(30, "n1", "five", key); by[SourceForwarded] != 30 {
		t.Errorf("by source %v", by)
	}
}

// Promise: before a partition goes to another node, all nodes are told that remember denials of its
// keys, as far as they can be reached.
func TestDenialEndsBeforeOwnerMoves(t *testing.T) {
	for _, lost := range []bool{false, true} {
		w := newWorld(t, 3, five)
		key := w.key("n2", 0)
		w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
		w.denying("five", key)
		w.pass(time.Second / 2)
		w.denying("five", key)
		began := w.now
		if lost {
			w.losesForget()
		}
		ms := w.members(3)
		ms[1].State = StateLeaving
		w.show(ms, 0, "n2", "n3") // n1 has not heard of it
		owner := ""
		for owner == "" {
			w.pass(time.Millisecond)
			for _, id := range []string{"n1", "n3"} {
				if w.nodes[id].holder.Holds(limiter.Hash(key)) {
					owner = id
				}
			}
		}
		if n := w.nodes["n2"].notices.watches.Len(); !lost && n != 0 {
			t.Errorf("%d are to be told of what has gone", n)
		}
		w.check(owner, Item{Limit: "five", Key: key, Op: OpReset})
		if lost {
			w.Wait(began.Add(denial.Lasts))
		}
		if d := w.take("n1", "five", key); !d.Allowed {
			t.Errorf("lost is %t: a reset at the new owner, %v later: %+v", lost,
				time.Duration(w.now-began), d)
		}
	}
}

// Promise: a node that is not the owner, by its own View, promises nothing; nor do others remember
// a denial of one that is not, by their Views.
func TestOnlyOwnersPromise(t *testing.T) {
	leaves := func(w *world) { // n2 cannot give anything away yet
		w.meet = func(c *Call, deliver func() *Answer) {
			if c.Ask.Move != nil && len(c.Ask.Items) == 0 {
				c.Err = errSilent
				return
			}
			c.Answer = deliver()
		}
		ms := w.members(3)
		ms[1].State = StateLeaving
		w.show(ms, 0, "n2")
		w.pass(50 * time.Millisecond)
	}
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	leaves(w)
	if by := w.hammer(5, "n1", "five", key); by[SourceForwarded] != 5 {
		t.Errorf("by who still decides, and is about to give it away: by source %v", by)
	}
	w = newWorld(t, 3, five)
	key = w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	leaves(w)
	if d := w.take("n1", "five", key); d.Source == SourceDenied {
		t.Errorf("by a View in which another one owns it: %+v", d)
	}
}

// Promise: a node that the owner could not tell is promised nothing.
func TestStrangersArePromisedNothing(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.create("n4", 4).Start()
	w.show(append(w.members(3), Member{ID: "n4", Boot: 4, Role: RoleAgent, State: StateActive}), 0,
		"n4") // n2 has not heard of it
	if by := w.hammer(12, "n4", "five", key); by[SourceForwarded] != 12 {
		t.Errorf("by source %v", by)
	}
}

// Promise: nobody goes by the word of an owner that is gone, or of one it has been cut off from.
func TestDenialOfTheDead(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	w.kill("n2")
	w.check("n1", Item{Limit: "five", Key: w.key("n1", 0), Cost: 1})
	if d := w.take("n1", "five", key); d.Source != SourceDenied {
		t.Fatalf("nobody knows yet: %+v", d)
	}
	w.nodes["n1"].view.Load().peers[1].left.Store(true)
	if d := w.take("n1", "five", key); d.Source == SourceDenied {
		t.Errorf("by the word of the dead: %+v", d)
	}
	w = newWorld(t, 3, five)
	key = w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	w.nodes["n1"].right.minority.Store(true)
	if d := w.take("n1", "five", key); d.Source != SourceFallback {
		t.Errorf("cut off: %+v", d)
	}
}

// Promise: memory is bounded on both sides; what there is no room for is asked for.
func TestDenialsAreBounded(t *testing.T) {
	w := newWorld(t, 2, five)
	l := w.nodes["n1"].Limits()["five"]
	n1, n2 := w.nodes["n1"], w.nodes["n2"]
	for i := range 2 * denial.WatchesMost {
		it := (&AskItem{Key: fmt.Sprint(i), Cost: 1}).arrive(l)
		n1.local.denials.Note(w.now, it.place(), &denial.Answer{
			By: 2, Sent: w.now, Cost: 1,
			Told: true, Denied: limiter.Decision{RetryAfter: time.Minute},
		})
		n2.notices.promise(w.now, 1, &it)
	}
	if n := n1.local.denials.Len(); n != denial.CacheMost {
		t.Errorf("%d denials are remembered, want %d", n, denial.CacheMost)
	}
	// half of the keys are n1's
	if n := n2.notices.watches.Len(); n > denial.WatchesMost || n < denial.WatchesMost/3 {
		t.Errorf("%d promises, at most %d are given", n, denial.WatchesMost)
	}
	w.pass(2 * time.Minute)
	if n, m := n1.local.denials.Len(), n2.notices.watches.Len(); n != 0 || m != 0 {
		t.Errorf("%d denials and %d promises are left when all are over", n, m)
	}
}

// Promise: two keys with one hash are not confused.
func TestDenialsOfOneHash(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
	w.denying("five", key)
	n := w.nodes["n1"]
	it := flight{
		AskItem: AskItem{Limit: n.Limits()["five"], Key: "another", Cost: 1},
		hash:    limiter.Hash(key),
	}
	var d Decision
	if n.local.decideDenied(w.now, &it, &d) {
		t.Errorf("another key: %+v", d)
	}
	n.local.denials.Note(w.now, it.place(), &denial.Answer{
		By: 2, Sent: w.now, Cost: 1, Told: true,
		Denied: limiter.Decision{RetryAfter: time.Minute},
	})
	if w.pass(time.Millisecond); !n.local.decideDenied(w.now, &it, &d) ||
		n.local.denials.Len() != 2 {
		t.Errorf("%d denials, %+v", n.local.denials.Len(), d)
	}
	if d := w.take("n1", "five", key); d.Source != SourceDenied {
		t.Errorf("%+v", d)
	}
	n.local.denials.Forget(w.now, it.hash)
	if n.local.denials.Len() != 0 || n.local.decideDenied(w.now, &it, &d) {
		t.Errorf("%d denials are left", n.local.denials.Len())
	}
}
