package main

import (
	"testing"
	"time"

	"penstock/cluster"
)

// Promise: a node that is gone without a goodbye is shown as failed for ten minutes, or until it
// comes back; one that has left is not.
func TestFailuresAreRemembered(t *testing.T) {
	view := func(members ...cluster.Member) *cluster.View {
		t.Helper()
		v, err := cluster.NewView("me", append(members, cluster.Member{ID: "me", State: cluster.StateActive}))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a, b := cluster.Member{ID: "a", State: cluster.StateActive}, cluster.Member{ID: "b", State: cluster.StateActive}
	leaving := b
	leaving.State = cluster.StateLeaving
	now := time.Now()
	var f failures
	for _, step := range []struct {
		what    string
		after   time.Duration
		view    *cluster.View
		fresh   int
		showing int
	}{
		{"both are there", 0, view(a, b), 0, 0},
		{"b leaves", 0, view(a, leaving), 0, 0},
		{"b has left", 0, view(a), 0, 0},
		{"b comes back", 0, view(a, b), 0, 0},
		{"both fail", 0, view(), 2, 2},
		{"nothing is new", 9 * time.Minute, view(), 0, 2},
		{"a comes back", 0, view(a), 0, 1},
		{"ten minutes are over", time.Minute, view(a), 0, 0},
	} {
		now = now.Add(step.after)
		if fresh := f.see(now, step.view); len(fresh) != step.fresh {
			t.Errorf("%s: %d have failed just now; want %d", step.what, len(fresh), step.fresh)
		}
		if showing := f.at(now); len(showing) != step.showing {
			t.Errorf("%s: %d are shown; want %d", step.what, len(showing), step.showing)
		}
	}
}
