package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"penstock/rpc/admin"
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
	out, _ := runVerb(t, "members", "-o", "json", "--addr", r.doors.address("--grpc"))
	if got, want := fields(out), fields(page(t, r, "/v1/members")); !slices.Equal(got, want) {
		t.Errorf("the verb has the fields %q, the page %q", got, want)
	}
}

// Promise: the table of members fits on a terminal of 80 columns. What all of them have alike is
// said once, and what they differ in has a column.
func TestMembersFitOnATerminal(t *testing.T) {
	list := memberList{Ring: "74553e3b5b83ad8c"}
	for i := range 3 {
		list.Members = append(list.Members, admin.MemberJSON{
			Name: fmt.Sprintf("node-%d", i), State: "active", Role: "member",
			GRPC: "127.0.0.1:7948", HTTP: "127.0.0.1:7949", Peer: "10.0.0.1:7947",
			Limits: "239f7d9a99b57f11", Version: "v1.0.0", Self: i == 0,
		})
	}
	written := func() string {
		var b strings.Builder
		if err := list.write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := written()
	for line := range strings.Lines(text) {
		if len(line) > 81 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if !strings.Contains(text, "All have limits 239f7d9a99b57f11, version v1.0.0.\n") {
		t.Error(text)
	}
	list.Members[2].Version, list.Members[1].Zone = "v1.1.0", "b"
	text = written()
	for _, want := range []string{
		"VERSION", "v1.1.0", "ZONE", "All have limits 239f7d9a99b57f11.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// Promise: healthcheck asks the gRPC door as other verbs do, if it is given an address, and says
// whether that node is ready.
func TestHealthcheckByGRPC(t *testing.T) {
	r, _ := startNode(t, func(s *settings) { s.Name, s.HTTP = "n1", "off" })
	r.waitReady(t)
	if out, code := runVerb(t, "healthcheck", "--addr", r.doors.address("--grpc")); code != 0 ||
		out != "ready\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := runVerb(t, "healthcheck", "--addr", "127.0.0.1:1"); code != 1 ||
		!strings.Contains(out, "cannot reach 127.0.0.1:1: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := runVerb(t, "healthcheck", "--http", r.doors.address("--grpc")); code != 1 ||
		!strings.Contains(out, "it does not answer in HTTP, so this is another door\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
