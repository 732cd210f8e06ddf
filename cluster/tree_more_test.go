package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/limiter/rules"
)

// refusedInput is the error of a request, which must be about an input.
func (w *world) refusedInput(r *Request) *InputError {
	w.t.Helper()
	var input *InputError
	err := w.nodes["n1"].Check(r, make([]Decision, len(r.Items)))
	if !errors.As(err, &input) {
		w.t.Fatalf("%v, want an input error", err)
	}
	return input
}

// Promise: what a tree cannot decide is an error that says what is wrong, and nothing is charged,
// also by the items before.
func TestTreesRefuseWhatTheyCannotDecide(t *testing.T) {
	w := treeWorld(t)
	good := Item{Limit: "user", Key: ann, Cost: 1}
	drain := good
	drain.Drain = true
	inline := limiter.Spec{Name: "own", Algorithm: limiter.GCRA, Limit: 1, Per: time.Hour}
	inline.Parent = "org"
	brought, err := limiter.New(inline)
	if err != nil {
		t.Fatal(err)
	}
	reserve := Item{
		Limit: "team", Key: "acme/search", Cost: 31, Op: OpReserve,
		Hold: &HoldTerms{TTL: time.Minute},
	}
	for _, c := range []struct {
		it          Item
		field, text string
	}{
		{Item{Limit: "user", Key: "acme/ann", Cost: 1}, "items[1].key", `limit "user"`},
		{Item{Limit: "user", Key: "ann", Cost: 1}, "items[1].key", `"team"`},
		{Item{Limit: "user", Key: "/search/ann", Cost: 1}, "items[1].key", `"org"`},
		{Item{Limit: "team", Key: "", Cost: 1}, "items[1].key", "empty"},
		{drain, "items[1].drain", "parent"},
		{Item{Inline: brought, Key: ann, Cost: 1}, "items[1].inline.parent", "brings along"},
		{reserve, "items[1].cost", "1 to 20"},
	} {
		got := w.refusedInput(&Request{Items: []Item{good, c.it}})
		if got.Field != c.field || !strings.Contains(got.Reason, c.text) {
			t.Errorf("%+v: %v; want an error about %s with %q", c.it, got, c.field, c.text)
		}
	}
	many := make([]Item, 400)
	for i := range many {
		many[i] = Item{Limit: "user", Key: fmt.Sprintf("acme/%d/x", i), Cost: 1}
	}
	if got := w.refusedInput(&Request{Items: many, Atomic: true}); got.Field != "items" ||
		!strings.Contains(got.Reason, "400") || !strings.Contains(got.Reason, "1200") {
		t.Errorf("400 items with two parents each: %v", got)
	}
	if got := w.left(); got != [3]int64{10, 20, 30} {
		t.Errorf("%v are left: something was charged", got)
	}
}

// Promise: limits that were put at two nodes at once may name each other, or one that is gone. Each
// node survives that: requests under them are in error, and all others are decided.
func TestTreesInCircles(t *testing.T) {
	w := treeWorld(t, five)
	for _, n := range w.nodes {
		put := Limits{}
		for name, parent := range map[string]string{
			"a": "b", "b": "a", "c": "gone", "org": "user",
		} {
			l, err := limiter.New(level(name, parent, 10))
			if err != nil {
				t.Fatal(err)
			}
			put[name] = l
		}
		n.PutLimits(put)
	}
	for name, text := range map[string]string{
		"a": "circles", "b": "circles", "c": `"gone"`, "user": "circles", "org": "circles",
	} {
		got := w.refusedInput(&Request{Items: []Item{
			{Limit: name, Key: "1/2/3/4/5/6/7/8/9/10", Cost: 1},
		}})
		if got.Field != "items[0].limit" || !strings.Contains(got.Reason, text) {
			t.Errorf("%s: %v, want an error with %q", name, got, text)
		}
	}
	if d := w.take("n2", "five", "k"); !d.Allowed {
		t.Errorf("%+v", d)
	}
	for _, n := range w.nodes {
		n.PutLimits(Limits{})
	}
	if d := w.take("n2", "user", ann); !d.Allowed {
		t.Errorf("without the circle: %+v", d)
	}
}

