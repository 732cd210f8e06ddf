package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
)

// Smallest is the world of a failing seed from which nothing can be left out any more without the
// promise's holding again.
type Smallest struct {
	Seed     uint64 `json:"seed"`
	Requests [2]int `json:"requests"` // as drawn, and those that were left
	Faults   [2]int `json:"faults"`
	Worlds   int    `json:"worlds"`   // that were tried
	Scenario string `json:"scenario"` // a file for penstock sim run
}

// Shrink makes the first seed of s that failed smaller; it may take a minute.
func (s *Summary) Shrink() {
	if len(s.Failures) == 0 {
		return
	}
	seed := s.Failures[0].Seed
	if small := shrink(draw(seed), nil); small != nil {
		s.Smallest = small.smallest(seed)
	}
}

func (s *shrunk) smallest(seed uint64) *Smallest {
	var text strings.Builder
	if err := s.scenario.WriteYAML(&text); err != nil {
		panic(err) // its traffic is known request by request
	}
	return &Smallest{
		Seed: seed, Requests: s.requests, Faults: s.faults, Worlds: s.worlds,
		Scenario: text.String(),
	}
}

func (s *Smallest) write(b *strings.Builder) {
	fmt.Fprintf(b, "seed %d made smaller: %d of %d requests and %d of %d faults, by trying %d "+
		"worlds.\nPut this into a file, and penstock sim run FILE breaks the same promise:\n\n%s\n",
		s.Seed, s.Requests[1], s.Requests[0], s.Faults[1], s.Faults[0], s.Worlds, s.Scenario)
}

// shrunk is what shrink finds.
type shrunk struct {
	scenario *Scenario
	report   *ScenarioReport
	requests [2]int // as drawn, and those that were left
	faults   [2]int
	worlds   int // that were tried
}

// shrinking is the search for the smallest world that breaks a promise.
type shrinking struct {
	plant   func(*process)
	promise string // the one that has to break
	worlds  int
	events  uint64 // in all of them
}

// mostShrinking is how much may happen in all the worlds that are tried: a minute or so.
const mostShrinking = 30_000_000

// shrink makes a world smaller in which a promise breaks; nil if none does, or if a member lies: no
// scenario can say what it says.
func shrink(p *plan, plant func(*process)) *shrunk {
	if p.liar != nil {
		return nil
	}
	s := &shrinking{plant: plant}
	first := *p
	first.traffic, first.script, first.replays, first.demands = traffic{}, recorded(p), nil, nil
	failure := s.play(&first)
	if failure == nil {
		return nil
	}
	s.promise = failure.Promise
	whole := [2]int{len(first.script), len(first.faults)}
	small := s.smaller(first, failure)
	small.sky = skyOf(&small)
	scenario := small.scenario()
	return &shrunk{
		scenario: scenario, report: scenario.run(plant), worlds: s.worlds,
		requests: [2]int{whole[0], len(small.script)},
		faults:   [2]int{whole[1], len(scenario.plan.faults)},
	}
}

// recorded is the traffic of p, as it is drawn, in advance.
func recorded(p *plan) (all []arrival) {
	w := newWorld(p, nil)
	defer w.end()
	from := w.source()
	for {
		var a arrival
		if !from.next(&a) {
			return all
		}
		a.slip = nil // it is kept, and may happen more than once
		all = append(all, a)
	}
}

// play lets the world of p happen.
func (s *shrinking) play(p *plan) *Failure {
	p.sky = skyOf(p)
	p.machines = slices.Clone(p.machines)
	for i := range p.machines { // a node that no longer joins is there from the beginning
		first := slices.IndexFunc(p.faults, func(f fault) bool {
			return f.node == i && moving(f.kind)
		})
		p.machines[i].later = first >= 0 && p.faults[first].kind == joins
	}
	w := newWorld(p, s.plant)
	w.run()
	s.worlds++
	s.events += w.trace.events
	return w.judge.failure
}

// breaks reports whether the promise breaks in the world of p as well. When enough has been tried,
// nothing does any more.
func (s *shrinking) breaks(p *plan) bool {
	if s.events > mostShrinking {
		return false
	}
	f := s.play(p)
	return f != nil && f.Promise == s.promise
}

// smaller leaves out of p whatever it breaks without: first what comes after the failure, then half
// the rest, and ever smaller parts; then it makes what is left plainer. It goes on as long as
// something changes.
func (s *shrinking) smaller(p plan, failure *Failure) plan {
	over := time.Duration(failure.AtMS*1e6) + 1
	cut := p
	cut.script = slices.DeleteFunc(slices.Clone(p.script), func(a arrival) bool {
		return a.at > over
	})
	cut.faults = slices.DeleteFunc(slices.Clone(p.faults), func(f fault) bool {
		return f.at > over
	})
	if s.breaks(&cut) {
		p = cut
	}
	for {
		before := p.size()
		p.faults = minimal(p.faults, func(faults []fault) bool {
			q := p
			q.faults = faults
			return s.breaks(&q)
		})
		p.script = minimal(p.script, func(script []arrival) bool {
			q := p
			q.script = script
			return s.breaks(&q)
		})
		p = s.plainer(p)
		if p.size() == before {
			return p
		}
	}
}

// size grows with everything that a reader of a world has to take in.
func (p *plan) size() (n int) {
	n = len(p.faults) + len(p.script) + len(p.limits) + len(p.machines)
	for _, chance := range []bool{
		p.weather.loss > 0, p.weather.twice > 0 && p.weather.twice < 1,
		p.weather.mean > 0,
	} {
		if chance {
			n++
		}
	}
	for _, a := range p.script {
		n += len(a.items) + len(a.calls)
	}
	return n
}

