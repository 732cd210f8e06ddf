package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
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

func onCheck(f func(p *process, d door, r *cluster.Request, out []cluster.Decision) error) func(
	*process) {
	return func(p *process) {
		p.door = disguise{door: p.door, check: func(d door, r *cluster.Request,
			out []cluster.Decision,
		) error {
			return f(p, d, r, out)
		}}
	}
}

// The harness itself must be able to fail: each of these faults breaks a promise, and has to be
// caught by a promise that it may break, within the seeds that each change is checked with. With -v
// it prints what docs/simulator.md says of them.
func TestPlantedFaultsAreCaught(t *testing.T) {
	faults := []planted{
		{
			"one node forgets its counters every second",
			[]promise{exact, bounded, kept, lossless},
			func(p *process) {
				if p.machine.index != 0 {
					return
				}
				var forget func()
				forget = func() {
					w := p.machine.world
					for _, a := range w.judge.order {
						l := w.named[a.spec.Name].For(a.key)
						p.node.Table().Reset(p.Now(), l, a.key, a.hash)
					}
					p.AfterFunc(time.Second, forget)
				}
				p.AfterFunc(time.Second, forget)
			},
		},
		{
			"a take that arrives twice is charged twice",
			[]promise{exact},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				for i := range a.Items {
					a.Items[i].ID = cluster.ID{}
				}
				return d.Deliver(a)
			}),
		},
		{
			"a node believes that it is alone and owns everything",
			[]promise{owned, marked},
			func(p *process) {
				if p.machine.index != 1 {
					return
				}
				p.AfterFunc(time.Second, func() {
					me := ownership.Member{ID: p.machine.id, Boot: ownership.Boot(p.boot)}
					p.node.Membership().AgreeWithin(ownership.First([]ownership.Member{me}))
				})
			},
		},
		{"a node's clock goes back by an hour", []promise{exact, inTime}, func(p *process) {
			p.clock = func() limiter.Instant {
				now := p.now()
				if p.machine.world.now > time.Second {
					now = now.Add(-time.Hour)
				}
				return now
			}
		}},
		{
			"refunds are dropped on the way",
			[]promise{exact},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				for i := range a.Items {
					a.Items[i].Cost = max(0, a.Items[i].Cost)
				}
				return d.Deliver(a)
			}),
		},
		{
			"an owner says yes where it decided no",
			[]promise{exact, lossless},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				answer := d.Deliver(a)
				for i := range answer.Items {
					answer.Items[i].Decision.Allowed = true
				}
				return answer
			}),
		},
		{
			"what was set aside of several owners is never charged",
			[]promise{exact, bounded, kept},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				for i := range a.Items {
					if it := &a.Items[i]; it.Op == cluster.OpSettle {
						it.Cost = 0
					}
				}
				return d.Deliver(a)
			}),
		},
		{
			"the refusal of one of several owners is ignored",
			[]promise{exact, bounded, honest}, // a hold that is not there is refused as released
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				answer := d.Deliver(a)
				for i := range answer.Items {
					if a.Items[i].Op == cluster.OpReserve {
						answer.Items[i].Decision.Allowed = true
					}
				}
				return answer
			}),
		},
		{
			"a node passes on a yes where it heard no",
			[]promise{honest, bounded},
			onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					if out[i].Source == cluster.SourceForwarded {
						out[i].Allowed = true
					}
				}
				return err
			}),
		},
		{
			"more is admitted than was decided, and only clients can see it",
			[]promise{bounded},
			onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					if out[i].Source == cluster.SourceForwarded {
						out[i].Allowed = true
						p.machine.world.judge.answer.said.byID.put(out[i].ID,
							&saying{first: out[i].Decision})
					}
				}
				return err
			}),
		},
		{"a table holds a key that nobody asked for", []promise{kept}, func(p *process) {
			l := mustLimit(limiter.Spec{
				Name: "its own", Algorithm: limiter.FixedWindow, Limit: 1,
				Per: time.Hour * 24,
			})
			p.AfterFunc(time.Second, func() {
				p.node.Table().Take(p.Now(), l, "key-1", limiter.Hash("key-1"), 1)
			})
		}},
		{
			"keys are told apart by their first ten bytes",
			[]promise{exact, owned, marked},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				for i := range a.Items {
					it := &a.Items[i]
					it.Key = it.Key[:min(10, len(it.Key))]
				}
				return d.Deliver(a)
			}),
		},
		{
			"an owner keeps a key that lies in a frame of the network",
			[]promise{kept, exact},
			func(p *process) {
				borrowed := ""
				p.door = disguise{
					door: p.door,
					deliver: func(d door, a *cluster.Ask) *cluster.Answer {
						answer := d.Deliver(a)
						if len(a.Items) == 0 {
							return answer
						}
						if borrowed != "" { // by now it reads otherwise
							p.node.Table().Take(p.Now(), a.Items[0].Limit, borrowed,
								limiter.Hash(borrowed), 1)
						}
						borrowed = a.Items[0].Key
						return answer
					},
				}
			},
		},
		{
			"asks are served after their deadline",
			[]promise{inTime},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				a.Deadline = a.Deadline.Add(time.Hour)
				return d.Deliver(a)
			}),
		},
		{
			"decisions without the owner do not say so",
			[]promise{marked, owned},
			onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					out[i].Degraded = false
				}
				return err
			}),
		},
		{
			"decisions without the owner are generous",
			[]promise{exact, marked},
			onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					if out[i].Source == cluster.SourceFallback {
						out[i].Allowed = true
					}
				}
				return err
			}),
		},
		{
			"a check dawdles after its deadline",
			[]promise{inTime},
			onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				task := p.machine.world.tasks.running
				p.AfterFunc(20*time.Second, func() {
					p.machine.world.at(p.machine.world.now, func() { p.do(task.enter) })
				})
				p.machine.world.tasks.wait()
				return err
			}),
		},
		{
			"somebody waits for nothing",
			[]promise{live},
			onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				if p.machine.world.now > time.Second {
					p.machine.world.tasks.wait()
				}
				return err
			}),
		},
		{"a timer goes on for ever", []promise{live}, func(p *process) {
			var tick func()
			tick = func() { p.AfterFunc(time.Second, tick) }
			tick()
		}},
		{
			"a request with an empty key is let in",
			[]promise{refused},
			onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
				r.Items = slices.DeleteFunc(r.Items, func(it cluster.Item) bool {
					return it.Key == ""
				})
				if len(r.Items) < len(out) {
					return d.Check(r, out[:len(r.Items)])
				}
				return d.Check(r, out)
			}),
		},
		{"a key panics", []promise{sound}, onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
			if a.Items[0].Key == "key-3" {
				panic("three is not a key")
			}
			return d.Deliver(a)
		})},
	}
	faults = slices.Concat(faults, handoverFaults(), foreignFaults(), strictFaults(),
		deniedFaults())
	ofHolds := holdFaults()
	if !testing.Short() {
		faults = append(faults, rareFaults()...)
		ofHolds = append(ofHolds, rareHoldFaults()...)
	}
	var rows []*string
	catch := func(faults []planted, first uint64) {
		for i := range faults {
			f, row := &faults[i], new(string)
			rows = append(rows, row)
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				if c, ok := f.catch(t, first); ok {
					*row = fmt.Sprintf("| %s | %s | %d | %.3f s | %d |\n", f.name, c.promise,
						c.seed, c.at, c.decisions)
				}
			})
		}
	}
	catch(faults, 1)
	catch(ofHolds, HoldSeeds)
	catch(diskFaults(), DiskSeeds)
	catch(slices.Concat(calendarFaults(), lateFaults()), CalendarSeeds)
	catch(copyFaults(), CopySeeds)
	catch(treeFaults(), TreeSeeds)
	t.Cleanup(func() { // when all have ended
		table := "| fault | caught by | seed | at | decisions |\n|---|---|---|---|---|\n"
		for _, row := range rows {
			table += *row
		}
		t.Log("\n" + table)
	})
}

