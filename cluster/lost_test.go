package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/cluster/ownership"
)

// Promise: a node that decides nothing names those voters that do not answer it, and no other that
// is cut off together with it; and it names none as long as a majority answers.
func TestLostNamesThoseThatDoNotAnswer(t *testing.T) {
	w := founded(t, 5, func(*ownership.Configuration) {}, five)
	lost := func(id string) string { return strings.Join(w.nodes[id].Membership().Lost(), " ") }
	cut := func(far ...string) {
		w.hearing(func(from, to string) bool {
			return slices.Contains(far, from) == slices.Contains(far, to)
		})
	}
	cut("n5")
	for range 60 {
		w.pass(100 * time.Millisecond)
		for _, id := range []string{"n1", "n2", "n3", "n4"} {
			if got := lost(id); got != "" {
				t.Fatalf("%s is told that %s are lost, and a majority answers it", id, got)
			}
		}
	}
	if got := lost("n5"); got != "n1 n2 n3 n4" {
		t.Errorf("n5 is told that %q are lost", got)
	}
	w = founded(t, 5, func(*ownership.Configuration) {}, five)
	cut("n1", "n2")
	w.pass(4 * time.Second)
	for _, id := range []string{"n1", "n2"} {
		if got := lost(id); got != "n3 n4 n5" {
			t.Errorf("%s is told that %q are lost, want n3 n4 n5", id, got)
		}
		if text := w.nodes[id].Membership().LostText(); !strings.Contains(text,
			"of 5 voters a majority is needed, and n3, n4, n5 do not answer") {
			t.Errorf("%s says %q", id, text)
		}
	}
	// no side of a cut has a majority, and one hears of another voter while it counts those lost
	w = founded(t, 5, func(*ownership.Configuration) {}, five)
	joined := false
	side := func(id string) string {
		if id == "n2" || joined && id == "n3" {
			return "n1"
		}
		return id
	}
	w.hearing(func(from, to string) bool { return side(from) == side(to) })
	w.pass(4 * time.Second)
	joined = true
	for range 400 {
		w.pass(5 * time.Millisecond)
		for _, id := range []string{"n1", "n2", "n3"} {
			m := w.nodes[id].Membership()
			if got := m.Lost(); len(got) == 1 || len(got) == 2 {
				t.Fatalf("%s is told that %v of 5 are lost, and the rest is a majority", id, got)
			}
		}
	}
}
