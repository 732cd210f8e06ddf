package sim

import (
	"fmt"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// How failures and traces say things. No pointer is ever printed: the same seed has to print the
// same bytes.

func decisionText(d limiter.Decision) string {
	return fmt.Sprintf("%s, %d of %d left, retry after %s, reset after %s, delay %v",
		yesNo(d.Allowed), d.Remaining, d.Limit, waitText(d.RetryAfter), waitText(d.ResetAfter),
		d.Delay)
}

func answerText(d *cluster.Decision) string {
	rule := "no limit"
	if d.Rule != nil {
		rule = d.Rule.Name
	}
	return fmt.Sprintf("%s; by %s, %s, %s, degraded %t, bound %d, shadow %t",
		decisionText(d.Decision), rule, d.Source, d.Owner, d.Degraded, d.Bound, d.Shadow)
}

func waitText(d time.Duration) string {
	if d == limiter.Never {
		return "never"
	}
	return d.String()
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// opText is what is done with a key: "3 of", "a look at 3 of".
func opText(op cluster.Op, cost int64) string {
	amount := fmt.Sprint(cost)
	if cost < 0 {
		amount = fmt.Sprintf("%d back", -cost)
	}
	switch op {
	case cluster.OpPeek:
		return "a look at " + amount
	case cluster.OpReset:
		return "a reset"
	}
	return amount
}

// keyText quotes a key, and shortens it.
func keyText(key string) string {
	const most = 24
	if len(key) > most {
		return fmt.Sprintf("%q… (%d bytes)", key[:most], len(key))
	}
	return fmt.Sprintf("%q", key)
}

func idText(id cluster.ID) string { return fmt.Sprintf("%x/%d", id.Origin, id.Sequence) }
