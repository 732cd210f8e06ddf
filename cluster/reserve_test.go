package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

var hundred = limiter.Spec{
	Name: "hundred", Algorithm: limiter.FixedWindow,
	Anchor: limiter.FirstHit, Limit: 100, Per: time.Hour,
}

// reserve asks node for a hold on key, and returns what settles it.
func (w *world) reserve(node, limit, key string, units int64, ttl time.Duration) (Item, Decision) {
	w.t.Helper()
	r := Request{Items: []Item{{
		Limit: limit, Key: key, Cost: units, Op: OpReserve,
		Hold: &HoldTerms{TTL: ttl, Holder: "tester", Client: 7},
	}}}
	out := make([]Decision, 1)
	if err := w.nodes[node].Check(&r, out); err != nil {
		w.t.Fatalf("reserve at %s: %v", node, err)
	}
	return Item{Limit: limit, Key: key, Op: OpSettle, Hold: &HoldTerms{ID: out[0].ID}}, out[0]
}

func (w *world) settleHold(node string, it Item, used int64) Decision {
	w.t.Helper()
	it.Cost = used
	return w.check(node, it)[0]
}

// TestHoldWhicheverNodeIsAsked: a hold is opened, extended and settled through any node.
func TestHoldWhicheverNodeIsAsked(t *testing.T) {
	w := newWorld(t, 3, hundred)
	key := w.key("n2", 0)
	id, d := w.reserve("n1", "hundred", key, 40, time.Minute)
	if !d.Allowed || d.Decision.Hold != limiter.HoldOpen || d.Owner != "n2" || d.Remaining != 60 {
		t.Fatalf("%+v", d)
	}
	w.pass(50 * time.Second)
	extend := id
	extend.Op, extend.Hold = OpExtend, &HoldTerms{ID: id.Hold.ID, TTL: time.Minute}
	if d := w.check("n3", extend)[0]; d.Decision.Hold != limiter.HoldOpen {
		t.Fatalf("%+v", d)
	}
	w.pass(50 * time.Second)
	for _, node := range []string{"n3", "n1", "n2"} { // again and again is once
		if d := w.settleHold(node, id, 15); d.Decision.Hold != limiter.HoldSettled || !d.Allowed ||
			d.Remaining != 85 {
			t.Fatalf("settled at %s: %+v", node, d)
		}
	}
	if d := w.settleHold("n1", id, 16); d.Decision.Hold != limiter.HoldOther {
		t.Errorf("settled with another amount: %+v", d)
	}
	w.reserve("n3", "hundred", key, 5, time.Second)
	w.pass(2 * time.Second)
	if got := w.remaining("n2", "hundred", key); got != 80 {
		t.Errorf("a hold of 5 ran out: remaining is %d, want 80", got)
	}
	if n := w.nodes["n2"].Stats().RanOut.Load(); n != 1 {
		t.Errorf("%d holds ran out, want 1", n)
	}
}

