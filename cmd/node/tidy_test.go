package main

import (
	"runtime"
	"testing"
)

// TestTidy: garbage is collected early while nothing changes, if there is enough of it.
func TestTidy(t *testing.T) {
	collected := func() (n uint32) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	var tidy tidier
	tidy.look(7) // something has changed
	var kept []byte
	for range 2 * tidyFrom >> 10 {
		kept = make([]byte, 1<<10)
	}
	runtime.KeepAlive(kept)
	for i, row := range []struct {
		changes uint64
		want    bool
	}{{8, false}, {8, true}, {8, false}} {
		before := collected()
		if got := tidy.look(row.changes); got != row.want || (collected() != before) != row.want {
			t.Errorf("look %d: %t, %d collections; want %t", i, got, collected()-before, row.want)
		}
	}
}
