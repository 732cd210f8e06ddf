package door

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Promise: limits of one client beyond its bound do not count at the same time, also where it uses
// old ones again between new ones.
func TestInlineLimitsInUseAreCounted(t *testing.T) {
	var in Inlines
	from := Caller{Context: context.Background()}
	now := time.Now()
	bring := func(i int) error {
		_, _, err := in.BringUntil(limiter.Spec{
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

// Promise: no request reaches the counters of a candidate; one of Envoy's domains may have a name
// like a candidate's.
func TestInlineLimitsAreNoCandidates(t *testing.T) {
	in, from := Inlines{}, Caller{Context: context.Background()}
	for name, allowed := range map[string]bool{
		"login (candidate)": false, "login": true, "envoy/login (candidate)": true,
	} {
		spec := limiter.Spec{Name: name, Algorithm: limiter.GCRA, Limit: 9, Per: time.Second}
		for what, get := range map[string]func(limiter.Spec, Caller) (*limiter.Limit, error){
			"bring": in.Bring, "get": in.Get,
		} {
			_, err := get(spec, from)
			var input *cluster.InputError
			if (err == nil) != allowed || err != nil && (!errors.As(InlineError(2, err), &input) ||
				input.Field != "items[2].inline.name") {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
}
