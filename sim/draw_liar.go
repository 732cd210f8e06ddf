package sim

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// drawLiar has one member lie about keys of others, while others fail, come and leave, one after
// the other. It is silent from each of that until all has settled: to a member that is about to
// take a partition over, nothing is promised of what it says (docs/security.md). In worlds of six
// and more two others may be missing at a time.
func drawLiar(r *rand.Rand, p *plan) {
	n := 5 + r.IntN(3)
	p.machines = make([]machinePlan, n)
	p.copies = oneOf(r, ownership.OneCopy, ownership.OneCopy, ownership.TwoCopies)
	others := r.Perm(n)
	g := &liarPlan{node: others[0]}
	missing := 1
	if n > 5 {
		missing += r.IntN(2)
	}
	p.drawOneByOne(r, others[1:], missing)
	d := &p.demands[0]
	g.keys = p.keysOfOthers(g.node, missing, d.name, d.keys)
	d.among, d.keys = g.keys, len(g.keys)
	g.lies = p.drawLies(r, others[1:])
	p.liar = g
}

// drawOneByOne has something happen to one of some machines after the other, each time when all has
// settled, and at most so many of them be missing at a time.
func (p *plan) drawOneByOne(r *rand.Rand, among []int, missing int) {
	at := 5*time.Second + time.Duration(r.Int64N(int64(10*time.Second)))
	add := func(k kind, i int) { p.faults = append(p.faults, fault{at: at, kind: k, node: i}) }
	settled := func() { at += p.settles() + time.Duration(r.Int64N(int64(10*time.Second))) }
	gone := 0
	if r.IntN(3) == 0 {
		last := len(among) - 1
		p.machines[among[last]].later = true
		add(joins, among[last])
		settled()
	}
	for range 2 + r.IntN(3) {
		i := among[gone+r.IntN(len(among)-gone)]
		lasts := 500*time.Millisecond + time.Duration(r.Int64N(int64(4*time.Second)))
		switch r.IntN(5) {
		case 0: // for good, or for as long as it takes until others have taken over
			add(crashes, i)
			if settled(); gone+1 < missing && r.IntN(2) == 0 {
				k := slices.Index(among, i)
				among[gone], among[k] = among[k], among[gone]
				gone++
				continue
			}
			add(boots, i)
		case 1:
			add(crashes, i)
			at += lasts
			add(boots, i)
		case 2:
			add(freezes, i)
			at += lasts
			add(thaws, i)
		case 3:
			add(restarts, i)
		case 4:
			add(leaves, i)
			settled()
			add(joins, i)
		}
		settled()
	}
	p.length = at
}

// drawLies draws when something is said, to which members. It is often said to several at once.
func (p *plan) drawLies(r *rand.Rand, others []int) (all []lie) {
	mean := oneOf(r, 50*time.Millisecond, 300*time.Millisecond, time.Second)
	at := 3 * time.Second
	for ; at < p.length; at += time.Duration(r.ExpFloat64() * float64(mean)) {
		if p.unsettled(at) {
			continue
		}
		says := r.Uint64()
		for _, to := range oneOf(r, others, others[r.IntN(len(others)):][:1]) {
			all = append(all, lie{at: at, to: to, says: says})
		}
	}
	return all
}

// unsettled reports whether something has happened to a member shortly before then, or happens
// before a message has come.
func (p *plan) unsettled(at time.Duration) bool {
	return slices.ContainsFunc(p.faults, func(f fault) bool {
		return at > f.at-2*calmDelay && at < f.at+p.settles()
	})
}

// keysOfOthers are keys that a member never owns, nor is one of the two to own next, as long as no
// more than so many others are missing.
func (p *plan) keysOfOthers(member, missing int, name string, n int) (keys []string) {
	var all []string
	for i := range p.machines {
		if i != member {
			all = append(all, machineID(i))
		}
	}
	id := machineID(member)
	var rings []*placement
	for gone := range subsets(len(all), missing+2) {
		here := []string{id}
		for i, other := range all {
			if gone&(1<<i) == 0 {
				here = append(here, other)
			}
		}
		rings = append(rings, placed(here))
	}
	for i := 1; len(keys) < n; i++ {
		key := name + "-" + strconv.Itoa(i)
		k := p.partition(limiter.Hash(key))
		if !slices.ContainsFunc(rings, func(x *placement) bool { return x.ownerOf(k) == id }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// subsets are the sets of up to so many of n things, one bit each.
func subsets(n, most int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for set := range 1 << n {
			if bits.OnesCount(uint(set)) <= most && !yield(set) {
				return
			}
		}
	}
}
