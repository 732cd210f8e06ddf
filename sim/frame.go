package sim

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"penstock/cluster"
	"penstock/limiter"
)

// frame is the buffer that a peer's message is read into.
type frame struct {
	network *network
	bytes   []byte
	items   []cluster.AskItem
	ask     cluster.Ask

	moved   []byte // of a Move
	entries []limiter.Entry
	move    cluster.Move
}

// read is the ask as the process sees it, and what overwrites that.
func (d *delivery) read() (ask *cluster.Ask, erase func()) {
	l, p := d.letter, d.process
	if p.wire == nil {
		f := p.machine.world.network.frame()
		return f.read(&l.ask, p), f.erase
	}
	ask, erase, err := p.wire.Ask(&l.ask, l.left, p.now())
	if err != nil {
		panic(fmt.Sprintf("sim: an ask of %s to %s cannot be read: %v", l.from.machine.id, l.to.id,
			err))
	}
	return ask, erase
}

// readMove copies what is said about partitions. It has a buffer of its own, which is overwritten
// as well.
func (f *frame) readMove(m *cluster.Move, p *process) *cluster.Move {
	size := 0
	for i := range m.Entries {
		size += len(m.Entries[i].Key) + len(m.Entries[i].State)
	}
	f.move = *m
	f.moved = slices.Grow(f.moved[:0], size)
	f.entries = f.entries[:0]
	for _, e := range m.Entries {
		start := len(f.moved)
		f.moved = append(f.moved, e.Key...)
		state := len(f.moved)
		f.moved = append(f.moved, e.State...)
		e.Key = unsafe.String(unsafe.SliceData(f.moved[start:]), len(e.Key))
		e.State = f.moved[state:]
		e.Limit = p.limit(e.Limit)
		f.entries = append(f.entries, e)
	}
	f.move.Entries = f.entries
	f.move.Holds = slices.Clone(m.Holds)
	for i := range f.move.Holds {
		f.move.Holds[i].Limit = p.limit(m.Holds[i].Limit)
	}
	f.move.Charges = slices.Clone(m.Charges)
	for i := range f.move.Charges {
		f.move.Charges[i].Limit = p.limit(m.Charges[i].Limit)
	}
	return &f.move
}

func (f *frame) erase() {
	blacken(f.bytes)
	blacken(f.moved)
	f.moved = f.moved[:0]
	clear(f.items)
	clear(f.entries)
	if f.ask.Move != nil {
		f.move = cluster.Move{}
	}
	f.ask = cluster.Ask{}
	f.network.frames = append(f.network.frames, f)
}

func blacken(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, black):]
	}
}

var black = strings.Repeat("#", 512)

func (n *network) frame() *frame {
	last := len(n.frames) - 1
	if last < 0 {
		return &frame{network: n}
	}
	f := n.frames[last]
	n.frames = n.frames[:last]
	return f
}

// read copies a into the frame, as the process that it reached sees it.
func (f *frame) read(a *cluster.Ask, p *process) *cluster.Ask {
	size := 0
	for i := range a.Items {
		size += len(a.Items[i].Key)
	}
	f.bytes = slices.Grow(f.bytes[:0], size) // never moves while keys point into it
	f.items = f.items[:0]
	for _, it := range a.Items {
		start := len(f.bytes)
		f.bytes = append(f.bytes, it.Key...)
		it.Key = unsafe.String(unsafe.SliceData(f.bytes[start:]), len(it.Key))
		it.Limit = p.limit(it.Limit)
		if it.Hold != nil {
			terms := *it.Hold
			it.Hold = &terms
		}
		f.items = append(f.items, it)
	}
	f.ask = *a
	f.ask.Items = f.items
	if a.Move != nil {
		f.ask.Move = f.readMove(a.Move, p)
	}
	return &f.ask
}
