package cluster

import (
	"errors"
	"testing"
	"time"

	"penstock/limiter"
)

// This file is about takes of several owners at a node that dies, or is not heard, before all is
// settled.

// Promise: a client that was told yes has paid, also if the node that told it dies at that moment,
// and whatever the limit says about reservations that run out.
func TestYesIsPaidWhenWhoSaidItDies(t *testing.T) {
	lax := hundred
	lax.Name, lax.Unsettled = "lax", limiter.UnsettledRelease
	w := newWorld(t, 3, hundred, lax)
	a, b := w.key("n2", 0), w.key("n3", 0)
	if out, all := w.takeAll("n1", of(30, a), Item{Limit: "lax", Key: b, Cost: 40}); !all {
		t.Fatalf("%+v", out)
	}
	w.nodes["n1"].Stop() // before its timer
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.To.ID == "n1" || c.Ask.Move != nil && c.Ask.Move.ID == "n1" {
			c.Err = errors.Join(ErrUnsent, ErrGone)
			return
		}
		c.Answer = deliver()
	}
	for range 2 { // set aside until then, charged from then on
		if x, y := w.remaining("n2", "hundred", a), w.remaining("n3", "lax", b); x != 70 ||
			y != 60 {
			t.Errorf("%d and %d remain, want 70 and 60", x, y)
		}
		w.pass(10 * time.Second)
	}
	if n := w.nodes["n2"].Stats().RanOut.Load() + w.nodes["n3"].Stats().RanOut.Load(); n != 2 {
		t.Errorf("%d holds ran out, want both", n)
	}
}

// Promise: what was denied burns nothing, also if nobody hears for a while that it is to be
// released, or an owner hears that first and what it is about later.
func TestDeniedBurnsNothingWhenMessagesAreLate(t *testing.T) {
	for _, reserve := range []bool{false, true} {
		w := newWorld(t, 3, hundred)
		w.check("n3", of(80, w.key("n3", 0)))
		keys := []string{w.key("n2", 0), w.key("n3", 0)}
		ask := func() bool {
			if reserve {
				_, _, all := w.reserveAll("n1", 30, keys...)
				return all
			}
			_, all := w.takeAll("n1", of(30, keys[0]), of(30, keys[1]))
			return all
		}
		deafUntil := w.now.Add(1500 * time.Millisecond)
		w.meet = func(c *Call, deliver func() *Answer) {
			if w.now < deafUntil && len(c.Ask.Items) > 0 && c.Ask.Items[0].Op == OpSettle {
				c.Err = errSilent
				return
			}
			c.Answer = deliver()
		}
		if ask() {
			t.Fatal("30 of 20 are admitted")
		}
		w.Wait(w.now.Add(10 * time.Second))
		w.remain(keys, 100, 20)

		var late func()
		w.meet = func(c *Call, deliver func() *Answer) {
			if c.To.ID == "n2" && len(c.Ask.Items) > 0 && c.Ask.Items[0].Op == OpReserve {
				if late == nil {
					ask := *c.Ask
					// as far as n2 knows: what lies in its queue does not get older
					ask.Deadline = w.now.Add(time.Minute)
					late = func() { w.nodes["n2"].Deliver(&ask) }
				}
				c.Err = errSilent
				return
			}
			c.Answer = deliver()
		}
		if ask() {
			t.Fatal("30 of 20 are admitted")
		}
		w.pass(time.Second)
		late()
		if got := w.remaining("n2", "hundred", keys[0]); got != 70 {
			t.Fatalf("%d remain; the late message should have set 30 aside", got)
		}
		w.meet = nil
		w.pass(3 * time.Second)
		w.remain(keys, 100, 20)
	}
}

// Promise: what a silent owner may have set aside is charged to it once if a share has admitted it,
// and released if not, whenever the first message arrives.
func TestLateHoldOfASilentOwner(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		on    limiter.OnError
		left  int64
	}{
		{100 * time.Millisecond, limiter.ErrorLocal, 70}, {
			time.Second, limiter.ErrorLocal,
			70,
		}, {time.Second, limiter.ErrorDeny, 100},
	} {
		spec := hundred
		spec.OnError = c.on
		w := newWorld(t, 3, spec)
		keys := []string{w.key("n2", 0), w.key("n3", 0)}
		var late func()
		began := w.now
		w.meet = func(c *Call, deliver func() *Answer) {
			if c.To.ID == "n3" && len(c.Ask.Items) > 0 && late == nil {
				ask := *c.Ask
				ask.Deadline = w.now.Add(time.Minute)
				late = func() { w.nodes["n3"].Deliver(&ask) }
			}
			if c.To.ID == "n3" && len(c.Ask.Items) > 0 && w.now < began.Add(50*time.Millisecond) {
				c.Err = errSilent
				return
			}
			c.Answer = deliver()
		}
		if out, all := w.takeAll("n1", of(30, keys[0]), of(30, keys[1])); all != (c.left == 70) ||
			out[1].Source != SourceFallback {
			t.Fatalf("%+v", out)
		}
		w.pass(c.after)
		late()
		w.pass(10 * time.Second)
		w.remain(keys, c.left, c.left)
	}
}

