package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// oldWorld is a world of three whose n2 is of a release that knows no holds, and cannot read what
// is about one.
func oldWorld(t *testing.T, specs ...limiter.Spec) *world {
	w := newWorld(t, 3, specs...)
	ms := w.members(3)
	ms[1].Features = 0
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(tickEvery)
	w.meet = func(c *Call, deliver func() *Answer) {
		for i := range c.Ask.Items {
			if it := &c.Ask.Items[i]; c.To.ID == "n2" && (it.Op.holds() || it.Hold != nil) {
				t.Errorf("an older release is asked %+v", it)
			}
		}
		c.Answer = deliver()
	}
	return w
}

// Promise: an older release is asked for nothing that it does not know: takes of several owners
// look there and report, leased limits are decided there one by one, and a reservation there is a
// take that says how much it is worth.
func TestOlderOwnersAreAskedForNoHolds(t *testing.T) {
	w := oldWorld(t, hundred, leased)
	keys := []string{w.key("n2", 0), w.key("n3", 0)}
	if out, all := w.takeAll("n1", of(30, keys[0]), of(30, keys[1])); !all || out[0].Source != SourceForwarded || out[0].Degraded {
		t.Fatalf("%+v", out)
	}
	w.remain(keys, 70, 70)
	for _, units := range [][2]int64{{80, 30}, {30, 80}} {
		if out, all := w.takeAll("n1", of(units[0], keys[0]), of(units[1], keys[1])); all {
			t.Fatalf("%+v", out)
		}
		w.remain(keys, 70, 70)
	}

	by := sources{}
	for range 200 {
		by[w.take("n1", "leased", keys[0]).Source]++
		w.pass(time.Millisecond)
	}
	if by[SourceForwarded] != 200 {
		t.Errorf("by source %v; nobody lends at n2", by)
	}
	if k := w.nodes["n1"].leases.Len(); k != 0 {
		t.Errorf("%d keys are counted that nobody lends", k)
	}
	by = sources{}
	for range 200 {
		by[w.take("n1", "leased", keys[1]).Source]++
		w.pass(time.Millisecond)
	}
	if by[SourceLease] < 150 {
		t.Errorf("by source %v; n3 lends", by)
	}

	if _, d := w.reserve("n1", "hundred", keys[0], 10, time.Minute); !d.Degraded || d.Decision.Hold != limiter.HoldNone {
		t.Errorf("%+v", d)
	}
}

// Promise: what is open goes to nobody who does not know it: it is charged before.
func TestHoldsRunOutBeforeAnOlderReleaseDecides(t *testing.T) {
	w := newWorld(t, 3, hundred)
	key := w.key("n2", 0)
	two := w.members(3)
	two[1].State = StateLeaving
	w.show(two, 0, "n1", "n2", "n3")
	w.pass(3 * time.Second)
	_, d := w.reserve("n1", "hundred", key, 40, time.Hour)
	if !d.Allowed || d.Owner == "n2" {
		t.Fatalf("%+v", d)
	}
	ms := w.members(3)
	ms[1].Features = 0
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(3 * time.Second)
	open := w.nodes["n2"].book.On(w.nodes["n2"].Limits()["hundred"], key)
	if d := w.check("n2", Item{Limit: "hundred", Key: key, Op: OpPeek})[0]; d.Owner != "n2" || d.Remaining != 60 || len(open) != 0 {
		t.Errorf("%+v, %+v; want 60 of 100 at n2, and nothing open", d, open)
	}
}

// Promise: who is only heard of from another node is asked for holds too, if it knows them.
func TestStrangersSayWhatTheyKnow(t *testing.T) {
	w := newWorld(t, 3, hundred)
	old := w.members(2)
	w.start("n4", 4)
	ms := w.members(4)
	w.show(ms, 0, "n1", "n2", "n3", "n4")
	w.pass(3 * time.Second)
	key := w.key("n4", 0)
	w.nodes["n1"].SetView(w.view("n1", old)) // it has not heard of n3 and n4 yet
	if _, d := w.reserve("n1", "hundred", key, 40, time.Minute); d.Owner != "n4" || d.Decision.Hold != limiter.HoldOpen {
		t.Errorf("%+v", d)
	}
}
