package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Events happen by time and, within one instant, in the order in which they were added.
func TestScheduleKeepsOrder(t *testing.T) {
	type added struct {
		at time.Duration
		n  int
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var s schedule
		var want, got []added
		events := make(map[int]*event)
		for n := range 100 {
			a := added{time.Duration(r.IntN(20)), n}
			events[n] = s.add(a.at, doing(func() { got = append(got, a) }))
			want = append(want, a)
		}
		for n := 0; n < 100; n += 1 + r.IntN(9) {
			s.remove(events[n])
			want = slices.DeleteFunc(want, func(a added) bool { return a.n == n })
		}
		slices.SortStableFunc(want, func(a, b added) int { return int(a.at - b.at) })
		for {
			at, what, ok := s.next()
			if !ok {
				break
			}
			what.happen()
			if last := got[len(got)-1]; last.at != at {
				t.Fatalf("event of %v came at %v", last.at, at)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
	}
}
