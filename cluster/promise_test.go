package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// cutOff has n1 see nobody, and nobody n1, until it heals.
func (w *world) cutOff() (heal func()) {
	cut := true
	w.meet = func(c *Call, deliver func() *Answer) {
		if cut && (c.To.ID == "n1") != (w.caller == "n1") {
			c.Err = ErrUnsent
			return
		}
		c.Answer = deliver()
	}
	w.pass(3 * time.Second)
	return func() { cut = false }
}

// Promise: what a minority has reserved is reserved at the holder when the cut is healed, and is
// a hold like all others then.
func TestWhatAMinorityReservedIsSetAside(t *testing.T) {
	w := newWorld(t, 3, hundred)
	key := w.key("n2", 0)
	heal := w.cutOff()
	id, d := w.reserve("n1", "hundred", key, 20, time.Minute)
	if !d.Allowed || !d.Degraded || d.Source != SourceFallback ||
		d.Decision.Hold != limiter.HoldOpen {
		t.Fatalf("%+v", d)
	}
	w.pass(2 * time.Second)
	heal()
	w.pass(5 * time.Second)
	if left := w.remaining("n3", "hundred", key); left != 80 {
		t.Errorf("%d of 100 are left after the minority has reserved 20", left)
	}
	if list := w.nodes["n2"].Book().On(w.nodes["n2"].Limits()["hundred"], key); len(list) != 1 ||
		list[0].Holder != "tester" || list[0].Client != 7 ||
		list[0].Deadline > w.now.Add(53*time.Second) {
		t.Errorf("%+v", list)
	}
	for range 2 {
		if got := w.settleHold("n3", id, 5); got.Decision.Hold != limiter.HoldSettled ||
			got.Remaining != 95 {
			t.Errorf("%+v", got)
		}
	}
	w.pass(2 * time.Minute)
	if left := w.remaining("n3", "hundred", key); left != 95 {
		t.Errorf("%d of 100 are left at last", left)
	}
}

// Promise: … and what becomes of it meanwhile is charged instead: what its client says, or at its
// deadline what its limit says.
func TestPromisesEndDuringACut(t *testing.T) {
	released, permits := hundred, limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency,
		Limit: 100, Per: time.Hour,
	}
	released.Name, released.Unsettled = "released", limiter.UnsettledRelease
	for _, c := range []struct {
		name, limit string
		ttl         time.Duration
		settle      int64 // −1: nobody does
		left        int64
	}{
		{"settled with less", "hundred", time.Minute, 5, 95},
		{"settled with more", "hundred", time.Minute, 30, 70},
		{"cancelled", "hundred", time.Minute, 0, 100},
		{"runs out", "hundred", time.Second, -1, 80},
		{"runs out and is released", "released", time.Second, -1, 100},
		{"stays open", "permits", time.Minute, -1, 80},
		{"a permit is returned", "permits", time.Minute, 0, 100},
		{"a permit runs out", "permits", time.Second, -1, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3, hundred, released, permits)
			key := w.key("n2", 0)
			heal := w.cutOff()
			id, d := w.reserve("n1", c.limit, key, 20, c.ttl)
			if d.Decision.Hold != limiter.HoldOpen {
				t.Fatalf("%+v", d)
			}
			foreign := id
			foreign.Hold = &HoldTerms{ID: id.Hold.ID, Holder: "another"}
			if got := w.settleHold("n1", foreign, 1); got.Decision.Hold != limiter.HoldForeign {
				t.Errorf("another settles it: %+v", got)
			}
			for range 2 {
				if c.settle < 0 {
					break
				}
				if got := w.settleHold("n1", id,
					c.settle); got.Decision.Hold != limiter.HoldSettled || !got.Allowed ||
					!got.Degraded {
					t.Errorf("%+v", got)
				}
			}
			if c.settle >= 0 {
				if got := w.settleHold("n1", id,
					c.settle+50); got.Decision.Hold != limiter.HoldOther || got.Allowed {
					t.Errorf("with another amount: %+v", got)
				}
			}
			w.pass(2 * time.Second)
			if c.ttl == time.Second {
				if got := w.settleHold("n1", id, 1); got.Decision.Hold != limiter.HoldRanOut ||
					got.Allowed {
					t.Errorf("after its deadline: %+v", got)
				}
			}
			heal()
			w.pass(5 * time.Second)
			if left := w.remaining("n3", c.limit, key); left != c.left {
				t.Errorf("%d of 100 are left, want %d", left, c.left)
			}
			if n := w.nodes["n1"]; n.debts.ledger.Len() != 0 || n.debts.ledger.Promises() != 0 {
				t.Errorf("%d are owed, %d promised", n.debts.ledger.Len(),
					n.debts.ledger.Promises())
			}
		})
	}
}

