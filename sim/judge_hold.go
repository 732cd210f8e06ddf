package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/ring"
)

// Who may decide. Of each key there is one who does. Where machines freeze or are cut off somebody may hold a key still by whom it was
// not decided for long, and that another one has taken over; but he has to notice before he decides: when he has had no contact with
// most of the others, or was stopped. So it is not who holds that counts in these worlds, but who decides.

// tenure is one partition in the hands of one process.
type tenure struct {
	process   *process
	partition int
}

// mayDecide checks that p decides for a key, may do so, and nobody else does. doubt says that it answers with less than the full promise.
func (j *judge) mayDecide(p *process, a *account, doubt bool) {
	j.checked[owned]++
	if !p.node.Holds(a.hash) {
		j.fail(owned, "%s decides on %s without holding it", p.machine.id, keyText(a.key))
	}
	k := ring.Partition(a.hash)
	of := j.hasContact(p, a)
	if doubt && of == 2 {
		j.tied[k] = j.world.now
	}
	if j.holders[k] != p && j.holders[k] != nil {
		j.claims[k] = j.world.now
		// Who has not begun to hold anything since he last held it has never stopped. Of two both may
		// go on, until they have met again and know so, also if a third one has come meanwhile and has
		// got it from one of them.
		tied, was := j.tied[k]
		if began, known := j.held[tenure{p, k}]; known && began == beginnings(p) && !doubt && of > 2 && !(was && j.world.now < tied+agreedWithin) {
			j.fail(owned, "%s decides on %s, for which %s has decided since, and has not taken it over again", p.machine.id, keyText(a.key), j.holders[k].machine.id)
		}
	}
	j.holdsNow(k, p)
	if !j.looksAround(p, a) {
		return
	}
	for _, m := range j.world.machines {
		if q := m.process; q != nil && q != p && !m.frozen && q.node.Holds(a.hash) && j.sure(q) && j.sure(p) {
			j.fail(owned, "%s decides on %s, for which %s decides as well", p.machine.id, keyText(a.key), m.id)
		}
	}
}

// agreedWithin is how long after a cut has healed all must have the same View.
const agreedWithin = 10 * time.Second

// holdsNow notes that p holds a partition.
func (j *judge) holdsNow(k int, p *process) {
	j.holders[k] = p
	if j.world.plan.sky != calm {
		j.held[tenure{p, k}] = beginnings(p)
	}
}

// beginnings is how often p has begun to hold a partition.
func beginnings(p *process) uint64 {
	return p.node.Stats().Claimed.Load() + p.node.Stats().Received.Load()
}

// contact is when a node has last sent something to others that they have answered.
type contact struct {
	heard  map[*machine]time.Duration
	lost   map[*machine]time.Duration // since when, at the earliest, somebody is missed who has not left
	view   *cluster.View
	looked time.Duration // at view
}

// fenced is how long a node may go on deciding that has no contact with most of the others: until its next tick, which may come a
// little late, finds that it had none for 1.2 s; in large clusters longer.
func fenced(members int) time.Duration {
	return max(1200*time.Millisecond, time.Duration(members)*12500*time.Microsecond) + 350*time.Millisecond
}

// reaches notes that m has answered what p has sent then.
func (j *judge) reaches(p *process, m *machine, sent time.Duration) {
	if j.world.plan.sky != calm {
		c := j.contact(p)
		c.heard[m] = max(c.heard[m], sent)
	}
}

func (j *judge) contact(p *process) *contact {
	c := j.contacts[p]
	if c == nil {
		c = &contact{heard: make(map[*machine]time.Duration), lost: make(map[*machine]time.Duration), looked: j.world.now}
		j.contacts[p] = c
	}
	return c
}

