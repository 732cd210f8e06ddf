package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
)

// Promise: a node that is gone without a goodbye is shown as failed for ten minutes, or until it
// comes back; one that has left is not.
func TestFailuresAreRemembered(t *testing.T) {
	view := func(members ...cluster.Member) *cluster.View {
		t.Helper()
		v, err := cluster.NewView(
			"me",
			append(members, cluster.Member{ID: "me", State: cluster.StateActive}),
		)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a, b := cluster.Member{
		ID:    "a",
		State: cluster.StateActive,
	}, cluster.Member{
		ID:    "b",
		State: cluster.StateActive,
	}
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

// Promise: a member that the others have struck off has failed at once, also while gossip takes it
// for alive; one that is new and not in the ring yet has not, and to a node that was struck off
// itself the others have not.
func TestStruckOffHasFailed(t *testing.T) {
	viewOf := func(me, a, b cluster.State) *cluster.View {
		t.Helper()
		v, err := cluster.NewView("me", []cluster.Member{
			{ID: "a", Boot: 1, State: a},
			{ID: "b", Boot: 2, State: b},
			{ID: "me", Boot: 3, State: me},
		})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const joining, active, leaving = cluster.StateJoining, cluster.StateActive, cluster.StateLeaving
	view := func(a, b cluster.State) *cluster.View { return viewOf(active, a, b) }
	now := time.Now()
	var f failures
	for _, step := range []struct {
		view *cluster.View
		want string
	}{
		{view(joining, joining), ""},
		{view(active, joining), ""},
		{view(active, active), ""},
		{view(active, joining), "b 0s;"},
		{view(joining, joining), "a 0s;b 1s;"},
		{view(active, joining), "b 2s;"},
		{viewOf(joining, joining, joining), ""}, // it is the one that was struck off
		{view(active, joining), "b 4s;"},
		{view(leaving, active), ""},
		{view(joining, active), ""},
	} {
		now = now.Add(time.Second)
		got := ""
		for _, x := range f.struckOff(now, step.view) {
			got += fmt.Sprintf("%s %v;", x.member.ID, now.Sub(x.at))
			if x.member.State != active {
				t.Errorf("%s was last seen %v", x.member.ID, x.member.State)
			}
		}
		if got != step.want {
			t.Errorf("%v: %q; want %q", step.view.Members, got, step.want)
		}
	}
	// when gossip misses it as well, it goes on from the same moment
	f.struckOff(now, view(active, active))
	f.see(now, view(active, active))
	f.struckOff(now, view(active, joining))
	gone, err := cluster.NewView("me", []cluster.Member{{ID: "a", Boot: 1}, {ID: "me", Boot: 3}})
	if err != nil {
		t.Fatal(err)
	}
	f.see(now.Add(time.Minute), gone)
	if list := f.at(now); len(list) != 1 || !list[0].at.Equal(now) {
		t.Errorf("%+v; want b, since %v", list, now)
	}
}

// Promise: a node that was killed stays visible as failed, with the version that it ran, in
// `penstock members`, on the HTTP page and over gRPC; `penstock top` does not ask it; and it is
// active again when it is back.
func TestKilledNodeIsShown(t *testing.T) {
	t.Parallel()
	nodes := serveCluster(t, 3)
	nodes[2].cmd.Process.Kill()
	<-nodes[2].exited

	type list struct {
		Members []struct {
			Name, State, Version string
			Failed               *int64 `json:"failed_ago_ms"`
		}
	}
	stateOf := func(text string) error {
		var l list
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return err
		}
		if len(l.Members) != 3 {
			return fmt.Errorf("%d members are listed; want 3: %s", len(l.Members), text)
		}
		for i, m := range l.Members {
			state := "active"
			if i == 2 {
				state = "failed"
			}
			if m.State != state || m.Version != l.Members[0].Version || m.Version == "" ||
				(m.Failed != nil) != (state == "failed") {
				return fmt.Errorf(
					"%s: %+v; want it %s, and its version as the others'",
					m.Name,
					m,
					state,
				)
			}
		}
		return nil
	}
	eventually(t, "n3 is shown as failed", func() error {
		_, body, err := nodes[0].call("GET", "/v1/members")
		if err != nil {
			return err
		}
		if strings.Contains(body, `"state":"joining"`) {
			t.Errorf("a member that is gone is about to join: %s", body)
		}
		return stateOf(body)
	})
	out, err := exec.Command(built, "members", "--addr", nodes[0].grpc, "-o", "json").
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := stateOf(string(out)); err != nil {
		t.Error(err)
	}
	out, err = exec.Command(built, "members", "--addr", nodes[0].grpc).CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^n3 +failed +member`).Match(out) ||
		!regexp.MustCompile(`(?m)^n3 failed \d+s ago, without a goodbye`).Match(out) {
		t.Errorf("penstock members: %v:\n%s", err, out)
	}
	if out, err := exec.Command(built, "top", "--addr",
		nodes[0].grpc).CombinedOutput(); err != nil {
		t.Errorf("penstock top asks a node that is gone: %v:\n%s", err, out)
	}

	serveProcess(t, "n3", "--limits", write(t, testLimits), "--join", nodes[0].gossip)
	waitForMembers(t, nodes[0], 3)
	if _, body, err := nodes[0].call("GET", "/v1/members"); err != nil ||
		strings.Contains(body, "failed") {
		t.Errorf("n3 is back, and still said to have failed: %v %s", err, body)
	}
}

// Promise: a failed member leaves the list of members after ten minutes.
func TestFailedMemberLeavesTheList(t *testing.T) {
	r, _ := startNode(t, func(s *settings) { s.Name, s.HTTP = "me", "127.0.0.1:0" })
	r.waitReady(t)
	now := time.Now()
	advance := func(d time.Duration) {
		r.roster.failures.mu.Lock()
		defer r.roster.failures.mu.Unlock()
		now = now.Add(d)
		then := now
		r.roster.failures.clock = func() time.Time { return then }
	}
	for _, members := range [][]cluster.Member{{
		r.member,
		{ID: "other", Boot: 7, State: cluster.StateActive},
	}, {r.member}} {
		v, err := cluster.NewView("me", members)
		if err != nil {
			t.Fatal(err)
		}
		r.roster.failures.see(now, v)
	}
	for _, step := range []struct {
		after time.Duration
		shown bool
	}{{0, true}, {failedFor - time.Millisecond, true}, {time.Millisecond, false}} {
		advance(step.after)
		if body := page(t, r, "/v1/members"); strings.Contains(
			body,
			`"state":"failed"`,
		) != step.shown {
			t.Errorf("%v later: %s; want the failed member shown: %t", step.after, body, step.shown)
		}
	}
}

// Promise: names that come and go without a goodbye do not add up without bound.
func TestFailuresAreBounded(t *testing.T) {
	var f failures
	now := time.Now()
	for i := range maxFailures + 10 {
		for _, members := range [][]cluster.Member{
			{{ID: "me"}, {ID: fmt.Sprint(i)}},
			{{ID: "me"}},
		} {
			v, err := cluster.NewView("me", members)
			if err != nil {
				t.Fatal(err)
			}
			f.see(now, v)
		}
	}
	list := f.at(now)
	if len(list) != maxFailures || list[0].member.ID != "10" {
		t.Errorf(
			"%d are kept, the oldest is %s; want the %d latest",
			len(list),
			list[0].member.ID,
			maxFailures,
		)
	}
}
