package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
)

// Availability is a promise: after each fault, within the failover, answers are neither degraded
// nor late. It is asked for where a node can speak with most of those that should be there; a
// process that is gone refuses connections, so it is not waited for. The judge sees faults and
// answers, and asks no node anything.

// AvailableReport says how answers were when nothing had failed for the time of a failover.
type AvailableReport struct {
	Answers  int `json:"answers"`  // that had to be neither degraded nor late
	Degraded int `json:"degraded"` // of these
	Late     int `json:"late"`     // of these
	// of all: marked, for the counters of their keys were lost with all copies
	Bereft int     `json:"bereft"`
	LongMS float64 `json:"long_ms"` // the longest time from the last fault to one of them
}

func (r *AvailableReport) add(o *AvailableReport) {
	r.Answers += o.Answers
	r.Degraded += o.Degraded
	r.Late += o.Late
	r.Bereft += o.Bereft
	r.LongMS = max(r.LongMS, o.LongMS)
}

func (r *AvailableReport) write(b *strings.Builder) {
	fmt.Fprintf(b, "available  %d answers with nothing failing: %d degraded, %d late", r.Answers,
		r.Degraded, r.Late)
	if r.Bereft > 0 {
		fmt.Fprintf(b, ", %d marked for lost copies", r.Bereft)
	}
	b.WriteByte('\n')
}

// The failover: within goneWithin of a crash, and silentWithin of anything that stops or cuts off a
// machine, or brings one back. Messages that go back and forth meanwhile come on top.
const (
	goneWithin   = 100 * time.Millisecond
	silentWithin = 2500 * time.Millisecond
)

// presence is the machines that should be there, from the faults that have struck.
type presence struct {
	voters  []bool        // by machine: it has been counted on since all had settled
	changed time.Duration // when somebody or some line failed last, or came back
	due     time.Duration // when answers have to be well again
	settled bool          // voters are those that were there when all had settled
	bereft  bereavement
	report  AvailableReport
}

// struck notes that a fault has struck.
func (j *judge) struck(f fault) {
	w, a := j.world, &j.presence
	j.settleVoters()
	j.losing(f)
	if j.trees != nil {
		j.trees.struck(f)
	}
	within := silentWithin
	if f.kind == crashes {
		within = goneWithin
	}
	a.changed, a.settled = w.now, false
	a.due = max(a.due, w.now+within)
}

// settlesIn is how long after a change of members all must have agreed.
func (j *judge) settlesIn() time.Duration {
	g := &j.world.plan.gossip
	return g.detect + g.doubt + g.spread + g.settle + copiedWithin
}

// settleVoters counts on those that were there when nothing had changed for long enough.
func (j *judge) settleVoters() {
	w, a := j.world, &j.presence
	switch {
	case a.voters == nil:
		a.voters = make([]bool, len(w.machines))
	case a.settled || w.now < a.changed+j.settlesIn():
		return
	}
	a.settled = true
	a.bereft.settles()
	was := slices.Clone(a.voters)
	for i, m := range w.machines {
		a.voters[i] = m.role == cluster.RoleMember && m.process != nil &&
			(!slices.Contains(was, true) || j.reachesMost(m, was))
	}
	if !slices.Contains(a.voters, true) {
		a.voters = was
	}
}

// reachesMost reports whether m can speak with most of those that are counted on and not gone.
func (j *judge) reachesMost(m *machine, voters []bool) bool {
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

// available checks that an answer is neither degraded nor late, if it has to be.
func (j *judge) available(h *hearing, out []cluster.Decision) {
	w, p, a := j.world, h.process, &j.presence
	slow := 8 * w.network.slowest(p.machine)
	took := w.now - h.began
	late := took > goneWithin+slow && p.machine.thawed < h.began && a.changed < h.began
	degraded := h.isDegraded(out)
	j.allowed.of[anyAnswer]++
	if !j.mustBeWell(h, slow) {
		if degraded || late {
			j.allowed.used[unanswered]++
		}
		return
	}
	j.noteLost()
	a.report.Answers++
	j.checked[ready]++
	degraded = degraded && j.marksTooMuch(h, out, slow)
	switch {
	case degraded:
		a.report.Degraded++
	case late:
		a.report.Late++
	default:
		return
	}
	since := w.now - a.changed
	a.report.LongMS = max(a.report.LongMS, millis(since))
	if w.plan.strict && a.changed < h.began {
		j.fail(ready, "%s, which can speak with most of the others, answers for %s after %v, "+
			"degraded %t, %v after the last fault: %s",
			p.machine.id, keyText(h.request.items[0].Key), took, degraded, since,
			answerText(&out[0]))
	}
}

// mustBeWell reports whether an answer must be neither degraded nor late: its client has patience,
// nothing has failed lately, and its node can speak with most of the others.
func (j *judge) mustBeWell(h *hearing, slow time.Duration) bool {
	w, p, a := j.world, h.process, &j.presence
	r := h.request
	if r.atomic || r.patience < time.Second || w.plan.weather.loss > 0 || w.clear || p.leaving {
		return false
	}
	if h.began < a.due+slow || max(p.began, p.machine.thawed) > h.began-silentWithin {
		return false
	}
	j.settleVoters()
	return j.reachesMost(p.machine, a.voters) && j.reachesMost(p.machine, j.counted())
}

// counted is the machines that are counted on, and those that have come since and can speak with
// most of them: they are members again, so a node that cannot speak with them may be in a minority.
func (j *judge) counted() []bool {
	a := &j.presence
	all := slices.Clone(a.voters)
	for i, m := range j.world.machines {
		all[i] = all[i] || m.role == cluster.RoleMember && m.process != nil &&
			j.reachesMost(m, a.voters)
	}
	return all
}

// isDegraded reports whether one of the decisions was taken under less than the full promise. Those
// on replicated limits always say what they may be off by.
func (h *hearing) isDegraded(out []cluster.Decision) bool {
	for i := range out {
		if out[i].Degraded && h.request.terms[i].account.replica == nil {
			return true
		}
	}
	return false
}
