package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
)

// presence is the machines that should be there, from the faults that have struck.
type presence struct {
	*common
	voters  []bool        // by machine: it has been counted on since all had settled
	changed time.Duration // when somebody or some line failed last, or came back
	settled bool          // voters are those that were there when all had settled
}

// settle counts on those that were there when nothing had changed for long enough, and reports
// whether it has.
func (j *presence) settle() bool {
	w := j.world
	switch {
	case j.voters == nil:
		j.voters = make([]bool, len(w.machines))
	case j.settled || w.now < j.changed+w.plan.settlesIn():
		return false
	}
	j.settled = true
	was := slices.Clone(j.voters)
	for i, m := range w.machines {
		j.voters[i] = m.role == cluster.RoleMember && m.process != nil &&
			(!slices.Contains(was, true) || j.reachesMost(m, was))
	}
	if !slices.Contains(j.voters, true) {
		j.voters = was
	}
	return true
}

// reachesMost reports whether m can speak with most of those that are counted on and not gone.
func (j *presence) reachesMost(m *machine, voters []bool) bool {
	w, there, reached := j.world, 0, 0
	for i, o := range w.machines {
		if !voters[i] || o.crashed || o.process == nil {
			continue
		}
		there++
		if !o.frozen && !w.network.apart(m, o) {
			reached++
		}
	}
	return !m.frozen && reached >= 2 && 2*reached > there
}

// counted is the machines that are counted on, and those that have come since and can speak with
// most of them: they are members again, so a node that cannot speak with them may be in a minority.
func (j *presence) counted() []bool {
	all := slices.Clone(j.voters)
	for i, m := range j.world.machines {
		all[i] = all[i] || m.role == cluster.RoleMember && m.process != nil &&
			j.reachesMost(m, j.voters)
	}
	return all
}

// isSeenGone reports whether enough voters to agree on that would see at once that m has crashed,
// by a refused connection. A voter that a cut line keeps from that waits until m has been silent
// for long, as every voter must see it itself. Where too few voters are left in any case, nobody
// waits for that.
func (j *presence) isSeenGone(m *machine) bool {
	var config *ownership.Configuration
	for _, o := range j.world.machines {
		if p := o.process; p != nil && p.stated.agreed != nil &&
			(config == nil || p.stated.agreed.Epoch.Number > config.Epoch.Number) {
			config = p.stated.agreed
		}
	}
	if config == nil {
		return true
	}
	live, see := 0, 0
	for _, member := range config.Members {
		o := j.world.byID[member.ID]
		if o == m || o.process == nil || o.frozen || !slices.Contains(config.Voters, member.Boot) {
			continue
		}
		if live++; !j.world.network.apart(o, m) {
			see++
		}
	}
	return 2*see > len(config.Voters) || 2*live <= len(config.Voters)
}

// settlesIn is how long after a change of members all must have agreed.
func (p *plan) settlesIn() time.Duration {
	g := &p.gossip
	return g.detect + g.doubt + g.spread + g.settle + copiedWithin
}