// minimal leaves out of a list as much as it can while it still fails: halves first, then smaller
// and smaller parts, until no single item can be left out.
func minimal[T any](list []T, fails func([]T) bool) []T {
	if len(list) > 0 && fails(nil) {
		return nil
	}
	for size := (len(list) + 1) / 2; size > 0; {
		left := false // something could be left out
		for i := 0; i < len(list); {
			without := slices.Concat(list[:i], list[min(i+size, len(list)):])
			if fails(without) {
				list, left = without, true
			} else {
				i += size
			}
		}
		if size == 1 && !left {
			break
		}
		if size > 1 {
			size = (size + 1) / 2
		}
	}
	return list
}

// plainer makes single things of a world as plain as they can be.
func (s *shrinking) plainer(p plan) plan {
	of := simplifier{s, p}
	of.weather()
	of.clocks()
	of.limits()
	of.requests()
	of.machines()
	return of.plan
}

// simplifier makes a world plainer, one change after the other.
type simplifier struct {
	shrinking *shrinking
	plan      plan
}

// try keeps a change if the promise still breaks with it.
func (of *simplifier) try(change func(q *plan)) {
	q := of.plan
	q.machines, q.limits, q.script = slices.Clone(q.machines), slices.Clone(q.limits),
		slices.Clone(q.script)
	change(&q)
	if of.shrinking.breaks(&q) {
		of.plan = q
	}
}

// weather has messages arrive alike, and news at once.
func (of *simplifier) weather() {
	p := &of.plan
	if p.weather.loss > 0 {
		of.try(func(q *plan) { q.weather.loss = 0 })
	}
	if p.weather.twice > 0 {
		of.try(func(q *plan) { q.weather.twice = 0 })
	}
	if p.weather.twice > 0 && p.weather.twice < 1 { // all of them, so that it does not matter which
		of.try(func(q *plan) { q.weather.twice = 1 })
	}
	if p.weather.mean > 0 || !p.weather.inOrder {
		of.try(func(q *plan) { q.weather.mean, q.weather.inOrder = 0, true })
	}
	if len(p.distances) > 0 {
		of.try(func(q *plan) { q.distances = nil })
	}
	if p.gossip.spread > 0 {
		of.try(func(q *plan) { q.gossip.spread = 0 })
	}
}

// clocks has all clocks show the same.
func (of *simplifier) clocks() {
	for i, m := range of.plan.machines {
		if m.clock != of.plan.machines[0].clock || m.clock.drift != 0 {
			of.try(func(q *plan) { q.machines[i].clock = clock{start: q.machines[0].clock.start} })
		}
	}
}

// limits leaves out those that no request names.
func (of *simplifier) limits() {
	for i := len(of.plan.limits) - 1; i >= 0; i-- {
		name := of.plan.limits[i].Name
		used := slices.ContainsFunc(of.plan.script, func(a arrival) bool {
			return slices.ContainsFunc(a.items, func(it cluster.Item) bool {
				return limitName(&it) == name
			})
		})
		if !used && len(of.plan.limits) > 1 {
			of.try(func(q *plan) { q.limits = slices.Delete(q.limits, i, i+1) })
		}
	}
}

// requests leaves out items of requests, and nodes that they are brought to.
func (of *simplifier) requests() {
	for i := range of.plan.script {
		a := &of.plan.script[i]
		if len(a.items) > 1 {
			items := minimal(a.items, func(items []cluster.Item) bool {
				q := of.plan
				q.script = slices.Clone(q.script)
				q.script[i].items = items
				return len(items) > 0 && of.shrinking.breaks(&q)
			})
			of.try(func(q *plan) { q.script[i].items = items })
		}
		if len(a.calls) > 1 {
			of.try(func(q *plan) { q.script[i].calls = a.calls[:len(a.calls)-1] })
		}
	}
}

// machines leaves out the last machines, as long as nothing names them; the keys of all others may
// then have other owners.
func (of *simplifier) machines() {
	for last := len(of.plan.machines) - 1; last > 0; last-- {
		if of.plan.names(last) {
			return
		}
		of.try(func(q *plan) {
			q.machines = q.machines[:last]
			q.distances = slices.DeleteFunc(slices.Clone(q.distances), func(d distance) bool {
				return d.from >= last || d.to >= last
			})
		})
		if len(of.plan.machines) > last { // it is needed
			return
		}
	}
}

// names reports whether a fault or a request of p names a machine.
func (p *plan) names(machine int) bool {
	return slices.ContainsFunc(p.faults, func(f fault) bool {
		return f.node == machine || f.peer == machine
	}) || slices.ContainsFunc(p.script, func(a arrival) bool {
		return slices.ContainsFunc(a.calls, func(c calling) bool { return c.node == machine })
	})
}

// scenario is p as if somebody had written it down.
func (p *plan) scenario() *Scenario {
	s := &Scenario{plan: p}
	s.plan.length = time.Millisecond
	for _, a := range p.script {
		s.plan.length = max(s.plan.length, a.at)
	}
	for _, f := range p.faults {
		s.plan.length = max(s.plan.length, f.at)
	}
	s.plan.faults = slices.DeleteFunc(slices.Clone(p.faults), func() func(fault) bool {
		c := newCondition(p.machines)
		return func(f fault) bool { return c.strike(f) != "" } // it would be passed over
	}())
	for i := range s.plan.faults {
		if f := &s.plan.faults[i]; f.kind != cuts && f.kind != mends {
			f.peer = 0 // drawn for nothing
		}
	}
	s.Name = fmt.Sprintf("seed %d, made smaller", p.seed)
	return s
}
