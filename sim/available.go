package sim

import (
	"fmt"
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

// availableJudge holds answers to that.
type availableJudge struct {
	*common
	there  *presence
	bereft *bereftJudge
	due    time.Duration // when answers have to be well again
	report AvailableReport
}

func newAvailableJudge(c *common) *availableJudge {
	there := &presence{common: c}
	return &availableJudge{common: c, there: there, bereft: &bereftJudge{common: c, there: there}}
}

// struck notes that a fault has struck.
func (j *availableJudge) struck(f fault) {
	j.settles()
	j.bereft.losing(f)
	within := silentWithin
	if f.kind == crashes && j.there.isSeenGone(j.world.machines[f.node]) {
		within = goneWithin
	}
	j.there.changed, j.there.settled = j.world.now, false
	j.due = max(j.due, j.world.now+within)
}

// settles counts on those that are there, if nothing has changed for long enough.
func (j *availableJudge) settles() {
	if j.there.settle() {
		j.bereft.settles()
	}
}

// available checks that an answer is neither degraded nor late, if it has to be.
func (j *availableJudge) available(h *hearing, out []cluster.Decision) {
	w, p := j.world, h.process
	changed := j.there.changed
	slow := 8 * w.network.slowest(p.machine)
	took := w.now - h.began
	late := took > goneWithin+slow && p.machine.thawed < h.began && changed < h.began
	degraded := h.isDegraded(out)
	j.allowed.of[anyAnswer]++
	if !j.mustBeWell(h, slow) {
		if degraded || late {
			j.allowed.used[unanswered]++
		}
		return
	}
	j.bereft.noteLost()
	j.report.Answers++
	j.checked[ready]++
	degraded = degraded && j.marksTooMuch(h, out, slow)
	switch {
	case degraded:
		j.report.Degraded++
	case late:
		j.report.Late++
	default:
		return
	}
	since := w.now - changed
	j.report.LongMS = max(j.report.LongMS, millis(since))
	if w.plan.strict && changed < h.began {
		j.fail(ready, "%s, which can speak with most of the others, answers for %s after %v, "+
			"degraded %t, %v after the last fault: %s",
			p.machine.id, keyText(h.request.items[0].Key), took, degraded, since,
			answerText(&out[0]))
	}
}

// mustBeWell reports whether an answer must be neither degraded nor late: its client has patience,
// nothing has failed lately, and its node can speak with most of the others.
func (j *availableJudge) mustBeWell(h *hearing, slow time.Duration) bool {
	w, p := j.world, h.process
	r := h.request
	if r.atomic || r.patience < time.Second || w.plan.weather.loss > 0 || w.clear || p.leaving {
		return false
	}
	if h.began < j.due+slow || max(p.began, p.machine.thawed) > h.began-silentWithin {
		return false
	}
	j.settles()
	there, m := j.there, p.machine
	return there.reachesMost(m, there.voters) && there.reachesMost(m, there.counted())
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

// marksTooMuch reports whether an answer is degraded where bereftJudge does not allow it, and
// counts where it does.
func (j *availableJudge) marksTooMuch(h *hearing, out []cluster.Decision,
	slow time.Duration,
) (too bool) {
	for i := range out {
		d, account := &out[i], h.request.terms[i].account
		switch {
		case !d.Degraded || account.replica != nil:
		case j.bereft.allows(h, account, d, slow):
			j.report.Bereft++
		case j.bereft.parted(account, d): // counted at its decision (bothOfPair)
		default:
			too = true
		}
	}
	return too
}