// Promise: items of one request that share a parent charge it the sum, together or in a row. By
// rules, each limit with each key is charged once, be it named by a rule, or a parent, or both.
func TestSharedParents(t *testing.T) {
	w := treeWorld(t, level("service", "team", 50))
	items := []Item{
		{Limit: "user", Key: ann, Cost: 3},
		{Limit: "service", Key: "acme/search/web", Cost: 4},
		{Limit: "org", Key: "acme", Cost: 5},
	}
	if out, all := w.takeAll("n1", items...); !all || out[1].Remaining != 13 {
		t.Errorf("%+v", out)
	}
	if got := w.left(); got != [3]int64{7, 13, 18} {
		t.Errorf("%v are left, want 7, 13 and 18", got)
	}
	w.check("n2", items...)
	if got := w.left(); got != [3]int64{4, 6, 6} {
		t.Errorf("%v are left, want 4, 6 and 6", got)
	}
	items[2].Cost = 1
	if out, all := w.takeAll("n3", items...); all || out[1].Rule.Name != "team" ||
		out[1].Allowed || !out[0].Allowed || VerdictOf(out).RefusedBy[0] != "team" {
		t.Errorf("7 of 6 of the team: %+v", out)
	}
	n := w.nodes["n1"]
	set, err := rules.New([]rules.Rule{{
		Name: "all", Match: map[string][]string{"user": {"*"}}, Apply: []rules.Apply{
			{Limit: "org", Key: "{org}"},
			{Limit: "user", Key: "{org}/{team}/{user}"},
			{Limit: "service", Key: "{org}/{team}/web"},
		},
	}}, n.Limits())
	if err != nil {
		t.Fatal(err)
	}
	n.SetRules(set)
	r, _, err := n.Match(map[string]string{"org": "acme", "team": "search", "user": "ann"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]Decision, len(r.Items))
	if err := n.Check(r, out); err != nil || !VerdictOf(out).Allowed {
		t.Fatalf("%+v, %v", out, err)
	}
	if got := w.left(); got != [3]int64{2, 4, 4} {
		t.Errorf("by rules: %v are left, want 2, 4 and 4", got)
	}
}