// Promise: a permit that its holder says again that it needs lasts through a cut, and beyond.
func TestPromisesAreExtended(t *testing.T) {
	w := newWorld(t, 3, hundred)
	key := w.key("n2", 0)
	heal := w.cutOff()
	id, _ := w.reserve("n1", "hundred", key, 20, time.Second)
	extend := id
	extend.Op, extend.Hold = OpExtend, &HoldTerms{ID: id.Hold.ID, TTL: 10 * time.Second}
	for range 2 {
		if d := w.check("n1", extend)[0]; d.Decision.Hold != limiter.HoldOpen || !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	w.pass(3 * time.Second)
	heal()
	w.pass(3 * time.Second)
	if d := w.check("n3", extend)[0]; d.Decision.Hold != limiter.HoldOpen || d.Remaining != 80 {
		t.Errorf("%+v", d)
	}
}

// Promise: what the holder has no room for is charged as far as the limit reaches.
func TestPromisesWithoutRoomAreCharged(t *testing.T) {
	w := newWorld(t, 3, hundred)
	key := w.key("n2", 0)
	heal := w.cutOff()
	id, _ := w.reserve("n1", "hundred", key, 20, time.Minute)
	n2 := w.nodes["n2"]
	n2.holder.table.Take(w.now, n2.Limits()["hundred"], key, limiter.Hash(key), 95)
	heal()
	w.pass(5 * time.Second)
	if left := w.remaining("n2", "hundred", key); left != 0 ||
		w.nodes["n1"].debts.ledger.Promises() != 0 {
		t.Errorf("%d of 100 are left, %d promises", left, w.nodes["n1"].debts.ledger.Promises())
	}
	if d := w.settleHold("n1", id, 1); d.Decision.Hold != limiter.HoldUnknown {
		t.Errorf("it was charged, and a settlement finds %+v", d)
	}
}

// Promise: a reservation that was opened, and the answer to it lost, is one hold.
func TestPromiseThatWasKeptAlreadyIsOne(t *testing.T) {
	w := newWorld(t, 3, hundred)
	key := w.key("n2", 0)
	deaf := true
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Answer = deliver(); deaf && len(c.Ask.Items) > 0 && c.To.ID == "n2" {
			c.Answer, c.Err = nil, errSilent // it is set aside, and the answer lost
		}
	}
	id, d := w.reserve("n1", "hundred", key, 20, time.Minute)
	if d.Source != SourceFallback || d.Decision.Hold != limiter.HoldOpen {
		t.Fatalf("%+v", d)
	}
	deaf = false
	w.pass(5 * time.Second)
	if left := w.remaining("n2", "hundred", key); left != 80 ||
		w.nodes["n1"].debts.ledger.Promises() != 0 {
		t.Errorf("%d of 100 are left after one reservation of 20; %d promises", left,
			w.nodes["n1"].debts.ledger.Promises())
	}
	if d := w.settleHold("n3", id, 7); d.Decision.Hold != limiter.HoldSettled || d.Remaining != 93 {
		t.Errorf("%+v", d)
	}
}

// Promise: … and if it was settled there before this node could tell, it is not charged again.
func TestPromiseThatWasSettledElsewhere(t *testing.T) {
	w := newWorld(t, 3, hundred)
	key := w.key("n2", 0)
	deaf := true
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Answer = deliver(); deaf && len(c.Ask.Items) > 0 && c.To.ID == "n2" {
			c.Answer, c.Err = nil, errSilent
		}
	}
	id, d := w.reserve("n1", "hundred", key, 20, time.Minute)
	if got := w.settleHold("n2", id, 7); d.Source != SourceFallback ||
		got.Decision.Hold != limiter.HoldSettled {
		t.Fatalf("%+v, %+v", d, got)
	}
	w.pass(3 * time.Second) // its answers are remembered for 2 s
	deaf = false
	w.pass(5 * time.Second)
	if left := w.remaining("n2", "hundred", key); left != 93 ||
		w.nodes["n1"].debts.ledger.Promises() != 0 {
		t.Errorf("%d of 100 are left after 7 were used; %d promises", left,
			w.nodes["n1"].debts.ledger.Promises())
	}
}

// Promise: of keys of several owners, of which one refuses, nothing is promised.
func TestRefusedTogetherIsNotPromised(t *testing.T) {
	w := newWorld(t, 3, hundred)
	w.hush("n2")
	here, away := w.key("n1", 0), w.key("n2", 0)
	w.take("n1", "hundred", here)
	r := Request{Atomic: true, Items: []Item{
		{Limit: "hundred", Key: here, Cost: 100, Op: OpReserve, Hold: &HoldTerms{TTL: time.Minute}},
		{Limit: "hundred", Key: away, Cost: 10, Op: OpReserve, Hold: &HoldTerms{TTL: time.Minute}},
	}}
	out := make([]Decision, 2)
	if err := w.nodes["n1"].Check(&r, out); err != nil || out[0].Allowed || out[1].Allowed ||
		out[1].Source != SourceFallback {
		t.Fatalf("%+v, %v", out, err)
	}
	if n := w.nodes["n1"]; n.debts.ledger.Len() != 0 || n.debts.ledger.Promises() != 0 ||
		out[1].Decision.Hold != limiter.HoldNone {
		t.Errorf("%d owed, %d promised, %+v", n.debts.ledger.Len(), n.debts.ledger.Promises(),
			out[1])
	}
}
