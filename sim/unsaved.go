package sim

import (
	"slices"
	"time"

	"penstock/limiter"
)

// What a file says is not lost: a node that starts with one knows what was charged before it was
// written, and may be short of what came later.

// diskJudge says what that may be.
type diskJudge struct {
	*common
	backBy time.Duration // when all that was restored from files must have been returned
}

// decidedBy are the accounts of which p knows all that was charged: those that it holds, and that
// it was the last to decide on.
func (j *diskJudge) decidedBy(p *process) map[*account]bool {
	of := make(map[*account]bool)
	for _, a := range j.order {
		if a.reference.by == p && p.saysItDecides(a.hash) {
			of[a] = true
		}
	}
	return of
}

// comesBack notes that somebody has started from f. What was charged by then, and given back since,
// may count again wherever the copy gets; and clocks lay windows anew. Nobody sees when it gets
// there, so until then nothing is said to be due to clients; that no more is admitted than may be
// is judged as ever.
func (j *diskJudge) comesBack(f *file) {
	w := j.world
	until := w.now
	if n := len(w.plan.faults); n > 0 {
		until = max(until, w.plan.faults[n-1].at)
	}
	until += 3 * longCarriage
	if len(w.machines) > 1 {
		j.backBy = max(j.backBy, until)
	}
	for _, a := range j.order {
		r := &a.reference
		back := slices.ContainsFunc(r.past, func(x charged) bool {
			return x.cost < 0 && x.at >= f.written
		})
		outlived := r.by != nil && r.by.machine.process == r.by && r.by.began < f.written
		if r.by != nil && !outlived && (back || len(w.machines) > 1) {
			r.goBlind(r.by, until, forgets(a.spec))
		}
	}
}

// unsaved is how much p, which goes on after before, may not know because the file that it goes by
// is short of it: what was charged since the file was written. It is at most a capacity. It is a
// whole one where p may have lost what it had from its file, or others know better than the judge:
// if refusals have a price, if another node than the writer of the file decided on the key, if p
// has been given the key's partition, or if any node has gone down since p began.
func (j *diskJudge) unsaved(a *account, before, p *process) int64 {
	f, r := p.restored, &a.reference
	if f != nil && !f.of[a] && j.waitsForDisk(p, before.machine, a) {
		f = before.machine.disk
		if q := before.machine.process; q != nil {
			f = q.restored
		}
	}
	if f == nil || !j.fileTells(f, a, p) {
		return capacityOf(a.spec)
	}
	var since int64
	for _, x := range r.past {
		if x.at >= f.written { // at the same instant, before or after
			since += max(0, x.cost)
		}
	}
	for _, x := range r.debts { // they are charged like all else, and no decision
		if x.at >= f.written {
			since += x.cost
		}
	}
	since += r.ownDebts(before, f.written)
	return min(since, capacityOf(a.spec))
}

// fileTells reports whether p can be short of no more than what was charged since it, or the node
// that p must wait for, wrote f.
func (j *diskJudge) fileTells(f *file, a *account, p *process) bool {
	r := &a.reference
	if j.world.wentDown >= p.began || refusalsCount(a.spec) || r.cut >= f.written || !j.owns(p, a) {
		return false
	}
	return f.of[a] || r.cut == 0 && !slices.ContainsFunc(r.past, func(x charged) bool {
		return x.at < f.written
	})
}

// goesByFile reports whether p has a's key from what its file says, and has not been given it.
func (j *common) goesByFile(p *process, a *account) bool {
	return p.restored != nil && j.gifts[j.world.plan.partition(a.hash)] < p.began
}

// hidesLoss reports whether a may be short of a charge that no sum shows yet: what was given back
// counts again in its place, by a file from before that, until it runs out. And of the window
// before a sliding window counts a part, in whole units.
func (a *account) hidesLoss() bool {
	switch a.spec.Algorithm {
	case limiter.SlidingWindow:
		return true
	case limiter.SlidingCounter, limiter.SlidingLog:
		return slices.ContainsFunc(a.reference.past, func(x charged) bool { return x.cost < 0 })
	}
	return false
}

// waitsForDisk reports whether p must know what another machine has written down before it decides
// on a: all nodes were down, that one is named by p's own file, and it came back so early, and with
// nothing in the way since, that p has heard of it before it gave up. (Else p must not decide yet,
// if it has not waited for so long.) And no node, which may have known less, has given p the
// partition. Nor have they met, and p has gone on since without that one, which may have been cut
// off before it could tell, as each half of a pair does: then p must say that it may have
// forgotten.
func (j *diskJudge) waitsForDisk(p *process, m *machine, a *account) bool {
	w := j.world
	if w.allDown != w.wentDown || j.gifts[w.plan.partition(a.hash)] >= p.began ||
		m == p.machine || !slices.Contains(p.restored.named, m.id) ||
		a.marked == w.now && slices.Contains(p.stated.without, m.id) {
		return false
	}
	if w.now < p.began+awaitLasts {
		return true
	}
	disturbed := w.plan.weather.loss > 0 || slices.ContainsFunc(w.plan.faults, func(f fault) bool {
		return f.at >= w.allDown-w.plan.gossip.spread && f.at <= w.now && f.kind != boots
	})
	return !disturbed && m.process != nil &&
		m.process.began+w.plan.gossip.spread+time.Second < p.began+awaitLasts
}

// awaitLasts is how long a node waits for those that its file names, and a little less: by a clock
// that gains.
const awaitLasts = 10*time.Second - 10*time.Millisecond

// owns reports whether a's key belongs to p by its View: then nobody else is sent what it was
// started with.
func (j *diskJudge) owns(p *process, a *account) bool {
	return j.ownerIn(p.stated.view, a) == p.machine.id
}