// hasContact checks that p, who decides, has been answered by half of those at least who should be there, and says how many those are
// with it; in calm worlds, where nobody is cut off, 0.
func (j *judge) hasContact(p *process, a *account) (members int) {
	if j.world.plan.sky == calm {
		return 0
	}
	c, v, w := j.contact(p), p.node.View(), j.world
	if c.view != v {
		j.meets(p, c, v)
	}
	c.looked = w.now
	reached, missed := 1, 0
	here, there := p.machine.id, ""
	miss := func(m *machine) {
		if missed++; there == "" || m.id < there {
			there = m.id
		}
	}
	patience := fenced(len(v.Members) + len(c.lost))
	for i := range v.Members {
		switch x := &v.Members[i]; {
		case i == v.Self || x.Role != cluster.RoleMember || x.State != cluster.StateActive:
		case w.now > c.heard[w.byID[x.ID]]+patience:
			miss(w.byID[x.ID])
		default:
			reached++
			here = min(here, x.ID)
		}
	}
	for m, since := range c.lost {
		if w.now < since+9*time.Minute { // a node counts them for 10
			miss(m)
		}
	}
	if reached < missed || reached == missed && reached > 1 && here > there {
		j.fail(owned, "%s decides on %s, and has reached %d of %d other members only in the last %v", p.machine.id, keyText(a.key), reached-1, reached-1+missed, patience)
	}
	return reached + missed
}

// meets notes who is new in the View of p, and who has vanished from it.
func (j *judge) meets(p *process, c *contact, v *cluster.View) {
	w, old := j.world, c.view
	c.view = v
	boots := make(map[*machine]uint64)
	if old != nil {
		for i := range old.Members {
			x := &old.Members[i]
			m := w.byID[x.ID]
			boots[m] = x.Boot
			left := m.process == nil && !m.crashed
			if x.Role == cluster.RoleMember && x.State == cluster.StateActive && i != old.Self && v.Find(x.ID) < 0 && !left {
				c.lost[m] = c.looked
			}
		}
	}
	for i := range v.Members {
		m := w.byID[v.Members[i].ID]
		delete(c.lost, m)
		if boots[m] != v.Members[i].Boot { // who is new counts as heard
			c.heard[m] = w.now
		}
	}
}

// looksAround reports whether it is time to look at who else holds the key of a. In a small world it always is. In a large
// one it is if p has not been the last to decide for the key's partition, so no two nodes ever decide in turn unnoticed, and
// every 10 ms.
func (j *judge) looksAround(p *process, a *account) bool {
	if len(j.world.machines) <= 16 {
		return true
	}
	if j.deciders == nil {
		j.deciders = make([]decider, ring.Partitions)
	}
	d := &j.deciders[ring.Partition(a.hash)]
	if d.process == p && j.world.now < d.looked+10*time.Millisecond {
		return false
	}
	*d = decider{p, j.world.now}
	return true
}

// decider is who was the last to decide for a partition, and when it was found that nobody else did.
type decider struct {
	process *process
	looked  time.Duration
}

// converged checks what has to be when faults have been over for long: all see the same members, and each partition is held by its
// owner alone. It reports false if that is not so yet; last says that it has to be.
func (j *judge) converged(last bool) bool {
	w := j.world
	if w.network.cuts > 0 || w.moving() || w.plan.weather.far > time.Second {
		return true // it is not over; or what is said takes longer than anybody waits for an answer
	}
	var first *process
	for _, m := range w.machines {
		p := m.process
		switch {
		case m.frozen || m.crashed:
			return true
		case p == nil:
		case first == nil:
			first = p
		case !slices.Equal(p.node.View().Members, first.node.View().Members):
			return last && j.apart("%s and %s see different members: %v, and %v", first.machine.id, p.machine.id, first.node.View().Members, p.node.View().Members)
		}
	}
	if first == nil || first.node.View().Ring == nil {
		return true
	}
	j.checked[agreed]++
	v := first.node.View()
	for k := range ring.Partitions {
		owner := v.Ring.Members()[v.Ring.Owner(k)]
		for _, m := range w.machines {
			if m.process != nil && m.process.node.HoldsPartition(k) != (m.id == owner) {
				return last && j.apart("partition %d is %s's, and it is %t that %s holds it", k, owner, m.id != owner, m.id)
			}
		}
	}
	return true
}

// apart breaks the promise that all agree in the end.
func (j *judge) apart(format string, args ...any) bool {
	j.fail(agreed, format, args...)
	return true
}