// Promise: an override is that of its level, for the level's own key; what it leaves uncounted is
// charged above; a level that never denies has no say, and its mark is the caller's.
func TestLevelsOfTheirOwn(t *testing.T) {
	w := treeWorld(t)
	make := func(s limiter.Spec, o ...limiter.Override) *limiter.Limit {
		t.Helper()
		l, err := limiter.New(s, o...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	org := level("org", "", 5)
	org.OnDeny = limiter.DenyTag
	all := Limits{
		"user": make(level("user", "team", 10), limiter.Override{Key: "*/ann", Unlimited: true}),
		"team": make(level("team", "org", 20), limiter.Override{Key: "acme/*", Limit: 7}),
		"org":  make(org),
	}
	for _, n := range w.nodes {
		n.SetLimits(all)
	}
	d := w.check("n1", Item{Limit: "user", Key: ann, Cost: 5})[0]
	if !d.Allowed || d.Over || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	w.settle()
	d = w.check("n1", Item{Limit: "user", Key: ann, Cost: 2})[0]
	w.settle()
	if !d.Allowed || !d.Over || d.Tag() != "over-limit" || d.Rule.Name != "org" {
		t.Errorf("beyond the organisation's: %+v", d)
	}
	d = w.check("n1", Item{Limit: "user", Key: ann, Cost: 1})[0]
	if d.Allowed || d.Rule.Name != "team" || d.Rule.Override != "acme/*" {
		t.Errorf("beyond the team's override: %+v", d)
	}
	hold := Item{Limit: "user", Key: ann, Cost: 2, Op: OpReserve, Hold: &HoldTerms{TTL: time.Hour}}
	w.check("n2", Item{Limit: "team", Key: "acme/search", Cost: -3})
	if d = w.check("n2", hold)[0]; !d.Allowed || d.Hold != limiter.HoldOpen {
		t.Fatalf("a reservation that only parents count: %+v", d)
	}
	settle := Item{Limit: "user", Key: ann, Op: OpSettle, Hold: &HoldTerms{ID: d.ID}, Cost: 1}
	if d = w.check("n3", settle)[0]; d.Hold != limiter.HoldSettled {
		t.Errorf("%+v", d)
	}
	if got := w.left(); got[1] != 2 || got[2] != 2 {
		t.Errorf("%v are left, want 2 of the team and of the organisation", got)
	}
}

// Promise: each level is counted under its own name: what it has admitted and what it has refused.
// The limit that was asked for has a denial also if another level has refused.
func TestTalliesOfATree(t *testing.T) {
	w := treeWorld(t)
	tried := level("user", "", 4)
	with, err := w.limits["user"].WithCandidate(tried)
	if err != nil {
		t.Fatal(err)
	}
	tried.Limit = 25
	org, err := w.limits["org"].WithCandidate(tried)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		n.SetLimits(Limits{"user": with, "team": w.limits["team"], "org": org})
	}
	for i := range 30 {
		key := fmt.Sprintf("acme/search/%d", i%5)
		if d := w.check("n1", Item{Limit: "user", Key: key, Cost: 1})[0]; d.Allowed != (i < 20) {
			t.Errorf("check %d: %+v", i, d)
		}
		w.settle()
	}
	sum := func(name string, o Outcome) (sum uint64) {
		for _, n := range w.nodes["n1"].LimitTallies()[name].Checks[o] {
			sum += n
		}
		return sum
	}
	for name, want := range map[string][2]uint64{
		"user": {20, 10}, "team": {20, 10}, "org": {20, 0},
	} {
		got := [2]uint64{sum(name, OutcomeAllowed), sum(name, OutcomeDenied)}
		if got != want {
			t.Errorf("%s has %d admissions and denials, want %d", name, got, want)
		}
	}
	user, above := w.candidates("user"), w.candidates("org")
	if user.Allowed != 20 || user.NewlyDenied != 10 || above.Allowed != 25 ||
		above.NewlyDenied != 5 {
		t.Errorf("candidates: %+v and %+v", user, above)
	}
}

// Promise: where the owner of a level is silent, that level's on_error decides for it: what the
// others have set aside is charged after a yes, and released after a no.
func TestTreeWithASilentOwner(t *testing.T) {
	for _, on := range []limiter.OnError{limiter.ErrorAllow, limiter.ErrorDeny} {
		top := level("top", "", 100)
		top.OnError = on
		w := newWorld(t, 3, level("bottom", "top", 100), top)
		parent := w.key("n3", 0)
		child := ""
		for i := 0; child == ""; i++ {
			if k := fmt.Sprintf("%s/%d", parent, i); w.nodes["n2"].View().Owns(limiter.Hash(k)) {
				child = k
			}
		}
		w.meet = func(c *Call, deliver func() *Answer) {
			if c.To.ID == "n3" {
				c.Err = errSilent
				return
			}
			c.Answer = deliver()
		}
		d := w.check("n1", Item{Limit: "bottom", Key: child, Cost: 30})[0]
		if want := on == limiter.ErrorAllow; d.Allowed != want || !d.Degraded ||
			d.Source != SourceFallback || want && d.Bound != Unbounded ||
			!want && d.Rule.Name != "top" {
			t.Errorf("on_error %v: %+v", on, d)
		}
		w.meet = nil
		w.Wait(w.now.Add(10 * time.Second))
		want := map[limiter.OnError]int64{limiter.ErrorAllow: 70, limiter.ErrorDeny: 100}[on]
		a, b := w.remaining("n2", "bottom", child), w.remaining("n3", "top", parent)
		if a != want || b != want {
			t.Errorf("on_error %v: %d and %d remain, want %d of both", on, a, b, want)
		}
	}
}

// Promise: requests without a parent pay nothing for trees.
func TestNoTreeAllocatesNothing(t *testing.T) {
	w := newWorld(t, 1, five, level("user", "org", 10), level("org", "", 10))
	n, out := w.nodes["n1"], make([]Decision, 1)
	r := &Request{Items: []Item{{Limit: "five", Key: "k", Cost: 1}}}
	if got := testing.AllocsPerRun(1000, func() {
		r.Deadline = 0
		if err := n.Check(r, out); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("%v allocations beside a tree, want 0", got)
	}
}
