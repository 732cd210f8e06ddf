package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
)

// Where most voters are gone for good, and a member that is left had lost its right before it saw
// that, no node decides: others may have agreed on something that it has not heard of. The protocol
// waits for an operator then (docs/promises.md), and so does the world.

// recovers has an operator run recover once, against the first member that says that it decides
// nothing, if most of its voters are gone for good.
func (w *world) recovers() {
	for _, m := range w.machines {
		if m.process == nil || m.frozen || w.recovered {
			continue
		}
		agreed := m.process.node.Membership()
		if len(agreed.Lost()) == 0 || w.hasMost(m.process.node.Agreed()) {
			continue
		}
		w.recovered = agreed.Recover() == nil
		if m.process.states(); w.recovered {
			w.judge.allowed.used[byOperator]++
			w.agreeBy = w.now + w.plan.agreesWithin()
		}
	}
}

// hasMost reports whether the processes of most voters of c live.
func (w *world) hasMost(c *ownership.Configuration) bool {
	left := 0
	for _, b := range c.Voters {
		if slices.ContainsFunc(w.machines, func(m *machine) bool {
			return m.process != nil && cluster.SameProcess(b, m.process.boot)
		}) {
			left++
		}
	}
	return left >= c.Quorum()
}

// agreesWithin is how much longer than restAfter a world may take until all agree on what each
// holds, or after an operator has recovered it: news of the last to come or go may be on its way.
// Where messages get lost, one that is there may be taken for dead until the end, and is back some
// seconds later.
func (p *plan) agreesWithin() time.Duration {
	if p.weather.loss > 0 {
		return 30 * time.Second
	}
	return 10 * time.Second
}
