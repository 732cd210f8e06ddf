package sim

import (
	"slices"
	"testing"
)

// Promise: a check plays the seeds that are asked for, and after them as many of each kind of world
// as it says, all counted from the same number on.
func TestSeedsOfACheck(t *testing.T) {
	s := SeedCounts{From: 7, Holding: 2, OnDisk: 1, Dated: 1, Copied: 1, Treed: 1, Late: 2}
	want := []uint64{
		7, 8, 9, HoldSeeds + 7, HoldSeeds + 8, DiskSeeds + 7, CalendarSeeds + 7, CopySeeds + 7,
		TreeSeeds + 7, LateSeeds + 7, LateSeeds + 8,
	}
	var got []uint64
	for k := range 3 + s.others() {
		got = append(got, s.seed(k, 3))
	}
	if !slices.Equal(got, want) {
		t.Errorf("seeds %d; want %d", got, want)
	}
	if p := draw(LateSeeds + 7); !slices.ContainsFunc(p.faults, func(f fault) bool {
		return f.kind == leaves
	}) || slices.ContainsFunc(p.faults, func(f fault) bool { return !graceful(f.kind) }) {
		t.Errorf("a world of late messages has faults %v", p.faults)
	}
}
