package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// try puts the limits of spec with a candidate made of tried in force at all nodes.
func (w *world) try(spec, tried limiter.Spec) {
	w.t.Helper()
	l, err := limiter.New(spec)
	if err != nil {
		w.t.Fatal(err)
	}
	if l, err = l.WithCandidate(tried); err != nil {
		w.t.Fatal(err)
	}
	for _, n := range w.nodes {
		n.SetLimits(Limits{spec.Name: l})
	}
}

// candidates adds up the tallies of the nodes.
func (w *world) candidates(name string) (sum CandidateTally) {
	for _, n := range w.nodes {
		c := n.Stats().Candidates()[name]
		sum.Allowed += c.Allowed
		sum.Denied += c.Denied
		sum.NewlyAllowed += c.NewlyAllowed
		sum.NewlyDenied += c.NewlyDenied
		sum.Unknown += c.Unknown
	}
	return sum
}

// Promise: a candidate sees what its limit is asked at any node, counts it by itself, and decides
// nothing: answers, counters and sums are those that there are without it. It may have another
// algorithm.
func TestCandidateNeverDecides(t *testing.T) {
	for _, tried := range []limiter.Spec{
		{Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 4, Per: time.Hour},
		{Algorithm: limiter.GCRA, Limit: 4, Per: 24 * time.Hour},
		{Algorithm: limiter.SlidingLog, Limit: 4, Per: time.Hour},
	} {
		w := newWorld(t, 3)
		spec := hundred
		spec.Limit = 10
		w.try(spec, tried)
		keys := []string{w.key("n1", 0), w.key("n2", 0)}
		for i := range 30 {
			node := fmt.Sprintf("n%d", i%3+1)
			for _, key := range keys {
				if d := w.take(node, "hundred", key); d.Allowed != (i < 10) ||
					d.Rule.Name != "hundred" {
					t.Fatalf("%v: check %d of %s at %s: %+v", tried.Algorithm, i, key, node, d)
				}
			}
			w.pass(time.Millisecond)
		}
		want := CandidateTally{Allowed: 8, Denied: 52, NewlyDenied: 12}
		if got := w.candidates("hundred"); got != want {
			t.Errorf("%v: %+v; want %+v", tried.Algorithm, got, want)
		}
		var allowed, denied uint64
		for _, n := range w.nodes {
			allowed, denied = allowed+n.Stats().Allowed(), denied+n.Stats().Denied()
			for name := range n.LimitTallies() {
				if limiter.IsCandidateName(name) {
					t.Errorf("%q is counted among the limits", name)
				}
			}
		}
		if allowed != 20 || denied != 40 {
			t.Errorf(
				"%v: %d allowed and %d denied in all; the candidate's answers are among them",
				tried.Algorithm,
				allowed,
				denied,
			)
		}
	}
}

// Promise: a candidate that is larger says what it would have admitted; a reset is its reset too,
// and what is given back is given back to it.
func TestCandidateFollowsItsLimit(t *testing.T) {
	w := newWorld(t, 1)
	spec, tried := hundred, hundred
	spec.Limit, tried.Limit = 2, 3
	w.try(spec, tried)
	for range 4 {
		w.take("n1", "hundred", "k")
	}
	want := CandidateTally{Allowed: 3, NewlyAllowed: 1, Denied: 1}
	if got := w.candidates("hundred"); got != want {
		t.Fatalf("%+v; want %+v", got, want)
	}
	left := func() int64 {
		return w.check("n1", Item{Limit: "hundred (candidate)", Key: "k", Op: OpPeek})[0].Remaining
	}
	w.check("n1", Item{Limit: "hundred", Key: "k", Cost: -1})
	if got := left(); got != 1 {
		t.Errorf("after a refund of 1 the candidate has %d left; want 1", got)
	}
	w.check("n1", Item{Limit: "hundred", Key: "k", Op: OpReset})
	if got := left(); got != 3 {
		t.Errorf("after a reset the candidate has %d left; want 3", got)
	}
	if got := w.candidates("hundred"); got != want {
		t.Errorf("%+v; a peek, a refund or a reset was counted as a check", got)
	}
}

// Promise: a repeated request is counted once by the candidate too.
func TestCandidateCountsARepeatOnce(t *testing.T) {
	w := newWorld(t, 1)
	w.try(hundred, hundred)
	for range 3 {
		w.check("n1", Item{Limit: "hundred", Key: "k", Cost: 1, ID: ID{Origin: 7, Sequence: 1}})
	}
	d := w.check("n1", Item{Limit: "hundred (candidate)", Key: "k", Op: OpPeek})[0]
	if d.Remaining != 99 {
		t.Errorf("the candidate has %d left; want 99", d.Remaining)
	}
}

// Promise: what a candidate has counted stays over a reload that does not change it, and begins
// anew when it is another one; without a candidate nothing is left of it.
func TestCandidateOverReloads(t *testing.T) {
	w := newWorld(t, 1)
	w.try(hundred, hundred)
	w.take("n1", "hundred", "k")
	w.try(hundred, hundred)
	if got := w.candidates("hundred"); got.Allowed != 1 {
		t.Errorf("after a reload: %+v; want 1 allowed", got)
	}
	tried := hundred
	tried.Limit = 50
	w.try(hundred, tried)
	if got := w.candidates("hundred"); got != (CandidateTally{}) {
		t.Errorf("another candidate begins with %+v", got)
	}
	plain, err := limiter.New(hundred)
	if err != nil {
		t.Fatal(err)
	}
	n := w.nodes["n1"]
	before := n.LimitsHash()
	n.SetLimits(Limits{"hundred": plain})
	if n.Stats().Candidates() != nil || n.LimitsHash() == before {
		t.Errorf(
			"%v candidates without any, hash %x after %x",
			n.Stats().Candidates(),
			n.LimitsHash(),
			before,
		)
	}
	if err := n.Check(&Request{Items: []Item{{Limit: "hundred (candidate)", Key: "k", Cost: 1}}},
		make([]Decision, 1)); err == nil {
		t.Error("the candidate's counters can be charged after it is gone")
	}
}

// Promise: limits without a candidate pay nothing for those that have one.
func TestNoCandidateAllocatesNothing(t *testing.T) {
	w := newWorld(t, 1, hundred)
	n, out := w.nodes["n1"], make([]Decision, 1)
	r := &Request{Items: []Item{{Limit: "hundred", Key: "k", Cost: 1}}}
	once := func() {
		r.Deadline = 0
		if err := n.Check(r, out); err != nil {
			t.Fatal(err)
		}
	}
	plain := testing.AllocsPerRun(1000, once)
	l, err := limiter.New(hundred)
	if err != nil {
		t.Fatal(err)
	}
	other := hundred
	other.Name = "other"
	tried, err := limiter.New(other)
	if err == nil {
		tried, err = tried.WithCandidate(other)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.SetLimits(Limits{"hundred": l, "other": tried})
	if beside := testing.AllocsPerRun(1000, once); plain != 0 || beside != 0 {
		t.Errorf("%v allocations, %v beside a limit with a candidate; want 0", plain, beside)
	}
}
