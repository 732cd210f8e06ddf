package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// kindFaults show in worlds of kinds, where every unit is counted and availability is demanded.
func kindFaults() []kindFault {
	return []kindFault{
		{"join-then-crash", planted{
			"the breaker never closes again", []promise{ready}, neverCloses,
		}},
		{"join-then-crash", planted{
			"copies are said to be taken in, and dropped",
			[]promise{lossless, exact},
			onMove(func(_ *process, m *cluster.Move) {
				if len(m.Gift) == 0 {
					m.Entries = nil
				}
			}, nil),
		}},
		{"join-then-crash", planted{
			"one partition in eight is never copied to its heir",
			[]promise{lossless, ready},
			onMove((*process).copiesSome, nil),
		}},
		{"owner-and-heir", planted{
			"copies go on to an heir that a cut keeps from taking them",
			[]promise{lossless, warned, ready},
			func(p *process) { p.hears = believesCopied },
		}},
		{"owner-and-heir", planted{
			"a node that goes on without a copy does not say so",
			[]promise{warned, lossless},
			saysNoLoss,
		}},
		{"join-then-crash", planted{
			"no member gives way to a claim, for it has heard of a higher term",
			[]promise{ready, agreed, owned},
			onMove(nil, func(p *process, _ *cluster.Move, a *cluster.MoveAnswer) {
				for i := range a.Standings {
					if s := a.Standings[i]; p.machine.world.now > time.Second &&
						(s == cluster.StandingFree || s == cluster.StandingBereft) {
						a.Standings[i] = cluster.StandingBusy
					}
				}
			}),
		}},
		{"liar", planted{
			"what a liar says is heard as if another keeper of the key had said it",
			[]promise{exact, lossless, useful, warned, ready, kept},
			onMove((*process).takesForKeeper, nil),
		}},
	}
}

// takesForKeeper has p hear what a liar says of a key from the owner of that, or from the heir if p
// is the owner.
func (p *process) takesForKeeper(m *cluster.Move) {
	g, v := p.machine.world.liar, p.node.View()
	if m.ID != machineID(g.node) || len(m.Entries) == 0 || v.Ring == nil {
		return
	}
	k := v.Partition(limiter.Hash(m.Entries[0].Key))
	i := v.Ring.Owner(k)
	if v.Ring.Members()[i] == p.machine.id {
		i, _ = v.Ring.Heir(k)
	}
	if o := v.Find(v.Ring.Members()[i]); o >= 0 {
		m.ID, m.From = v.Members[o].ID, v.Members[o].Boot
	}
}

// kindFault is a fault that shows in the worlds of one kind.
type kindFault struct {
	kind string
	planted
}

// neverCloses has p hear nothing any more of each member of which it has once heard nothing.
func neverCloses(p *process) {
	broken := make(map[string]bool)
	p.hears = func(calls []cluster.Call) {
		for i := range calls {
			c := &calls[i]
			if broken[c.To.ID] = broken[c.To.ID] || c.Err != nil; broken[c.To.ID] {
				c.Answer, c.Err = nil, errSilence
			}
		}
	}
}

// copiesSome has p not hear of copies of one partition in eight.
func (p *process) copiesSome(m *cluster.Move) {
	if len(m.Gift) > 0 {
		return
	}
	skipped := func(k uint16) bool { return k%8 == 0 }
	m.Begin = slices.DeleteFunc(slices.Clone(m.Begin), skipped)
	m.Whole = slices.DeleteFunc(slices.Clone(m.Whole), skipped)
	m.Entries = slices.DeleteFunc(slices.Clone(m.Entries), func(e limiter.Entry) bool {
		return skipped(uint16(p.machine.world.plan.partition(limiter.Hash(e.Key))))
	})
}

// believesCopied takes each copy that was not answered for one that was taken in.
func believesCopied(calls []cluster.Call) {
	for i := range calls {
		c := &calls[i]
		if m := c.Ask.Move; c.Err != nil && m != nil && m.Sequence != 0 && len(m.Gift) == 0 {
			c.Answer, c.Err = &cluster.Answer{Move: &cluster.MoveAnswer{Applied: true}}, nil
		}
	}
}

// saysNoLoss takes the marks off what p decides as the holder of a key, and off what it passes on.
func saysNoLoss(p *process) {
	p.door = disguise{
		door: p.door,
		deliver: func(d door, a *cluster.Ask) *cluster.Answer {
			answer := d.Deliver(a)
			for i := range answer.Items {
				answer.Items[i].Degraded = false
			}
			return answer
		},
		check: func(d door, r *cluster.Request, out []cluster.Decision) error {
			err := d.Check(r, out)
			for i := range out {
				if out[i].Source != cluster.SourceFallback {
					out[i].Degraded, out[i].Bound = false, 0
				}
			}
			return err
		},
	}
}

// Promise: the judges of loss and of availability can fail. The same worlds hold without the fault.
// With -v it prints what docs/simulator.md says of them.
func TestPlantedFaultsOfKindsAreCaught(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	fmt.Fprintf(&table, "| fault | caught by | world | at |\n|---|---|---|---|\n")
	for _, f := range kindFaults() {
		t.Run(f.name, func(t *testing.T) {
			first := firstOfKind(f.kind)
			for i := range uint64(20) {
				seed := first + i
				w := newWorld(draw(seed), nil)
				if w.run(); w.judge.failure != nil {
					continue
				}
				w = newWorld(draw(seed), f.plant)
				w.run()
				failure := w.judge.failure
				if failure == nil {
					continue
				}
				if !slices.ContainsFunc(f.by, func(p promise) bool {
					return promiseWords[p][0] == failure.Promise
				}) {
					t.Fatalf("seed %d: caught as %q: %s", seed, failure.Promise, failure.Detail)
				}
				fmt.Fprintf(&table, "| %s | %s | %d of %s | %.3f s |\n", f.name, failure.Promise,
					i+1, f.kind, failure.AtMS/1000)
				return
			}
			t.Error("not caught")
		})
	}
	t.Log("\n" + table.String())
}

// firstOfKind is the first seed of the worlds of a kind.
func firstOfKind(name string) uint64 {
	k := slices.IndexFunc(worldKinds, func(k worldKind) bool { return k.name == name })
	return firstSeed(k)
}
