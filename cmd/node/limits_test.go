package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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
// up what all nodes know; `limits promote --file` puts it in force at nodes that watch the file, and
// what keys have used stays.
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
	}
	eventually(t, "the candidate has answered", func() error {
		out, err := exec.Command(built, "limits", "candidate", "--addr", n2.grpc, "-o", "json").
			CombinedOutput()
		var list candidateList
		if err == nil {
			err = json.Unmarshal(out, &list)
		}
		if err != nil || len(list.Candidates) != 1 || list.Candidates[0] != want {
			return fmt.Errorf("%v\n%s\n%+v", err, out, list)
		}
		return nil
	})
	out, err := exec.Command(built, "limits", "candidate", "login", "--addr", n1.grpc).
		CombinedOutput()
	if err != nil ||
		!strings.Contains(string(out), "login  2 in 10m, fixed_window  2        6       3") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.Command(built, "limits", "candidate", "other", "--addr", n1.grpc).
		CombinedOutput()
	if err == nil ||
		!strings.Contains(string(out), `no node has a limit named "other" with a candidate`) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.Command(built, "limits", "promote", "login", "--addr", n1.grpc).CombinedOutput()
	if err == nil ||
		!strings.Contains(
			string(out),
			"login comes from a file: promote it there with --file FILE",
		) {
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

// Promise: a limit that was put is promoted at all nodes that have it, by one command.
func TestCandidateOfAPutLimit(t *testing.T) {
	nodes := serveCluster(t, 2)
	for _, p := range nodes {
		status, body, err := p.send("PUT", "/v1/limits",
			`{"name":"put","algorithm":"gcra","limit":9,"per":"1h","candidate":{"limit":3}}`)
		if err != nil || status != 200 {
			t.Fatalf("%d %s %v", status, body, err)
		}
	}
	out, err := exec.Command(built, "limits", "promote", "put", "--addr", nodes[0].grpc).
		CombinedOutput()
	if err != nil || !strings.Contains(string(out), "promoted at 2 nodes") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range nodes {
		if _, body, err := p.call("GET", "/v1/peek?limit=put&key=k"); err != nil ||
			!strings.Contains(body, `"limit":3,`) {
			t.Errorf("%s: %s %v", p.name, body, err)
		}
	}
	for name, want := range map[string]string{"put": "has no candidate to promote", "none": `no node has a limit named "none"`} {
		out, err := exec.Command(built, "limits", "promote", name, "--addr", nodes[0].grpc).
			CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
