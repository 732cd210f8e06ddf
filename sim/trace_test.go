package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
)

// What a trace says of the last happenings is what was added, however long their keys are and
// however often it was hashed.
func TestTraceKeepsTheLast(t *testing.T) {
	machines := []*machine{{id: "n1"}, {id: "n2", index: 1}}
	tr, again := newTrace(), newTrace()
	var want []string
	for i := range 1000 {
		h := happening{at: time.Duration(i), kind: sends, node: machines[0], peer: machines[1]}
		switch i % 3 {
		case 1:
			h = happening{
				at: time.Duration(i), kind: decides, node: machines[1], seq: uint64(i),
				limit: "api", key: "a\x00b" + strings.Repeat("k", i),
				op: cluster.OpTake, cost: int64(-i), allowed: i%2 == 0, remaining: int64(i),
			}
		case 2:
			h = happening{at: time.Duration(i), kind: fires, node: machines[0]}
		}
		tr.add(h)
		again.add(h)
		if want = append(want, h.String()); i%7 == 0 {
			tr.sum() // looking changes nothing
		}
		if got := tr.last(machines); !slices.Equal(got, want[max(0, len(want)-recentHappenings):]) {
			t.Fatalf("after %d:\ngot  %q\nwant %q", i, got, want)
		}
	}
	if tr.sum() != again.sum() {
		t.Error("the sum depends on when it was looked at")
	}
}
