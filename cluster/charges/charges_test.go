package charges

import (
	"slices"
	"testing"
	"time"
	"unsafe"

	"penstock/limiter"
)

// Promise: a replicated limit's others hear of all that was charged, once: a refund takes from what
// is not told yet, and the rest of it is told before what is taken later.
func TestUntold(t *testing.T) {
	l, err := limiter.New(limiter.Spec{
		Name: "l", Algorithm: limiter.GCRA, Limit: 9, Per: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	const reset = 1 << 40 // no number of units that a row charges
	for _, row := range []struct {
		does []int64
		told []Charge
	}{
		{does: nil, told: nil},
		{does: []int64{2, 3}, told: []Charge{{Units: 5}}},
		{does: []int64{5, -2}, told: []Charge{{Units: 3}}},
		{does: []int64{5, -5}, told: nil},
		{does: []int64{2, -5}, told: []Charge{{Units: -3}}},
		{does: []int64{2, -5, 4}, told: []Charge{{Units: -3}, {Units: 4}}},
		{does: []int64{7, reset}, told: []Charge{{Reset: true}}},
		{does: []int64{7, reset, 1}, told: []Charge{{Units: 1, Reset: true}}},
	} {
		var u Untold
		for _, units := range row.does {
			if units == reset {
				u.Reset(l, "k")
			} else {
				u.Add(l, "k", units)
			}
		}
		for i := range row.told {
			row.told[i].Limit, row.told[i].Key = l, "k"
		}
		if got := u.Tell(); !slices.Equal(got, row.told) {
			t.Errorf("%v: told %+v, want %+v", row.does, got, row.told)
		}
		if again := u.Tell(); again != nil {
			t.Errorf("%v: told again %+v", row.does, again)
		}
	}
}

// A key may lie in a frame that is used again, so what is told has a copy of it.
func TestUntoldKeepsNoKey(t *testing.T) {
	var u Untold
	frame := []byte("frame")
	u.Add(new(limiter.Limit), unsafe.String(&frame[0], len(frame)), 1)
	copy(frame, "other")
	if got := u.Tell(); len(got) != 1 || got[0].Key != "frame" {
		t.Errorf("told %+v", got)
	}
}
