package cluster

import (
	"errors"
	"testing"
	"time"

	"penstock/limiter"
)

// takeAll takes units of each key at node, all or none.
func (w *world) takeAll(node string, items ...Item) (out []Decision, all bool) {
	w.t.Helper()
	out, all = make([]Decision, len(items)), true
	if err := w.nodes[node].Check(&Request{Items: items, Atomic: true}, out); err != nil {
		w.t.Fatal(err)
	}
	for i := range out {
		all = all && out[i].Allowed
	}
	return out, all
}

// of is a take of units of "hundred".
func of(units int64, key string) Item { return Item{Limit: "hundred", Key: key, Cost: units} }

// remain holds what remains of keys against want, after all that is due has happened.
func (w *world) remain(keys []string, want ...int64) {
	w.t.Helper()
	w.settle()
	for i, key := range keys {
		if got := w.remaining("n1", "hundred", key); got != want[i] {
			w.t.Errorf("%d remain of %s, want %d", got, key, want[i])
		}
	}
}

// Promise: takes of several owners are all charged or none; the answer waits for one round trip,
// and names the limits that refused.
func TestTakesOfSeveralOwners(t *testing.T) {
	w := newWorld(t, 3, hundred)
	keys := []string{w.key("n1", 0), w.key("n2", 0), w.key("n3", 0)}
	calls := w.calls
	out, all := w.takeAll("n1", of(60, keys[0]), of(50, keys[1]), of(40, keys[2]))
	if !all || w.calls != calls+2 || out[1].Remaining != 50 || out[1].Hold != limiter.HoldNone {
		t.Fatalf("%+v; %d calls before the answer, want one to each of the two others", out,
			w.calls-calls)
	}
	w.remain(keys, 40, 50, 60)
	if w.calls != calls+4+2 { // and two looks at what remains
		t.Errorf("%d calls, want two to each of the two others", w.calls-calls)
	}
	out, all = w.takeAll("n2", of(41, keys[0]), of(50, keys[1]), of(61, keys[2]))
	if all || out[0].Allowed || !out[1].Allowed || out[2].Allowed || out[0].RetryAfter <= 0 ||
		out[2].RetryAfter <= 0 {
		t.Errorf("%+v; want a refusal of the first and the last", out)
	}
	if out[0].Remaining != 40 || out[1].Remaining != 50 || out[2].Remaining != 60 {
		t.Errorf("%+v; want what remains now, for nothing was charged", out)
	}
	w.remain(keys, 40, 50, 60)
	if _, all = w.takeAll("n3", of(40, keys[0]), of(50, keys[1]), of(60, keys[2])); !all {
		t.Error("what remains is refused")
	}
	w.remain(keys, 0, 0, 0)
}

// Promise: items of one count are added up, also where each brings a limit of its own along.
func TestTwinsBringTheirLimits(t *testing.T) {
	w := newWorld(t, 3, hundred)
	spec := hundred
	spec.Name, spec.Consistency = "everywhere", limiter.Replicated
	item := func(units int64, key string) Item {
		l, err := limiter.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		return Item{Inline: l, Key: key, Cost: units}
	}
	a, b := w.key("n1", 0), w.key("n2", 0)
	if out, all := w.takeAll("n3", item(60, a), item(60, a), of(1, b)); all {
		t.Errorf("%+v; 120 of 100 are taken", out)
	}
	if out, all := w.takeAll("n3", item(60, a), item(40, a), of(1, b)); !all {
		t.Errorf("%+v; 100 of 100 are refused", out)
	}
}

// Promise: a repeat, at another node too, is charged once.
func TestTakesOfSeveralOwnersRepeated(t *testing.T) {
	w := newWorld(t, 3, hundred)
	keys := []string{w.key("n1", 0), w.key("n2", 0)}
	ask := func(node string) {
		t.Helper()
		a, b := of(30, keys[0]), of(40, keys[1])
		a.ID = ID{Origin: 7, Sequence: 1} // the first one's is that of the request
		if out, all := w.takeAll(node, a, b); !all {
			t.Errorf("at %s: %+v", node, out)
		}
	}
	ask("n1")
	ask("n3") // before it is settled
	w.remain(keys, 70, 60)
	ask("n2")
	w.remain(keys, 70, 60)
}

