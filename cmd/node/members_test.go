package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Promise: `penstock members -o json` and /v1/members call the same things by the same names.
func TestMembersAreCalledAlike(t *testing.T) {
	r, _ := startNode(t, func(s *settings) { s.Name, s.HTTP = "n1", "127.0.0.1:0" })
	r.waitReady(t)
	fields := func(text string) []string {
		var list struct {
			Members []map[string]any `json:"members"`
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Members) != 1 {
			t.Fatalf("%v: %s", err, text)
		}
		delete(list.Members[0], "features") // gRPC has none
		return slices.Sorted(maps.Keys(list.Members[0]))
	}
	out, _ := runVerb(t, "members", "-o", "json", "--addr", r.address("--grpc"))
	if got, want := fields(out), fields(page(t, r, "/v1/members")); !slices.Equal(got, want) {
		t.Errorf("the verb has the fields %q, the page %q", got, want)
	}
}

// Promise: healthcheck asks the gRPC door as other verbs do, if it is given an address, and says
// whether that node is ready.
func TestHealthcheckByGRPC(t *testing.T) {
	r, _ := startNode(t, func(s *settings) { s.Name, s.HTTP = "n1", "off" })
	r.waitReady(t)
	if out, code := runVerb(t, "healthcheck", "--addr", r.address("--grpc")); code != 0 ||
		out != "ready\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := runVerb(t, "healthcheck", "--addr", "127.0.0.1:1"); code != 1 ||
		!strings.Contains(out, "cannot reach 127.0.0.1:1: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := runVerb(t, "healthcheck", "--http", r.address("--grpc")); code != 1 ||
		!strings.Contains(out, "it does not answer in HTTP, so this is another door\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
