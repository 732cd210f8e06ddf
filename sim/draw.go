package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"penstock/limiter"
)

// Streams of a seed: a change in how one thing is drawn leaves the others alone.
const (
	planStream    = 1
	dicesStream   = 2
	trafficStream = 3
	bootStream    = 4
	gossipStream  = 5
	memberStream  = 6
	linkStream    = 7
)

func stream(seed uint64, n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }

// draw is the world of a seed.
func draw(seed uint64) *plan {
	switch {
	case seed >= LateKindSeeds && seed < firstSeed(len(worldKinds)):
		return drawKind(seed)
	case seed >= LateSeeds:
		return drawLate(seed)
	case seed >= TreeSeeds:
		return drawTrees(seed)
	case seed >= CopySeeds:
		return drawCopies(seed)
	case seed >= KindSeeds && seed < KindSeeds+earlyKinds*kindSeeds:
		return drawKind(seed)
	case seed >= CalendarSeeds:
		return drawCalendars(seed)
	case seed >= DiskSeeds:
		return drawDisks(seed)
	case seed >= HoldSeeds:
		return drawHolds(seed)
	}
	return drawWorld(seed)
}

// drawWorld is the world of a seed that means nothing in particular.
func drawWorld(seed uint64) *plan {
	r := stream(seed, planStream)
	sky := drawSky(r)
	p := &plan{seed: seed, sky: sky, machines: drawMachines(r)}
	p.weather = drawWeather(r, p.sky)
	p.limits = drawLimits(r)
	// the pause in production, or one that costs less here
	p.sweepEvery = oneOf(r, 250*time.Millisecond, 5*time.Second, 5*time.Second)
	p.length = time.Duration(2+r.IntN(40)) * time.Second
	p.traffic = drawTraffic(r, p.length)
	if p.sky == outage {
		p.faults = drawFaults(r, len(p.machines), p.length)
	}
	p.gossip = drawGossip(stream(seed, gossipStream))
	drawMembers(stream(seed, memberStream), p)
	p.distances = drawDistances(stream(seed, linkStream), len(p.machines))
	return p
}

func drawSky(r *rand.Rand) sky {
	switch x := r.IntN(10); {
	case x < 5:
		return calm
	case x < 8:
		return lossy
	}
	return outage
}

// drawMachines puts 1 to 7 machines on the same minute or hours apart, with clocks that gain or
// lose up to 0.2 ms a second.
func drawMachines(r *rand.Rand) []machinePlan {
	machines := make([]machinePlan, 1+r.IntN(7))
	start := limiter.Instant(1_700_000_000_000_000_000 + r.Int64N(int64(100*24*time.Hour)))
	apart := oneOf(r, 0, time.Millisecond, time.Second, 3*time.Hour)
	for i := range machines {
		machines[i].clock = clock{
			start: start + limiter.Instant(r.Int64N(int64(apart)+1)),
			drift: r.Int64N(401) - 200,
		}
	}
	return machines
}

func drawWeather(r *rand.Rand, s sky) weather {
	x := weather{
		near:    time.Duration(r.Int64N(int64(2 * time.Millisecond))),
		mean:    oneOf(r, 0, 50*time.Microsecond, time.Millisecond, 10*time.Millisecond),
		far:     60 * time.Millisecond, // there and back again well within any timeout
		twice:   oneOf(r, 0, 0.01, 0.3),
		inOrder: r.IntN(2) == 0,
	}
	switch s {
	case lossy:
		x.loss = oneOf(r, 0.001, 0.02, 0.2)
		x.mean = oneOf(r, time.Millisecond, 10*time.Millisecond, 100*time.Millisecond)
		x.far = 400 * time.Millisecond
	case outage:
		x.loss = oneOf(r, 0, 0, 0.02)
	}
	return x
}

