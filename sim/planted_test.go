package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// disguise is a door with a fault in it.
type disguise struct {
	door
	check   func(d door, r *cluster.Request, out []cluster.Decision) error
	deliver func(d door, a *cluster.Ask) *cluster.Answer
}

func (d disguise) Check(r *cluster.Request, out []cluster.Decision) error {
	if d.check == nil {
		return d.door.Check(r, out)
	}
	return d.check(d.door, r, out)
}

func (d disguise) Deliver(a *cluster.Ask) *cluster.Answer {
	if d.deliver == nil {
		return d.door.Deliver(a)
	}
	return d.deliver(d.door, a)
}

func onDeliver(f func(d door, a *cluster.Ask) *cluster.Answer) func(*process) {
	return func(p *process) { p.door = disguise{door: p.door, deliver: f} }
}

func onCheck(f func(p *process, d door, r *cluster.Request, out []cluster.Decision) error) func(*process) {
	return func(p *process) {
		p.door = disguise{door: p.door, check: func(d door, r *cluster.Request, out []cluster.Decision) error { return f(p, d, r, out) }}
	}
}

// The harness itself must be able to fail: each of these faults breaks a promise, and has to be caught within a few
// seeds, by a promise that it may break.
func TestPlantedFaultsAreCaught(t *testing.T) {
	faults := []struct {
		name  string
		by    []promise // any of these
		plant func(p *process)
	}{
		{"one node forgets its counters every second", []promise{exact, bounded, kept}, func(p *process) {
			if p.machine.index != 0 {
				return
			}
			var forget func()
			forget = func() {
				for _, a := range p.machine.world.judge.order {
					p.node.Table().Reset(p.Now(), a.limit, a.key, a.hash)
				}
				p.AfterFunc(time.Second, forget)
			}
			p.AfterFunc(time.Second, forget)
		}},
		{"a take that arrives twice is charged twice", []promise{exact}, onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
			for i := range a.Items {
				a.Items[i].ID = cluster.ID{}
			}
			return d.Deliver(a)
		})},
		{"a node believes that it is alone and owns everything", []promise{owned, marked}, func(p *process) {
			if p.machine.index != 1 {
				return
			}
			alone, err := cluster.NewView(p.machine.id, []cluster.Member{{ID: p.machine.id, Boot: p.boot, State: cluster.StateActive}})
			if err != nil {
				t.Fatal(err)
			}
			p.AfterFunc(time.Second, func() { p.node.SetView(alone) })
		}},
		{"a node's clock goes back by an hour", []promise{exact, inTime}, func(p *process) {
			p.clock = func() limiter.Instant {
				now := p.now()
				if p.machine.world.now > time.Second {
					now = now.Add(-time.Hour)
				}
				return now
			}
		}},
		{"refunds are dropped on the way", []promise{exact}, onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
			for i := range a.Items {
				a.Items[i].Cost = max(0, a.Items[i].Cost)
			}
			return d.Deliver(a)
		})},
		{"an owner says yes where it decided no", []promise{exact}, onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
			answer := d.Deliver(a)
			for i := range answer.Items {
				answer.Items[i].Decision.Allowed = true
			}
			return answer
		})},
		{"what was set aside of several owners is never charged", []promise{exact, bounded, kept}, onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
			for i := range a.Items {
				if it := &a.Items[i]; it.Op == cluster.OpSettle {
					it.Cost = 0
				}
			}
			return d.Deliver(a)
		})},
		{"the refusal of one of several owners is ignored", []promise{exact, bounded}, onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
			answer := d.Deliver(a)
			for i := range answer.Items {
				if a.Items[i].Op == cluster.OpReserve {
					answer.Items[i].Decision.Allowed = true
				}
			}
			return answer
		})},
		{"a node passes on a yes where it heard no", []promise{honest, bounded}, onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
			err := d.Check(r, out)
			for i := range out {
				if out[i].Source == cluster.SourceForwarded {
					out[i].Allowed = true
				}
			}
			return err
		})},
		{"more is admitted than was decided, and only clients can see it", []promise{bounded}, onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
			err := d.Check(r, out)
			for i := range out {
				if out[i].Source == cluster.SourceForwarded {
					out[i].Allowed = true
					p.machine.world.judge.said[r.Items[i].ID] = saying{first: out[i].Decision}
				}
			}
			return err
		})},
		{"a table holds a key that nobody asked for", []promise{kept}, func(p *process) {
			l := mustLimit(limiter.Spec{Name: "its own", Algorithm: limiter.FixedWindow, Limit: 1, Per: time.Hour * 24})
			p.AfterFunc(time.Second, func() { p.node.Table().Take(p.Now(), l, "key-1", limiter.Hash("key-1"), 1) })
		}},
		{"keys are told apart by their first ten bytes", []promise{exact, owned, marked}, onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
			for i := range a.Items {
				it := &a.Items[i]
				it.Key = it.Key[:min(10, len(it.Key))]
			}
			return d.Deliver(a)
		})},
		{"an owner keeps a key that lies in a frame of the network", []promise{kept, exact}, func(p *process) {
			borrowed := ""
			p.door = disguise{door: p.door, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
				answer := d.Deliver(a)
				if len(a.Items) == 0 {
					return answer
				}
				if borrowed != "" { // by now it reads otherwise
					p.node.Table().Take(p.Now(), a.Items[0].Limit, borrowed, limiter.Hash(borrowed), 1)
				}
				borrowed = a.Items[0].Key
				return answer
			}}
		}},
		{"asks are served after their deadline", []promise{inTime}, onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
			a.Deadline = a.Deadline.Add(time.Hour)
			return d.Deliver(a)
		})},
		{"decisions without the owner do not say so", []promise{marked, owned}, onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
			err := d.Check(r, out)
			for i := range out {
				out[i].Degraded = false
			}
			return err
		})},
		{"decisions without the owner are generous", []promise{exact, marked}, onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
			err := d.Check(r, out)
			for i := range out {
				if out[i].Source == cluster.SourceFallback {
					out[i].Allowed = true
				}
			}
			return err
		})},
		{"a check dawdles after its deadline", []promise{inTime}, onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
			err := d.Check(r, out)
			task := p.machine.world.tasks.running
			p.AfterFunc(20*time.Second, func() { p.machine.world.at(p.machine.world.now, func() { p.do(task.enter) }) })
			p.machine.world.tasks.wait()
			return err
		})},
		{"somebody waits for nothing", []promise{live}, onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
			err := d.Check(r, out)
			if p.machine.world.now > time.Second {
				p.machine.world.tasks.wait()
			}
			return err
		})},
		{"a timer goes on for ever", []promise{live}, func(p *process) {
			var tick func()
			tick = func() { p.AfterFunc(time.Second, tick) }
			tick()
		}},
		{"a request with an empty key is let in", []promise{refused}, onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
			r.Items = slices.DeleteFunc(r.Items, func(it cluster.Item) bool { return it.Key == "" })
			if len(r.Items) < len(out) {
				return d.Check(r, out[:len(r.Items)])
			}
			return d.Check(r, out)
		})},
		{"a key panics", []promise{sound}, onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
			if a.Items[0].Key == "key-3" {
				panic("three is not a key")
			}
			return d.Deliver(a)
		})},
	}
	const most = 60
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(most) {
				w := newWorld(draw(seed), f.plant)
				w.run()
				failure := w.judge.failure
				if failure == nil {
					continue
				}
				for _, by := range f.by {
					if failure.Promise == promiseWords[by][0] {
						t.Logf("seed %d, after %.3f s: %s", seed, failure.AtMS/1000, failure.Promise)
						return
					}
				}
				t.Fatalf("seed %d: caught as %q, which it does not break: %s", seed, failure.Promise, failure.Detail)
			}
			t.Errorf("not caught within %d seeds", most)
		})
	}
}

// Owners remember a take for two seconds. A network that brings a second copy later than that makes them charge twice,
// and the judge sees it.
func TestLateCopiesAreCaught(t *testing.T) {
	for seed := range uint64(20) {
		p := draw(seed)
		p.sky = lossy
		p.weather = weather{mean: 2 * time.Second, far: 6 * time.Second, twice: 0.5}
		w := newWorld(p, nil)
		w.run()
		if f := w.judge.failure; f != nil && f.Promise == promiseWords[once][0] {
			return
		} else if f != nil {
			t.Fatalf("seed %d: %s: %s", seed, f.Promise, f.Detail)
		}
	}
	t.Error("not caught within 20 seeds")
}

// A world that depends on anything but its seed has to be noticed, or "the same seed, the same trace" says nothing.
func TestChanceFromOutsideIsNoticed(t *testing.T) {
	careless := func(p *process) {
		p.AfterFunc(time.Duration(rand.IntN(1e9)), func() {})
	}
	first := newWorld(draw(3), careless)
	first.run()
	second := newWorld(draw(3), careless)
	second.run()
	if first.trace.sum() == second.trace.sum() {
		t.Error("two worlds with different chance inside have the same trace")
	}
}
