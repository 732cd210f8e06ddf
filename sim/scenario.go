package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Scenario is a world that somebody wrote down instead of drawing it. The same scenario gives the
// same report, to the byte.
type Scenario struct {
	Name  string // a line
	About string // what it shows
	plan  *plan
	marks []mark // by time
}

// mark is something on the time axis that a reader wants to know about: faults that were written
// down as one.
type mark struct {
	at, until time.Duration // equal if it happens at once
	what      string
}

// Bounds of a scenario.
const (
	maxNodes    = 1000
	maxRequests = 20_000_000 // that its traffic comes to on average
	maxDuration = 366 * 24 * time.Hour
)

// demand is requests at some rate, drawn one after the other. They come whatever becomes of those
// before.
type demand struct {
	limits      []string // a request takes of all of them, or of none
	name        string   // keys are name-1 …
	keys        int
	among       []string // keys are these, if there are any
	spread      string   // how keys are drawn: uniform, zipf, hot (nine of ten ask for the first)
	rate        float64  // requests a second
	wave        wave
	from, until time.Duration
	cost        int64
	patience    time.Duration
	retry       retry
	hold        hold
}

// wave is how a rate changes with time.
type wave struct {
	peak   float64       // requests a second at the top; 0: the rate does not change
	period time.Duration // from one top to the next
	// a burst's length; 0: the rate swells and falls like a sine, beginning at its lowest
	top time.Duration
}

// retry is what a client does if it was refused, or if its node died before it answered.
type retry struct {
	times int           // after the first attempt
	after time.Duration // pause before each
}

// lasts is how long a client goes on after its first attempt.
func (r *retry) lasts(patience time.Duration) time.Duration {
	return time.Duration(r.times) * (r.after + patience)
}

// at is the rate of s at an instant of the world.
func (s *demand) at(t time.Duration) float64 {
	x := s.wave
	switch {
	case x.peak == 0:
		return s.rate
	case x.top > 0:
		if (t-s.from)%x.period < x.top {
			return x.peak
		}
		return s.rate
	}
	phase := 2 * math.Pi * float64((t-s.from)%x.period) / float64(x.period)
	return s.rate + (x.peak-s.rate)*(1-math.Cos(phase))/2
}

// requests is how many come on average.
func (s *demand) requests() float64 {
	span := (s.until - s.from).Seconds()
	switch x := s.wave; {
	case x.peak == 0:
		return s.rate * span
	case x.top > 0:
		return max(s.rate, x.peak) * span // at most
	default:
		return (s.rate + x.peak) / 2 * span
	}
}

// flow draws the requests of a demand: the gaps of a steady one at its highest rate, of which as
// many are left out as the rate of the moment is lower.
type flow struct {
	*demand
	ready pending // what clients do later, and the next that begins
	last  int     // number of what is in ready
	over  bool    // nobody begins any more
	world *world
	dice  *rand.Rand
	zipf  *rand.Zipf
	now   time.Duration
	most  float64
	names []string // of keys that have come up
}

func newFlow(w *world, s *demand, n uint64) *flow {
	f := &flow{
		demand: s, world: w, dice: substream(w.plan.seed, n), now: s.from,
		most: max(s.rate, s.wave.peak),
	}
	f.zipf = rand.NewZipf(f.dice, 1.2, 1, uint64(s.keys-1))
	return f
}

// substream is the n-th part of the stream of chance that a seed has for traffic.
func substream(seed, n uint64) *rand.Rand { return stream(seed, trafficStream|(n+1)<<8) }

func (f *flow) next(a *arrival) bool {
	if f.hold.ttl > 0 {
		return f.nextHeld(a)
	}
	return f.begin(a)
}

