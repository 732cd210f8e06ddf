package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
)

// What is asked besides a cost counts the same whichever node is asked; what a limit does not have
// is an error that names the field, and charges nothing.
func TestTermsReachTheOwner(t *testing.T) {
	bucket := limiter.Spec{
		Name: "bucket", Algorithm: limiter.TokenBucket, Anchor: limiter.FirstHit,
		Limit: 5, Per: time.Minute, ClientTime: true,
	}
	w := newWorld(t, 2, five, bucket)
	minute := func(n int) limiter.Millis { return limiter.Millis(n) * 60_000 }
	for _, entry := range []string{"n1", "n2"} {
		key := w.key("n1", map[string]int{"n1": 0, "n2": 1}[entry])
		for i, row := range []struct {
			op                 Op
			cost               int64
			terms              Terms
			allowed            bool
			remaining, drained int64
		}{
			{OpTake, 3, Terms{Timed: true, At: minute(0)}, true, 2, 0},
			// the client's minute is over
			{OpPeek, 3, Terms{Timed: true, At: minute(1)}, true, 2, 0},
			{OpPeek, 3, Terms{Timed: true, At: minute(0)}, false, 2, 0},
			{OpTake, 3, Terms{Timed: true, At: minute(0), Drain: true}, false, 0, 2},
			// puts the refill off
			{OpTake, 1, Terms{Timed: true, At: minute(1) - 1, Strict: true}, false, 0, 0},
			{OpTake, 0, Terms{Timed: true, At: minute(1)}, true, 0, 0},
			{OpTake, 0, Terms{Timed: true, At: minute(2) - 1}, true, 5, 0},
			// never refused
			{OpTake, 7, Terms{Timed: true, At: minute(2) - 1, Report: true}, true, 0, 0},
		} {
			d := w.check(entry,
				Item{Limit: "bucket", Key: key, Op: row.op, Cost: row.cost, Terms: row.terms})[0]
			if d.Allowed != row.allowed || d.Remaining != row.remaining ||
				d.Drained != row.drained {
				t.Errorf("at %s, row %d: allowed %t, remaining %d, drained %d; want %+v", entry, i,
					d.Allowed, d.Remaining, d.Drained, row)
			}
		}
	}

	err := w.nodes["n1"].Check(&Request{Items: []Item{
		{Limit: "bucket", Key: "k", Cost: 1}, {
			Limit: "five", Key: "k", Cost: 1,
			Terms: Terms{Timed: true},
		},
	}}, make([]Decision, 2))
	var input *InputError
	if !errors.As(err, &input) || input.Field != "items[1].at_ms" ||
		!strings.Contains(input.Reason, "client_time") {
		t.Errorf("a client's time for a limit without client_time: %v; want an error about "+
			"items[1].at_ms", err)
	}
	if n := w.remaining("n1", "bucket", "k"); n != 5 {
		t.Errorf("the request in error was charged: %d remaining, want 5", n)
	}
}