// planted is a fault, and the promises that it may break: any of these.
type planted struct {
	name  string
	by    []promise
	plant func(p *process)
}

// caught says what a fault was caught by: which promise, the first seed with a world that broke it,
// when in that world, and after how many decisions that clients have heard in all worlds up to
// then.
type caught struct {
	promise   string
	seed      uint64
	at        float64
	decisions int
}

// ciSeeds are how many seeds each change of the code is checked with, from 1 on.
const ciSeeds = 300

// catch looks for the fault in the worlds of seeds from first on.
func (f *planted) catch(t *testing.T, first uint64) (c caught, ok bool) {
	t.Helper()
	for seed := first; seed < first+ciSeeds; seed++ {
		w := newWorld(draw(seed), f.plant)
		w.run()
		for _, l := range w.judge.tallies {
			c.decisions += l.Asked
		}
		failure := w.judge.failure
		if failure == nil {
			continue
		}
		c.promise, c.seed, c.at = failure.Promise, seed, failure.AtMS/1000
		if !slices.ContainsFunc(f.by, func(p promise) bool {
			return failure.Promise == promiseWords[p][0]
		}) {
			t.Errorf("seed %d: caught as %q, which it does not break: %s", seed, failure.Promise,
				failure.Detail)
			return c, false
		}
		return c, true
	}
	t.Errorf("not caught within %d seeds, %d decisions", ciSeeds, c.decisions)
	return c, false
}