// Promise: … nor where it is asked in order for the second time, and the answer gets lost.
func TestSecondTryBurnsNothing(t *testing.T) {
	deny := hundred
	deny.OnError = limiter.ErrorDeny
	w := newWorld(t, 3, deny)
	a, b := w.key("n2", 0), w.key("n3", 0)
	for i := 1; limiter.Hash(a) > limiter.Hash(b); i++ {
		b = w.key("n3", i)
	}
	w.reserve("n3", "hundred", b, 80, time.Hour)
	tries := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		c.Answer = deliver()
		if c.To.ID == "n2" && len(c.Ask.Items) > 0 && c.Ask.Items[0].Op == OpReserve {
			if tries++; tries > 1 {
				c.Answer, c.Err = nil, errSilent
			}
		}
	}
	if _, out, all := w.reserveAll("n1", 30, a, b); all || tries < 2 ||
		out[0].Source != SourceFallback {
		t.Fatalf("%d tries, %+v", tries, out)
	}
	w.pass(5 * time.Second)
	w.remain([]string{a, b}, 100, 20)
}

// Promise: where an heir is silent and on_error is deny, the denial burns nothing at its owner
// either.
func TestDeniedWithoutACopyBurnsNothing(t *testing.T) {
	careful := hundred
	careful.Name, careful.Sync, careful.OnError = "careful", true, limiter.ErrorDeny
	w := newWorld(t, 3, careful)
	w.pass(time.Second)
	a, b := w.key("n1", 0), w.key("n2", 0)
	deaf := true
	w.meet = func(c *Call, deliver func() *Answer) {
		if deaf && c.Ask.Move != nil && len(c.Ask.Move.Holds) > 0 {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	items := []Item{{Limit: "careful", Key: a, Cost: 30}, {Limit: "careful", Key: b, Cost: 30}}
	if out, all := w.takeAll("n1", items...); all || !out[0].Degraded {
		t.Fatalf("%+v; want a denial", out)
	}
	deaf = false
	w.pass(10 * time.Second)
	for _, key := range []string{a, b} {
		if got := w.remaining("n1", "careful", key); got != 100 {
			t.Errorf("%d remain of %s, want 100", got, key)
		}
	}
}

// Promise: a node that leaves knows whether the others have heard all that it has to say: of what
// it has denied, what its share has admitted, and the leases that it has.
func TestUnsaid(t *testing.T) {
	hot := hundred
	hot.Name, hot.Limit, hot.Consistency = "hot", 100_000, limiter.Leased
	w := newWorld(t, 3, hundred, hot)
	a, b := w.key("n2", 0), w.key("n3", 0)
	unsaid := func(when string, want bool) {
		t.Helper()
		if got := w.nodes["n1"].PendingNotices(); (got > 0) != want {
			t.Errorf("%s: %d unsaid", when, got)
		}
	}
	deaf := true
	w.meet = func(c *Call, deliver func() *Answer) {
		if deaf && len(c.Ask.Items) > 0 &&
			(c.Ask.Items[0].Op == OpSettle || c.Ask.Items[0].Report) {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	w.check("n3", of(80, b))
	unsaid("before", false)
	if _, all := w.takeAll("n1", of(30, a), of(30, b)); all {
		t.Fatal("30 of 20 are admitted")
	}
	w.pass(500 * time.Millisecond)
	unsaid("the release is not heard", true)
	deaf = false
	w.pass(5 * time.Second)
	unsaid("it is heard", false)

	deaf = true
	goOn := w.hush("n2")
	if d := w.take("n1", "hundred", a); d.Source != SourceFallback || !d.Allowed {
		t.Fatalf("%+v; want a share", d)
	}
	unsaid("what a share has admitted is not charged", true)
	goOn()
	deaf = false
	w.pass(5 * time.Second)
	unsaid("it is charged", false)

	for range 20 {
		w.take("n1", "hot", a)
	}
	unsaid("a lease is lent", true)
	w.pass(5 * time.Second)
	unsaid("it is given back", false)
}

// Promise: the half of a cut pair that gives way is told like all heirs what is given back later.
// If the other half dies then, nobody is denied that, although the heir had merged its copy with
// what it had counted itself.
func TestHalfThatGivesWayHearsOfRefunds(t *testing.T) {
	w := newWorld(t, 2, hundred)
	w.pass(time.Second)
	key, side := w.key("n1", 0), func(id string) bool { return id == "n1" }
	w.hearing(func(from, to string) bool { return side(from) == side(to) })
	w.pass(4 * time.Second)
	w.check("n1", Item{Limit: "hundred", Key: key, Cost: 30})
	w.check("n2", Item{Limit: "hundred", Key: key, Cost: 40})
	w.meet = nil
	w.pass(5 * time.Second)
	w.check("n1", Item{Limit: "hundred", Key: key, Cost: 10})
	w.pass(time.Second)
	w.check("n1", Item{Limit: "hundred", Key: key, Cost: -25})
	w.pass(time.Second)
	w.kill("n1")
	w.pass(3 * time.Second)
	if left := w.remaining("n2", "hundred", key); left != 85 {
		t.Errorf("%d of 100 are left after the death of the other half, want 85", left)
	}
}
