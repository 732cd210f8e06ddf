package sim

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// BenchmarkScale is how the cost of a cluster grows with its nodes: what docs/simulator.md shows. A
// hundred requests a second to each node for 4 s, of 100 keys a node; one more node joins after 4 s
// and is ACTIVE half a second later. In between, when nodes have been idle for a while, the
// messages of the background are counted for 2 s. Meant for -benchtime 1x.
func BenchmarkScale(b *testing.B) {
	for _, nodes := range []int{3, 10, 30, 100, 300, 999} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				s := grow(nodes)
				if f := s.world.judge.failure; f != nil {
					b.Fatalf("%s: %s", f.Promise, f.Detail)
				}
				decisions := float64(s.world.judge.requests.Items)
				b.ReportMetric(float64(s.busy.messages)/decisions, "messages/decision")
				b.ReportMetric(float64(s.busy.bytes)/decisions, "bytes/decision")
				b.ReportMetric(float64(s.idle.messages)/float64(nodes)/s.idleFor.Seconds(),
					"idle-messages/node/s")
				b.ReportMetric(float64(s.idle.bytes)/float64(nodes)/s.idleFor.Seconds(),
					"idle-bytes/node/s")
				b.ReportMetric(float64(s.copied)/decisions, "entries-copied/decision")
				b.ReportMetric(float64(s.join.messages-s.idle.messages), "join-messages")
				b.ReportMetric(float64(s.moved), "join-partitions")
				b.ReportMetric(millis(s.handover), "handover-ms")
				b.ReportMetric(millis(s.widest), "unheld-ms")
			}
		})
	}
}

// BenchmarkSilent is how long others need to replace a member of which the machine stops, by the
// number of members. Nobody asks for anything meanwhile, so heirs notice by the agreement alone.
// Meant for -benchtime 1x.
func BenchmarkSilent(b *testing.B) {
	for _, nodes := range []int{3, 10, 30, 100, 300, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(millis(silence(b, nodes)), "silent-ms")
			}
		})
	}
}

// silence stops one of nodes, and returns after how long all that it held is held by others.
func silence(tb testing.TB, nodes int) (taken time.Duration) {
	const stops = 3 * time.Second
	p := &plan{
		seed: 1, sky: outage, machines: make([]machinePlan, nodes), sweepEvery: 5 * time.Second,
		weather: weather{
			near: 300 * time.Microsecond, mean: 200 * time.Microsecond,
			far: 20 * time.Millisecond, inOrder: true,
		},
		length: 2 * stops,
		limits: []rule{{Spec: limiter.Spec{
			Name: "a", Algorithm: limiter.GCRA, Limit: 10,
			Per: time.Second, Burst: 30,
		}}},
		faults: []fault{{at: stops, kind: freezes, node: 0}},
	}
	for i := range p.machines {
		p.machines[i].clock.start = 1_700_000_000_000_000_000
	}
	w := newWorld(p, nil)
	left := make(map[uint64]bool) // partitions that nobody else has taken over yet
	var look func()
	look = func() {
		maps.DeleteFunc(left, func(part uint64, _ bool) bool {
			return slices.ContainsFunc(w.machines[1:], func(m *machine) bool {
				return m.process.node.Holds(part)
			})
		})
		switch {
		case len(left) == 0:
			taken = w.now - stops
			for _, m := range w.machines { // nothing is to be seen while the world comes to rest
				m.process.node.Stop()
			}
		case w.now < p.length:
			w.at(w.now+10*time.Millisecond, look)
		}
	}
	w.at(stops, func() {
		for part := range uint64(ring.Partitions) {
			if w.machines[0].process.node.Holds(part) {
				left[part] = true
			}
		}
		if len(left) == 0 {
			tb.Error("the member that stops holds nothing")
		}
		look()
	})
	w.run()
	if taken == 0 {
		tb.Fatalf("%d partitions are held by nobody %v after the stop", len(left), stops)
	}
	return taken
}

// Promise: failover is the same for three members and for a thousand.
func TestFailoverIsTheSameForManyMembers(t *testing.T) {
	few, many := silence(t, 3), silence(t, 60)
	if few > time.Second || many > time.Second {
		t.Errorf("a member of three is replaced after %v, one of sixty after %v; want a second at "+
			"most", few, many)
	}
}

// traffics is what went over the lines.
type traffics struct{ messages, bytes int }

