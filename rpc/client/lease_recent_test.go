package client

import (
	"testing"

	"penstock/limiter"
)

// TestRecentKeyIsForgotten: the key that was asked for last is found without its maps only as long
// as it is in them, and not while its limit grants no leases, nor after close.
func TestRecentKeyIsForgotten(t *testing.T) {
	s := &leases{limits: make(map[string]*leasedLimit), ended: make(chan struct{})}
	s.suspended = func() bool { return false }
	close(s.ended) // so nobody tends it
	now := limiter.Instant(1)
	find := func(key string) *lease {
		return s.findLocked(now, &Request{Limit: "lent", Key: key, Cost: 1})
	}
	first := find("a")
	if find("a") != first || s.recent != first || find("b") == first || find("a") != first {
		t.Fatal("a key is not found again")
	}
	s.limits["lent"].refused = 2
	if find("a") != nil {
		t.Error("a key of a limit without leases is found")
	}
	now = 2
	if find("a") != first {
		t.Error("a key is not found when its limit may have leases again")
	}
	for range 3 { // nobody asks
		s.tick(now)
	}
	again := find("a")
	if again == first || s.limits["lent"].keys["a"] != again || s.count != 1 {
		t.Errorf("a key that was forgotten is still found; %d keys", s.count)
	}
	find("a")
	if s.closed = true; find("a") != nil {
		t.Error("a key is found after close")
	}
}
