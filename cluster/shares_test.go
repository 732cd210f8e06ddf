package cluster

import (
	"testing"
	"time"
)

// Promise: a client that a share has denied is told to ask again within a second, for a holder may
// decide by then: also if its cost never fits into the share, and if it repeats itself.
func TestDenialOfAShareIsShort(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.hush("n2")
	w.take("n1", "five", key)
	for _, it := range []Item{
		{Cost: 3},
		{Cost: 3, ID: ID{Origin: 77, Sequence: 1}},
		{Cost: 1},
		{Op: OpPeek, Cost: 3},
	} {
		it.Limit, it.Key = "five", key
		for range 2 {
			d := w.check("n1", it)[0]
			if d.Source != SourceFallback || d.Allowed || d.RetryAfter > time.Second ||
				d.RetryAfter <= 0 {
				t.Errorf("%+v: %+v", it, d)
			}
		}
	}
	if d := w.check("n2", Item{Limit: "five", Key: key, Cost: 6})[0]; d.RetryAfter != -1 {
		t.Errorf("more than the limit, asked of its holder: %+v", d)
	}
}