type scaled struct {
	world            *world
	busy, idle, join traffics
	idleFor          time.Duration
	copied           uint64
	moved            int           // partitions that went to the node that joined
	handover         time.Duration // from its being ACTIVE to its holding all that it should
	widest           time.Duration // the longest that a partition was held by nobody meanwhile
}

// grow lets nodes have traffic, then none, and then one more node.
func grow(nodes int) *scaled {
	const busy, idle = 4 * time.Second, 4 * time.Second
	p := &plan{
		seed: 1, sky: calm, machines: make([]machinePlan, nodes+1), sweepEvery: 5 * time.Second,
		weather: weather{
			near: 300 * time.Microsecond, mean: 200 * time.Microsecond,
			far: 20 * time.Millisecond, inOrder: true,
		},
		gossip: pace{spread: 800 * time.Millisecond, settle: time.Second},
		length: busy + idle + 2*time.Second,
		limits: []rule{{Spec: limiter.Spec{
			Name: "a", Algorithm: limiter.GCRA, Limit: 10,
			Per: time.Second, Burst: 30,
		}}},
		faults: []fault{{at: busy + idle, kind: joins, node: nodes}},
	}
	for i := range p.machines {
		p.machines[i].clock.start = 1_700_000_000_000_000_000
	}
	p.machines[nodes].later = true
	p.demands = []demand{{
		name: "key", limits: []string{"a"}, keys: 100 * nodes, spread: "zipf",
		rate: float64(100 * nodes), cost: 1, until: busy, patience: time.Second,
	}}
	w := newWorld(p, nil)
	w.course = newCourse(w, nil)
	s := &scaled{world: w, idleFor: idle / 2}
	count := func() traffics {
		var t traffics
		for i := range w.course.ticks {
			t.messages += w.course.ticks[i].Messages
			t.bytes += w.course.ticks[i].Bytes
		}
		return t
	}
	less := func(a, b traffics) traffics {
		return traffics{a.messages - b.messages, a.bytes - b.bytes}
	}
	var first, second traffics
	w.at(busy, func() {
		s.busy = count()
		for _, m := range w.machines[:nodes] {
			s.copied += m.process.node.Stats().Copied.Load()
		}
	})
	w.at(busy+idle/2, func() { first = count() }) // nodes are idle after a second of calm
	w.at(busy+idle, func() { second = count(); s.idle = less(second, first) })
	w.at(p.length, func() {
		s.join = less(count(), second)
		for _, m := range w.machines { // nothing is to be seen while the world comes to rest
			m.process.node.Stop()
		}
	})
	s.watch(nodes, busy+idle)
	w.run()
	return s
}

// watch looks each millisecond at what the node that joins holds, and at what nobody does.
func (s *scaled) watch(joins int, from time.Duration) {
	w := s.world
	// partitions that the newcomer should hold, and that nobody holds
	since := make(map[int]time.Duration)
	var active time.Duration
	var look func()
	look = func() {
		p := w.machines[joins].process
		v := p.node.View()
		if active == 0 && v.Ring != nil && v.Owns(uint64(firstOf(v.Ring, w.machines[joins].id))) {
			active = w.now
			s.moved = sharesOf(v.Ring, w.machines[joins].id)
		}
		if active != 0 && s.handover == 0 {
			s.unheld(p, since)
			if p.node.Held() == s.moved {
				s.handover = w.now - active
			}
		}
		if w.now < w.plan.length && s.handover == 0 {
			w.at(w.now+time.Millisecond, look)
		}
	}
	w.at(from+time.Millisecond, look)
}

// unheld follows which of the partitions that p should hold nobody holds.
func (s *scaled) unheld(p *process, since map[int]time.Duration) {
	v := p.node.View()
	for part := range ring.Partitions {
		hash := uint64(part) // a hash below the number of partitions is its own
		if !v.Owns(hash) {
			continue
		}
		held := false
		for _, m := range s.world.machines {
			held = held || m.process.node.Holds(hash)
		}
		began, known := since[part]
		switch {
		case held:
			delete(since, part)
		case !known:
			since[part] = s.world.now
		default:
			s.widest = max(s.widest, s.world.now-began)
		}
	}
}

func firstOf(r *ring.Ring, id string) int {
	for p := range ring.Partitions {
		if r.Members()[r.Owner(p)] == id {
			return p
		}
	}
	return 0
}

func sharesOf(r *ring.Ring, id string) (n int) {
	for p := range ring.Partitions {
		if r.Members()[r.Owner(p)] == id {
			n++
		}
	}
	return n
}