// onMove plants a fault in what a node hears about partitions, before it hears it, and in what it
// answers.
func onMove(before func(p *process, m *cluster.Move),
	after func(p *process, m *cluster.Move, a *cluster.MoveAnswer),
) func(*process) {
	return func(p *process) {
		p.door = disguise{door: p.door, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
			if a.Move != nil && before != nil {
				before(p, a.Move)
			}
			answer := d.Deliver(a)
			if a.Move != nil && answer.Move != nil && after != nil {
				after(p, a.Move, answer.Move)
			}
			return answer
		}}
	}
}

// handoverFaults are of the kind that loses counters when nodes come and go.
func handoverFaults() []planted {
	return []planted{
		{
			"a gift comes without the last changes of its counters",
			[]promise{exact, bounded, kept, lossless},
			onMove(func(_ *process, m *cluster.Move) {
				if len(m.Gift) > 0 {
					m.Entries, m.Holds = nil, nil
				}
			}, nil),
		},
		{
			"partitions change hands without any of their counters",
			[]promise{exact, bounded, kept},
			onMove(func(_ *process, m *cluster.Move) {
				m.Entries, m.Holds = nil, nil
			}, nil),
		},
		{
			"copies for heirs are dropped and said to be taken in",
			[]promise{exact, bounded, kept, lossless},
			onMove(func(p *process, m *cluster.Move) {
				v := p.node.View()
				m.Entries = slices.DeleteFunc(m.Entries, func(e limiter.Entry) bool {
					o := v.Owner(limiter.Hash(e.Key))
					return o >= 0 && v.Members[o].ID == m.ID
				})
			}, nil),
		},
		// The claimer has no whole copy, so it marks what it decides, though nothing has failed.
		{
			"the holder of a partition calls it free",
			[]promise{owned, exact, once, marked, kept}, // two decide, and each counts alone
			onMove(nil, func(_ *process, _ *cluster.Move, a *cluster.MoveAnswer) {
				for i := range a.Standings {
					if a.Standings[i] == cluster.StandingHeld {
						a.Standings[i] = cluster.StandingFree
					}
				}
			}),
		},
		{
			"a gift is refused after it was taken",
			[]promise{owned, exact, once, agreed},
			onMove(nil, func(_ *process, m *cluster.Move, a *cluster.MoveAnswer) {
				a.Refused = slices.Clone(m.Gift)
			}),
		},
		{
			"a gift is confirmed and not taken",
			[]promise{exact, bounded, kept, marked, agreed},
			onMove(func(_ *process, m *cluster.Move) {
				m.Gift = nil
			}, nil),
		},
		{
			"takes that are remembered do not move with a gift",
			[]promise{exact, once},
			onMove(func(_ *process, m *cluster.Move) {
				m.Taken = nil
			}, nil),
		},
	}
}

// strictFaults show only where something goes wrong with machines or lines, or in the end, and are
// no worse than what was forgiven there once.
func strictFaults() []planted {
	return []planted{
		{
			"a node's clock hides from it that it was stopped",
			[]promise{owned, exact, bounded, inTime, honest},
			func(p *process) {
				last, hidden := p.now(), time.Duration(0)
				p.clock = func() limiter.Instant {
					now := p.now()
					if gap := time.Duration(now - last); gap > 250*time.Millisecond &&
						p.machine.thawed >= 0 {
						hidden += gap
					}
					last = now
					return now.Add(-hidden)
				}
			},
		},
		{"a gift is not taken from the giver", []promise{agreed}, func(p *process) {
			var offered []uint16
			onMove(func(_ *process, m *cluster.Move) {
				offered, m.Gift = m.Gift, nil
			}, func(_ *process, _ *cluster.Move, a *cluster.MoveAnswer) {
				a.Refused = slices.Clone(offered)
			})(p)
		}},
	}
}

// rareFaults show in few worlds only, so it takes long to find one.
func rareFaults() []planted {
	return []planted{
		{
			"a gift comes once more, a second later, as a new one",
			[]promise{exact, useful, owned, marked},
			comesAgain,
		},
	}
}

