package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// reserveAll asks node for a hold of units on each key, all or none.
func (w *world) reserveAll(
	node string, units int64, keys ...string,
) (r *Request, out []Decision, all bool) {
	w.t.Helper()
	r, out, all = &Request{Atomic: true}, make([]Decision, len(keys)), true
	for _, key := range keys {
		r.Items = append(r.Items, Item{
			Limit: "hundred", Key: key, Cost: units, Op: OpReserve,
			Hold: &HoldTerms{TTL: time.Minute},
		})
	}
	if err := w.nodes[node].Check(r, out); err != nil {
		w.t.Fatal(err)
	}
	for i := range out {
		all = all && out[i].Allowed
	}
	return r, out, all
}

// Promise: several owners: all is reserved, or nothing; the limits that refused are named.
func TestReserveOverSeveralOwners(t *testing.T) {
	w := newWorld(t, 3, hundred)
	keys := []string{w.key("n1", 0), w.key("n2", 0), w.key("n3", 0)}
	calls := w.calls
	_, out, all := w.reserveAll("n1", 60, keys...)
	if !all || w.calls != calls+2 {
		t.Fatalf("%+v; %d calls, want one to each of the two others", out, w.calls-calls)
	}
	for i, key := range keys {
		if got := w.remaining("n1", "hundred", key); got != 40 {
			t.Errorf("%d remain of %s, want 40", got, key)
		}
		if d := w.settleHold("n2", Item{
			Limit: "hundred", Key: key, Op: OpSettle,
			Hold: &HoldTerms{ID: out[i].ID},
		}, 10); d.Decision.Hold != limiter.HoldSettled {
			t.Errorf("%+v", d)
		}
	}
	w.check("n3", Item{Limit: "hundred", Key: keys[1], Cost: 80})
	_, out, all = w.reserveAll("n1", 30, keys...)
	if all || !out[0].Allowed || out[1].Allowed || !out[2].Allowed || out[1].RetryAfter <= 0 {
		t.Errorf("%+v; want a refusal of the second alone", out)
	}
	w.settle()
	for i, want := range []int64{90, 10, 90} {
		if got := w.remaining("n2", "hundred", keys[i]); got != want {
			t.Errorf("%d remain of %s, want %d: a refused request has burnt something", got,
				keys[i], want)
		}
	}
}

// Promise: of two requests that refuse each other one gets all.
func TestReservationsDoNotFailForEver(t *testing.T) {
	w := newWorld(t, 3, hundred)
	a, b := w.key("n2", 0), w.key("n3", 0)
	second := ""
	w.meet = func(c *Call, deliver func() *Answer) {
		c.Answer = deliver()
		if second == "" && len(c.Ask.Items) > 0 &&
			c.Ask.Items[0].Op == OpReserve { // between the first's two holds
			second = "denied"
			if _, _, all := w.reserveAll("n1", 70, b, a); all {
				second = "granted"
			}
		}
	}
	_, out, all := w.reserveAll("n1", 70, a, b)
	if all == (second == "granted") {
		t.Errorf("the second is %s, and the first got %+v", second, out)
	}
	w.meet = nil
	w.settle()
	for _, key := range []string{a, b} {
		if got := w.remaining("n1", "hundred", key); got != 30 {
			t.Errorf("%d remain of %s, want 30", got, key)
		}
	}
	if second == "" {
		t.Error("the two have not met")
	}
}

// Promise: a request that an owner refuses for itself is answered at once, also if something that
// is set aside is in its way as well: a second try would be refused like the first.
func TestRefusalsForGoodAreNotTriedAgain(t *testing.T) {
	for _, x := range []struct {
		name   string
		second []Item // for the key of n3
	}{
		{"more than the limit", []Item{of(101, "")}},
		{"beside an item of the same request, more than the limit", []Item{of(1, ""), of(101, "")}},
		{"more than is left", []Item{of(60, "")}},
	} {
		w := newWorld(t, 3, hundred)
		a, b := w.key("n2", 0), w.key("n3", 0)
		w.takeAll("n3", of(50, b))
		if _, d := w.reserve("n1", "hundred", a, 50, time.Minute); !d.Allowed {
			t.Fatal(d)
		}
		items, calls := []Item{of(60, a)}, w.calls
		for _, it := range x.second {
			it.Key = b
			items = append(items, it)
		}
		if out, all := w.takeAll("n1", items...); all || w.calls != calls+2 {
			t.Errorf("%s: %+v after %d calls, want a refusal after one to each of two", x.name,
				out, w.calls-calls)
		}
	}
}
