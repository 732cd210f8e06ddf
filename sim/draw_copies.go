package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"penstock/cluster/ownership"
)

// CopySeeds is the first seed of the worlds that have zones, or a number of copies that is not one.
// In every second one two nodes die or stop at once, and nothing else happens. Seeds below mean
// other worlds.
const CopySeeds = 5_000_000_000

const copiesStream = 30

// drawCopies is the world of a seed from CopySeeds on.
func drawCopies(seed uint64) *plan {
	r := stream(seed, copiesStream)
	var p *plan
	if seed%2 == 0 {
		p = drawWorld(seed)
		p.copies = oneOf(r, ownership.NoCopies, ownership.OneCopy, ownership.TwoCopies,
			ownership.TwoCopies)
	} else {
		p = drawTwoDie(seed, r)
	}
	drawZones(r, p)
	return p
}

// drawTwoDie is a world in which two nodes of five to seven are gone at once, mostly with two
// copies, and perhaps two others later.
func drawTwoDie(seed uint64, r *rand.Rand) *plan {
	p := drawPlain(seed, r, 5+r.IntN(3))
	p.strict = false
	p.copies = oneOf(r, ownership.NoCopies, ownership.TwoCopies, ownership.TwoCopies,
		ownership.TwoCopies)
	victims := r.Perm(len(p.machines))
	at := within(r, p, 0.2, 0.4)
	for i := 0; i+2 <= len(victims)-3; i += 2 {
		wrong, right := crashes, kind(0)
		if r.IntN(4) == 0 {
			wrong, right = freezes, thaws
		}
		for _, v := range victims[i : i+2] {
			p.faults = append(p.faults, fault{at: at, kind: wrong, node: v})
			if right != 0 {
				p.faults = append(p.faults, fault{at: at + 5*time.Second, kind: right, node: v})
			}
		}
		at += p.settles() + 5*time.Second + time.Duration(r.Int64N(int64(5*time.Second)))
	}
	p.length = max(p.length, at)
	p.endPlain(r)
	return p
}

// drawZones puts machines into up to three zones in two of three worlds; some name none.
func drawZones(r *rand.Rand, p *plan) {
	if r.IntN(3) == 0 {
		return
	}
	zones := []string{"a", "b", "c"}[:1+r.IntN(3)]
	if r.IntN(4) == 0 {
		zones = append(slices.Clone(zones), "")
	}
	for i := range p.machines {
		p.machines[i].zone = oneOf(r, zones...)
	}
}
