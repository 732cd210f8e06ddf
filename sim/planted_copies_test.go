package sim

import (
	"slices"
	"testing"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter"
)

// copyFaults are found in worlds with two copies, from CopySeeds on.
func copyFaults() []planted {
	return []planted{
		{
			"a second heir drops its copies, and says that it has taken them in",
			[]promise{lossless, exact},
			onMove(func(p *process, m *cluster.Move) {
				v := p.node.View()
				m.Entries = slices.DeleteFunc(m.Entries, func(e limiter.Entry) bool {
					if v.Ring == nil {
						return false
					}
					i, ok := v.Ring.SecondHeir(v.Partition(limiter.Hash(e.Key)))
					o := v.Owner(limiter.Hash(e.Key))
					return ok && v.Ring.Members()[i] == p.machine.id && o >= 0 &&
						v.Members[o].ID == m.ID
				})
			}, nil),
		},
		{
			"a claimer with no copy is believed to have the newest",
			[]promise{lossless, exact},
			onMove(func(p *process, m *cluster.Move) {
				m.Known = nil
				for _, o := range p.machine.world.machines {
					for n := range o.boots {
						m.Known = append(m.Known,
							cluster.Known{
								Of: p.machine.world.plan.boot(o.index, n+1), Pass: 1 << 60,
								Whole: m.Claim,
							})
					}
				}
			}, nil),
		},
	}
}

// A seed from CopySeeds on has another number of copies, or zones, or both; one below has none of
// that.
func TestCopySeeds(t *testing.T) {
	if p := draw(1); p.copies != ownership.OneCopy || p.machines[0].zone != "" {
		t.Error("the world of seed 1 has copies or zones")
	}
	seen := map[ownership.Copies]bool{}
	zoned, dead := 0, 0
	for i := range uint64(40) {
		p := draw(CopySeeds + i)
		seen[p.copies] = true
		if slices.ContainsFunc(p.machines, func(m machinePlan) bool { return m.zone != "" }) {
			zoned++
		}
		if i%2 == 1 {
			dead += len(p.faults)
		}
	}
	if len(seen) != 3 || zoned == 0 || zoned == 40 || dead < 40 {
		t.Errorf("of 40 worlds %d have zones; copies %v; %d faults", zoned, seen, dead)
	}
}
