package main

import (
	"math"
	"runtime/debug"
	"testing"
)

// Promise: the runtime's limit of memory follows --memory, and an operator's GOMEMLIMIT stays.
func TestHeapFollowsTheBudget(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	t.Setenv("GOMEMLIMIT", "1GiB")
	if limitHeap(64 << 20); debug.SetMemoryLimit(-1) != math.MaxInt64 {
		t.Errorf("GOMEMLIMIT was replaced by %d", debug.SetMemoryLimit(-1))
	}
	t.Setenv("GOMEMLIMIT", "")
	for _, c := range []struct {
		memory size
		heap   int64 // MiB
	}{{64 << 20, 112}, {1 << 30, 592}} {
		if limitHeap(c.memory); debug.SetMemoryLimit(-1) != c.heap<<20 {
			t.Errorf("--memory %d gives the heap %d bytes, not %d MiB", c.memory,
				debug.SetMemoryLimit(-1), c.heap)
		}
	}
}
