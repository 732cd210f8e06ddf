package sim

import (
	"strings"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
)

// tenure is one partition in the hands of one process.
type tenure struct {
	process   *process
	partition int
}

// lastHeld is how often a process had begun to hold a partition, and let go of all of them, when it
// last held one of them. turn grows with each such note, and lineage is that of its configuration.
type lastHeld struct {
	begun, fenced, turn uint64
	lineage             ownership.Lineage
}

// moved notes what a Move from one process to another does to the partitions in it.
func (j *common) moved(from, p *process, m *cluster.Move) {
	j.copies(from, p, m)
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
		j.gifts[g], j.givers[g], j.takers[g] = j.world.now, from, nil
		if p.stated.decidesFor(int(g)) {
			j.takers[g] = p
			// the giver has taken it over, and decided nothing since
			if h := j.holders[g]; h != nil && h != from && (h != p || j.letGo(p, int(g))) {
				j.claims[g] = j.world.now
			}
			// Without a right it decides nothing: the gift has come late, to a member that was
			// evicted meanwhile, or to the half of a pair from which the giver has parted. If it
			// gets a right once more, it is a holder from its first decision on.
			if p.now() < p.stated.until {
				j.holdsNow(int(g), p)
			}
			if outOfStep {
				j.laid[g].add(from, p, j.world.now)
			}
		}
	}
}

// holdsNow notes that p holds a partition.
func (j *common) holdsNow(k int, p *process) {
	j.holders[k] = p
	if j.world.plan.sky == calm {
		return
	}
	j.turns++
	now := lastHeld{begun: p.stated.begun, fenced: p.stated.fenced, turn: j.turns}
	if c := p.stated.agreed; c != nil {
		now.lineage = c.Epoch.Lineage
	}
	if _, known := j.held[tenure{p, k}]; !known {
		j.tenants[k] = append(j.tenants[k], p)
	}
	j.held[tenure{p, k}] = now
}

// successor is a process that has held a partition since p did, in the lineage that p is in now or
// in one of its ancestors or children. One in a lineage that has parted from that is none: two
// halves of a pair decide beside each other, and the half that goes on takes nothing over.
func (j *common) successor(p *process, k int) *process {
	since, mine := j.held[tenure{p, k}].turn, p.stated.agreed.Epoch.Lineage
	for _, q := range j.tenants[k] {
		if h := j.held[tenure{q, k}]; h.turn > since && !haveParted(h.lineage, mine) {
			return q
		}
	}
	return nil
}

// haveParted reports whether neither of two lineages descends from the other one.
func haveParted(l, o ownership.Lineage) bool {
	return !strings.HasPrefix(string(l), string(o)) && !strings.HasPrefix(string(o), string(l))
}

// letGo reports whether p has let go of all partitions since it last held this one.
func (j *common) letGo(p *process, k int) bool {
	was, known := j.held[tenure{p, k}]
	return known && was.fenced != p.stated.fenced
}

// mayReturn reports whether the key of a may have come back to p from another process since p
// decided on it, when p had let go of all that it held so often.
func (j *common) mayReturn(a *account, p *process, since time.Duration, fences uint64) bool {
	return j.gifts[j.world.plan.partition(a.hash)] > since || p.stated.fenced != fences
}

// claimsAgain reports whether p, the last to decide on a key of partition k, has let go of that
// since, and holds it by a claim, after another process has held it and has decided nothing. Where
// messages get lost, that one may lack what p had charged, and its copies came in the place of
// p's.
func (j *common) claimsAgain(r *reference, before, p *process, k int) bool {
	return before == p && p.stated.fenced != r.fences && j.gifts[k] <= r.last &&
		j.copying.began[tenure{p, k}] > r.last
}
