package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// ofHolds plants a fault in what the node that decides hears about holds, before it hears it, and
// in what it answers.
func ofHolds(op cluster.Op, before func(it *cluster.AskItem),
	after func(p *process, it *cluster.AskItem, out *cluster.AnswerItem),
) func(*process) {
	return func(p *process) {
		p.door = disguise{door: p.door, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
			for i := range a.Items {
				if it := &a.Items[i]; it.Op == op && before != nil {
					before(it)
				}
			}
			answer := d.Deliver(a)
			for i := range a.Items {
				if it := &a.Items[i]; it.Op == op && after != nil && answer.Items[i].Status ==
					cluster.StatusDone {
					after(p, it, &answer.Items[i])
				}
			}
			return answer
		}}
	}
}

// charge has p charge cost to the key of it as if it had been asked to.
func charge(p *process, it *cluster.AskItem, cost int64) {
	p.node.Table().Do(p.Now(), it.Limit, it.Key, limiter.Hash(it.Key),
		limiter.Request{Cost: cost, Report: cost > 0})
}

// holdFaults are faults in what is set aside. They show in worlds of holds.
func holdFaults() []planted {
	return []planted{
		{
			"a settlement is taken for a cancellation",
			[]promise{exact, aside},
			ofHolds(cluster.OpSettle, func(it *cluster.AskItem) {
				it.Cost = 0
			}, nil),
		},
		{
			"a settlement is charged twice",
			[]promise{useful, exact},
			ofHolds(cluster.OpSettle, nil,
				func(p *process, it *cluster.AskItem, out *cluster.AnswerItem) {
					if out.Decision.Hold == limiter.HoldSettled {
						charge(p, it, it.Cost)
					}
				}),
		},
		{
			"a settlement gives back more than was held",
			[]promise{exact, kept},
			ofHolds(cluster.OpSettle, nil,
				func(p *process, it *cluster.AskItem, out *cluster.AnswerItem) {
					if out.Decision.Hold == limiter.HoldSettled {
						charge(p, it, -20)
					}
				}),
		},
		{
			"a hold is promised where it was refused",
			[]promise{exact, aside},
			ofHolds(cluster.OpReserve, nil,
				func(_ *process, _ *cluster.AskItem, out *cluster.AnswerItem) {
					out.Decision.Allowed, out.Decision.Hold = true, limiter.HoldOpen
				}),
		},
		{
			"open holds are lost in a gift",
			[]promise{aside},
			onMove(func(_ *process, m *cluster.Move) {
				m.Holds = nil
			}, nil),
		},
		{
			"less time is left of a hold where it has travelled to",
			[]promise{aside},
			onMove(func(_ *process, m *cluster.Move) {
				for i := range m.Holds {
					m.Holds[i].Left -= 2 * time.Millisecond
				}
			}, nil),
		},
		{
			"permits of clients that have died never come back",
			[]promise{aside},
			ofHolds(cluster.OpReserve, func(it *cluster.AskItem) {
				if it.Limit.Algorithm == limiter.Concurrency {
					it.Hold.TTL = limiter.MaxTTL
				}
			}, nil),
		},
		{
			"signs of life are ignored",
			[]promise{aside},
			ofHolds(cluster.OpExtend, func(it *cluster.AskItem) {
				it.Hold.TTL = limiter.MinTTL
			}, nil),
		},
		{"a holder that would be charged cancels in time", []promise{aside}, func(p *process) {
			var cancel func()
			cancel = func() {
				for _, x := range p.machine.world.judge.aside.books.open {
					if p.node.Holds(x.account.hash) &&
						x.until < p.machine.world.now+100*time.Millisecond {
						p.node.Book().Settle(p.Now(), limiter.HoldID(x.id), x.account.hash, "", 0)
					}
				}
				if p.machine.world.now < p.machine.world.plan.length {
					p.AfterFunc(50*time.Millisecond, cancel)
				}
			}
			p.AfterFunc(time.Second, cancel)
		}},
		{
			"a lease that is asked for twice is given twice",
			// exact: where nobody sees the second one, it leaves no room for what a settlement
			// charges beyond its hold
			[]promise{useful, aside, exact},
			func(p *process) {
				p.door = disguise{
					door: p.door,
					deliver: func(d door, a *cluster.Ask) *cluster.Answer {
						answer := d.Deliver(a)
						for i := range a.Items {
							if it := a.Items[i]; it.Op == cluster.OpLease {
								again := *a
								it.ID.Sequence += 1 << 40
								again.Items, again.Move = []cluster.AskItem{it}, nil
								d.Deliver(&again)
							}
						}
						return answer
					},
				}
			},
		},
		{
			"a node spends what was not lent to it",
			[]promise{lent, bounded},
			onCheck(func(_ *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					if out[i].Source == cluster.SourceDenied {
						out[i].Allowed, out[i].Source = true, cluster.SourceLease
					}
				}
				return err
			}),
		},
		{
			"a node spends what is left of a lease that has run out",
			[]promise{lent},
			onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					it := &r.Items[i]
					a := p.machine.world.judge.accounts[it.Limit][it.Key]
					if err != nil || out[i].Source != cluster.SourceForwarded ||
						it.Op != cluster.OpTake || it.Cost <= 0 ||
						a.spec.Consistency != limiter.Leased {
						continue
					}
					b := a.held.of(p)
					left := b.charged - b.spent
					for _, x := range a.held.open {
						if x.node == p {
							left = 0
						}
					}
					if left >= it.Cost {
						out[i].Allowed, out[i].Source = true, cluster.SourceLease
					}
				}
				return err
			}),
		},
		{
			"a replicated limit states no bound",
			[]promise{marked},
			onCheck(func(_ *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					if out[i].Source == cluster.SourceReplica {
						out[i].Bound = 0
					}
				}
				return err
			}),
		},
		{
			"the deciding node of a replicated limit charges nothing itself",
			[]promise{exact, kept},
			onCheck(func(p *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					if it := &r.Items[i]; out[i].Source == cluster.SourceReplica &&
						out[i].Allowed &&
						it.Op == cluster.OpTake {
						l := p.machine.world.named[it.Limit]
						p.node.Table().Do(p.Now(), l, it.Key, limiter.Hash(it.Key),
							limiter.Request{Cost: -it.Cost})
					}
				}
				return err
			}),
		},
		{
			"a node denies what nobody has denied it",
			[]promise{lent},
			onCheck(func(_ *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					if out[i].Source == cluster.SourceLease {
						out[i].Allowed, out[i].Source = false, cluster.SourceDenied
					}
				}
				return err
			}),
		},
	}
}

// rareHoldFaults are those that show in few worlds of holds only.
func rareHoldFaults() []planted {
	return []planted{
		{
			"what others have admitted of a replicated limit is not heard",
			[]promise{kept},
			onMove(func(_ *process, m *cluster.Move) {
				m.Charges = nil
			}, nil),
		},
	}
}
