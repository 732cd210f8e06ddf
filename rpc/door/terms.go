package rpc

import (
	"fmt"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/door"
)

// terms are what an item asks for besides a cost, as doors read it.
type terms struct {
	report, drain, strict bool
	atMs, maxDelayMs      *int64 // nil: not said
}

// readTerms checks what the i-th item asks for. Whether its limit has that, Node.Check says.
func readTerms(i int, in terms) (cluster.Terms, error) {
	t := cluster.Terms{Report: in.report, Drain: in.drain, Strict: in.strict}
	if in.maxDelayMs != nil {
		t.Bounded, t.MaxDelay = true, door.FromMillis(*in.maxDelayMs)
	}
	if in.atMs == nil {
		return t, nil
	}
	if *in.atMs < 0 {
		return t, &cluster.InputError{
			Field:  fmt.Sprintf("items[%d].at_ms", i),
			Reason: fmt.Sprintf("is %d; give milliseconds since 1970", *in.atMs),
		}
	}
	t.Timed, t.At = true, limiter.Millis(*in.atMs)
	return t, nil
}
