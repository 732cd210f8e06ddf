package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

const triedLimits = `limits:
  - name: login
    algorithm: fixed_window
    anchor: first_hit
    limit: 5
    per: 10m
    candidate:
      limit: 2
`

// Promise: a candidate counts over the whole cluster and decides nothing; `limits candidate` adds
// up what all nodes know; `limits promote --file` puts it in force at nodes that watch the file,
// and what keys have used stays.
func TestCandidateOverTheCluster(t *testing.T) {
	file := write(t, triedLimits)
	n1 := serveProcess(t, "n1", "--limits", file)
	n2 := serveProcess(t, "n2", "--limits", file, "--join", n1.gossip)
	nodes := []*process{n1, n2}
	for _, p := range nodes {
		waitForMembers(t, p, 2)
	}
	for i := range 8 {
		status, body, err := nodes[i%2].call("GET", "/v1/check?limit=login&key=alice")
		if err != nil || (status == 200) != (i < 5) {
			t.Fatalf("check %d: %d %s %v", i+1, status, body, err)
		}
	}
	want := candidateRow{
		Limit: "login", Rule: "2 in 10m, fixed_window", Allowed: 2, Denied: 6, NewlyDenied: 3,
		NewlyDeniedKeys: []refusedKey{{Key: "alice", NewlyDenied: 3}},
	}
	eventually(t, "the candidate has answered", func() error {
		out, err := exec.Command(built, "limits", "candidate", "--addr", n2.grpc, "-o", "json").
			CombinedOutput()
		var list candidateList
		if err == nil {
			err = json.Unmarshal(out, &list)
		}
		if err != nil || len(list.Candidates) != 1 || !reflect.DeepEqual(list.Candidates[0], want) {
			return fmt.Errorf("%v\n%s\n%+v", err, out, list)
		}
		return nil
	})
	out, err := exec.Command(built, "limits", "candidate", "login", "--addr", n1.grpc).
		CombinedOutput()
	if err != nil ||
		!strings.Contains(string(out), "login  2 in 10m, fixed_window  2        6       3") ||
		!strings.Contains(string(out), "NEWLY DENIED  LIMIT  KEY\n3             login  alice\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.Command(built, "limits", "candidate", "--keys", "0", "--addr", n1.grpc).
		CombinedOutput()
	if err != nil || strings.Contains(string(out), "alice") {
		t.Errorf("without keys: %v\n%s", err, out)
	}
	out, err = exec.Command(built, "limits", "candidate", "--keys", "1001", "--addr", n1.grpc).
		CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--keys: is 1001; 0 to 1000 are accepted") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.Command(built, "limits", "candidate", "other", "--addr", n1.grpc).
		CombinedOutput()
	if err == nil ||
		!strings.Contains(string(out), `no node has a limit named "other" with a candidate`) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.Command(built, "limits", "promote", "login", "--file", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "candidate") {
		t.Errorf("%v\n%s", err, text)
	}
	for _, p := range nodes {
		eventually(t, "the candidate is in force", func() error {
			if _, body, err := p.call("GET", "/v1/peek?limit=login&key=bob"); !strings.Contains(
				body,
				`"limit":2,`,
			) {
				return fmt.Errorf("%s %v", body, err)
			}
			return nil
		})
	}
	if status, body, err := n1.call("GET", "/v1/check?limit=login&key=alice"); status != 429 {
		t.Errorf("what alice has used is forgotten: %d %s %v", status, body, err)
	}
}

// Promise: a limit is put, promoted, rolled back and deleted at all nodes by one command each; the
// history says which client did what; and a node that starts later has it. A restart with
// --data-dir is tested in rpc/catalog.
func TestLimitsOfTheWholeCluster(t *testing.T) {
	t.Parallel()
	n1 := serveProcess(t, "n1")
	n2 := serveProcess(t, "n2", "--join", n1.gossip, "--limits", write(t, triedLimits))
	for _, p := range []*process{n1, n2} {
		waitForMembers(t, p, 2)
	}
	run := func(want string, args ...string) string {
		t.Helper()
		out, err := exec.Command(built, append([]string{"limits"}, args...)...).CombinedOutput()
		text, fails := strings.CutPrefix(want, "fails: ")
		if (err != nil) != fails || !strings.Contains(string(out), text) {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	limit := func(p *process, name string, want int) {
		t.Helper()
		_, body, err := p.call("GET", "/v1/peek?limit="+name+"&key=k")
		if err != nil || !strings.Contains(body, fmt.Sprintf(`"limit":%d,`, want)) {
			t.Errorf("%s: %s %v", p.name, body, err)
		}
	}
	file := write(t, `limits:
  - name: put
    algorithm: gcra
    limit: 9
    per: 1h
    overrides: [{key: "vip/*", limit: 500}]
    candidate: {limit: 3}
`)
	run("put: put at n1 and 1 other nodes, version 1@n1", "put", file, "--addr", n1.grpc)
	for _, p := range []*process{n1, n2} {
		limit(p, "put", 9)
		if _, body, err := p.call("GET", "/v1/peek?limit=put&key=vip/x"); err != nil ||
			!strings.Contains(body, `"limit":500,`) {
			t.Errorf("%s: %s %v", p.name, body, err)
		}
	}
	run(
		"fails: put: version: the limit is at 1@n1 by ",
		"put",
		file,
		"--if-version",
		"none",
		"--addr",
		n2.grpc,
	)
	run("put: promoted at n2 and 1 other nodes, version 2@n2", "promote", "put", "--addr", n2.grpc)
	limit(n1, "put", 3)
	run("fails: ", "promote", "put", "--addr", n1.grpc)
	run("fails: ", "promote", "none", "--addr", n1.grpc)
	n3 := serveProcess(t, "n3", "--join", n1.gossip, "--data-dir", t.TempDir())
	waitForMembers(t, n3, 3)
	limit(n3, "put", 3)
	if text := run("DIFFERENT at n1, n3: login", "list", "--addr", n3.grpc); !strings.Contains(
		text,
		"put    3 in 1h, gcra",
	) {
		t.Error(text)
	}
	run("login: promoted at n2", "promote", "login", "--addr", n2.grpc)
	limit(n1, "login", 2)
	run(
		"put: as with 1@n1 at n3 and 2 other nodes, version 4@n3",
		"rollback",
		"put",
		"1@n1",
		"--addr",
		n3.grpc,
	)
	limit(n2, "put", 9)
	run("put: deleted at n1 and 2 other nodes", "delete", "put", "--addr", n1.grpc)
	if status, body, _ := n2.call("GET", "/v1/peek?limit=put&key=k"); status != 404 {
		t.Error(status, body)
	}
	text := run("deleted", "history", "put", "--addr", n2.grpc)
	for _, want := range []string{
		"5@n1     4@n3", "4@n3     2@n2", "2@n2     1@n1", "1@n1     none",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the history lacks %s:\n%s", want, text)
		}
	}
	run("fails: name: no limit of this name was put", "delete", "put", "--addr", n1.grpc)
	run("login: deleted", "delete", "login", "--addr", n1.grpc)
	run("fails: name: a limit of this name comes from a file", "delete", "login", "--addr", n2.grpc)
}
