package sim

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// holders draw the traffic of a world of holds. Some clients reserve; then they settle with less,
// as much or more than that, or cancel, or extend, or repeat themselves, or never settle. Others
// take permits, give signs of life and die. Others ask often for keys of leased limits. What a
// client does later is drawn together with what it does first, so it does it whatever became of the
// first.
type holders struct {
	clients
	later  pending
	number int // of arrivals, so that those of one instant keep their order
}

// longestTTL is the longest that a hold of drawn clients lasts.
const longestTTL = 8 * time.Second

func newHolders(w *world) *holders {
	h := &holders{clients: *newClients(w)}
	h.dice = stream(w.plan.seed, holdTrafficStream)
	h.zipf = rand.NewZipf(h.dice, 1.2, 1, uint64(w.plan.traffic.keys-1))
	return h
}

// next is the next request: one that was drawn before, or a new one.
func (h *holders) next(a *arrival) bool {
	for h.left > 0 && (len(h.later) == 0 || h.later[0].at >= h.clients.at) {
		h.left--
		h.draw()
		if !h.chance(h.world.plan.traffic.crowd) {
			h.clients.at += time.Duration(h.dice.ExpFloat64() * float64(h.world.plan.traffic.gap))
		}
	}
	if len(h.later) == 0 {
		return false
	}
	*a = heap.Pop(&h.later).(pendingArrival).arrival
	return true
}

// add has a request come up.
func (h *holders) add(a arrival) {
	if a.patience == 0 {
		a.patience = cluster.DefaultDeadline
	}
	if a.calls == nil {
		a.calls = []calling{{node: h.dice.IntN(len(h.world.machines))}}
	}
	h.number++
	heap.Push(&h.later, pendingArrival{a, h.number})
}

// draw draws what somebody begins to do.
func (h *holders) draw() {
	rule := &h.world.rules[h.dice.IntN(len(h.world.rules))]
	key := h.key()
	switch {
	case rule.limit.Algorithm == limiter.Concurrency:
		h.permit(rule.limit, key)
	case rule.limit.Consistency == limiter.Replicated:
		h.often(rule.limit, key)
		if h.chance(0.3) {
			h.plain(rule.limit, key)
		}
	case rule.limit.Consistency == limiter.Leased && !h.chance(0.1):
		h.often(rule.limit, key)
	default:
		h.reservation(rule.limit, key)
	}
}

// nextID is an ID that no request has had.
func (h *holders) nextID() cluster.ID {
	h.sequence++
	return cluster.ID{Origin: clientOrigin, Sequence: h.sequence}
}

// reserve is an item that reserves.
func (h *holders) reserve(l *limiter.Limit, key string, units int64,
	ttl time.Duration,
) cluster.Item {
	return cluster.Item{
		Limit: l.Name, Key: key, Cost: units, Op: cluster.OpReserve, ID: h.nextID(),
		Hold: &cluster.HoldTerms{TTL: ttl, Holder: "app"},
	}
}

// about is an item about a hold that was reserved.
func about(of *cluster.Item, op cluster.Op, cost int64, ttl time.Duration) cluster.Item {
	return cluster.Item{
		Limit: of.Limit, Key: of.Key, Cost: cost, Op: op,
		Hold: &cluster.HoldTerms{ID: of.ID, TTL: ttl},
	}
}

func (h *holders) upTo(d time.Duration) time.Duration {
	return time.Duration(h.dice.Int64N(int64(d) + 1))
}

// ask adds the first request of a client, perhaps with repeats.
func (h *holders) ask(a arrival) {
	if h.chance(h.world.plan.traffic.hurry) {
		a.patience = 150*time.Millisecond + h.upTo(300*time.Millisecond)
	}
	a.calls = []calling{{node: h.dice.IntN(len(h.world.machines))}}
	for h.chance(h.world.plan.traffic.again) && len(a.calls) < 3 {
		a.calls = append(a.calls, calling{
			node:  h.dice.IntN(len(h.world.machines)),
			after: h.upTo(700 * time.Millisecond),
		})
	}
	h.add(a)
}

// mostOf is the most that a client reserves of a limit.
func mostOf(l *limiter.Limit) int64 { return max(1, min(capacityOf(&l.Spec)/2, 40)) }

func (h *holders) reservation(l *limiter.Limit, key string) {
	ttl := oneOf(h.dice, 100*time.Millisecond, time.Second, 2*time.Second, longestTTL)
	most := mostOf(l)
	items := []cluster.Item{h.reserve(l, key, 1+h.dice.Int64N(most), ttl)}
	if h.chance(0.25) { // several, all or none
		for range 1 + h.dice.IntN(2) {
			other := h.world.rules[h.dice.IntN(len(h.world.rules))].limit
			if other.Consistency == limiter.Replicated {
				continue
			}
			k := key
			if h.chance(0.5) {
				k = h.key()
			}
			items = append(items, h.reserve(other, k, 1+h.dice.Int64N(mostOf(other)), ttl))
		}
	}
	h.ask(arrival{at: h.clients.at, items: items, atomic: len(items) > 1})
	takes := h.upTo(ttl / 2)
	at := h.clients.at + takes
	if h.chance(0.15) { // it takes longer than was thought
		h.add(arrival{at: at, items: h.aboutAll(items, cluster.OpExtend, nil, ttl)})
		at += h.upTo(ttl / 2)
	}
	switch x := h.dice.IntN(20); {
	case x < 3: // nobody ever settles
		return
	case x < 5: // too late, or just in time
		at = h.clients.at + ttl - 50*time.Millisecond + h.upTo(300*time.Millisecond)
	}
	h.settle(items, takes, at)
	if h.chance(0.3) {
		h.plain(l, key)
	}
}

