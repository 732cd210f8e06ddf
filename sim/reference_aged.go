package sim

import (
	"time"

	"penstock/cluster"
)

// A copy says how old it is when it is sent, and ages by its way at the member that takes it in.
// Nobody can know how long it has lain at the door of a machine that stood still: its counters are
// as young there as they were when it was sent. The member that was stopped may decide by them
// (carrier.bring), and so may each to which it gives or lends them afterwards. Units that had run
// out long ago may count once more with all of these: they may deny too early for a window, and
// never admit more.

// ages notes to which process a message of from has brought counters that had lain at the door of a
// machine while it stood still: of p, or of one from which they have come since.
func (j *carrier) ages(from, p *process, m *cluster.Move) {
	if j.world.plan.sky == calm {
		return
	}
	for i := range m.Entries {
		a := j.accounts[m.Entries[i].Limit.Name][m.Entries[i].Key]
		if a == nil {
			continue
		}
		read, aged := a.aged[from]
		if j.world.now == p.machine.thawed {
			read, aged = j.world.now, true
		}
		if !aged || !j.isAged(a, read) {
			continue
		}
		if a.aged == nil {
			a.aged = make(map[*process]time.Duration)
		}
		a.aged[p] = max(a.aged[p], read)
		if r := &a.reference; r.by == p {
			r.goBlind(p, j.world.now, forgets(a.spec))
		}
	}
}

// hasAged reports whether what p counts of a may be younger there than it is.
func (j *carrier) hasAged(a *account, p *process) bool {
	read, aged := a.aged[p]
	return aged && j.isAged(a, read) || p.machine.thawed >= 0 && j.isAged(a, p.machine.thawed)
}

// isAged reports whether what was read then, by a machine that had stood still, may count still.
func (j *carrier) isAged(a *account, read time.Duration) bool {
	return j.world.now < read+longCarriage+forgets(a.spec)
}