func TestHoldsRefused(t *testing.T) {
	w := newWorld(t, 1, hundred)
	minute := &HoldTerms{TTL: time.Minute}
	for want, it := range map[string]Item{
		"items[0].ttl_ms: is 0;": {Op: OpReserve, Cost: 1, Hold: &HoldTerms{}},
		"items[0].ttl_ms: is 315360": {
			Op: OpReserve, Cost: 1,
			Hold: &HoldTerms{TTL: 10 * 365 * 24 * time.Hour},
		},
		"items[0].cost: is 101;": {Op: OpReserve, Cost: 101, Hold: minute},
		"items[0].holder: has 1000": {
			Op: OpReserve, Cost: 1,
			Hold: &HoldTerms{TTL: time.Minute, Holder: strings.Repeat("x", 1000)},
		},
		"items[0].hold: is missing": {Op: OpSettle, Cost: 1},
		"items[0].cost: is below 0": {Op: OpSettle, Cost: -1, Hold: minute},
		"items[0].report: is for a take": {
			Op: OpReserve, Cost: 1, Hold: minute,
			Terms: Terms{Report: true},
		},
		"items[0].drain: is for a take": {
			Op: OpReserve, Cost: 1, Hold: minute, Terms: Terms{Drain: true},
		},
		"items[0].ttl_ms: is 1; 100 ": {Op: OpExtend, Hold: &HoldTerms{TTL: time.Millisecond}},
	} {
		it.Limit, it.Key = "hundred", "k"
		err := w.nodes["n1"].Check(&Request{Items: []Item{it}}, make([]Decision, 1))
		var input *InputError
		if !errors.As(err, &input) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for field, terms := range map[string]Terms{
		"strict": {Strict: true}, "at_ms": {Timed: true}, "max_delay_ms": {Bounded: true}, "": {},
	} {
		if got := terms.given(); got != field {
			t.Errorf("%+v is called %q, want %q", terms, got, field)
		}
	}
	if got := w.remaining("n1", "hundred", "k"); got != 100 {
		t.Errorf("remaining is %d", got)
	}
	if d := w.settleHold("n1",
		Item{Limit: "hundred", Key: "k", Op: OpSettle, Hold: &HoldTerms{ID: ID{
			Origin:   1,
			Sequence: 2,
		}}}, 1); d.Decision.Hold != limiter.HoldUnknown {
		t.Errorf("an unknown hold: %+v", d)
	}
}

// TestHoldsMoveWithTheirPartition: open holds go where their keys go, when nodes join, leave and
// die, and are settled there.
func TestHoldsMoveWithTheirPartition(t *testing.T) {
	w := newWorld(t, 2, hundred)
	type open struct {
		it  Item
		key string
	}
	var holds []open
	for i := range 60 {
		key := w.key([]string{"n1", "n2"}[i%2], i/2)
		it, d := w.reserve("n1", "hundred", key, 40, time.Hour)
		if !d.Allowed {
			t.Fatalf("%+v", d)
		}
		holds = append(holds, open{it, key})
	}
	w.pass(time.Second)
	w.start("n3", 3)
	w.show(w.members(3), 0, "n1", "n2", "n3")
	w.pass(3 * time.Second)
	moved := 0
	for i, h := range holds {
		d := w.check("n2", Item{Limit: "hundred", Key: h.key, Op: OpPeek})[0]
		if d.Owner == "n3" {
			moved++
		}
		if d.Remaining != 60 {
			t.Fatalf("after a join %s has %d remaining of %s, want 60", d.Owner, d.Remaining, h.key)
		}
		if i%2 == 0 {
			if d := w.settleHold("n1", h.it, 10); d.Decision.Hold != limiter.HoldSettled ||
				d.Remaining != 90 {
				t.Fatalf("after a join: %+v", d)
			}
		}
	}
	if moved == 0 {
		t.Fatal("no key has moved")
	}
	w.pass(time.Second)
	dead := w.nodes["n3"]
	dead.Stop()
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.To.ID == "n3" {
			c.Err = fmt.Errorf("%w: %w", ErrUnsent, ErrGone)
			return
		}
		c.Answer = deliver()
	}
	w.pass(3 * time.Second)
	for i, h := range holds {
		if i%2 == 0 { // settled before: the same again says the same
			if d := w.settleHold("n2", h.it, 10); d.Decision.Hold != limiter.HoldSettled ||
				d.Remaining != 90 {
				t.Fatalf("after a crash: %+v", d)
			}
		} else if d := w.settleHold("n1", h.it, 10); d.Decision.Hold != limiter.HoldSettled ||
			d.Remaining != 90 {
			t.Fatalf("after a crash: %+v", d)
		}
	}
}

