package sim

import (
	"slices"
	"time"

	"penstock/cluster"
)

// Who reaches whom. A node that most of the others do not hear must not decide, and what it admits
// nevertheless is up to its limits' on_partition. The judge finds that out by itself: from what
// each node was answered, and from what Views have told it. A node looks at that only ten times a
// second, so for some moments after a change nobody can say from outside what it goes by.

// contact is what the judge knows of a process's contact with others. Slices are by machine.
type contact struct {
	view   *cluster.View
	since  time.Duration // of view
	others []*machine    // ACTIVE members in view, without the process itself
	peers  []peerContact
	gone   []*machine // who has vanished from its Views, and has not come back
}

// peerContact is the contact with one machine.
type peerContact struct {
	boot   uint64        // in the View
	heard  time.Duration // when it was last sent something that it has answered
	lost   time.Duration // since when it is gone
	missed bool          // if it is gone: it has not left
}

// contactLasts is how long a node goes on with the contact that it had, and tickTakes what goes by
// at most until it has looked at it; in large clusters contact lasts longer.
const (
	contactLasts = 1200 * time.Millisecond
	tickTakes    = 350 * time.Millisecond
)

func lasts(members int) time.Duration {
	return max(contactLasts, time.Duration(members)*12500*time.Microsecond)
}

// reaches notes that l was answered.
func (j *judge) reaches(l *letter) {
	c := l.from.contact
	if c == nil {
		return
	}
	x := &c.peers[l.to.index]
	x.heard = max(x.heard, l.sent)
}

// sees notes who is new in the View of p, and who has vanished from it. In calm worlds nobody is
// cut off.
func (j *judge) sees(p *process, v *cluster.View) {
	w := j.world
	if w.plan.sky == calm || !w.plan.heard {
		return
	}
	c := p.contact
	if c == nil {
		c = &contact{peers: make([]peerContact, len(w.machines))}
		p.contact = c
	}
	there := make([]bool, len(w.machines))
	others := make([]*machine, 0, len(v.Members))
	for i := range v.Members {
		x := &v.Members[i]
		m := w.byID[x.ID]
		there[m.index] = true
		if k := &c.peers[m.index]; k.boot != x.Boot { // who is new counts as heard
			*k = peerContact{boot: x.Boot, heard: w.now}
		}
		if i != v.Self && x.Role == cluster.RoleMember && x.State == cluster.StateActive {
			others = append(others, m)
		}
	}
	for _, m := range c.others {
		if x := &c.peers[m.index]; !there[m.index] {
			x.lost, x.missed = w.now, m.crashed || m.process != nil && m.process.boot == x.boot && !m.process.leaving
			c.gone = append(c.gone, m)
		}
	}
	c.gone = slices.DeleteFunc(c.gone, func(m *machine) bool { return there[m.index] })
	for i := range there {
		if !there[i] {
			c.peers[i].boot = 0
		}
	}
	c.view, c.since, c.others = v, w.now, others
}

// sides are those who should be there: with whom p has contact, itself among them unless it is
// leaving, and with whom not.
type sides struct {
	reached, missed int
	here, there     string // the smallest ids of both
}

func (s *sides) reach(id string) {
	if s.reached++; s.here == "" || id < s.here {
		s.here = id
	}
}

func (s *sides) miss(id string) {
	if s.missed++; s.there == "" || id < s.there {
		s.there = id
	}
}

// cutOff reports whether these are too few to decide: of two equal halves the one with the smallest
// id goes on, and of a cluster of two both do.
func (s *sides) cutOff() bool {
	return s.reached < s.missed || s.reached == s.missed && s.reached > 1 && s.here > s.there
}

// sides are those of p as it must see them if it sees as many as it can.
func (c *contact) sides(p *process, patience time.Duration) sides {
	now, s := p.machine.world.now, sides{}
	if c.view.Me().State != cluster.StateLeaving {
		s.reach(p.machine.id)
	}
	for _, m := range c.others {
		if now > max(c.peers[m.index].heard, p.machine.thawed)+patience {
			s.miss(m.id)
		} else {
			s.reach(m.id)
		}
	}
	for _, m := range c.gone {
		switch x := &c.peers[m.index]; {
		case now < x.lost+tickTakes && now < x.heard+patience:
			s.reach(m.id)
		case x.missed && now < x.lost+countsFor:
			s.miss(m.id)
		}
	}
	return s
}

// countsFor is for how long a member that has vanished is missed: nobody is forgotten by time.
const countsFor = maxDuration

// inContact checks that p, who decides, has been answered by half of those at least who should be
// there, and says how many those are with it; in calm worlds 0.
func (j *judge) inContact(p *process, a *account) (members int) {
	if !j.world.plan.heard {
		return j.hasRight(p, a)
	}
	c := p.contact
	if c == nil {
		return 0
	}
	patience := lasts(len(c.view.Members)+len(c.gone)) + tickTakes
	s := c.sides(p, patience)
	if s.cutOff() && c.since < j.world.now-tickTakes {
		j.fail(owned, "%s decides on %s, and has reached %d of %d other members only in the last %v",
			p.machine.id, keyText(a.key), s.reached-1, s.reached-1+s.missed, patience)
	}
	return s.reached + s.missed
}

// standing is what a node may go by that has answered without the owner: onError is false if it
// must have noticed that it is cut off, so that its limits' on_partition holds. Else nobody can
// tell from outside which of the two it is. shares is in how many it must split a limit at least.
func (j *judge) standing(h *hearing) (onError bool, shares int) {
	if !j.world.plan.heard {
		return j.standingByRight(h)
	}
	p, c := h.process, h.process.contact
	active := min(h.view.Active(), p.node.View().Active())
	switch {
	case c == nil, p.machine.thawed >= h.began-contactLasts-tickTakes, c.since >= h.began-tickTakes:
		return true, min(active, 1)
	case p.machine.role == cluster.RoleAgent: // it asks nobody for signs of life, so it never notices
		return true, active
	}
	s := c.sides(p, lasts(len(c.view.Members)+len(c.gone))+tickTakes+j.world.now-h.began)
	if s.cutOff() {
		j.requests.CutOff++
	}
	return !s.cutOff(), max(active, s.reached+s.missed)
}
