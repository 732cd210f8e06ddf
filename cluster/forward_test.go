package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: while a node joins or leaves no request fails. A handover takes some round trips, so a
// check waits for it longer where a round trip takes longer; never past its deadline, and never so
// long that the owner may have forgotten its take.
func TestHowLongACheckWaitsForAHandover(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		trip, deadline, since time.Duration
		hop                   int
		late                  bool
	}{
		{0, 5 * time.Second, 400 * ms, 3, false},
		{0, 5 * time.Second, 401 * ms, 3, true},
		{0, 5 * time.Second, 401 * ms, 2, false}, // the holder was named: no wait
		{2 * ms, 5 * time.Second, 401 * ms, 9, true},
		{80 * ms, 5 * time.Second, 640 * ms, 9, false},
		{80 * ms, 5 * time.Second, 641 * ms, 9, true},
		{80 * ms, 500 * ms, 500 * ms, 9, true},
		{300 * ms, 5 * time.Second, repeatWithin, 9, false},
		{300 * ms, 5 * time.Second, repeatWithin + 1, 9, true},
		{300 * ms, 5 * time.Second, repeatWithin + 1, 2, true},
	} {
		began := limiter.Instant(time.Hour)
		r := batch{deadline: began.Add(x.deadline), trip: x.trip}
		if late := r.tooLate(began, began.Add(x.since), x.hop); late != x.late {
			t.Errorf("%v after the beginning, round trips of %v, send %d: too late %v; want %v",
				x.since, x.trip, x.hop, late, x.late)
		}
	}
}
