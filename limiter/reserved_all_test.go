package limiter

import "testing"

// Promise: units that are reserved are given to nobody else, also when several items stand or fall
// together.
func TestTakeAllLeavesReservedUnits(t *testing.T) {
	l := mustBe(New(Spec{Name: "five", Algorithm: GCRA, Limit: 5, Per: 60e9, Burst: 5}))
	table, now := NewTable(TableConfig{Bytes: 1 << 20}), Instant(1e18)
	item := func(key string, cost int64) Item {
		return Item{Limit: l, Key: key, Hash: Hash(key), Request: Request{Cost: cost}}
	}
	table.adjustReserved(l, "a", Hash("a"), 3)
	out := make([]Decision, 2)
	if table.TakeAll(now, []Item{item("a", 3), item("b", 1)}, out) {
		t.Errorf("3 units are admitted where 2 of 5 are not reserved: %+v", out)
	}
	if out[0].Hold != HoldInTheWay || out[0].Remaining != 2 || out[1].Remaining != 5 {
		t.Errorf("refused for a hold with 2 and 5 left, and got %+v", out)
	}
	if !table.TakeAll(now, []Item{item("a", 2), item("b", 1)}, out) || out[0].Remaining != 0 {
		t.Errorf("2 units are refused where 2 are not reserved: %+v", out)
	}
}
