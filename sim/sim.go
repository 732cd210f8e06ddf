// Package sim runs the cluster in an imagined world. Follow one seed:
//
//  1. draw makes a plan of it: how many machines there are and how wrong their clocks go, how long
//     messages take and how many get lost or doubled, which limits there are, what is asked and by
//     which clients, what crashes, freezes or is cut off.
//  2. A world is made of the plan. Each machine runs the same cluster.Node as in production; only
//     its two hands, Clock and Network, belong to the world. One goroutine plays them all: what
//     will happen is an event on a heap, ordered by time and then by age, and a node that waits
//     for a peer is a coroutine that an event enters again.
//  3. All that happens comes to a court (judge.go): what clients ask and hear, what nodes answer
//     each other, what fails, and what nodes state of themselves after each step (statement.go). It
//     is a set of judges, one for each promise of promise.go, in a file of its name. They decide
//     everything once more with a naive limiter that shares no line with the real one, after every
//     single decision. They ask no node.
//  4. When nothing more happens, they look at what nodes state of their tables, and whether
//     a task still waits. The Report says what happened. The same seed gives the same world, the
//     same trace and the same bytes, always.
//
// Worlds come under three skies. Under a calm one messages may be slow, doubled and overtaken, but
// nothing fails, and every promise holds without exception. In lossy ones messages vanish, in
// outages machines do; there, decisions without the owner must be marked and keep to their bound,
// and everything else still holds. Where nobody can count what a crash has lost, the judge grants
// once more what may have been.
//
// A world can be written down as well (scenario.go): penstock sim run reads nodes, limits, traffic,
// logs and faults from a file and reports what became of each limit over time (course.go, plot.go).
// And a seed that breaks a promise is made smaller until nothing can be left out (shrink.go), and
// written down as such a file.
package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Run lets the world of a seed happen.
func Run(seed uint64) *Report {
	w := newWorld(draw(seed), nil)
	w.run()
	return w.report()
}

// A Wire carries what one process hears and is answered, as the bytes that production sends.
type Wire interface {
	// Ask is a as the process reads it. Its keys lie in a frame until erase is called.
	Ask(a *cluster.Ask, left time.Duration, now limiter.Instant) (got *cluster.Ask, erase func(),
		err error)
	// Answer is a as the process reads it, which has asked for items items.
	Answer(a *cluster.Answer, items int) (*cluster.Answer, error)
}

// RunOver is Run with a wire for each process. The same seed gives the same trace.
func RunOver(seed uint64, wire func() Wire) *Report {
	w := newWorld(draw(seed), func(p *process) { p.wire = wire() })
	w.run()
	return w.report()
}