// begin is the next request that does not follow another.
func (f *flow) begin(a *arrival) bool {
	for {
		f.now += time.Duration(f.dice.ExpFloat64() / f.most * float64(time.Second))
		if f.now >= f.until {
			return false
		}
		if f.dice.Float64()*f.most < f.at(f.now) {
			break
		}
	}
	*a = arrival{
		at: f.now, atomic: len(f.limits) > 1, patience: f.patience, retry: f.retry,
		roams: true,
	}
	key := f.keyOf(f.key())
	if len(f.limits) == 1 && f.retry.times == 0 && f.hold.ttl == 0 {
		a.lone(f.world)
	} else { // a client that comes back later asks for the same
		a.items, a.calls = make([]cluster.Item, len(f.limits)), make([]calling, 1)
	}
	for i, l := range f.limits {
		a.items[i] = cluster.Item{Limit: l, Key: key, Cost: f.cost}
	}
	a.calls[0] = calling{node: f.dice.IntN(len(f.world.machines))}
	return true
}

func (f *flow) key() int {
	switch f.spread {
	case "zipf":
		return int(f.zipf.Uint64())
	case "hot":
		if f.dice.Float64() < 0.9 {
			return 0
		}
	}
	return f.dice.IntN(f.keys)
}

// keyOf is the text of the i-th key. Of many keys it is made each time, for they would fill the
// memory.
func (f *flow) keyOf(i int) string {
	if len(f.among) > 0 {
		return f.among[i]
	}
	if i >= keptNames {
		return f.name + "-" + strconv.Itoa(1+i)
	}
	if i >= len(f.names) {
		f.names = append(f.names, make([]string, i+1-len(f.names))...)
	}
	if f.names[i] == "" {
		f.names[i] = f.name + "-" + strconv.Itoa(1+i)
	}
	return f.names[i]
}

const keptNames = 1 << 16

// mixture is several sources as one.
type mixture struct {
	sources []source
	heads   []arrival // the next of each
}

func mix(sources ...source) source {
	m := &mixture{}
	for _, s := range sources {
		var a arrival
		if s.next(&a) {
			m.sources, m.heads = append(m.sources, s), append(m.heads, a)
		}
	}
	return m
}

func (m *mixture) next(a *arrival) bool {
	if len(m.heads) == 0 {
		return false
	}
	first := 0
	for i := range m.heads {
		if m.heads[i].at < m.heads[first].at {
			first = i
		}
	}
	*a = m.heads[first]
	if !m.sources[first].next(&m.heads[first]) {
		m.sources = slices.Delete(m.sources, first, first+1)
		m.heads = slices.Delete(m.heads, first, first+1)
	}
	return true
}

// skyOf is the kind of a world that was written down.
func skyOf(p *plan) sky {
	switch {
	case slices.ContainsFunc(p.faults, func(f fault) bool { return !graceful(f.kind) }):
		return outage
	case p.weather.loss > 0 || p.weather.far > calmDelay:
		return lossy
	}
	return calm
}

// calmDelay is the longest that a message may take if nobody is ever to give up waiting: there and
// back again, twice, within any timeout.
const calmDelay = 60 * time.Millisecond

// Nodes is how many nodes it has, those that join later included.
func (s *Scenario) Nodes() int { return len(s.plan.machines) }

// Run lets the world happen. Whatever a seed is held to, a scenario is held to as well.
func (s *Scenario) Run() *ScenarioReport { return s.run(nil) }

func (s *Scenario) run(plant func(*process)) *ScenarioReport {
	w := newWorld(s.plan, plant)
	w.course = newCourse(w, s.marks)
	w.run()
	return newScenarioReport(s, w)
}

// names lists machines for people: n1 n2 n3 n4 and 7 more.
func names(nodes []int) string {
	const shown = 4
	var b strings.Builder
	for i, n := range nodes {
		if i == shown && len(nodes) > shown+1 {
			fmt.Fprintf(&b, " and %d more", len(nodes)-shown)
			break
		}
		if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString(machineID(n))
	}
	return b.String()
}

// scenarioStart is what right clocks show when a scenario begins, unless it says otherwise: a
// midnight, so that the windows of its limits begin where its time axis does.
const scenarioStart limiter.Instant = 1_767_225_600_000_000_000 // 2026-01-01T00:00:00Z
