package sim

import (
	"testing"

	"penstock/cluster"
	"penstock/limiter"
)

// onLevel has f change what a node that decides is asked at the second level of a tree, which is a
// parent.
func onLevel(f func(it *cluster.AskItem)) func(*process) {
	return onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
		for i := range a.Items {
			if a.Items[i].Limit.Name == "level-2" {
				f(&a.Items[i])
			}
		}
		return d.Deliver(a)
	})
}

// treeFaults are found in worlds of trees, from TreeSeeds on.
func treeFaults() []planted {
	return []planted{
		{
			"a parent on another node forgets what it has set aside",
			[]promise{bounded, kept},
			onLevel(func(it *cluster.AskItem) {
				if it.Op == cluster.OpSettle {
					it.Cost = 0
				}
			}),
		},
		{
			"a parent charges what a refused check has set aside",
			[]promise{useful, kept},
			onLevel(func(it *cluster.AskItem) {
				if it.Op == cluster.OpSettle && it.Cost == 0 {
					it.Cost = 1
				}
			}),
		},
		{
			"a parent on another node is not asked for room",
			[]promise{bounded, kept},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				answer := d.Deliver(a)
				for i := range a.Items {
					out := &answer.Items[i]
					if a.Items[i].Op == cluster.OpReserve && a.Items[i].Limit.Name == "level-2" &&
						out.Status == cluster.StatusDone {
						out.Decision.Allowed, out.Decision.Hold = true, limiter.HoldOpen
					}
				}
				return answer
			}),
		},
		{
			"a node charges the limit that is named, and no parent",
			[]promise{bounded, kept, honest},
			func(p *process) {
				flat := cluster.Limits{}
				for name, l := range p.machine.world.limits {
					s := limiter.Given(l)
					s.Parent = ""
					flat[name] = mustLimit(s)
				}
				p.node.SetLimits(flat)
			},
		},
	}
}

// A seed from TreeSeeds on is a world of trees, one below is not, and in most of them something
// fails.
func TestTreeSeeds(t *testing.T) {
	if newWorld(draw(1), nil).judge.trees != nil {
		t.Error("the world of seed 1 has a tree")
	}
	failing, levels := 0, map[int]int{}
	for i := range uint64(40) {
		p := draw(TreeSeeds + i)
		if p.sky == outage {
			failing++
		}
		levels[len(p.limits)]++
		if newWorld(p, nil).judge.trees == nil {
			t.Errorf("seed %d has no tree", TreeSeeds+i)
		}
	}
	if failing < 10 || failing > 30 || len(levels) != 3 {
		t.Errorf("of 40 worlds %d with outages; levels %v", failing, levels)
	}
}

// Promise: parents count the sum of their children while nodes die: in worlds of trees each level
// is held to its limit, and in the end to what was granted.
func TestWorldsOfTrees(t *testing.T) {
	t.Parallel()
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	var counted uint64
	for i := range seeds {
		r := Run(TreeSeeds + i)
		if f := r.Failure; f != nil {
			t.Errorf("seed %d: %s: %s", TreeSeeds+i, f.Promise, f.Detail)
		}
		for _, p := range r.Promises {
			if p.Name == promiseWords[kept][0] {
				counted += p.Checked
			}
		}
	}
	if counted < 100 {
		t.Errorf("only %d levels were counted in the end", counted)
	}
}