// TestHoldsAddUp: holds and takes at random, through nodes that come and go, with messages that
// arrive twice, or are not answered. At the end, what remains of each key is its limit less what
// was taken and settled, and at no time is more out than there is.
func TestHoldsAddUp(t *testing.T) {
	for seed := range seeds(6) {
		dice := rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t, 3, hundred)
		w.meet = func(c *Call, deliver func() *Answer) {
			c.Answer = deliver()
			if dice.IntN(20) == 0 {
				c.Answer = deliver()
			}
			if dice.IntN(20) == 0 {
				c.Answer, c.Err = nil, errors.New("the answer got lost")
			}
		}
		keys := []string{w.key("n1", 0), w.key("n2", 0), w.key("n3", 0), w.key("n3", 1)}
		// the latter without a holder: charged afterwards, as far as there is room
		spent, shares := map[string]int64{}, map[string]int64{}
		type open struct {
			it    Item
			units int64
		}
		held := map[string][]open{}
		ids := []string{"n1", "n2", "n3"}
		members := 3
		for range 600 {
			key, node := keys[dice.IntN(len(keys))], ids[dice.IntN(members)]
			units := 1 + dice.Int64N(20)
			switch dice.IntN(6) {
			case 0, 1:
				if it, d := w.reserve(node, "hundred", key, units,
					time.Hour); d.Source == SourceFallback {
					shares[key] += units
				} else if d.Allowed {
					held[key] = append(held[key], open{it, units})
				}
			case 2:
				if d := w.check(node,
					Item{Limit: "hundred", Key: key, Cost: units})[0]; d.Source == SourceFallback {
					shares[key] += units
				} else if d.Allowed {
					spent[key] += units
				}
			case 3, 4:
				if n := len(held[key]); n > 0 {
					h := held[key][n-1]
					used := dice.Int64N(h.units + 1)
					d := w.settleHold(node, h.it, used)
					for range 10 { // until somebody has answered
						if d.Source != SourceFallback {
							break
						}
						w.pass(200 * time.Millisecond)
						d = w.settleHold(node, h.it, used)
					}
					if d.Decision.Hold != limiter.HoldSettled {
						t.Fatalf("seed %d: settled %d of %d: %+v", seed, used, h.units, d)
					}
					held[key], spent[key] = held[key][:n-1], spent[key]+used
				}
			default:
				if dice.IntN(4) == 0 { // n3 leaves the ring, or comes back
					members = 5 - members
					ms := w.members(3)
					if members == 2 {
						ms[2].State = StateLeaving
					}
					w.show(ms, 0, "n1", "n2", "n3")
				}
				w.pass(time.Duration(dice.IntN(800)) * time.Millisecond)
			}
			out := spent[key]
			for _, h := range held[key] {
				out += h.units
			}
			if out > 100 {
				t.Fatalf("seed %d: %d of 100 are out", seed, out)
			}
		}
		w.meet = nil
		w.pass(3 * time.Second)
		for _, key := range keys {
			for _, h := range held[key] {
				spent[key] += h.units / 2
				w.settleHold("n1", h.it, h.units/2)
			}
			if got := w.remaining("n1", "hundred", key); got > 100-spent[key] ||
				got < max(0, 100-spent[key]-shares[key]) {
				t.Errorf("seed %d: %d remain of %s, want %d, or up to %d less", seed, got, key,
					100-spent[key], shares[key])
			}
		}
	}
}

// TestRepeatOfAReservationFromAShare: what a node said from its own share while it held nothing is
// no answer to the same reservation once it decides: then there is a hold, and it is the one that
// was promised.
func TestRepeatOfAReservationFromAShare(t *testing.T) {
	w := newWorld(t, 3, hundred)
	key := w.key("n2", 0)
	item := Item{
		Limit: "hundred", Key: key, Cost: 5, Op: OpReserve, ID: ID{Origin: 9, Sequence: 9},
		Hold: &HoldTerms{TTL: time.Minute},
	}
	n2 := w.nodes["n2"]
	meet := w.meet
	w.meet = func(c *Call, deliver func() *Answer) { c.Err = errSilent }
	n2.right.minority.Store(true)
	n2.Relinquish()
	if d := w.check("n2", item)[0]; d.Source != SourceFallback || !d.Allowed ||
		n2.debts.ledger.Promises() != 1 {
		t.Fatalf("alone: %+v", d)
	}
	w.meet = meet
	n2.parts.mu.Lock()
	n2.parts.holdLocked(ring.Partition(limiter.Hash(key)), n2.parts.nextTermLocked())
	n2.parts.mu.Unlock()
	n2.right.minority.Store(false)
	if d := w.check("n2", item)[0]; d.Source != SourceOwner || !d.Allowed ||
		d.Decision.Hold != limiter.HoldOpen {
		t.Errorf("as the owner: %+v", d)
	}
	w.pass(time.Second)
	if left := w.remaining("n2", "hundred", key); left != 95 || n2.debts.ledger.Promises() != 0 {
		t.Errorf("%d of 100 are left, %d promises", left, n2.debts.ledger.Promises())
	}
}
