package debts

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

// naive is a ledger as its promises say it: a list of costs, each of which is that of no other
// debt, and what was agreed on with the clients of reservations.
type naive struct {
	owed, drawn []int64 // drawn: and not returned yet
	deals       map[dedup.ID]*deal
	charging    bool
	settlements int
}

type deal struct {
	holder   string
	deadline limiter.Instant
	used     int64 // -1: nobody has said
}

func (n *naive) keep(now limiter.Instant, c *Change) (limiter.HoldState, bool) {
	d := n.deals[c.ID]
	if d == nil {
		return limiter.HoldUnknown, false
	}
	if c.Holder != "" && c.Holder != d.holder {
		return limiter.HoldForeign, true
	}
	if d.used >= 0 {
		if c.Settle && c.Used != d.used {
			return limiter.HoldOther, true
		}
		return limiter.HoldSettled, true
	}
	if now >= d.deadline {
		return limiter.HoldRanOut, true
	}
	if c.Settle {
		d.used = c.Used
		return limiter.HoldSettled, true
	}
	if later := now.Add(c.TTL); later > d.deadline {
		d.deadline = later
	}
	return limiter.HoldOpen, true
}

// spent is what is owed for a reservation under l, and whether that is known.
func (d *deal) spent(now limiter.Instant, l *limiter.Limit, cost int64) (int64, bool) {
	over := now >= d.deadline || d.used >= 0
	if l.Algorithm == limiter.Concurrency {
		return 0, over
	}
	if d.used >= 0 {
		return d.used, true
	}
	if over && l.Unsettled == limiter.UnsettledRelease {
		return 0, true
	}
	return cost, over
}

// Promise: whatever is owed, promised, settled, drawn and returned in whatever order, a ledger says
// what a list of debts says, one caller charges at a time, and each debt is drawn in its turn.
func TestLedgerAgainstNaive(t *testing.T) {
	charge, release := new(limiter.Limit), new(limiter.Limit)
	release.Unsettled = limiter.UnsettledRelease
	permits := &limiter.Limit{Spec: limiter.Spec{Algorithm: limiter.Concurrency}}
	limits := []*limiter.Limit{charge, release, permits}
	for seed := range uint64(100) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var l Ledger
		n := naive{deals: map[dedup.ID]*deal{}}
		var drawn []Debt
		deals := map[int64]*deal{} // by the cost of the debt
		now, cost := limiter.Instant(0), int64(0)
		span := func() time.Duration {
			return pick(draw, []time.Duration{0, 1, time.Second, 2 * time.Second})
		}
		for range 200 {
			now = now.Add(span())
			id := dedup.ID{Origin: 1 + draw.Uint64N(3)}
			cost++
			d := Debt{Limit: pick(draw, limits), Cost: cost}
			switch draw.IntN(10) {
			case 0:
				n.owed = append(n.owed, cost)
				if !l.Owe(&d) {
					t.Fatal("no room")
				}
			case 1, 2:
				holder, deadline := "h", now.Add(span())
				if n.deals[id] == nil {
					deals[cost] = &deal{holder, deadline, -1}
					n.deals[id], n.owed = deals[cost], append(n.owed, cost)
				}
				if !l.Promise(id, &d, holder, deadline) {
					t.Fatal("no room for a promise")
				}
			case 3, 4, 5:
				c := &Change{
					ID: id, Holder: pick(draw, []string{"", "h", "other"}),
					Settle: (draw.IntN(2) == 0), TTL: span(),
					Used: draw.Int64N(3),
				}
				want, found := n.keep(now, c)
				if state, known := l.Keep(now, c); state != want || known != found {
					t.Fatalf("%+v: %v, known %t; want %v, %t", c, state, known, want, found)
				}
			case 6:
				begins := len(n.owed) > 0 && !n.charging
				if got := l.Begin(); got != begins {
					t.Fatalf("charging begins: %t, want %t", got, begins)
				}
				n.charging = n.charging || begins
			case 7:
				if n.charging {
					some := draw.IntN(4)
					drawn = append(drawn, l.Oldest(some)...)
					some = min(some, len(n.owed))
					n.drawn, n.owed = append(n.drawn, n.owed[:some]...), n.owed[some:]
				}
			case 8:
				if n.charging { // some were charged, the others not heard
					heard := draw.IntN(len(drawn) + 1)
					for i := range drawn[:heard] {
						for k, x := range n.deals {
							if x == deals[drawn[i].Cost] {
								delete(n.deals, k)
							}
						}
						l.Forget(&drawn[i])
					}
					others := len(n.owed) > 0
					n.owed = slices.Concat(n.owed, n.drawn[heard:])
					n.drawn, n.charging = nil, false
					if got := l.Return(drawn[heard:]); got != others {
						t.Fatalf("there are others: %t, want %t", got, others)
					}
					drawn = nil
					l.End()
				}
			case 9:
				if n.settlements == 0 || (draw.IntN(2) == 0) {
					n.settlements++
					l.SettlementBegins()
				} else {
					n.settlements--
					l.SettlementEnds()
				}
			}
			if c := costs(drawn); !slices.Equal(c, n.drawn) {
				t.Fatalf("drawn %v, want %v", c, n.drawn)
			}
			for i := range drawn {
				x := deals[drawn[i].Cost]
				checkDebt(t, &l, now, &drawn[i], x)
			}
			if l.Len() != len(n.owed) || l.Promises() != len(n.deals) ||
				l.Pending() != len(n.owed)+n.settlements {
				t.Fatalf("%d debts, %d promises, %d pending; want %d, %d and %d of settlements",
					l.Len(), l.Promises(), l.Pending(), len(n.owed), len(n.deals), n.settlements)
			}
		}
	}
}

// checkDebt compares what a ledger says of a debt with its deal, which a take has none of.
func checkDebt(t *testing.T, l *Ledger, now limiter.Instant, d *Debt, x *deal) {
	want, over := d.Cost, true
	if x != nil {
		want, over = x.spent(now, d.Limit, d.Cost)
		if holder, deadline := l.Terms(d); holder != x.holder || deadline != x.deadline {
			t.Fatalf("held by %q until %v, want %+v", holder, deadline, x)
		}
	}
	if used, known := l.Spent(now, d); used != want || known != over || d.Promised() != (x != nil) {
		t.Fatalf("%+v: %d used, known %t; want %d, %t", d, used, known, want, over)
	}
}

func pick[T any](draw *rand.Rand, from []T) T { return from[draw.IntN(len(from))] }
