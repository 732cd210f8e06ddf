package cluster

import (
	"strings"
	"sync/atomic"
	"unsafe"

	"penstock/limiter"
)

// Outcome is what a check was told.
type Outcome uint8

const (
	OutcomeAllowed Outcome = iota
	OutcomeDenied
	OutcomeShadow // allowed although the limit refuses: dry_run, or on_deny: shadow
	ofOutcomes
)

func (o Outcome) String() string {
	return [ofOutcomes]string{"allowed", "denied", "shadow"}[o]
}

// Reason says why an answer was degraded.
type Reason uint8

const (
	ReasonUnreachable  Reason = iota // no owner has answered: on_error decided
	ReasonPartition                  // this node is cut off from most members: on_partition decided
	ReasonContested                  // this node decided, and another node may decide for the key as well
	ReasonUnreplicated               // this node decided, and no other node has confirmed its copy
	ReasonOwner                      // the owner has marked its answer as degraded
	ofReasons
)

func (r Reason) String() string {
	return [ofReasons]string{"unreachable", "partition", "contested", "unreplicated", "owner"}[r]
}

const (
	ofSources  = int(SourceDenied) + 1
	checkCells = int(ofOutcomes) * ofSources // cells of a tally for checks; those for degraded answers follow
	tallyCells = checkCells + int(ofReasons)
)

// A tally counts the answers under one limit. It is striped like Count, and for the same reason.
type tally struct {
	stripes [4]struct {
		cells [tallyCells]atomic.Uint64
		_     [64 - tallyCells*8%64]byte
	}
}

func (t *tally) add(cell int, n uint64) {
	var here byte
	t.stripes[uintptr(unsafe.Pointer(&here))>>stackBits%uintptr(len(t.stripes))].cells[cell].Add(n)
}

// limitInForce is a named limit beside the tally of its answers.
type limitInForce struct {
	limit *limiter.Limit
	tally *tally
}

// tallyLocked puts limits in force beside their tallies. A limit that stays keeps its tally.
func (n *Node) tallyLocked(all Limits) {
	old := *n.inForce.Load()
	inForce := make(map[string]limitInForce, len(all))
	for name, l := range all {
		t := old[name].tally
		if t == nil {
			t = new(tally)
		}
		inForce[name] = limitInForce{l, t}
	}
	n.inForce.Store(&inForce)
}

// A tallyRun gathers equal answers of one request, so that a batch under one limit is added once.
type tallyRun struct {
	tally *tally
	cell  int
	n     uint64
}

func (r *tallyRun) add(t *tally, cell int) {
	if t != r.tally || cell != r.cell {
		r.flush()
		*r = tallyRun{tally: t, cell: cell}
	}
	r.n++
}

func (r *tallyRun) flush() {
	if r.n > 0 {
		r.tally.add(r.cell, r.n)
	}
}

// tallyOf is where the answers to it are counted. Limits that requests bring along share one tally.
func (n *Node) tallyOf(it *Item) *tally {
	if it.tally == nil {
		return &n.otherLimits
	}
	return it.tally
}

// reasonOf says why d is degraded.
func (n *Node) reasonOf(d *Decision) Reason {
	switch {
	case d.Source == SourceFallback && n.minority.Load():
		return ReasonPartition
	case d.Source == SourceFallback:
		return ReasonUnreachable
	case d.Source != SourceOwner:
		return ReasonOwner
	case n.tied.Load():
		return ReasonContested
	}
	return ReasonUnreplicated
}

// OtherLimits is the name under which the limits are counted that are not in force by a name.
const OtherLimits = "other"

// LimitTally is how often checks under a limit were answered since it has been in force.
type LimitTally struct {
	Checks   [ofOutcomes][ofSources]uint64 // takes and reservations, by Outcome and Source
	Degraded [ofReasons]uint64             // answers of all kinds
}

// LimitTallies are the tallies of the limits in force, by their names, and OtherLimits. Names are
// made valid UTF-8, and limits that then have the same name are counted together.
func (n *Node) LimitTallies() map[string]LimitTally {
	sums := make(map[string]LimitTally)
	add := func(name string, t *tally) {
		name = strings.ToValidUTF8(name, "\uFFFD")
		sum := sums[name]
		for s := range t.stripes {
			for i := range t.stripes[s].cells {
				v := t.stripes[s].cells[i].Load()
				if i < checkCells {
					sum.Checks[i/ofSources][i%ofSources] += v
				} else {
					sum.Degraded[i-checkCells] += v
				}
			}
		}
		sums[name] = sum
	}
	add(OtherLimits, &n.otherLimits)
	for name, l := range *n.inForce.Load() {
		add(name, l.tally)
	}
	return sums
}
