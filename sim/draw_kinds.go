package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// KindSeeds is the first seed of the worlds of kinds: each has one kind of trouble, many times
// over, with plain traffic, so that every unit can be counted. Their promises are demanded in full,
// and not every protocol holds them all: they are played by Kinds, one kind after the other. Seeds
// below mean other worlds.
const KindSeeds = 4_000_000_000

// LateKindSeeds is the first seed of the kinds for which there was no room from KindSeeds on.
const LateKindSeeds = 8_000_000_000

const (
	kindSeeds  = 100_000_000 // that each kind has
	earlyKinds = 10          // that have theirs from KindSeeds on
)

// firstSeed is the first seed of the i-th kind.
func firstSeed(i int) uint64 {
	if i < earlyKinds {
		return KindSeeds + uint64(i)*kindSeeds
	}
	return LateKindSeeds + uint64(i-earlyKinds)*kindSeeds
}

// kindOf is the kind of a seed from KindSeeds on. Those after the last kind's are of that.
func kindOf(seed uint64) *worldKind {
	i := (seed - KindSeeds) / kindSeeds
	if seed >= LateKindSeeds {
		i = earlyKinds + (seed-LateKindSeeds)/kindSeeds
	}
	return &worldKinds[min(i, uint64(len(worldKinds)-1))]
}

const kindStream = 20

// worldKind is one kind of trouble.
type worldKind struct {
	name, says string
	draw       func(r *rand.Rand, p *plan)
	rare       int // one world of this kind where others have so many; 0: as many
}

// worldKinds, in the order of their seeds: new ones come last.
var worldKinds = []worldKind{
	{
		"join-then-crash", "a node joins, and it or another one dies soon after",
		drawJoinThenCrash, 0,
	},
	{
		"pairwise-cuts", "lines between two nodes are cut one after the other, both ways",
		drawPairwiseCuts, 0,
	},
	{"one-way-cuts", "lines are cut one after the other, one way only", drawOneWayCuts, 0},
	{
		"replacement", "every node is replaced by a new one, each when the cluster has settled",
		drawReplacement, 0,
	},
	{"half-at-once", "half of the nodes die at once", drawHalfAtOnce, 0},
	{
		"owner-and-heir", "two nodes die or stop at once, or the line between them is cut before",
		drawOwnerAndHeir, 0,
	},
	{"never-healed", "nodes are cut off from the others, and stay so", drawNeverHealed, 0},
	{"an-hour", "an hour, with a fault every few minutes", drawAnHour, 5},
	{"a-day", "a day, with a fault every hour or two", drawADay, 25},
	{
		"pairs-by-turns", "two nodes, or a zone, die or stop at once and come back, by turns; " +
			"of all that they hold there is a copy elsewhere", drawPairsByTurns, 3,
	},
	{
		"liar", "a member lies about keys of others, while others die, stop, come and leave",
		drawLiar, 0,
	},
}

// drawKind is the world of a seed from KindSeeds on. A third have tables of production's size.
func drawKind(seed uint64) *plan {
	r := stream(seed, kindStream)
	p := drawPlain(seed, r, 3+r.IntN(5))
	kindOf(seed).draw(r, p)
	p.endPlain(r)
	return p
}

// drawPlain is a world of so many machines with plain traffic, so far without any trouble.
func drawPlain(seed uint64, r *rand.Rand, machines int) *plan {
	p := &plan{
		seed: seed, sky: outage, strict: true, sweepEvery: 5 * time.Second,
		length: time.Minute,
	}
	p.machines = make([]machinePlan, machines)
	p.weather = weather{
		near: oneOf(r, 100*time.Microsecond, time.Millisecond),
		mean: oneOf(r, 50*time.Microsecond, time.Millisecond), far: calmDelay, inOrder: true,
	}
	p.gossip = drawGossip(r)
	p.gossip.detect = 2500 * time.Millisecond
	if r.IntN(3) == 0 {
		p.table = drawTable(r)
	}
	p.limits = []rule{{Spec: drawPlainLimit(r)}}
	d := demand{
		limits: []string{p.limits[0].Name}, name: "key", keys: oneOf(r, 20, 100),
		spread: "uniform", cost: 1, patience: 2 * time.Second,
	}
	p.demands = []demand{d}
	return p
}

