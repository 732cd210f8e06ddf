package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/limiter/rules"
)

// ruledWorld has three nodes, each with a rule that puts a request under "hundred" by two
// attributes.
func ruledWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 3, hundred)
	for _, n := range w.nodes {
		s, err := rules.New([]rules.Rule{{
			Name: "both", Match: map[string][]string{"a": {"*"}},
			Apply: []rules.Apply{{Limit: "hundred", Key: "{a}"}, {Limit: "hundred", Key: "{b}"}},
		}}, n.Limits())
		if err != nil {
			t.Fatal(err)
		}
		n.SetRules(s)
	}
	return w
}

// ruled takes cost of what the rules make of attributes.
func (w *world) ruled(node string, cost int64, attributes map[string]string) ([]Decision, Verdict) {
	w.t.Helper()
	r, _, err := w.nodes[node].Match(attributes, cost)
	if err != nil {
		w.t.Fatal(err)
	}
	out := make([]Decision, len(r.Items))
	if err := w.nodes[node].Check(r, out); err != nil {
		w.t.Fatal(err)
	}
	return out, VerdictOf(out)
}

// Promise: the limits that rules put a request under are taken all or none, whichever nodes own
// their keys.
func TestRulesOverSeveralOwners(t *testing.T) {
	w := ruledWorld(t)
	keys := []string{w.key("n1", 0), w.key("n2", 0)}
	request := map[string]string{"a": keys[0], "b": keys[1], "c": "unknown"}
	if _, v := w.ruled("n3", 60, request); !v.Allowed || v.RefusedBy != nil ||
		v.RetryAfter != limiter.Never {
		t.Fatalf("%+v", v)
	}
	w.remain(keys, 40, 40)
	if _, all := w.takeAll("n1", of(30, keys[1])); !all {
		t.Fatal("30 of 40 are refused")
	}
	out, v := w.ruled("n1", 20, request)
	if v.Allowed || !out[0].Allowed || out[1].Allowed ||
		!slices.Equal(v.RefusedBy, []string{"hundred"}) || v.RetryAfter != out[1].RetryAfter {
		t.Errorf("%+v of %+v", v, out)
	}
	w.remain(keys, 40, 10)
}

// Promise: a limit that a file has changed or taken away since the rules were made is that of the
// rules until they follow.
func TestRulesStayWithTheirLimits(t *testing.T) {
	w := ruledWorld(t)
	n := w.nodes["n1"]
	r, _, err := n.Match(map[string]string{"a": "x", "b": "y"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	n.SetLimits(Limits{})
	if err := n.Check(r, make([]Decision, 2)); err != nil {
		t.Error(err)
	}
}

// Promise: what attributes do not say is an error, and charges nothing; no rule is a yes that
// counts nothing.
func TestMatchRefuses(t *testing.T) {
	w := ruledWorld(t)
	n := w.nodes["n1"]
	for _, c := range []struct {
		attributes map[string]string
		want       string
	}{
		{map[string]string{"a": "x"}, "attributes.b: is missing"},
		{
			map[string]string{"a": strings.Repeat("x", MaxKey+1), "b": "y"},
			"attributes: make a key of 1025 bytes",
		},
	} {
		var input *InputError
		if _, _, err := n.Match(c.attributes, 1); !errors.As(err, &input) ||
			!strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v", c.attributes, err)
		}
	}
	if r, m, err := n.Match(map[string]string{"b": "y"}, 1); err != nil || len(r.Items) != 0 ||
		len(m.Rules) != 0 {
		t.Error(r, m, err)
	}
	if s := n.Stats(); s.Refused.Load() != 2 || s.Unmatched.Load() != 1 {
		t.Errorf("refused %d, unmatched %d", s.Refused.Load(), s.Unmatched.Load())
	}
	n.SetRules(nil)
	if _, _, err := n.Match(map[string]string{"a": "x"}, 1); !errors.Is(err, ErrNoRules) {
		t.Error(err)
	}
}

// Promise: the verdict names each limit that refuses once, and has the largest wait; one that only
// had to go along is not named.
func TestVerdict(t *testing.T) {
	rule := func(name string) *limiter.Limit {
		return &limiter.Limit{Spec: limiter.Spec{Name: name}}
	}
	said := func(name string, allowed bool, retry time.Duration) Decision {
		return Decision{
			Rule:     rule(name),
			Decision: limiter.Decision{Allowed: allowed, RetryAfter: retry},
		}
	}
	along := said("a", false, limiter.Never)
	along.along = true
	for _, c := range []struct {
		out  []Decision
		want Verdict
	}{
		{nil, Verdict{true, nil, limiter.Never}},
		{[]Decision{said("a", true, limiter.Never)}, Verdict{true, nil, limiter.Never}},
		{[]Decision{
			said("a", false, 5), said("b", true, limiter.Never), said("c", false, 9),
			said("a", false, 7),
		}, Verdict{false, []string{"a", "c"}, 9}},
		{
			[]Decision{said("a", false, 5), said("c", false, limiter.Never), said("b", false, 9)},
			Verdict{false, []string{"a", "c", "b"}, limiter.Never},
		},
		{[]Decision{along, said("c", false, 9)}, Verdict{false, []string{"c"}, 9}},
	} {
		if got := VerdictOf(c.out); got.Allowed != c.want.Allowed ||
			!slices.Equal(got.RefusedBy, c.want.RefusedBy) || got.RetryAfter != c.want.RetryAfter {
			t.Errorf("%+v: %+v, want %+v", c.out, got, c.want)
		}
	}
}