// drawLimits draws 2 to 6 limits, of any algorithm.
func drawLimits(r *rand.Rand) []rule {
	rules := make([]rule, 2+r.IntN(5))
	for i := range rules {
		s := &rules[i].Spec
		s.Algorithm = oneOf(r, limiter.GCRA, limiter.GCRA, limiter.FixedWindow, limiter.FixedWindow,
			limiter.SlidingWindow,
			limiter.SlidingLog, limiter.TokenBucket, limiter.LeakyBucket, limiter.SlidingCounter)
		s.Name = fmt.Sprintf("%s-%d", s.Algorithm, i+1)
		s.Limit = oneOf[int64](r, 1, 2, 3, 7, 10, 50, 300, 1000)
		s.Per = oneOf(r, 100*time.Millisecond, time.Second, 7*time.Second, time.Minute)
		switch s.Algorithm {
		case limiter.GCRA:
			s.Burst = oneOf[int64](r, 0, 1, 3, 100)
		case limiter.FixedWindow:
			s.Anchor = oneOf(r, limiter.Epoch, limiter.FirstHit)
			s.CountRejected = r.IntN(4) == 0
		case limiter.LeakyBucket:
			s.Burst = oneOf[int64](r, 0, 1, 10, 100)
		case limiter.SlidingLog:
			s.Limit = min(s.Limit, 50) // the reference looks at every entry
			s.CountRejected = r.IntN(4) == 0
			s.MinGap = oneOf(r, 0, 0, s.Per/10)
		case limiter.TokenBucket:
			s.Anchor = oneOf(r, limiter.Epoch, limiter.FirstHit)
			s.Refill = oneOf[int64](r, 0, 1, 3)
			s.Strict = s.Anchor == limiter.FirstHit && r.IntN(3) == 0
			s.Drain = r.IntN(6) == 0
		case limiter.SlidingCounter:
			s.Buckets = oneOf(r, 1, 5, 10, 50)
			s.CountRejected = r.IntN(4) == 0
			s.Lenient = r.IntN(3) == 0
		}
		s.OnError = oneOf(r, limiter.ErrorLocal, limiter.ErrorLocal, limiter.ErrorAllow,
			limiter.ErrorDeny)
		switch r.IntN(12) {
		case 0:
			s.DryRun = true
		case 1:
			s.OnDeny = limiter.DenyShadow
		}
		rules[i].inline = r.IntN(6) == 0
	}
	return rules
}

func drawTraffic(r *rand.Rand, length time.Duration) traffic {
	t := traffic{
		requests: 100 + r.IntN(1400),
		keys:     oneOf(r, 1, 10, 100, 1000),
		skew:     oneOf(r, "uniform", "zipf", "hot"),
		crowd:    oneOf(r, 0, 0.3, 0.9),
		batch:    oneOf(r, 0, 0.1, 0.5),
		together: oneOf(r, 0, 0.1, 0.3),
		again:    oneOf(r, 0, 0.05, 0.3),
		odd:      oneOf(r, 0, 0.1, 0.4),
		broken:   oneOf(r, 0, 0.02),
		hurry:    oneOf(r, 0, 0.2),
		patience: oneOf(r, 0, 0.2),
	}
	t.gap = time.Duration(float64(length) / (float64(t.requests) * (1 - t.crowd)))
	return t
}

// drawFaults has 1 to 6 things go wrong. Each is put right again, most within the world's length.
func drawFaults(r *rand.Rand, machines int, length time.Duration) (faults []fault) {
	for range 1 + r.IntN(6) {
		wrong := fault{
			at:   time.Duration(r.Int64N(int64(length))),
			kind: oneOf(r, crashes, freezes, cuts), node: r.IntN(machines), peer: r.IntN(machines),
		}
		right := wrong
		right.kind = wrong.kind + 1
		right.at += time.Duration(
			r.Int64N(int64(oneOf(r, 100*time.Millisecond, time.Second, 6*time.Second))))
		faults = append(faults, wrong, right)
		if wrong.kind == cuts && r.IntN(2) == 0 { // the way back as well
			wrong.node, wrong.peer = wrong.peer, wrong.node
			right.node, right.peer = right.peer, right.node
			faults = append(faults, wrong, right)
		}
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return int(a.at - b.at) })
	return faults
}

