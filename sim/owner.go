package sim

import (
	"time"

	"penstock/cluster/ownership"
	"penstock/ring"
)

// What follows checks that only one node decides for each key. Where machines freeze or are cut
// off, a node may still hold a key that it has not decided on for long, and that another node has
// taken over. But it has to notice that before it decides: it has had no contact with most of the
// others, or was stopped. So in these worlds it counts which node decides, not which nodes hold.

// ownerJudge checks that.
type ownerJudge struct {
	*common
	deciders []decider // by partition
}

// mayDecide checks that p decides for a key, may do so, and nobody else does. doubt says that it
// answers with less than the full promise.
func (j *ownerJudge) mayDecide(p *process, a *account, doubt bool) {
	j.checked[owned]++
	if !p.saysItDecides(a.hash) {
		j.fail(owned, "%s decides on %s without holding it", p.machine.id, keyText(a.key))
	}
	if doubt {
		a.marked = j.world.now
	}
	k := j.world.plan.partition(a.hash)
	of := j.hasRight(p, a)
	j.allowed.of[anyDecision]++
	if doubt && of == 2 || of == 1 {
		j.tied[k] = j.world.now
	}
	if j.holders[k] != p && j.holders[k] != nil {
		j.claims[k] = j.world.now
		j.mayTakeOver(p, a)
	}
	j.holdsNow(k, p)
	if j.looksAround(p, a) {
		j.isAlone(p, a, of)
	}
}

// mayTakeOver checks that p has begun to hold a's key anew, if another process of its lineage has
// held it since. One that has not begun to hold anything since has never stopped. The half of a
// pair that goes on when the two have met again has never stopped either, so the other half is no
// such process: it has decided in a lineage of its own, and has given that up.
func (j *ownerJudge) mayTakeOver(p *process, a *account) {
	k := j.world.plan.partition(a.hash)
	h, known := j.held[tenure{p, k}]
	if !known || h.begun != p.stated.begun || p.stated.agreed == nil {
		return
	}
	q := j.successor(p, k)
	if q == nil {
		j.allowed.used[bothOfPair]++
		return
	}
	j.fail(owned, "%s decides on %s, for which %s has decided since, and has not taken it over "+
		"again", p.machine.id, keyText(a.key), q.machine.id)
}

// isAlone checks that no other node than p, one of so many members, decides for a's key.
func (j *ownerJudge) isAlone(p *process, a *account, of int) {
	for _, m := range j.world.machines {
		if q := m.process; q == nil || q == p || m.frozen || !q.saysItDecides(a.hash) {
			continue
		} else if of <= 2 {
			j.allowed.used[bothOfPair]++
		} else {
			j.fail(owned, "%s decides on %s, for which %s decides as well", p.machine.id,
				keyText(a.key), m.id)
		}
	}
}

// looksAround reports whether it is time to look for other nodes that hold the key of a. In a small
// world it always is. In a large one it is if p has not been the last to decide for the key's
// partition, so no two nodes ever decide in turn unnoticed, and every 10 ms.
func (j *ownerJudge) looksAround(p *process, a *account) bool {
	if len(j.world.machines) <= 16 {
		return true
	}
	if j.deciders == nil {
		j.deciders = make([]decider, ring.Partitions)
	}
	d := &j.deciders[j.world.plan.partition(a.hash)]
	if d.process == p && j.world.now < d.looked+10*time.Millisecond {
		return false
	}
	*d = decider{p, j.world.now}
	return true
}

// decider is the last process that decided for a partition, and when it was found that no other one
// did.
type decider struct {
	process *process
	looked  time.Duration
}

// hasRight checks that p, which decides, has the right to, and says how many members there are with
// it. A pair that has parted is one of two voters: one that leaves has no vote, whichever half has
// taken it along.
func (j *ownerJudge) hasRight(p *process, a *account) (members int) {
	config := p.stated.agreed
	if config == nil {
		j.fail(owned, "%s decides on %s, and is a member of no configuration", p.machine.id,
			keyText(a.key))
		return 0
	}
	if until := p.rightOf().ends(p); p.now() >= until {
		j.fail(owned, "%s decides on %s, and its right to has been over for %v", p.machine.id,
			keyText(a.key), time.Duration(p.now()-until))
	}
	members = countedOn(config)
	for _, m := range config.Members {
		if m.Role == ownership.RoleLeaving && len(config.Rivals) > 0 {
			members--
		}
	}
	return members
}
