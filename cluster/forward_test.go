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
		now := began.Add(x.since)
		late := r.tooLate(began, now) || x.hop > 2 && r.hasWaited(began, now)
		if late != x.late {
			t.Errorf("%v after the beginning, round trips of %v, send %d: too late %v; want %v",
				x.since, x.trip, x.hop, late, x.late)
		}
	}
}

// Promise: a check that waits for a handover has sends enough for all of that time, also where
// answers come at once and only one of the first has taken long. Without the longer pauses it has
// not.
func TestAWaitHasSendsEnough(t *testing.T) {
	for _, trip := range []time.Duration{
		0, 51, 60, 80, 100, 125, 200, 400, 900, // ms
	} {
		for slow := range 9 { // the send that takes so long; all others take no time
			began := limiter.Instant(time.Hour)
			r, now, hop := batch{deadline: began.Add(time.Minute)}, began, 1
			for ; hop < maxHop; hop++ {
				if hop > 2 {
					if r.hasWaited(began, now) {
						break
					}
					now = now.Add(r.pauseBefore(hop))
				}
				if hop > 1 && r.tooLate(began, now) {
					break
				}
				if hop == slow {
					r.trip = trip * time.Millisecond
					now = now.Add(r.trip)
				}
			}
			if hop == maxHop && !r.hasWaited(began, now) {
				t.Errorf("round trip of %d ms at send %d: no send is left %v after the beginning",
					trip, slow, time.Duration(now-began))
			}
		}
	}
}

// Promise: while a node joins or leaves no request is decided without its owner. A check that makes
// a last pause asks after it: the node that was named may have got the key (world 72005216).
func TestAPauseIsFollowedByASend(t *testing.T) {
	w := newWorld(t, 3, five)
	key, began := w.key("n2", 0), w.now
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Items) == 0 {
			c.Answer = deliver()
			return
		}
		w.pass(20 * time.Millisecond)
		a := AnswerItem{Status: StatusDone, Decision: limiter.Decision{Allowed: true}}
		if w.now < began.Add(settleTime-10*time.Millisecond) {
			other := map[string]string{"n2": "n3", "n3": "n2"}[c.To.ID]
			a = AnswerItem{Status: StatusNotOwner, Owner: other}
		}
		c.Answer = &Answer{Items: []AnswerItem{a}}
	}
	if d := w.take("n1", "five", key); d.Degraded {
		t.Errorf("decided by %s after %v; want the node that has got the key",
			d.Source, time.Duration(w.now-began))
	}
}
