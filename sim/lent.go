package sim

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Leases, from the side of the node that has them. A node that admits by itself spends
// units that were set aside for it: it must have a lease that has not run out where it was given,
// and all that it has ever spent of a key must be charged by now or still be set aside. A node that
// denies by itself, because of units that others have set aside, must have been denied a moment
// ago.

// lentJudge checks that.
type lentJudge struct {
	*common
	aside *asideJudge
}

// borrowed is what one process has done with leases on a key.
type borrowed struct {
	spent   int64
	charged int64 // by settlements, and by those that ran out
	denials []denial
	once    map[cluster.ID]time.Duration
}

// denial is something that a node was told.
type denial struct {
	cost  int64
	until time.Duration
}

func (h *held) of(p *process) *borrowed {
	b := h.borrowed[p]
	if b == nil {
		b = &borrowed{once: make(map[cluster.ID]time.Duration)}
		h.borrowed[p] = b
	}
	return b
}

// spends checks what p has just decided by itself on a key of a leased limit.
func (j *lentJudge) spends(p *process, a *account, it *cluster.Item, d *cluster.Decision) {
	now, b := j.world.now, a.held.of(p)
	j.checked[lent]++
	if it.ID != (cluster.ID{}) {
		if at, again := b.once[it.ID]; again && now < at+memory+memory/1000 {
			return
		}
		b.once[it.ID] = now
	}
	if d.Source == cluster.SourceDenied {
		for i := range b.denials {
			if x := &b.denials[i]; x.cost <= it.Cost && now <= x.until && !d.Allowed {
				return
			}
		}
		j.fail(lent, "%s denies %d of %s under %s by itself, and nobody has told it so",
			p.machine.id, it.Cost, keyText(a.key), a.spec.Name)
		return
	}
	b.spent += it.Cost
	j.aside.books.report.Spent++
	if !j.mayLend(p, a, b) {
		j.adoptAll(p, a)
	}
	if !j.mayLend(p, a, b) {
		j.fail(lent, "%s spends %d of %s under %s by itself, %d in all; where %d of what was "+
			"lent to it are charged and these are open: %s",
			p.machine.id, it.Cost, keyText(a.key), a.spec.Name, b.spent, b.charged,
			a.held.leasesText(p))
	}
}

// mayLend reports whether p has a lease that has not run out, and has spent no more than was lent
// to it.
func (j *lentJudge) mayLend(p *process, a *account, b *borrowed) bool {
	lasts, units := false, b.charged
	for _, x := range a.held.open {
		if x.node == p {
			units += x.units
			lasts = lasts || j.world.now < x.until+limiter.LeaseTTL/1000
		}
	}
	return lasts && b.spent <= units || j.inDoubt(a)
}

// adoptAll looks for leases that a node gave to itself while it decided on the key: at the node
// that decides now, and at p itself, which may be giving the key away.
func (j *lentJudge) adoptAll(p *process, a *account) {
	for _, m := range j.world.machines {
		if m.process != nil && (m.process == p || m.process.saysItDecides(a.hash)) {
			j.aside.adopts(m.process, a)
		}
	}
}

// hearsDenials notes what a node is told about keys of leased limits of which something is set
// aside.
func (j *lentJudge) hearsDenials(l *letter) {
	answer := l.call.Answer
	for i := range l.ask.Items {
		it := &l.ask.Items[i]
		if it.Limit.Consistency != limiter.Leased || it.Op != cluster.OpTake ||
			i >= len(answer.Items) {
			continue
		}
		got := &answer.Items[i]
		if got.Status != cluster.StatusDone || got.Decision.Allowed ||
			got.Decision.RetryAfter <= 0 || got.Decision.Hold != limiter.HoldInTheWay {
			continue
		}
		a := j.account(it.Limit.Name, it.Key)
		b := a.held.of(l.from)
		kept := b.denials[:0]
		for _, x := range b.denials {
			if x.until > j.world.now {
				kept = append(kept, x)
			}
		}
		b.denials = append(kept, denial{it.Cost, j.world.now + got.Decision.RetryAfter +
			got.Decision.RetryAfter/500})
	}
}

// leasesText is what p has of leases: 8 until 1.5s, 20 until 2.1s.
func (h *held) leasesText(p *process) string {
	var list []string
	for _, x := range h.open {
		if x.node == p {
			list = append(list, fmt.Sprintf("%d until %v", x.units, x.until))
		}
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}
