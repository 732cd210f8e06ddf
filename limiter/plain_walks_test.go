package limiter

import (
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// endsWhereCalled fails unless a walk goes on as long as its caller wants, and no longer.
func endsWhereCalled[T any](t *testing.T, what string, walk iter.Seq[T]) {
	t.Helper()
	all := slices.Collect(walk)
	if len(all) < 2 {
		t.Errorf("%s: %d; that proves little", what, len(all))
	}
	for n := range all {
		var some []T
		for x := range walk {
			if some = append(some, x); len(some) == n+1 {
				break
			}
		}
		if !reflect.DeepEqual(some, all[:n+1]) {
			t.Errorf("%s: of %d the first %d are others", what, len(all), n+1)
		}
	}
}

// Promise: a walk over entries, the cells of a group, rules or shards may be ended at any of them.
func TestWalksEndWhereTheirCallersSay(t *testing.T) {
	st, _, _ := someStore(rand.New(rand.NewPCG(1, 1)), 9)
	endsWhereCalled(t, "entries", st.all)
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	l := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 5, Per: time.Hour}))
	r := table.rules.learn(l, table.shards)
	table.rules.learn(l.Share(2), table.shards)
	endsWhereCalled(t, "rules", table.rules.index.Load().all)
	s := &table.place.sketches[0]
	for i := range uint64(9) {
		table.place.share(5, i, r.id, l, []int64{0, 1})
	}
	for e := range s.cells.all {
		endsWhereCalled(t, "cells", s.cells.cellsOf(e))
	}
	var set shardSet
	for _, i := range []uint64{0, 1, 63, 64, 4095} {
		set.add(i)
	}
	endsWhereCalled(t, "shards", set.all)
	if got := slices.Collect(set.all); !slices.Equal(got, []int{0, 1, 63, 64, 4095}) {
		t.Errorf("shards: %v", got)
	}
}