// endPlain sets what follows from the troubles of a plain world: clocks, and how much is asked for.
func (p *plan) endPlain(r *rand.Rand) {
	for i := range p.machines {
		p.machines[i].clock.start = scenarioStart
		if r.IntN(4) == 0 {
			p.machines[i].clock.drift = r.Int64N(401) - 200
		}
	}
	p.demands[0].until = p.length
	p.demands[0].rate = min(500, 20_000/p.length.Seconds())
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
}

// drawPlainLimit draws a limit that is full again only after the world's end, or now and then.
func drawPlainLimit(r *rand.Rand) limiter.Spec {
	s := limiter.Spec{Algorithm: oneOf(r, limiter.GCRA, limiter.FixedWindow, limiter.TokenBucket,
		limiter.SlidingLog)}
	s.Name = fmt.Sprintf("%s-1", s.Algorithm)
	s.Limit = oneOf[int64](r, 20, 50)
	s.Per = oneOf(r, 10*time.Second, time.Minute, 10*time.Minute)
	switch s.Algorithm {
	case limiter.GCRA:
		s.Burst = s.Limit
	case limiter.FixedWindow, limiter.TokenBucket:
		s.Anchor = oneOf(r, limiter.Epoch, limiter.FirstHit)
	}
	return s
}

// within draws an instant between two parts of a world.
func within(r *rand.Rand, p *plan, from, to float64) time.Duration {
	return time.Duration((from + (to-from)*r.Float64()) * float64(p.length))
}

// settles is how long nothing else happens after something, so that it is not at once.
func (p *plan) settles() time.Duration {
	return p.gossip.detect + p.gossip.doubt + p.gossip.spread + p.gossip.settle + copiedWithin +
		5*time.Second
}

func drawJoinThenCrash(r *rand.Rand, p *plan) {
	last := len(p.machines) - 1
	p.machines[last].later = true
	at := within(r, p, 0.1, 0.3)
	victim := oneOf(r, last, last, r.IntN(last))
	p.faults = []fault{
		{at: at, kind: joins, node: last},
		{at: at + p.settles() + oneOf(r, 0, 10*time.Second), kind: crashes, node: victim},
	}
}

func drawPairwiseCuts(r *rand.Rand, p *plan) { p.faults = drawCuts(r, p, true) }

func drawOneWayCuts(r *rand.Rand, p *plan) { p.faults = drawCuts(r, p, false) }

// drawCuts cuts lines one after the other; in half of the worlds the second before the first has
// healed.
func drawCuts(r *rand.Rand, p *plan, both bool) (faults []fault) {
	lasts := oneOf(r, 3*time.Second, 20*time.Second)
	apart := oneOf(r, lasts/3, lasts+p.settles())
	for at := 5 * time.Second; at+lasts < p.length; at += apart {
		i := r.IntN(len(p.machines))
		k := (i + 1 + r.IntN(len(p.machines)-1)) % len(p.machines)
		faults = append(faults, fault{at: at, kind: cuts, node: i, peer: k},
			fault{at: at + lasts, kind: mends, node: i, peer: k})
		if both {
			faults = append(faults, fault{at: at, kind: cuts, node: k, peer: i},
				fault{at: at + lasts, kind: mends, node: k, peer: i})
		}
	}
	if r.IntN(2) == 0 {
		faults = append(faults, fault{
			at: within(r, p, 0.5, 0.9), kind: crashes,
			node: r.IntN(len(p.machines)),
		})
	}
	return faults
}

func drawReplacement(r *rand.Rand, p *plan) {
	n := 3 + r.IntN(2)
	p.machines = make([]machinePlan, 2*n)
	p.length = time.Duration(2*n+1) * p.settles()
	for i := range n {
		p.machines[n+i].later = true
		at := time.Duration(2*i+1) * p.settles()
		p.faults = append(p.faults, fault{at: at, kind: joins, node: n + i},
			fault{at: at + p.settles(), kind: crashes, node: i})
	}
}

func drawHalfAtOnce(r *rand.Rand, p *plan) {
	at := within(r, p, 0.3, 0.5)
	for _, i := range r.Perm(len(p.machines))[:len(p.machines)/2] {
		p.faults = append(p.faults, fault{at: at, kind: crashes, node: i})
	}
}

