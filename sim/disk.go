package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Machines with a disk. What a node knows it writes down every few seconds and when it has said
// goodbye, and what is written there when it starts it takes over as a copy (cluster.Node.Restore),
// as penstock with --data-dir does. The same functions work: Table.Save and Ledger.Each here,
// Restore there. What the program adds, the bytes of the file, is not played.

// file is what a node has written down.
type file struct {
	entries []limiter.Entry
	holds   []cluster.HoldCopy
	head    cluster.FileHead
	named   []string        // the others of it, for the judge: tests may change the head
	shown   limiter.Instant // by the machine's clock when it was written
	written time.Duration   // since the world began
	of      map[*account]bool
}

// keepSaving has p write its file again and again.
func (p *process) keepSaving() {
	w := p.machine.world
	w.at(w.now+w.plan.saveEvery, func() {
		if p.dead || w.resting {
			return
		}
		p.do(func() {
			p.save()
			p.keepSaving()
		})
	})
}

// save writes p's file, unless nothing has changed since the last time.
func (p *process) save() {
	changes, head := p.node.Stats().Changes(), p.node.FileHead()
	if f := p.machine.disk; f != nil && changes == p.saved && head.Same(&f.head) {
		return
	}
	p.saved = changes
	w, now := p.machine.world, p.now()
	f := &file{
		head: head, named: head.Others, shown: p.machine.clock.at(w.now), written: w.now,
		of: w.judge.carrier.disk.decidedBy(p),
	}
	p.node.Book().Each(func(uint64) bool { return true }, func(_ uint64, h limiter.Hold) {
		f.holds = append(f.holds, cluster.HoldCopy{Hold: h, Left: time.Duration(h.Deadline - now)})
	})
	table := p.node.Table()
	for i := range table.Parts() {
		f.entries = append(f.entries, table.Save(now, i)...)
	}
	p.machine.disk = f
	w.faults.Saves++
}

// restore has p know what its machine's file says.
func (p *process) restore() {
	m := p.machine
	f, killed := m.disk, m.running
	m.running = true
	if f == nil {
		if killed {
			p.node.Resume(0, cluster.FileHead{Partial: true})
		}
		return
	}
	entries, holds := slices.Clone(f.entries), slices.Clone(f.holds)
	for i := range entries {
		entries[i].Limit = p.limit(entries[i].Limit)
	}
	for i := range holds {
		holds[i].Limit = p.limit(holds[i].Limit)
	}
	w := m.world
	p.restored = f
	head := f.head
	head.Partial = killed
	age := time.Duration(m.clock.at(w.now) - f.shown)
	p.node.Resume(age, head)
	if p.node.Restore(age, entries, holds) > 0 {
		w.faults.Restored++
		w.judge.carrier.disk.comesBack(f)
	}
}

// goesDown notes that a node is not there any more.
func (w *world) goesDown() {
	w.wentDown = w.now
	if !slices.ContainsFunc(w.machines, func(m *machine) bool { return m.process != nil }) {
		w.allDown = w.now
	}
}
