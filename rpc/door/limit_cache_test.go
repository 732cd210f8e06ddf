package door

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: the same limit is the same pointer for everybody, and memory stays bounded however many
// are sent.
func TestLimitCache(t *testing.T) {
	var c LimitCache
	spec := limiter.Spec{Name: "x", Algorithm: limiter.GCRA, Limit: 5, Per: time.Minute}
	first, err := c.Get(spec)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 * limitCacheSize {
		other := spec
		other.Name = fmt.Sprint("other-", i)
		if _, err := c.Get(other); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			if again, _ := c.Get(spec); again != first {
				t.Fatalf("after %d others an often used limit is another pointer", i)
			}
		}
	}
	if n := len(c.young) + len(c.old); n > 2*limitCacheSize {
		t.Errorf("%d limits are kept, want at most %d", n, 2*limitCacheSize)
	}
	if _, err := c.Get(limiter.Spec{
		Name: "bad", Algorithm: limiter.GCRA,
		Per: time.Minute,
	}); err == nil {
		t.Error("a limit of 0 is accepted")
	}
}