func drawOwnerAndHeir(r *rand.Rand, p *plan) {
	two := r.Perm(len(p.machines))[:2]
	at := within(r, p, 0.4, 0.6)
	switch r.IntN(3) {
	case 0:
		p.faults = []fault{
			{at: at, kind: crashes, node: two[0]},
			{at: at, kind: crashes, node: two[1]},
		}
	case 1:
		for _, i := range two {
			p.faults = append(p.faults, fault{at: at, kind: freezes, node: i},
				fault{at: at + 5*time.Second, kind: thaws, node: i})
		}
	case 2:
		before := at - oneOf(r, 4*time.Second, 15*time.Second)
		p.faults = []fault{
			{at: before, kind: cuts, node: two[0], peer: two[1]},
			{at: before, kind: cuts, node: two[1], peer: two[0]},
			{at: at, kind: crashes, node: two[0]},
		}
	}
}

func drawNeverHealed(r *rand.Rand, p *plan) {
	few := r.Perm(len(p.machines))[:1+r.IntN((len(p.machines)-1)/2)]
	p.length = oneOf(r, time.Minute, 12*time.Minute)
	at := 10 * time.Second
	for _, i := range few {
		for k := range p.machines {
			if !slices.Contains(few, k) {
				p.faults = append(p.faults, fault{at: at, kind: cuts, node: i, peer: k},
					fault{at: at, kind: cuts, node: k, peer: i})
			}
		}
	}
}

func drawAnHour(r *rand.Rand, p *plan) {
	p.length = time.Hour
	drawTroubles(r, p, 3*time.Minute)
}

func drawADay(r *rand.Rand, p *plan) {
	p.length, p.machines = 24*time.Hour, p.machines[:3]
	drawTroubles(r, p, 90*time.Minute)
}

// drawTroubles has something fail about every so often, and come back before the next.
func drawTroubles(r *rand.Rand, p *plan, every time.Duration) {
	for at := every / 2; at < p.length-every; at += every/2 +
		time.Duration(r.Int64N(int64(every))) {
		i, lasts := r.IntN(len(p.machines)), time.Duration(r.Int64N(int64(every/4)))+time.Second
		pair := oneOf(r, [2]kind{crashes, boots}, [2]kind{freezes, thaws}, [2]kind{restarts})
		wrong, right := pair[0], pair[1]
		p.faults = append(p.faults, fault{at: at, kind: wrong, node: i})
		if right != 0 {
			p.faults = append(p.faults, fault{at: at + lasts, kind: right, node: i})
		}
	}
}

// drawPairsByTurns has two of six nodes die or stop at once and come back, by turns. Of all that
// they hold there is a copy: there are two copies, or one and the two are a zone. Most keys are new
// when they are asked for, so they show what a node believes of a partition that has none.
func drawPairsByTurns(r *rand.Rand, p *plan) {
	p.machines = make([]machinePlan, 6)
	p.demands[0].keys = 3000
	p.weather.inOrder = r.IntN(2) == 0
	zones := r.IntN(4) > 0
	if p.copies = ownership.TwoCopies; zones {
		p.copies = oneOf(r, ownership.OneCopy, ownership.TwoCopies)
		for i := range p.machines {
			p.machines[i].zone = "abc"[i%3 : i%3+1]
		}
	}
	at := 10 * time.Second
	for range 4 + r.IntN(4) {
		two := r.Perm(len(p.machines))[:2]
		if zones && (p.copies == ownership.OneCopy || r.IntN(2) == 0) {
			two[1] = (two[0] + 3) % 6
		}
		wrong, right, back := crashes, boots, at+p.settles()
		if r.IntN(2) == 0 { // about as long as it takes until others go on without them
			lasts := 500*time.Millisecond + time.Duration(r.Int64N(int64(2500*time.Millisecond)))
			wrong, right, back = freezes, thaws, at+lasts
		}
		for _, i := range two {
			p.faults = append(p.faults, fault{at: at, kind: wrong, node: i},
				fault{at: back, kind: right, node: i})
			if wrong == crashes {
				back += oneOf(r, 0, 2*time.Second)
			}
		}
		at = back + p.settles() + time.Duration(r.Int64N(int64(5*time.Second)))
	}
	p.length = at
}
