package sim

import (
	"testing"

	"penstock/limiter"
	"penstock/ring"
)

// Promise: where keys lie by a secret every promise holds that holds without one. So worlds of all
// kinds are judged again, founded with a secret.
func TestWorldsWithASecret(t *testing.T) {
	t.Parallel()
	const each = 4
	moved := 0
	for _, first := range []uint64{
		1, HoldSeeds, DiskSeeds, CalendarSeeds, KindSeeds, CopySeeds, TreeSeeds,
	} {
		for seed := first; seed < first+each; seed++ {
			p := draw(seed)
			p.secret = 0x5eed0fac105
			w := newWorld(p, nil)
			w.run()
			if f := w.judge.failure; f != nil {
				t.Errorf("seed %d with a secret: %s at %.3f s: %s", seed, f.Promise, f.AtMS/1000,
					f.Detail)
			}
			for _, m := range w.machines {
				if m.process == nil || m.process.node.View() == nil {
					continue
				}
				if v := m.process.node.View(); v.Secret == p.secret {
					hash := limiter.Hash("key")
					if v.Partition(hash) != ring.Partition(hash) {
						moved++
					}
				}
			}
		}
	}
	if moved < 7*each {
		t.Errorf("%d nodes have placed keys by the secret; there should be more than worlds",
			moved)
	}
}
