package sim

import (
	"math/rand/v2"
	"time"

	"penstock/cluster/ownership"
)

// LateSeeds is the first seed of worlds in which much comes late. Seeds below mean other worlds.
const LateSeeds = 7_000_000_000

const lateStream = 24

// lateMost is how late a message is at most: there and back it takes less than a member may be
// silent.
const lateMost = 150 * time.Millisecond

// drawLate is the world of a seed from LateSeeds on. Members come and go, often, while nothing is
// lost and much is late, though nobody is taken for dead: what is sent on one or two lines, or
// some of all messages. So gifts, copies and claims of one change of hands come while the next ones
// are under way.
func drawLate(seed uint64) *plan {
	r := stream(seed, lateStream)
	p := drawPlain(seed, r, 3+r.IntN(3))
	p.strict, p.sky = false, lossy
	drawLateness(r, p)
	p.gossip = drawGossip(r)
	p.copies = oneOf(r, ownership.OneCopy, ownership.OneCopy, ownership.TwoCopies)
	drawComings(r, p)
	p.endPlain(r)
	return p
}

// drawLateness makes all messages late, some more than others, or those on some lines.
func drawLateness(r *rand.Rand, p *plan) {
	n := len(p.machines)
	p.weather.far, p.weather.inOrder = lateMost, r.IntN(3) == 0
	if r.IntN(3) == 0 {
		p.weather.mean = oneOf(r, 10*time.Millisecond, 30*time.Millisecond, 100*time.Millisecond)
		return
	}
	for range 1 + r.IntN(2) {
		i := r.IntN(n)
		p.distances = append(p.distances, distance{
			from: i, to: (i + 1 + r.IntN(n-1)) % n,
			more: time.Duration(r.Int64N(int64(lateMost))),
		})
	}
}

// drawComings has members leave, come back and restart all the time. The first one is always there.
func drawComings(r *rand.Rand, p *plan) {
	n := len(p.machines)
	gone := make([]bool, n)
	if n > 3 {
		gone[n-1], p.machines[n-1].later = true, true
	}
	pause := oneOf(r, 300*time.Millisecond, time.Second, 4*time.Second)
	for at := 3 * time.Second; at < p.length-10*time.Second; {
		i := 1 + r.IntN(n-1)
		does := restarts
		switch {
		case gone[i]:
			does = joins
		case r.IntN(3) > 0:
			does = leaves
		}
		p.faults = append(p.faults, fault{at: at, kind: does, node: i})
		if gone[i] = does == leaves; gone[i] {
			at += lingers
		}
		at += pause/2 + time.Duration(r.Int64N(int64(pause)))
	}
}
