package sim

import (
	"slices"
	"time"
)

// Which faults strike at once: before members have settled, a holder and its heir may both fail.

// together reports whether several failed at once when m stopped last, or since some time.
func (j *countedJudge) together(m *machine, since time.Duration) bool {
	return j.atOnce(m) || j.severalSince(since)
}

// atOnce reports whether something else than m has failed, or come back, and the members cannot
// have settled since: so more than one may have failed that had the same key.
func (j *countedJudge) atOnce(m *machine) bool {
	w := j.world
	since := w.failedLast(m) - w.plan.settlesIn()
	return slices.ContainsFunc(w.plan.faults, func(f fault) bool {
		return f.at <= w.now && f.at > since && !graceful(f.kind) &&
			(f.node != m.index || f.kind == cuts || f.kind == mends)
	})
}

// severalSince reports whether members have failed at once since then. A key of which nobody has
// asked since may have been lost with its holder and its heir, whichever these were.
func (j *countedJudge) severalSince(since time.Duration) bool {
	w := j.world
	var last *fault
	for i := range w.plan.faults {
		f := &w.plan.faults[i]
		if f.at <= since || f.at > w.now || graceful(f.kind) {
			continue
		}
		if last != nil && f.at-last.at <= w.plan.settlesIn() &&
			(f.node != last.node || f.kind == cuts) {
			return true
		}
		last = f
	}
	return false
}

// failedLast is when m has stopped last; now, if it never has.
func (w *world) failedLast(m *machine) time.Duration {
	at := w.now
	for _, f := range w.plan.faults {
		if f.at <= w.now && f.node == m.index && stops(f.kind) {
			at = f.at
		}
	}
	return at
}
