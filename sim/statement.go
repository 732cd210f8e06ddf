package sim

import (
	"cmp"
	"slices"
	"strings"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// statement is what a node says of itself. Its process writes it down after each step of the node,
// as a part of what happens in the world. Judges read what was written, and ask no node anything:
// so a judge can neither wake a node nor know more than it has said.
type statement struct {
	partitions [(ring.Partitions + 63) / 64]uint64 // that it decides for, one bit each
	shifted    uint64                              // how often one of them has changed
	held       int                                 // partitions, with those that it gives away
	begun      uint64                              // how often it has claimed or got a partition
	fenced     uint64                              // how often it has let go of all partitions
	agreed     *ownership.Configuration            // that it is a member of; nil: none
	without    []string                            // ids of members that were evicted beside it
	// how often it has come to count on more or fewer members than before
	resized uint64
	view    *cluster.View
	// when its right to decide ends, by its clock, if nothing renews it
	until  limiter.Instant
	ledger ledgerStatement
}

// states writes down what the node of p says of itself now.
func (p *process) states() {
	s, n := &p.stated, p.node
	stats := n.Stats()
	s.view, s.held = n.View(), n.Held()
	s.agrees(n.Agreed())
	s.until = n.Membership().Until()
	s.begun = stats.Claimed.Load() + stats.Received.Load()
	if fenced := stats.Fenced.Load(); fenced != s.fenced {
		p.machine.world.judge.fenced(p)
		s.fenced = fenced
	}
	shifted := stats.Shifted.Load()
	if shifted != s.shifted {
		s.shifted = shifted
		for k := range ring.Partitions {
			s.put(k, n.HoldsPartition(k))
		}
	} else if n.Book().Changes() == s.ledger.changes {
		return
	}
	s.ledger.write(p)
}

// agrees notes the configuration that the node is a member of.
func (s *statement) agrees(config *ownership.Configuration) {
	last := s.agreed
	if s.agreed = config; last == config {
		return
	}
	if countedOn(last) != countedOn(config) {
		s.resized++
	}
	if last == nil || config == nil {
		return
	}
	for _, m := range last.Members {
		if m.Role != ownership.RoleLeaving && !config.Has(m.Boot) {
			s.without = append(s.without, m.ID)
		}
	}
}

func (s *statement) put(partition int, holds bool) {
	bit := uint64(1) << (partition % 64)
	if s.partitions[partition/64] &^= bit; holds {
		s.partitions[partition/64] |= bit
	}
}

// decidesFor reports whether the node holds the keys of a partition.
func (s *statement) decidesFor(partition int) bool {
	return s.partitions[partition/64]>>(partition%64)&1 != 0
}

// saysItDecides reports whether p has said that it decides now for the key with this hash.
func (p *process) saysItDecides(hash uint64) bool {
	return p.stated.decidesFor(p.machine.world.plan.partition(hash)) && p.Now() < p.stated.until
}

// ledgerStatement is what a node says of holds.
type ledgerStatement struct {
	changes uint64 // of the ledger
	holds   map[limiter.HoldID]statedHold
	before  map[limiter.HoldID]statedHold // the map of the last time, to be used again
}

// statedHold is a hold that is open, or that has ended a while ago.
type statedHold struct {
	limiter.Hold
	// left says, of a hold that has ended, that it was read what its key had left: at its end, or
	// when the node began to decide for the key.
	left      bool
	exhausted bool // that was nothing
}

// write writes down all holds of p's node.
func (l *ledgerStatement) write(p *process) {
	book := p.node.Book()
	l.changes = book.Changes()
	l.holds, l.before = l.before, l.holds
	if clear(l.holds); l.holds == nil {
		l.holds = make(map[limiter.HoldID]statedHold)
	}
	book.Each(func(uint64) bool { return true }, func(hash uint64, h limiter.Hold) {
		x := statedHold{Hold: h}
		if before := l.before[h.ID]; before.left {
			x.left, x.exhausted = true, before.exhausted
		} else if h.State != limiter.HoldOpen && p.saysItDecides(hash) {
			d := p.node.Table().Peek(p.now(), h.Limit, h.Key, hash, 0)
			x.left, x.exhausted = true, d.Remaining == 0
		}
		l.holds[h.ID] = x
	})
}

// get is the hold of that id, if the node has one.
func (l *ledgerStatement) get(id cluster.ID) (h statedHold, found bool) {
	h, found = l.holds[limiter.HoldID(id)]
	return h, found
}

// open are the open holds on a key under the limit of that name, those that run out first in front.
func (l *ledgerStatement) open(limit, key string) (list []statedHold) {
	for _, h := range l.holds {
		if h.State == limiter.HoldOpen && h.Key == key && h.Limit.Name == limit {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(x, y statedHold) int {
		return cmp.Or(cmp.Compare(x.Deadline, y.Deadline),
			cmp.Compare(x.ID.Sequence, y.ID.Sequence))
	})
	return list
}

// counter is what a table has of one key.
type counter struct {
	limit, key string
	decision   limiter.Decision
}

// takeStock writes down all that the table of p has. Nodes say it when the world has come to rest.
func (p *process) takeStock() {
	p.counters = p.counters[:0]
	p.node.Table().Each(p.now(), func(
		l *limiter.Limit, key string, _ []int64, d limiter.Decision,
	) bool {
		p.counters = append(p.counters, counter{l.Name, strings.Clone(key), d})
		return true
	})
}
