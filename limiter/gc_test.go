package limiter_test

import (
	"runtime"
	"runtime/metrics"
	"testing"

	"penstock/limiter"
)

// TestCollectorHasNothingToDo: however many keys a table has, the collector looks at no more memory
// than before, and counts no more of it as the program's, so it neither runs longer nor lets the
// program grow for it. (bench/ measures what that means: the CPU and the pauses at ten million
// keys.)
func TestCollectorHasNothingToDo(t *testing.T) {
	const keys = 200_000
	l := mustNew(t, benchLimits[0])
	grow := func() (scanned, live int64) {
		buf := &keyBuffer{}
		before := collected()
		table := limiter.NewTable(limiter.TableConfig{})
		for i := range uint32(keys) {
			key := buf.key(i)
			table.Take(start, l, key, limiter.Hash(key), 1)
		}
		after := collected()
		if got := table.Stats().Keys; got != keys {
			t.Fatalf("%d keys in the table, want %d", got, keys)
		}
		runtime.KeepAlive(table)
		return after.scanned - before.scanned, after.live - before.live
	}
	// The runtime itself may allocate between the two looks, so the least of some tables counts.
	more := 4
	if testing.Short() {
		more = 1
	}
	scanned, live := grow()
	for range more {
		s, n := grow()
		scanned, live = min(scanned, s), min(live, n)
	}
	if scanned > keys {
		t.Errorf("for %d keys the collector scans %d bytes more", keys, scanned)
	}
	if runtime.GOOS == "linux" && live > keys {
		t.Errorf("for %d keys the heap is %d bytes larger", keys, live)
	}
}

// collection is what the last run of the collector found.
type collection struct{ scanned, live int64 }

func collected() collection {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return collection{int64(s[0].Value.Uint64()), int64(s[1].Value.Uint64())}
}
