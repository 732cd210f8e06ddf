package sim

import (
	"slices"
	"time"

	"penstock/cluster"
)

// Denials that a node remembers (cluster/local.go). A denial by the node itself is held to this:
//
//   - It was told: the owner has denied that cost (another one has another wait) and has promised
//     to say when that ends; the denial was asked for no more than a second ago, and is not over.
//   - A take that was granted is not denied when it is asked for again, within the time in which
//     its owner would know.
//   - One limiter that follows all decisions would deny now. Only while something is being given
//     back may the node be behind: a refund or a reset is answered when all that remember a denial
//     have been told, so it counts from its answer on, and not from when it was decided. Where
//     messages get lost, or machines fail, a node may not have been told, and only the second
//     point holds.

// deniedJudge checks that.
type deniedJudge struct {
	*common
	once *onceJudge
}

// toldDenial is a denial of which a node was promised to hear when it ends.
type toldDenial struct {
	cost        int64
	sent, until time.Duration
}

// rememberedFor is how long a denial is good for, and what a clock may lose meanwhile.
const rememberedFor = time.Second + time.Second/500

// hearsTold notes what a node is told together with a promise.
func (j *deniedJudge) hearsTold(l *letter) {
	for i := range l.call.Answer.Items {
		got := &l.call.Answer.Items[i]
		if !got.Told {
			continue
		}
		it := &l.ask.Items[i]
		a := j.account(it.Limit.Name, it.Key)
		if got.Decision.Allowed || got.Decision.RetryAfter <= 0 || !it.Tell ||
			it.Op != cluster.OpTake || got.Status != cluster.StatusDone {
			j.fail(honest, "%s promises %s to say when something ends that is no denial: %s",
				l.to.id, l.from.machine.id, decisionText(got.Decision))
			return
		}
		if a.told == nil {
			a.told = make(map[*process][]toldDenial)
		}
		list := slices.DeleteFunc(a.told[l.from], func(x toldDenial) bool {
			return j.world.now > x.sent+rememberedFor
		})
		retry := got.Decision.RetryAfter
		a.told[l.from] = append(list, toldDenial{it.Cost, l.sent, j.world.now + retry + retry/500})
	}
}

// wasTold reports whether an owner has told p that cost is denied, and would tell p if that had
// ended.
func (j *deniedJudge) wasTold(p *process, a *account, cost int64) bool {
	return slices.ContainsFunc(a.told[p], func(x toldDenial) bool {
		return x.cost == cost && j.world.now <= min(x.until, x.sent+rememberedFor)
	})
}

// observeDenial checks what a node has denied by itself of the i-th item of a visit, and reports
// whether it has.
func (j *deniedJudge) observeDenial(h *hearing, i int) bool {
	p, d, it := h.process, &h.out[i], &h.items[i]
	a := h.request.terms[i].account
	if h.decided[i] || d.Owner == "" || d.Source != cluster.SourceDenied || a.held != nil &&
		!j.wasTold(p, a, it.Cost) {
		return false
	}
	h.decided[i] = true
	j.remembersDenial(p, a, it, d)
	return true
}

// remembersDenial checks that p was told of the denial that it has given by itself, and that the
// denial is still right.
func (j *deniedJudge) remembersDenial(p *process, a *account, it *cluster.Item,
	d *cluster.Decision,
) {
	j.checked[honest]++
	j.requests.Remembered++
	switch {
	case d.Allowed || d.Degraded || it.Op != cluster.OpTake || it.Cost <= 0:
		j.fail(honest, "%s answers %s of %s under %s by itself: %s", p.machine.id,
			opText(it.Op, it.Cost), keyText(a.key), a.spec.Name, answerText(d))
		return
	case !j.wasTold(p, a, it.Cost):
		j.fail(honest, "%s denies %d of %s under %s by itself, and nobody has told it so",
			p.machine.id, it.Cost, keyText(a.key), a.spec.Name)
		return
	}
	if j.world.plan.sky != calm {
		j.denial(false) // it may outlive what was given back, by no longer than wasTold looks back
		return
	}
	if known := j.once.letIn(it.ID); known != nil {
		j.fail(once, "%s denies take %s by itself, which %s has let in", p.machine.id,
			idText(it.ID), known.by.machine.id)
		return
	}
	if j.maySayNo(a) {
		j.denial(true)
		return
	}
	j.denial(false)
	j.denialHolds(p, a, it, d)
}

// maySayNo reports whether too little is known of what is left of a to call a denial wrong.
func (j *deniedJudge) maySayNo(a *account) bool {
	r := &a.reference
	return a.giving > 0 || j.world.now < a.gaveBy || r.by == nil || r.isBlind() || r.isHeld() ||
		r.fresh() || a.held != nil && j.inDoubt(a)
}

// denialHolds checks that the reference would deny now what p denies.
func (j *deniedJudge) denialHolds(p *process, a *account, it *cluster.Item, d *cluster.Decision) {
	j.checked[useful]++
	r := &a.reference
	strict := r.strictest()
	at, aside := r.by.now(), int64(0) // which counts as spent
	if a.held != nil {
		_, aside = a.held.sums()
	}
	if fits(strict, at, a.spec, it.Cost+aside) {
		j.fail(useful, "%s remembers a denial of %d of %s under %s:\n  %s\nwhere a naive limiter "+
			"that follows all decisions on it says:\n  %s",
			p.machine.id, it.Cost, keyText(a.key), a.spec.Name, decisionText(d.Decision),
			decisionText(strict.peek(at, a.spec, it.Cost)))
	}
}

// gives notes that a visit may give something back, from now until it is answered.
func (j *deniedJudge) gives(h *hearing) {
	for i := range h.request.terms {
		if a := h.request.terms[i].account; a.givesBack(&h.items[i]) > 0 {
			a.giving++
		}
	}
}

// gave notes that a visit is answered. What several owners have a part in is given back a little
// later; and so it may be where nobody has answered the node.
func (j *deniedJudge) gave(h *hearing, out []cluster.Decision, err error) {
	for i := range h.request.terms {
		a := h.request.terms[i].account
		if a.givesBack(&h.items[i]) <= 0 {
			continue
		}
		if a.giving--; err != nil || h.spread || out[i].Degraded {
			a.gaveBy = j.world.now + longCarriage
		}
	}
}