// foreignFaults are those that other limiters are known for.
func foreignFaults() []planted {
	return []planted{
		{
			"a late copy overwrites what an owner has counted since",
			[]promise{exact, bounded, kept},
			onMove((*process).echo, nil),
		},
		{"nodes send askers round in a circle", []promise{marked, owned}, func(p *process) {
			p.door = disguise{door: p.door, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
				answer, v := d.Deliver(a), p.node.View()
				for i := range answer.Items {
					if next := (v.Self + 1) % len(v.Members); next != v.Self {
						answer.Items[i] = cluster.AnswerItem{
							Status: cluster.StatusNotOwner,
							Owner:  v.Members[next].ID,
						}
					}
				}
				return answer
			}}
		}},
		{"deadlines travel as times on the asker's clock", []promise{inTime}, func(p *process) {
			p.door = disguise{door: p.door, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
				a.Deadline = p.letter().ask.Deadline
				return d.Deliver(a)
			}}
		}},
		{
			"windows end by the asking node's clock, if that is late",
			[]promise{exact, bounded},
			byAskersClock,
		},
	}
}

// letter is what p is just reading.
func (p *process) letter() *letter { return p.machine.world.tasks.running.job.(*delivery).letter }

// echo has the sender of m get its own copies back after a while, in the place of what it has
// counted meanwhile.
func (p *process) echo(m *cluster.Move) {
	w := p.machine.world
	sender, from := w.byID[m.ID], m.From
	entries := slices.Clone(m.Entries)
	for i := range entries {
		entries[i].Key, entries[i].State = strings.Clone(entries[i].Key),
			slices.Clone(entries[i].State)
	}
	p.AfterFunc(500*time.Millisecond, func() {
		o := sender.process
		if o == nil || o.boot != from {
			return
		}
		for i := range entries {
			if o.node.Holds(limiter.Hash(entries[i].Key)) {
				o.node.Table().Import(o.Now(), &entries[i], true)
			}
		}
	})
}

// comesAgain delivers every gift twice, the second time as if it were a new one.
func comesAgain(p *process) {
	const apart = 1000
	inner, last := p.door, make(map[uint64]uint64) // by boot
	p.door = disguise{door: inner, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
		m := a.Move
		if m == nil || m.Sequence == 0 {
			return d.Deliver(a)
		}
		m.Sequence *= apart // leaves room in between, and the order as it is
		last[m.From] = max(last[m.From], m.Sequence)
		if len(m.Gift) > 0 {
			again := *m
			again.Gift, again.Entries = slices.Clone(m.Gift), slices.Clone(m.Entries)
			for i := range again.Entries {
				e := &again.Entries[i]
				e.Key, e.State = strings.Clone(e.Key), slices.Clone(e.State)
			}
			again.Taken, again.Holds = nil, nil
			p.AfterFunc(time.Second, func() {
				last[again.From]++
				again.Sequence, again.Term = last[again.From], again.Term+1<<40
				inner.Deliver(&cluster.Ask{
					Hop: 1, Deadline: p.Now().Add(time.Second),
					Move: &again,
				})
			})
		}
		return d.Deliver(a)
	}}
}

// byAskersClock has p decide by the clock of the node that asks, if that clock is late: with one
// that is ahead p would think that it was stopped.
func byAskersClock(p *process) {
	var asker *process
	p.clock = func() limiter.Instant {
		if asker != nil {
			return min(p.now(), asker.now())
		}
		return p.now()
	}
	p.door = disguise{door: p.door, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
		if len(a.Items) == 0 {
			return d.Deliver(a)
		}
		asker = p.letter().from
		defer func() { asker = nil }()
		a.Deadline = a.Deadline.Add(time.Duration(p.clock() - p.now()))
		return d.Deliver(a)
	}}
}

// Owners remember a take for two seconds. A second copy that comes later than that has them charge
// twice, and the judge sees it.
func TestLateCopiesAreCaught(t *testing.T) {
	late := planted{
		"asks arrive once more after three seconds",
		[]promise{once, exact},
		func(p *process) {
			p.door = disguise{door: p.door, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
				if len(a.Items) > 0 && a.Move == nil && a.Items[0].Hold == nil {
					again := *a
					again.Items, again.Deadline = slices.Clone(a.Items), a.Deadline.Add(time.Hour)
					for i := range again.Items {
						again.Items[i].Key = strings.Clone(a.Items[i].Key)
					}
					p.AfterFunc(3*time.Second, func() { d.Deliver(&again) })
				}
				return d.Deliver(a)
			}}
		},
	}
	late.catch(t, 1)
}

// A world that depends on anything but its seed has to be noticed, or "the same seed, the same
// trace" says nothing.
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
