package door

import (
	"fmt"

	"penstock/cluster"
	"penstock/limiter"
)

// Terms are what an item asks for besides a cost, as doors read it.
type Terms struct {
	Report, Drain, Strict bool
	AtMs, MaxDelayMs      *int64 // nil: not said
}

// ReadTerms checks what the i-th item asks for. Whether its limit has that, Node.Check says.
func ReadTerms(i int, in Terms) (cluster.Terms, error) {
	t := cluster.Terms{Report: in.Report, Drain: in.Drain, Strict: in.Strict}
	if in.MaxDelayMs != nil {
		t.Bounded, t.MaxDelay = true, FromMillis(*in.MaxDelayMs)
	}
	if in.AtMs == nil {
		return t, nil
	}
	if *in.AtMs < 0 {
		return t, Wrong(fmt.Sprintf("items[%d].at_ms", i), "is %d; give milliseconds since 1970",
			*in.AtMs)
	}
	t.Timed, t.At = true, limiter.Millis(*in.AtMs)
	return t, nil
}