// Promise: a repeat that is admitted is charged, also where the first try was refused, since an
// owner was silent, and has released what it had set aside.
func TestRepeatOfARefusedTakeOfSeveralOwners(t *testing.T) {
	deny := hundred
	deny.OnError = limiter.ErrorDeny
	for _, late := range []bool{false, true} { // whether the repeat is asked before the release
		w := newWorld(t, 3, deny)
		keys := []string{w.key("n2", 0), w.key("n3", 0)}
		a, b := of(30, keys[0]), of(30, keys[1])
		a.ID = ID{Origin: 7, Sequence: 1}
		silent := true
		w.meet = func(c *Call, deliver func() *Answer) {
			if silent && c.To.ID == "n3" && len(c.Ask.Items) > 0 {
				c.Err = errSilent
				return
			}
			c.Answer = deliver()
		}
		if out, all := w.takeAll("n1", a, b); all || !out[1].Degraded {
			t.Fatalf("%+v", out)
		}
		if silent = false; !late {
			w.settle()
		}
		if out, all := w.takeAll("n1", a, b); !all {
			t.Fatalf("again: %+v", out)
		}
		w.Wait(w.now.Add(10 * time.Second))
		w.remain(keys, 70, 70)
	}
}

// Promise: of two requests that refuse each other one gets all.
func TestRivalTakesDoNotFailForEver(t *testing.T) {
	w := newWorld(t, 3, hundred)
	a, b := w.key("n2", 0), w.key("n3", 0)
	met, second := false, false
	w.meet = func(c *Call, deliver func() *Answer) {
		c.Answer = deliver()
		// between the first's two holds
		if !met && len(c.Ask.Items) > 0 && c.Ask.Items[0].Op == OpReserve {
			met = true
			_, second = w.takeAll("n1", of(70, b), of(70, a))
		}
	}
	out, first := w.takeAll("n1", of(70, a), of(70, b))
	if !met || first == second {
		t.Errorf("the second got all: %t, and the first got %+v", second, out)
	}
	w.meet = nil
	w.remain([]string{a, b}, 30, 30)
}

// Promise: where an owner is silent on_error speaks for it, and what the others have set aside is
// charged if that is a yes, and released if it is a no. What the silent one had set aside runs out
// and is not charged.
func TestTakesWithASilentOwner(t *testing.T) {
	for _, on := range []limiter.OnError{
		limiter.ErrorLocal, limiter.ErrorAllow,
		limiter.ErrorDeny,
	} {
		for _, acts := range []bool{true, false} { // whether the silent one hears
			other := hundred
			other.Name, other.OnError = "other", on
			w := newWorld(t, 3, hundred, other)
			a, b := w.key("n2", 0), w.key("n3", 0)
			w.meet = func(c *Call, deliver func() *Answer) {
				if c.To.ID == "n3" {
					if acts && len(c.Ask.Items) > 0 {
						deliver()
					}
					c.Err = errors.New("no answer")
					return
				}
				c.Answer = deliver()
			}
			out, all := w.takeAll("n1", of(30, a), Item{Limit: "other", Key: b, Cost: 30})
			if want := on != limiter.ErrorDeny; all != want || out[1].Source != SourceFallback ||
				!out[1].Degraded {
				t.Errorf("on_error %v: %+v, want %t", on, out, want)
			}
			w.meet = nil
			w.Wait(w.now.Add(10 * time.Second))
			want := [2]int64{70, 70} // what was admitted for the silent one is owed to it
			if on == limiter.ErrorDeny {
				want = [2]int64{100, 100}
			}
			if got := [2]int64{
				w.remaining("n2", "hundred", a),
				w.remaining("n3", "other", b),
			}; got != want {
				t.Errorf("on_error %v, heard %t: %d remain, want %d", on, acts, got, want)
			}
		}
	}
}

