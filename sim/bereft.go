package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/ring"
)

// One answer may be degraded though its owner decides: if the owner of a key and the member that
// kept its copy were lost together, the next owner begins with nothing. It has to mark what it
// decides with all that may be forgotten, until one window has passed, and no longer. The judge
// allows that for such keys alone, and never to a node that answers without the owner.

// bereftJudge is told which partitions have lost all their counters by the faults that have struck.
type bereftJudge struct {
	*common
	there *presence
	// of those that were there when all had settled; nil: it is to be made
	places *placement
	seen   bool // nothing has failed since noteLost has looked
	// by machine: since then it has failed, or was cut off from most others
	lost []bool
	at   [ring.Partitions]time.Duration // when all that kept a partition had been lost; 0: never
}

// settles begins anew: the members that are there determine which of them keep which copies.
func (j *bereftJudge) settles() { j.places, j.lost = nil, nil }

// losing notes that machine f.node is about to fail, and which ones have lost most others by now.
func (j *bereftJudge) losing(f fault) {
	j.noteLost()
	j.seen = false
	if f.kind == crashes || f.kind == freezes {
		j.loses(f.node)
	}
}

// noteLost notes which machines cannot speak with most others.
func (j *bereftJudge) noteLost() {
	if j.seen || !j.world.plan.strict {
		return
	}
	j.seen = true
	for i, m := range j.world.machines {
		if j.there.voters[i] && (m.crashed || !j.there.reachesMost(m, j.there.voters)) {
			j.loses(i)
		}
	}
}

// loses notes that a machine is lost, and what is lost with it.
func (j *bereftJudge) loses(machine int) {
	w := j.world
	if j.lost == nil {
		j.lost = make([]bool, len(w.machines))
	}
	if j.lost[machine] || !w.plan.strict {
		return
	}
	j.lost[machine] = true
	if j.spared() {
		return
	}
	if j.places == nil {
		var ids []string
		for i, m := range w.machines {
			if j.there.voters[i] {
				ids = append(ids, m.id)
			}
		}
		if j.places = placed(ids); j.places == nil {
			return
		}
	}
	gone := func(id string) bool { return j.lost[w.byID[id].index] }
	for p := range j.at {
		if !gone(j.places.ownerOf(p)) {
			continue
		}
		if heir := j.places.heirOf(p); heir != "" && gone(heir) {
			j.at[p] = w.now
		}
	}
}

// spared reports whether members that are left have copies of all that is lost: no more are lost
// than there are copies, or they are of one zone and others are not.
func (j *bereftJudge) spared() bool {
	plan, lost, zones, elsewhere := j.world.plan, 0, map[string]bool{}, false
	for i := range plan.machines {
		if j.lost[i] {
			lost++
			zones[plan.machines[i].zone] = true
		}
	}
	left := false
	for i := range plan.machines {
		if zone := plan.machines[i].zone; j.there.voters[i] && !j.lost[i] {
			left, elsewhere = true, elsewhere || zone != "" && !zones[zone]
		}
	}
	heirs := plan.copies.Heirs()
	return left && lost <= heirs || heirs > 0 && len(zones) == 1 && !zones[""] && elsewhere
}

// allows reports whether d, which is degraded, is the answer of a node that has taken over what was
// lost with all its copies, and says so as long as it has to.
func (j *bereftJudge) allows(h *hearing, account *account, d *cluster.Decision,
	slow time.Duration,
) bool {
	lost := j.at[j.world.plan.partition(limiter.Hash(account.key))]
	return lost != 0 && d.Source <= cluster.SourceForwarded && d.Owner != "" &&
		d.Bound == capacityOf(account.spec) &&
		h.began < lost+silentWithin+slow+forgets(account.spec)
}

// parted reports whether d is the answer of a half of a pair that has parted: two are counted on,
// the line between them is cut, and until they meet both decide and mark. A third one may have come
// back meanwhile, and hear both.
func (j *bereftJudge) parted(account *account, d *cluster.Decision) bool {
	w, pair := j.world, []*machine(nil)
	for i, m := range w.machines {
		if j.there.voters[i] && !m.crashed && m.process != nil {
			pair = append(pair, m)
		}
	}
	if len(pair) != 2 || !w.network.apart(pair[0], pair[1]) {
		return false
	}
	return d.Source <= cluster.SourceForwarded && d.Bound == capacityOf(account.spec) &&
		(d.Owner == pair[0].id || d.Owner == pair[1].id)
}
