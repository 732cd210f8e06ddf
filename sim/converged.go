package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/ring"
)

// convergedJudge checks that all agree in the end.
type convergedJudge struct{ *common }

// converged checks what has to be when faults have been over for long: all see the same members,
// and each partition is held by its owner alone. It reports false if that is not so yet; last says
// that it has to be.
func (j *convergedJudge) converged(last bool) bool {
	w := j.world
	j.allowed.of[anyWorld]++
	if w.network.cuts > 0 || w.moving() || w.plan.weather.far > time.Second {
		j.allowed.used[apartAtEnd]++
		return true // it is not over; or what is said takes longer than anybody waits for an answer
	}
	var first *process
	for _, m := range w.machines {
		p := m.process
		switch {
		case m.frozen || m.crashed:
			j.allowed.used[apartAtEnd]++
			return true
		case p == nil:
		case first == nil:
			first = p
		case !slices.EqualFunc(p.stated.view.Members, first.stated.view.Members, sameMember):
			return last && j.apart("%s and %s see different members: %v, and %v", first.machine.id,
				p.machine.id, first.stated.view.Members, p.stated.view.Members)
		}
	}
	if first == nil || len(owners(first.stated.view)) == 0 {
		return true
	}
	j.checked[agreed]++
	return j.heldByOwners(first.stated.view, last)
}

// heldByOwners checks that each partition is held by the node that owns it by v, and by no other.
func (j *convergedJudge) heldByOwners(v *cluster.View, last bool) bool {
	places := placed(owners(v))
	for k := range ring.Partitions {
		owner := places.ownerOf(k)
		for _, m := range j.world.machines {
			if m.process != nil && m.process.stated.decidesFor(k) != (m.id == owner) {
				return last && j.apart("partition %d is %s's, and it is %t that %s holds it", k,
					owner, m.id != owner, m.id)
			}
		}
	}
	return true
}

// sameMember reports whether two nodes see one member. Agents, which are in no configuration, see
// no zones.
func sameMember(a, b cluster.Member) bool {
	a.Zone, b.Zone = "", ""
	return a == b
}

// apart breaks the promise that all agree in the end.
func (j *convergedJudge) apart(format string, args ...any) bool {
	j.fail(agreed, format, args...)
	return true
}