// Promise: a settlement that gets lost is made up for, also after the hold has run out.
func TestLostSettlementsAreMadeUpFor(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 5 * time.Second} {
		w := newWorld(t, 3, hundred)
		keys := []string{w.key("n2", 0), w.key("n3", 0)}
		until := w.now.Add(away)
		w.meet = func(c *Call, deliver func() *Answer) {
			if w.now < until && len(c.Ask.Items) > 0 && c.Ask.Items[0].Op != OpReserve {
				c.Err = errors.New("lost")
				return
			}
			c.Answer = deliver()
		}
		if out, all := w.takeAll("n1", of(30, keys[0]), of(30, keys[1])); !all {
			t.Fatalf("%+v", out)
		}
		w.Wait(w.now.Add(away + 5*time.Second))
		w.remain(keys, 70, 70)
	}
}

// Promise: limits that never deny have no say and are charged with the others; so is what gives
// back, and what is reported.
func TestTakesOfSeveralOwnersWithoutHolds(t *testing.T) {
	shadow := hundred
	shadow.Name, shadow.OnDeny = "shadow", limiter.DenyShadow
	w := newWorld(t, 3, hundred, shadow)
	keys := []string{w.key("n2", 0), w.key("n3", 0)}
	w.check("n1", of(50, keys[0]))
	w.check("n1", of(50, keys[1]))
	seen := Item{Limit: "shadow", Key: keys[1], Cost: 80}
	watch := func(all bool, left int64) {
		t.Helper()
		w.settle()
		if got := w.remaining("n3", "shadow", keys[1]); got != left {
			t.Errorf("%d remain of the shadow, want %d", got, left)
		}
	}
	_, all := w.takeAll("n1", of(60, keys[0]), of(-20, keys[1]), seen)
	if all {
		t.Error("60 of 50 are admitted")
	}
	watch(all, 100)
	w.remain(keys, 50, 50)
	_, all = w.takeAll("n1", of(10, keys[0]), of(-20, keys[1]), seen)
	if !all {
		t.Error("refused")
	}
	watch(all, 20)
	w.remain(keys, 40, 70)
	report := of(30, keys[1])
	report.Report = true
	if out, all := w.takeAll("n1", of(40, keys[0]), report, seen); !all || !out[2].Shadow {
		t.Errorf("%+v; want a yes of all, the last as a shadow", out)
	}
	w.remain(keys, 0, 40)
	watch(all, 20)
	if out, all := w.takeAll("n1", of(101, keys[0]), of(1, keys[1])); all ||
		out[0].RetryAfter != limiter.Never {
		t.Errorf("%+v; more than the limit is admitted, or there is hope", out)
	}
	w.remain(keys, 0, 40)
}

// Promise: what cannot be set aside is refused with the reason, and nothing is charged.
func TestTakesOfSeveralOwnersRefused(t *testing.T) {
	permits := limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency, Limit: 5,
		Per: time.Minute,
	}
	w := newWorld(t, 3, hundred, permits)
	a, b := w.key("n2", 0), w.key("n3", 0)
	drain := of(1, b)
	drain.Drain = true
	for field, it := range map[string]Item{
		"items[1].limit": {Limit: "permits", Key: b, Cost: 1},
		"items[1].drain": drain,
	} {
		var input *InputError
		err := w.nodes["n1"].Check(&Request{Items: []Item{of(1, a), it}, Atomic: true},
			make([]Decision, 2))
		if !errors.As(err, &input) || input.Field != field {
			t.Errorf("%v, want an error about %s", err, field)
		}
	}
	w.remain([]string{a}, 100)
}

