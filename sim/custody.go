package sim

import (
	"time"

	"penstock/cluster"
)

// tenure is one partition in the hands of one process.
type tenure struct {
	process   *process
	partition int
}

// moved notes what a Move from one process to another does to the partitions in it.
func (j *common) moved(from, p *process, m *cluster.Move) {
	outOfStep := time.Duration(p.now()-from.now()).Abs() > inStep
	for i := range m.Taken { // before the gift itself, which may get lost
		j.recalled[m.Taken[i].Partition] = j.world.now
	}
	for _, g := range m.Lent {
		if outOfStep {
			j.laid[g].add(from, p, j.world.now)
		}
	}
	for _, g := range m.Gift {
		j.gifts[g], j.givers[g] = j.world.now, from
		if p.stated.decidesFor(int(g)) {
			// the giver has taken it over, and decided nothing since
			if j.holders[g] != from && j.holders[g] != p && j.holders[g] != nil {
				j.claims[g] = j.world.now
			}
			j.holdsNow(int(g), p)
			if outOfStep {
				j.laid[g].add(from, p, j.world.now)
			}
		}
	}
}

// holdsNow notes that p holds a partition.
func (j *common) holdsNow(k int, p *process) {
	j.holders[k] = p
	if j.world.plan.sky != calm {
		j.held[tenure{p, k}] = beginnings(p)
	}
}

// beginnings is how often p has begun to hold a partition.
func beginnings(p *process) uint64 {
	return p.stated.begun
}