// settle has clients settle a reservation that is in use for this long: at this time, and now and
// then once more, otherwise, or by somebody else.
func (h *holders) settle(items []cluster.Item, takes, at time.Duration) {
	used := func(it *cluster.Item) int64 {
		switch h.dice.IntN(8) {
		case 0:
			return 0
		case 1:
			return it.Cost
		case 2:
			return it.Cost + h.dice.Int64N(10)
		}
		return h.dice.Int64N(it.Cost + 1)
	}
	settle := h.aboutAll(items, cluster.OpSettle, used, 0)
	h.add(arrival{at: at, items: settle})
	switch h.dice.IntN(10) {
	case 0: // once more
		h.add(arrival{at: at + h.upTo(3*time.Second), items: settle})
	case 1: // otherwise
		h.add(arrival{at: at + h.upTo(time.Second), items: h.aboutAll(items, cluster.OpSettle, used,
			0)})
	case 2: // of a hold that was never opened
		of := items[0]
		of.ID.Sequence += 1 << 39
		h.add(arrival{at: at, items: []cluster.Item{about(&of, cluster.OpSettle, 0, 0)}})
	case 3: // by another client than the holder
		it := about(&items[0], cluster.OpSettle, 0, 0)
		it.Hold.Holder = "another"
		h.add(arrival{at: h.clients.at + takes/2, items: []cluster.Item{it}})
	}
}

func (h *holders) aboutAll(items []cluster.Item, op cluster.Op, cost func(*cluster.Item) int64,
	ttl time.Duration,
) (list []cluster.Item) {
	for i := range items {
		var n int64
		if cost != nil {
			n = cost(&items[i])
		}
		list = append(list, about(&items[i], op, n, ttl))
	}
	return list
}

// permit takes one, works, and returns it, or dies.
func (h *holders) permit(l *limiter.Limit, key string) {
	ttl := oneOf(h.dice, 300*time.Millisecond, time.Second, 3*time.Second)
	it := h.reserve(l, key, 1+h.dice.Int64N(min(2, l.Limit)), ttl)
	h.ask(arrival{at: h.clients.at, items: []cluster.Item{it}})
	at := h.clients.at
	for range h.dice.IntN(4) { // signs of life
		at += ttl / 3
		h.add(arrival{at: at, items: []cluster.Item{about(&it, cluster.OpExtend, 0, ttl)}})
	}
	if h.chance(0.2) { // it dies
		return
	}
	h.add(arrival{
		at:    at + h.upTo(ttl/2),
		items: []cluster.Item{about(&it, cluster.OpSettle, 0, 0)},
	})
}

// often asks for a key some dozen times, of one node or of all.
func (h *holders) often(l *limiter.Limit, key string) {
	at, node := h.clients.at, h.dice.IntN(len(h.world.machines))
	one := h.chance(0.5)
	gap := oneOf(h.dice, time.Millisecond, 5*time.Millisecond, 20*time.Millisecond)
	for range 5 + h.dice.IntN(25) {
		if !one {
			node = h.dice.IntN(len(h.world.machines))
		}
		a := arrival{
			at: at,
			items: []cluster.Item{{
				Limit: l.Name, Key: key,
				Cost: oneOf[int64](h.dice, 1, 1, 1, 3),
			}}, calls: []calling{{node: node}},
		}
		h.add(a)
		at += h.upTo(2 * gap)
	}
}

// plain takes, looks, or gives back, beside the holds.
func (h *holders) plain(l *limiter.Limit, key string) {
	it := cluster.Item{Limit: l.Name, Key: key, Cost: 1 + h.dice.Int64N(5)}
	if x := h.dice.IntN(10); x < 3 {
		it.Op = cluster.OpPeek
	} else if x == 3 {
		it.Cost = -1
	}
	h.add(arrival{at: h.clients.at + h.upTo(100*time.Millisecond), items: []cluster.Item{it}})
}

// pending are arrivals to come, the next one in front.
type pending []pendingArrival

type pendingArrival struct {
	arrival
	number int
}

func (q pending) Len() int { return len(q) }
func (q pending) Less(i, k int) bool {
	return q[i].at < q[k].at || q[i].at == q[k].at && q[i].number < q[k].number
}
func (q pending) Swap(i, k int) { q[i], q[k] = q[k], q[i] }
func (q *pending) Push(x any)   { *q = append(*q, x.(pendingArrival)) }

func (q *pending) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = slices.Delete(*q, last, last+1)
	return x
}
