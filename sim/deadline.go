package sim

import (
	"time"

	"penstock/cluster"
)

// deadlineJudge checks that nothing outlives its deadline.
type deadlineJudge struct{ *common }

// clockGrain is what a deadline may be missed by: a clock that gains skips a nanosecond now and
// then.
const clockGrain = 1

// answers checks that p answers one item of an Ask in time, or says that it is late.
func (j *deadlineJudge) answers(p *process, a *account, late bool, got *cluster.AnswerItem) {
	if late {
		j.checked[inTime]++
	}
	if late != (got.Status == cluster.StatusExpired) {
		j.fail(inTime, "%s answers an ask for %s with status %d; it is %t that its deadline has "+
			"passed", p.machine.id, keyText(a.key), got.Status, late)
	}
}

// visited checks that a node answers a client in time, and reports whether it has.
func (j *deadlineJudge) visited(h *hearing) bool {
	j.checked[inTime]++
	p := h.process
	late := p.now() - h.deadline
	if late <= clockGrain || p.machine.thawed >= h.began {
		return true
	}
	j.fail(inTime, "%s answers a client %v after its deadline", p.machine.id, time.Duration(late))
	return false
}

// settled checks that a call came back in time.
func (j *deadlineJudge) settled(l *letter) {
	j.checked[inTime]++
	p := l.from
	if late := p.now() - l.call.Deadline; late > clockGrain && p.machine.thawed < l.sent {
		j.fail(inTime, "a call of %s to %s comes back %v after its deadline", p.machine.id, l.to.id,
			time.Duration(late))
	}
}
