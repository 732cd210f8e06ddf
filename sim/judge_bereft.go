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

// bereavement is which partitions have lost all their counters, from the faults that have struck.
type bereavement struct {
	// of those that were there when all had settled; nil: it is to be made
	ring *ring.Ring
	seen bool // nothing has failed since noteLost has looked
	// by machine: since then it has failed, or was cut off from most others
	lost []bool
	at   [ring.Partitions]time.Duration // when all that kept a partition had been lost; 0: never
}

// settles begins anew: the members that are there determine which of them keep which copies.
func (b *bereavement) settles() { b.ring, b.lost = nil, nil }

// losing notes that machine f.node is about to fail, and which ones have lost most others by now.
func (j *judge) losing(f fault) {
	j.noteLost()
	j.presence.bereft.seen = false
	if f.kind == crashes || f.kind == freezes {
		j.loses(f.node)
	}
}

// noteLost notes which machines cannot speak with most others.
func (j *judge) noteLost() {
	b := &j.presence.bereft
	if b.seen || !j.world.plan.strict {
		return
	}
	b.seen = true
	for i, m := range j.world.machines {
		if j.presence.voters[i] && (m.crashed || !j.reachesMost(m, j.presence.voters)) {
			j.loses(i)
		}
	}
}

// loses notes that a machine is lost, and what is lost with it.
func (j *judge) loses(machine int) {
	w, a := j.world, &j.presence
	b := &a.bereft
	if b.lost == nil {
		b.lost = make([]bool, len(w.machines))
	}
	if b.lost[machine] || !w.plan.strict {
		return
	}
	b.lost[machine] = true
	if b.ring == nil {
		var ids []string
		for i, m := range w.machines {
			if a.voters[i] {
				ids = append(ids, m.id)
			}
		}
		if b.ring, _ = ringOf(ids); b.ring == nil {
			return
		}
	}
	gone := func(member int) bool { return b.lost[w.byID[b.ring.Members()[member]].index] }
	for p := range b.at {
		heir, kept := b.ring.Heir(p)
		if gone(b.ring.Owner(p)) && kept && gone(heir) {
			b.at[p] = w.now
		}
	}
}

// bereft reports whether d, which is degraded, is the answer of a node that has taken over what was
// lost with all its copies, and says so as long as it has to.
func (j *judge) bereft(h *hearing, account *account, d *cluster.Decision, slow time.Duration) bool {
	lost := j.presence.bereft.at[j.world.plan.partition(limiter.Hash(account.key))]
	return lost != 0 && d.Source <= cluster.SourceForwarded && d.Owner != "" &&
		d.Bound == account.limit.Capacity() &&
		h.began < lost+silentWithin+slow+forgets(account.spec)
}

// parted reports whether d is the answer of a half of a pair that has parted: two are counted on,
// the line between them is cut, and until they meet both decide and mark. A third one may have come
// back meanwhile, and hear both.
func (j *judge) parted(account *account, d *cluster.Decision) bool {
	w, pair := j.world, []*machine(nil)
	for i, m := range w.machines {
		if j.presence.voters[i] && !m.crashed && m.process != nil {
			pair = append(pair, m)
		}
	}
	if len(pair) != 2 || !w.network.apart(pair[0], pair[1]) {
		return false
	}
	return d.Source <= cluster.SourceForwarded && d.Bound == account.limit.Capacity() &&
		(d.Owner == pair[0].id || d.Owner == pair[1].id)
}

// marksTooMuch reports whether an answer is degraded where bereft does not allow it, and counts
// where it does.
func (j *judge) marksTooMuch(h *hearing, out []cluster.Decision, slow time.Duration) (too bool) {
	for i := range out {
		d, account := &out[i], h.request.terms[i].account
		switch {
		case !d.Degraded || account.replica != nil:
		case j.bereft(h, account, d, slow):
			j.presence.report.Bereft++
		case j.parted(account, d): // counted at its decision (bothOfPair)
		default:
			too = true
		}
	}
	return too
}