// Promise: no client settles what is set aside for a take, also if the take's id is its own.
func TestClientsDoNotSettleTakes(t *testing.T) {
	w := newWorld(t, 3, hundred)
	keys := []string{w.key("n2", 0), w.key("n3", 0)}
	a, b := of(30, keys[0]), of(30, keys[1])
	a.ID, b.ID = ID{Origin: 7, Sequence: 1}, ID{Origin: 7, Sequence: 2}
	if out, all := w.takeAll("n1", a, b); !all {
		t.Fatalf("%+v", out)
	}
	for _, h := range w.nodes["n2"].holder.book.On(w.nodes["n2"].Limits()["hundred"], keys[0]) {
		if d := w.settleHold("n1", Item{
			Limit: "hundred", Key: keys[0], Op: OpSettle,
			Hold: &HoldTerms{ID: ID(h.ID)},
		}, 0); d.Decision.Hold != limiter.HoldUnknown {
			t.Errorf("%+v", d)
		}
	}
	w.remain(keys, 70, 70)
}

// Promise: what is only looked at is looked at together: two of one request do not both get what is
// there once.
func TestTwinsAreLookedAtTogether(t *testing.T) {
	everywhere := hundred
	everywhere.Name, everywhere.Consistency = "everywhere", limiter.Replicated
	everywhere.Algorithm, everywhere.Anchor = limiter.GCRA, 0
	w := newWorld(t, 3, hundred, everywhere)
	a, b := w.key("n2", 0), w.key("n3", 0)
	twin := func(units int64) Item { return Item{Limit: "everywhere", Key: b, Cost: units} }
	if out, all := w.takeAll("n1", of(10, a), twin(60), twin(60)); all || !out[1].Allowed ||
		out[2].Allowed {
		t.Errorf("60 and 60 of 100: %+v", out)
	}
	w.remain([]string{a}, 100)
	if out, all := w.takeAll("n1", of(10, a), twin(60), twin(40)); !all {
		t.Errorf("60 and 40 of 100: %+v", out)
	}
	w.remain([]string{a}, 90)
	if got := w.remaining("n1", "everywhere", b); got != 0 {
		t.Errorf("%d remain, want 0", got)
	}
}

// Promise: a refused set shows what is left of each limit, also of one that drains and cannot be
// set aside: nothing is drained.
func TestRefusedTogetherDrainsNothing(t *testing.T) {
	drains := hundred
	drains.Name, drains.Drain = "drains", true
	w := newWorld(t, 3, hundred, drains)
	a, b := w.key("n2", 0), w.key("n3", 0)
	w.check("n1", Item{Limit: "drains", Key: b, Cost: 30})
	for _, units := range []int64{80, 120} {
		out, all := w.takeAll("n1", of(10, a), Item{Limit: "drains", Key: b, Cost: units})
		if all || out[1].Allowed || out[1].Remaining != 70 || out[1].Drained != 0 ||
			out[0].Remaining != 100 {
			t.Errorf("%d of 70: %+v", units, out)
		}
		w.settle()
		if got := w.remaining("n1", "drains", b); got != 70 {
			t.Errorf("%d remain after %d were refused, want 70", got, units)
		}
	}
}

// Promise: a silent owner costs nothing of the share that speaks for it where another has refused,
// and what is to be reported is not where the silent one's on_error refuses.
func TestRefusedBesideASilentOwner(t *testing.T) {
	deny := hundred
	deny.Name, deny.OnError = "deny", limiter.ErrorDeny
	w := newWorld(t, 3, hundred, deny)
	a, b := w.key("n2", 0), w.key("n3", 0)
	w.check("n2", of(80, a))
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.To.ID == "n3" && len(c.Ask.Items) > 0 {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	if out, all := w.takeAll("n1", of(30, a), of(30, b)); all || out[0].Allowed ||
		out[1].Source != SourceFallback {
		t.Fatalf("%+v", out)
	}
	if d := w.check("n1", of(33, b))[0]; d.Source != SourceFallback || !d.Allowed {
		t.Errorf("of a share of 33: %+v", d)
	}
	report := of(10, a)
	report.Report = true
	if out, all := w.takeAll("n1", report, of(-20, a),
		Item{Limit: "deny", Key: b, Cost: 30}); all || out[2].Allowed {
		t.Fatalf("%+v", out)
	}
	w.pass(3 * time.Second)
	w.remain([]string{a}, 20)
}
