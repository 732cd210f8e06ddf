package door

import (
	"context"
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: limits of one client beyond its bound do not count at the same time, also where it uses
// old ones again between new ones.
func TestInlineLimitsInUseAreCounted(t *testing.T) {
	var in Inlines
	from := Caller{Context: context.Background()}
	now := time.Now()
	bring := func(i int) error {
		_, err := in.bring(limiter.Spec{
			Name: fmt.Sprint(i), Algorithm: limiter.GCRA, Limit: 9, Per: time.Second,
		}, from, now)
		return err
	}
	for range 10 { // lifetimes of a limit
		for i := range maxInlinePerClient {
			if err := bring(i); err != nil {
				t.Fatalf("limit %d of the client: %v", i, err)
			}
		}
		now = now.Add(900 * time.Millisecond)
		if bring(maxInlinePerClient) == nil {
			t.Fatal("one more than the bound is let in, while all others are in use")
		}
		now = now.Add(900 * time.Millisecond)
	}
	now = now.Add(time.Minute)
	if err := bring(maxInlinePerClient); err != nil {
		t.Errorf("a new limit, when the others have run out: %v", err)
	}
}
