package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// TreeSeeds is the first seed of worlds that have limits in a tree, and no others. Seeds below mean
// other worlds.
const TreeSeeds = 6_000_000_000

const (
	treesStream       = 31
	treeTrafficStream = 32
)

// drawTrees is the world of a seed from TreeSeeds on. In a third of the worlds nothing goes wrong;
// in the others nodes die, stop, are cut off, come and leave while trees are charged.
func drawTrees(seed uint64) *plan {
	r := stream(seed, treesStream)
	p := &plan{seed: seed, sky: oneOf(r, calm, lossy, outage, outage), machines: drawMachines(r)}
	for i := range p.machines { // clocks out of step have worlds of their own
		p.machines[i].clock.start = p.machines[0].clock.start
	}
	p.weather = drawWeather(r, p.sky)
	p.limits = drawTree(r)
	p.sweepEvery = 5 * time.Second
	p.length = time.Duration(2+r.IntN(20)) * time.Second
	p.traffic = traffic{
		requests: 100 + r.IntN(700), keys: oneOf(r, 2, 6, 40), skew: "uniform", trees: true,
		crowd: oneOf(r, 0, 0.3, 0.9), batch: oneOf(r, 0, 0.2), together: oneOf(r, 0, 0.2),
		again: oneOf(r, 0, 0.1, 0.3), odd: oneOf(r, 0, 0.2), broken: oneOf(r, 0, 0.02),
	}
	p.traffic.gap = time.Duration(float64(p.length) /
		(float64(p.traffic.requests) * (1 - p.traffic.crowd)))
	p.gossip = drawGossip(r)
	if p.sky == outage {
		if p.faults = drawFaults(r, len(p.machines), p.length); r.IntN(2) == 0 {
			p.faults = drawLoneCrash(r, p)
		}
	}
	if r.IntN(2) == 0 {
		drawMembers(r, p)
		p.faults = slices.DeleteFunc(p.faults, func(f fault) bool { return f.kind == steps })
	}
	p.distances = drawDistances(r, len(p.machines))
	return p
}

// drawLoneCrash has one machine crash, and come back when all is well again; nothing else happens.
func drawLoneCrash(r *rand.Rand, p *plan) []fault {
	p.weather.loss, p.weather.twice = 0, 0
	at, node := within(r, p, 0.2, 0.8), r.IntN(len(p.machines))
	return []fault{
		{at: at, kind: crashes, node: node},
		{at: at + p.settles() + time.Second, kind: boots, node: node},
	}
}

// drawTree draws two to four levels, the lowest first. In half of the worlds nothing comes back
// before the end, so that all that was charged can be counted there.
func drawTree(r *rand.Rand) []rule {
	rules := make([]rule, 2+r.IntN(3))
	whole := r.IntN(2) == 0
	for i := range rules {
		s := &rules[i].Spec
		s.Algorithm = oneOf(r, limiter.FixedWindow, limiter.SlidingLog, limiter.TokenBucket)
		s.Per = time.Hour
		if !whole {
			s.Algorithm = oneOf(r, limiter.GCRA, limiter.FixedWindow, limiter.SlidingWindow,
				limiter.SlidingLog, limiter.TokenBucket, limiter.SlidingCounter)
			s.Per = oneOf(r, time.Second, 7*time.Second, time.Minute)
		}
		s.Name = fmt.Sprintf("level-%d", i+1)
		s.Limit = int64(i+1) * oneOf[int64](r, 3, 10, 30, 100)
		switch s.Algorithm {
		case limiter.GCRA:
			s.Burst = oneOf[int64](r, 3, 30)
		case limiter.FixedWindow, limiter.TokenBucket:
			s.Anchor = limiter.FirstHit
		case limiter.SlidingLog:
			s.Limit = min(s.Limit, 50)
		case limiter.SlidingCounter:
			s.Buckets = oneOf(r, 5, 10)
		}
		s.OnError = oneOf(r, limiter.ErrorLocal, limiter.ErrorLocal, limiter.ErrorDeny)
		if i > 0 {
			rules[i-1].Parent = s.Name
		}
	}
	return rules
}

// treeClients draw the traffic of a world of trees: checks of the lowest level mostly, which have
// parents in common.
type treeClients struct{ clients }

func newTreeClients(w *world) *treeClients {
	c := &treeClients{clients{world: w, dice: stream(w.plan.seed, treeTrafficStream)}}
	c.left = w.plan.traffic.requests
	return c
}

// next draws a request, and when the one after it comes.
func (c *treeClients) next(a *arrival) bool {
	if c.left == 0 {
		return false
	}
	c.left--
	t := &c.world.plan.traffic
	*a = arrival{at: c.at, patience: cluster.DefaultDeadline, items: []cluster.Item{c.treeItem()}}
	switch {
	case c.chance(t.broken):
		a.broken = true
		bad := c.treeItem()
		bad.Limit, bad.Key = c.world.rules[0].limit.Name, "a"
		bad.Op, bad.Cost = cluster.OpTake, 1
		a.items = append(a.items, bad)
	case c.chance(t.together):
		a.atomic = true
		a.items = append(a.items, c.treeItem())
		for i := range a.items {
			a.items[i].Op, a.items[i].Cost = cluster.OpTake, max(1, a.items[i].Cost)
		}
	case c.chance(t.batch):
		for range c.dice.IntN(3) {
			a.items = append(a.items, c.treeItem())
		}
	}
	c.call(a)
	if !c.chance(t.crowd) {
		c.at += time.Duration(c.dice.ExpFloat64() * float64(t.gap))
	}
	return true
}

// treeItem draws a check of one level: key "b/a/3" of the lowest of three.
func (c *treeClients) treeItem() cluster.Item {
	rules := c.world.rules
	level := 0
	if c.chance(0.2) {
		level = c.dice.IntN(len(rules))
	}
	parts := []string{string(rune('a' + c.dice.IntN(2)))}
	for i := len(rules) - 2; i > level; i-- {
		parts = append(parts, string(rune('a'+c.dice.IntN(2))))
	}
	if level < len(rules)-1 {
		parts = append(parts, fmt.Sprint(c.dice.IntN(c.world.plan.traffic.keys)))
	}
	it := cluster.Item{
		Limit: rules[level].limit.Name, Key: strings.Join(parts, "/"),
		Cost: 1 + c.dice.Int64N(3),
	}
	if c.chance(c.world.plan.traffic.odd) {
		switch c.dice.IntN(4) {
		case 0:
			it.Op = cluster.OpPeek
		case 1:
			it.Cost = 0
		case 2:
			it.Cost = capacityOf(&rules[level].limit.Spec) + 1
		case 3:
			it.Cost = 5 + c.dice.Int64N(20)
		}
	}
	return it
}