// drawMembers has nodes come and go in three of four worlds that have several, and makes some of
// them agents.
func drawMembers(r *rand.Rand, p *plan) {
	n := len(p.machines)
	if n == 1 || r.IntN(4) == 0 {
		return
	}
	drawAgents(r, p)
	for range 1 + r.IntN(3) {
		p.faults = append(p.faults, drawMoves(r, p)...)
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	here := make(map[int]bool)
	// nothing happens to a machine that has not joined yet
	p.faults = slices.DeleteFunc(p.faults, func(f fault) bool {
		here[f.node] = here[f.node] || !p.machines[f.node].later || f.kind == joins
		return !here[f.node] && moving(f.kind)
	})
}

// drawAgents makes agents of some.
func drawAgents(r *rand.Rand, p *plan) {
	for i := 1; i < len(p.machines) && r.IntN(3) == 0; i++ {
		p.machines[len(p.machines)-i].agent = true
	}
}

// drawMoves draws one change of the members, or of what a clock shows.
func drawMoves(r *rand.Rand, p *plan) (moves []fault) {
	n := len(p.machines)
	at := time.Duration(r.Int64N(int64(p.length)))
	node := r.IntN(n)
	pause := oneOf(r, 300*time.Millisecond, 2*time.Second, 5*time.Second)
	switch r.IntN(9) {
	case 0, 1: // the first machine is always there, so that somebody is
		if i := 1 + r.IntN(n-1); !p.machines[i].later {
			p.machines[i].later = true
			moves = []fault{{at: at, kind: joins, node: i}}
		}
	case 2:
		moves = []fault{{at: at, kind: leaves, node: node}}
	case 3:
		moves = []fault{{at: at, kind: leaves, node: node}, {
			at: at + lingers + pause, kind: joins,
			node: node,
		}}
	case 4:
		moves = []fault{{at: at, kind: restarts, node: node}}
	case 5:
		moves = []fault{{at: at, kind: rolls}}
	case 6: // flapping
		for i := range 2 + r.IntN(4) {
			moves = append(moves, fault{
				at: at + time.Duration(i)*pause, kind: restarts,
				node: node,
			})
		}
	case 7: // several at once
		for i := range n {
			if kind := oneOf(r, leaves, restarts, joins); r.IntN(2) == 0 {
				moves = append(moves, fault{at: at, kind: kind, node: i})
			}
		}
	case 8:
		by := oneOf(r, time.Millisecond, time.Minute, 5*time.Hour)
		moves = []fault{{at: at, kind: steps, node: node, by: oneOf(r, by, -by)}}
	}
	return moves
}

// drawDistances puts machines into places in one of three worlds: what goes from one place to
// another takes longer, and one way not as long as the other.
func drawDistances(r *rand.Rand, n int) (all []distance) {
	if n == 1 || r.IntN(3) > 0 {
		return nil
	}
	places := make([]int, n)
	for i := range places {
		places[i] = r.IntN(3)
	}
	most := oneOf(r, time.Millisecond, 8*time.Millisecond, 25*time.Millisecond)
	for i := range n {
		for k := range n {
			if places[i] != places[k] {
				all = append(all,
					distance{from: i, to: k, more: time.Duration(1 + r.Int64N(int64(most)))})
			}
		}
	}
	return all
}

// drawGossip draws how fast members hear of each other.
func drawGossip(r *rand.Rand) pace {
	return pace{
		spread: oneOf(r, 0, 20*time.Millisecond, 500*time.Millisecond, 3*time.Second),
		detect: 2 * time.Second, doubt: oneOf(r, 0, 500*time.Millisecond, 2500*time.Millisecond),
		settle: oneOf(r, 50*time.Millisecond, time.Second),
	}
}

// oneOf draws one of the choices.
func oneOf[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

// boot is the number that the n-th process on a machine draws when it starts; never 0.
func (p *plan) boot(machine, n int) uint64 {
	return rand.NewPCG(p.seed, bootStream<<32|uint64(machine)<<16|uint64(n)).Uint64()>>1 | 1
}
