package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// owingWorld is a world of three machines, the second of which owes one unit that the first one,
// which decides, has charged by a report. A nil answer to that is on its way still, or lost.
func owingWorld(t *testing.T, paid time.Duration, of limiter.Algorithm,
	answer *cluster.AnswerItem,
) (*world, *account) {
	t.Helper()
	spec := limiter.Spec{Name: "a", Algorithm: of, Limit: 10, Per: time.Minute}
	if of == limiter.TokenBucket {
		spec.Refill = 1
	}
	w := newWorld(&plan{
		seed: 1, sky: lossy, machines: make([]machinePlan, 3), sweepEvery: 5 * time.Second,
		limits: []rule{{Spec: spec}},
	}, nil)
	j, a, take := w.judge, w.judge.account("a", "one"), cluster.ID{Origin: 1, Sequence: 7}
	by, debtor, r := w.machines[0].process, w.machines[1].process, &a.reference
	w.now, r.by, r.last = paid-time.Second, by, paid-time.Second
	r.owes(a, debtor, take, 1)
	w.now, r.last = paid, paid
	report := cluster.AskItem{
		Limit: &limiter.Limit{Spec: *a.spec}, Key: "one", Cost: 1,
		ID:    cluster.ID{Origin: take.Origin ^ reportOrigin, Sequence: take.Sequence},
		Terms: cluster.Terms{Report: true},
	}
	j.deliveredDebt(debtor, by, &report, a, limiter.Decision{Allowed: true})
	if r.isOwed(paid) != 0 || r.owing() > 0 {
		t.Fatal("it is owed after it was charged")
	}
	if answer != nil {
		back := cluster.Answer{Items: []cluster.AnswerItem{*answer}}
		j.settled(&letter{
			from: debtor, to: w.machines[0], call: &cluster.Call{Answer: &back},
			ask: cluster.Ask{Items: []cluster.AskItem{report}},
		}, true)
	}
	return w, a
}

// Promise: what a node owes is owed once more when another process goes on than the one that has
// charged it, as long as the node has not heard so; not if that process was told of it, with the
// key and in time, and not if the node is gone or has given it up.
func TestDebtsThatAreChargedAndNotHeardOfAreOwedAgain(t *testing.T) {
	const paid, bucket = 10 * time.Second, limiter.TokenBucket
	yes, other := cluster.AnswerItem{}, cluster.AnswerItem{Status: cluster.StatusNotOwner}
	for _, x := range []struct {
		name         string
		algorithm    limiter.Algorithm
		answer       *cluster.AnswerItem
		given, claim time.Duration
		on           int // the machine that goes on
		dead         bool
		after        time.Duration
		owes         bool
	}{
		{name: "the next one claims it", claim: paid + 1, on: 2, owes: true},
		{name: "the one that owes it claims it", claim: paid + 1, on: 1, owes: true},
		{name: "of a bucket", algorithm: bucket, claim: paid + 1, on: 2, owes: true},
		{name: "it was heard", answer: &yes, claim: paid + 1, on: 2},
		{name: "heard, of a bucket", algorithm: bucket, answer: &yes, claim: paid + 1, on: 2},
		{name: "another node is named", answer: &other, claim: paid + 1, on: 2, owes: true},
		{name: "the next one is given it", given: paid + memory - 1, on: 2},
		{name: "it is given too late", given: paid + memory, on: 2, owes: true},
		{name: "it was given before", given: paid, claim: paid + 1, on: 2, owes: true},
		{name: "it is given and claimed", given: paid + 1, claim: paid + 2, on: 2, owes: true},
		{name: "the same one claims it again", claim: paid + 1, on: 0},
		{name: "the one that owes it is dead", claim: paid + 1, on: 2, dead: true},
		{name: "it was given up", claim: paid + 1, on: 2, after: owedLasts},
	} {
		if x.algorithm != bucket {
			x.algorithm = limiter.FixedWindow
		}
		w, a := owingWorld(t, paid, x.algorithm, x.answer)
		j, r, k := w.judge.carrier, &a.reference, w.plan.partition(a.hash)
		j.gifts[k], j.claims[k] = x.given, x.claim
		w.machines[1].process.dead = x.dead
		w.machines[0].process.stated.fenced++
		w.now = paid + 3*time.Second + x.after
		j.bring(a, w.machines[x.on].process)
		owes := r.isOwed(w.now) != 0
		if counts := r.owing() > 0; x.algorithm != bucket && counts != owes ||
			x.algorithm == bucket && owes && !r.isDark() {
			t.Errorf("%s: it is owed: %v, and may be charged: %v", x.name, owes, counts)
		}
		if owes != x.owes {
			t.Errorf("%s: it is owed: %v; want %v", x.name, owes, x.owes)
		}
	}
}
