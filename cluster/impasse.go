package cluster

import (
	"slices"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// An impasse is a claim that cannot end. All members have to answer a claim, and two of them may
// not reach each other while most others reach both. So after a death nobody would decide for what
// one of the two should take over, for as long as their line is cut. One of the two steps down
// then: what it holds it gives to others, the claims of those end without it, and it comes back as
// another boot.

const (
	// impasseAfter is how long a claim waits for a member that does not answer. One that is silent
	// to most is evicted sooner, and the claim begins anew without it.
	impasseAfter = 3 * time.Second
	// impasseYields is how much longer one of the two waits, so that they do not both step down.
	impasseYields = 2 * time.Second
)

// impasse is what a claimer knows of one. A member that has come back claims as well, and those
// that it does not reach hold what it claims: so it steps down once for each member that was lost
// since it was admitted, and not again. Guarded by partitions.mu.
type impasse struct {
	config *ownership.Configuration // seen last
	boot   ownership.Boot           // of this process in it
	lost   bool                     // a member of the one before is in it no more
	since  limiter.Instant          // when a claim in it was first not answered; 0: none was
}

// installed notes a configuration, in which this process is boot.
func (im *impasse) installed(c *ownership.Configuration, boot ownership.Boot) {
	if im.config == c && im.boot == boot {
		return
	}
	was := im.config
	im.lost = im.boot == boot && (im.lost || was != nil &&
		slices.ContainsFunc(was.Members, func(m ownership.Member) bool { return !c.Has(m.Boot) }))
	im.config, im.boot, im.since = c, boot, 0
}

// stepsDown notes that a claim was not answered by a member, or by none such if that is 0, and
// reports whether this process has to step down.
func (im *impasse) stepsDown(now limiter.Instant, silent ownership.Boot) bool {
	switch {
	case silent == 0 || !im.lost:
		im.since = 0
		return false
	case im.since == 0:
		im.since = now
		return false
	}
	wait := impasseAfter
	if im.boot < silent {
		wait += impasseYields
	}
	if now < im.since.Add(wait) {
		return false
	}
	im.lost, im.since = false, 0
	return true
}

// considerImpasseLocked follows a claim that has been concluded: it asks this member to step down
// if the claim waits for another one, which this node does not reach.
func (cl *claimer) considerImpasseLocked(now limiter.Instant, calls []Call) {
	on := cl.right.roll.Load()
	if !on.joined() {
		return
	}
	var silent ownership.Boot
	for i := range calls {
		c := &calls[i]
		m, found := on.member(c.To.ID)
		if found && c.Err != nil && SameProcess(m.Boot, c.To.Boot) {
			silent = m.Boot
		}
	}
	if cl.impasse.stepsDown(now, silent) {
		cl.clock.AfterFunc(0, cl.stepDown)
	}
}
