package main

import (
	"testing"

	"penstock/rpc/peer"
	"penstock/sim"
)

// Promise: what nodes say to each other is the same when it goes over the wire. A tenth of the
// seeds that each change is checked with is played twice: with messages that are copied, and with
// frames that are written and read. Both worlds are the same, to the event.
func TestWorldsOverFrames(t *testing.T) {
	wire := func() sim.Wire { return new(peer.Frames) }
	sorts := []uint64{
		1, sim.HoldSeeds, sim.DiskSeeds, sim.CalendarSeeds,
		sim.KindSeeds, sim.TreeSeeds, sim.LateKindSeeds,
	}
	each := uint64(4) // worlds of each sort
	if testing.Short() {
		sorts, each = sorts[:2], 1
	}
	for _, first := range sorts {
		for seed := first; seed < first+each; seed++ {
			copied, framed := sim.Run(seed), sim.RunOver(seed, wire)
			if f := framed.Failure; f != nil {
				t.Errorf("seed %d over frames: %s: %s", seed, f.Promise, f.Detail)
			} else if framed.TraceHash != copied.TraceHash {
				t.Errorf("seed %d: trace %s over frames, %s without", seed, framed.TraceHash,
					copied.TraceHash)
			}
		}
	}
}
