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
			w.agreesFromNow()
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
// Where messages get lost, a member that is there may be taken for dead at any time, and come back;
// so the time begins anew with each configuration, agreesTimes at most.
const (
	agreesWithin = 10 * time.Second
	agreesTimes  = 3
)

// agreesFromNow begins the time in which all must agree.
func (w *world) agreesFromNow() {
	w.agreeBy, w.agreeEnd = w.now+agreesWithin, w.now+agreesTimes*agreesWithin
}

// agreesAnew begins it anew if another configuration has been agreed on, where messages get lost.
func (w *world) agreesAnew() {
	latest := w.agreedOn
	for _, m := range w.machines {
		if m.process != nil && m.process.stated.agreed != nil {
			latest = max(latest, m.process.stated.agreed.Epoch.Number)
		}
	}
	if latest > w.agreedOn && w.plan.weather.loss > 0 {
		w.agreeBy = min(w.agreeEnd, w.now+agreesWithin)
	}
	w.agreedOn = latest
}
