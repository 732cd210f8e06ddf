package main

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A node that nobody asks anything makes garbage too, by renewals and gossip: some 50 kB a second
// of three. Collected only after slack of it, that would be resident meanwhile. So a calm node
// collects earlier, and gives back what it does not need: the runtime itself keeps as much as a
// busy node would use. A busy one is left alone.
const (
	tidyEvery = 10 * time.Second
	tidyFrom  = 2 << 20 // bytes of garbage that are worth it: some milliseconds of a processor
)

// tidier collects the garbage of calm times.
type tidier struct {
	changes uint64 // cluster.Stats.Changes at the last look
	made    uint64 // bytes, by the last time that it collected
}

// look reports whether it has collected: nothing has changed since the last look, and there is
// enough.
func (t *tidier) look(changes uint64) bool {
	calm := changes == t.changes
	t.changes = changes
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(allocated)
	made := allocated[0].Value.Uint64()
	if !calm || made-t.made < tidyFrom {
		return false
	}
	t.made = made
	debug.FreeOSMemory()
	return true
}
