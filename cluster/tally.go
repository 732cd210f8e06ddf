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
	OutcomeShadow  // allowed although the limit refuses: dry_run, or on_deny: shadow
	OutcomeTagged  // allowed and marked, for the limit refuses: on_deny: tag
	OutcomeTier    // the same: on_deny: deprioritize
	OutcomeDelayed // allowed, and its caller has to wait first: on_deny: delay, leaky_bucket
	ofOutcomes
)

func (o Outcome) String() string {
	return [ofOutcomes]string{
		"allowed", "denied", "shadow", "tagged", "deprioritized", "delayed",
	}[o]
}

// Reason says why an answer was degraded.
type Reason uint8

const (
	ReasonUnreachable Reason = iota // no owner has answered: on_error decided
	ReasonPartition                 // this node is cut off from most members: on_partition decided
	// this node decided, and another node may decide for the key as well
	ReasonContested
	ReasonUnreplicated // this node decided, and no other node has confirmed its copy
	// this node decided, and all nodes that had the counters before were gone at once
	ReasonForgotten
	ReasonOwner // the owner has marked its answer as degraded
	ofReasons
)

func (r Reason) String() string {
	return [ofReasons]string{
		"unreachable", "partition", "contested", "unreplicated", "forgotten",
		"owner",
	}[r]
}

// The cells of a tally: checks by outcome and source, other answers, and why some were degraded.
const (
	ofSources  = int(SourceDenied) + 1
	checkCells = int(ofOutcomes) * ofSources
	yesCell    = checkCells     // a reset, a settlement or an extension was done
	noCell     = checkCells + 1 // or not
	peekCell   = checkCells + 2
	reasonCell = checkCells + 3
	tallyCells = reasonCell + int(ofReasons)
)

// A tally counts the answers under one limit. One line in memory would go from processor to
// processor with each check, as long as all else takes; so there are several, and a goroutine,
// which mostly stays where it is, goes by where its stack lies.
type tally struct {
	stripes [4]struct {
		cells [tallyCells]atomic.Uint64
		_     [64 - tallyCells*8%64]byte
	}
	apart bool // of a candidate: in no sum
}

// stackBits is the smallest stack, as a power of two: two goroutines differ in what is above.
const stackBits = 11

func (t *tally) add(cell int, n uint64) {
	var here byte
	t.stripes[uintptr(unsafe.Pointer(&here))>>stackBits%uintptr(len(t.stripes))].cells[cell].Add(n)
}

// sum is what one cell has counted.
func (t *tally) sum(cell int) (n uint64) {
	for s := range t.stripes {
		n += t.stripes[s].cells[cell].Load()
	}
	return n
}

// limitInForce is a named limit beside the tally of its answers.
type limitInForce struct {
	limit *limiter.Limit
	tally *tally
	above *ancestry // nil: it has no parent
}

// tallyLocked puts limits in force beside their tallies. A limit that stays keeps its tally; what
// one that goes has counted stays in the sums. An answer under it that is on its way is in none.
func (c *catalog) tallyLocked(all Limits) {
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	old := *c.inForce.Load()
	inForce := make(map[string]limitInForce, len(all))
	for name, l := range all {
		t := old[name].tally
		if t == nil || t.apart {
			t = new(tally)
		}
		inForce[name] = limitInForce{limit: l, tally: t}
	}
	growTrees(inForce)
	c.counts.candidates.keepLocked(all, inForce)
	c.inForce.Store(&inForce)
	for name, x := range old {
		if all[name] != nil || x.tally.apart {
			continue
		}
		for cell := range tallyCells {
			c.counts.gone.add(cell, x.tally.sum(cell))
		}
	}
}

// answers adds up a cell of all tallies.
func (s *Stats) answers(cell int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.other.sum(cell) + s.gone.sum(cell)
	for _, x := range *s.inForce.Load() {
		if x.tally.apart {
			continue
		}
		sum += x.tally.sum(cell)
	}
	return sum
}

// checks adds up the checks of an outcome.
func (s *Stats) checks(o Outcome) (sum uint64) {
	for source := range ofSources {
		sum += s.answers(int(o)*ofSources + source)
	}
	return sum
}

// Allowed is how many items were answered yes at this node's client doors.
func (s *Stats) Allowed() uint64 {
	return s.checks(OutcomeAllowed) + s.checks(OutcomeDelayed) + s.Beyond() + s.answers(yesCell)
}

// Denied is how many items were answered no.
func (s *Stats) Denied() uint64 { return s.checks(OutcomeDenied) + s.answers(noCell) }

// Peeks is how many items were answered without charging anything, yes or no: they are counted
// neither as allowed nor as denied.
func (s *Stats) Peeks() uint64 { return s.answers(peekCell) }

// Shadowed is how many items were answered yes although the limit refuses (dry_run, on_deny:
// shadow).
func (s *Stats) Shadowed() uint64 { return s.checks(OutcomeShadow) }

// Beyond is how many items were answered yes although the limit refuses: in shadow, tagged, or in a
// lower tier.
func (s *Stats) Beyond() uint64 {
	return s.checks(OutcomeShadow) + s.checks(OutcomeTagged) + s.checks(OutcomeTier)
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

// cellOf is where the answer to it is counted.
func (it *flight) cellOf(d *Decision, checked bool) int {
	outcome := OutcomeAllowed
	switch {
	case it.peeks():
		return peekCell
	case !checked && d.Allowed:
		return yesCell
	case !checked:
		return noCell
	case d.Shadow:
		outcome = OutcomeShadow
	case d.Over && d.Rule.OnDeny == limiter.DenyTag:
		outcome = OutcomeTagged
	case d.Over:
		outcome = OutcomeTier
	case !d.Allowed:
		outcome = OutcomeDenied
	case d.Delay > 0:
		outcome = OutcomeDelayed
	}
	return int(outcome)*ofSources + int(d.Source)
}

// tallyOf is where the answers to it are counted. Limits that requests bring along share one tally.
func (s *Stats) tallyOf(it *flight) *tally {
	if it.tally == nil {
		return &s.other
	}
	return it.tally
}

// reasonOf says why d is degraded.
func (ps *partitions) reasonOf(now limiter.Instant, it *flight, d *Decision) Reason {
	switch {
	case d.Source == SourceFallback && ps.right.minority.Load():
		return ReasonPartition
	case d.Source == SourceFallback:
		return ReasonUnreachable
	case d.Source != SourceOwner:
		return ReasonOwner
	case ps.right.marked.Load():
		return ReasonContested
	case ps.forgetful(now, it):
		return ReasonForgotten
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
func (c *catalog) LimitTallies() map[string]LimitTally {
	sums := make(map[string]LimitTally)
	add := func(name string, t *tally) {
		name = strings.ToValidUTF8(name, "\uFFFD")
		sum := sums[name]
		for i := range checkCells {
			sum.Checks[i/ofSources][i%ofSources] += t.sum(i)
		}
		for i := range sum.Degraded {
			sum.Degraded[i] += t.sum(reasonCell + i)
		}
		sums[name] = sum
	}
	add(OtherLimits, &c.counts.other)
	for name, x := range *c.inForce.Load() {
		if !x.tally.apart {
			add(name, x.tally)
		}
	}
	return sums
}
