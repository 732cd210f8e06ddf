package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// cutBetween has nothing arrive that a sends to b, or the other way round. The node that speaks is
// the one being asked, or asks first.
func (w *world) cutBetween(a, b, asker string) {
	speakers := []string{asker}
	w.meet = func(c *Call, deliver func() *Answer) {
		from := speakers[len(speakers)-1]
		if c.Ask.Move != nil {
			from = c.Ask.Move.ID
		}
		if from == a && c.To.ID == b || from == b && c.To.ID == a {
			c.Err = errSilent
			return
		}
		speakers = append(speakers, c.To.ID)
		c.Answer = deliver()
		speakers = speakers[:len(speakers)-1]
	}
}

// relayWorld is a world of three where n1 and n2 do not reach each other, and n1 has found that out
// for key, which n2 holds and n3 is the heir of.
func relayWorld(t *testing.T) (w *world, key string) {
	w = newWorld(t, 3, five)
	for i := 0; ; i++ {
		key = w.key("n2", i)
		if v := w.nodes["n1"].View(); v.heir(ring.Partition(limiter.Hash(key))) == v.Find("n3") {
			break
		}
	}
	w.cutBetween("n1", "n2", "n1")
	peer := w.nodes["n1"].view.Load().peers[1]
	for !peer.Open(w.now) {
		peer.Fail(w.now)
	}
	return w, key
}

// Promise: an owner that only the heir reaches decides all the same, and there are at most two
// hops.
func TestHeirRelays(t *testing.T) {
	w, key := relayWorld(t)
	for i := range 6 {
		d := w.take("n1", "five", key)
		if d.Allowed != (i < 5) || d.Degraded || d.Source != SourceForwarded || d.Owner != "n2" {
			t.Fatalf("take %d: %+v", i+1, d)
		}
	}
	items := []Item{{Limit: "five", Key: key, Cost: 1}, {Limit: "five", Key: key, Cost: 1}}
	out := make([]Decision, 2)
	if err := w.nodes["n1"].Check(&Request{Items: items, Atomic: true}, out); err != nil ||
		out[0].Allowed || out[0].Degraded || out[0].Owner != "n2" {
		t.Errorf("atomic: %+v, %v", out, err)
	}
	if got := w.nodes["n3"].Stats().Relayed.Load(); got != 8 {
		t.Errorf("n3 has sent %d items on; want 8", got)
	}
	if left := w.remaining("n2", "five", key); left != 0 {
		t.Errorf("n2 has %d left of 5", left)
	}
}

// Promise: what was sent on and never answered may have been charged: it is said to be unknown, and
// is not charged again.
func TestRelayedAndLost(t *testing.T) {
	w, key := relayWorld(t)
	cut := w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Items) > 0 && c.To.ID == "n2" {
			deliver()
			c.Err = errSilent
			return
		}
		cut(c, deliver)
	}
	if d := w.take("n1", "five", key); d.Source != SourceFallback || !d.Allowed {
		t.Fatalf("%+v", d)
	}
	if o := w.nodes["n1"].debts.ledger.Oldest(9); len(o) != 1 || !o[0].Doubt.Of(2) ||
		o[0].Doubt.Of(3) {
		t.Errorf("owed: %+v", o)
	}
	if left := w.remaining("n2", "five", key); left != 4 {
		t.Errorf("n2 has %d left of 5", left)
	}
}

// Promise: one node decides. Two members that do not reach each other, while the third reaches
// both, do not both hold what one of them held; nor does one take over what is held by a node that
// was declared dead by mistake.
func TestWhoIsHeardByOthersKeepsWhatItHolds(t *testing.T) {
	for _, declared := range []bool{false, true} {
		w := newWorld(t, 3, five)
		const keys = 100
		w.spend(keys, "n1", "n2", "n3")
		w.pass(time.Second)
		held := w.nodes["n2"].parts.Held()
		w.cutBetween("n1", "n2", "")
		if declared { // n1 alone has heard so
			ms := w.members(3)
			w.show([]Member{ms[0], ms[2]}, 0, "n1")
		}
		for range 50 {
			w.pass(100 * time.Millisecond)
			if _, many := w.holders(); many > 0 {
				t.Fatalf("declared dead %t: %d partitions have two holders", declared, many)
			}
		}
		if n := w.nodes["n2"].parts.Held(); n != held {
			t.Errorf("declared dead %t: n2 holds %d partitions, and held %d", declared, n, held)
		}
		w.meet = nil
		w.show(w.members(3), 0, "n1")
		w.pass(2 * time.Second)
		w.wantOneHolderEach("when all is well")
		w.wantRemaining("when all is well", keys, 3, "n1", "n2", "n3")
	}
}

// Promise: whichever node is asked, the owner decides, also if it takes longer than silence may
// last until the two reach each other.
func TestOwnerThatOthersReachDecidesForLong(t *testing.T) {
	w, _ := relayWorld(t)
	w.pass(5 * time.Second)
	heirs := map[string]int{}
	for i := range 200 {
		key := w.key("n2", i)
		v := w.nodes["n1"].View()
		heirs[v.Members[v.heir(ring.Partition(limiter.Hash(key)))].ID]++
		if d := w.take("n1", "five", key); d.Degraded || d.Owner != "n2" || d.Remaining != 4 {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
	if heirs["n1"] == 0 || heirs["n3"] == 0 {
		t.Fatalf("heirs of these keys are %v; want both others", heirs)
	}
}

// Promise: a member that sends on what it does not hold decides in the same call what it does hold:
// for a batch, and for takes of both owners that stand or fall together.
func TestRelayBesidesItsOwn(t *testing.T) {
	w, far := relayWorld(t)
	near := w.key("n3", 0)
	items := []Item{{Limit: "five", Key: far, Cost: 1}, {Limit: "five", Key: near, Cost: 2}}
	for i, atomic := range []bool{false, true} {
		out := make([]Decision, len(items))
		r := &Request{Items: items, Atomic: atomic}
		if err := w.nodes["n1"].Check(r, out); err != nil {
			t.Fatal(err)
		}
		for k, owner := range []string{"n2", "n3"} {
			if d := out[k]; !d.Allowed || d.Degraded || d.Owner != owner {
				t.Errorf("atomic: %t: item %d: %+v", atomic, k, d)
			}
		}
		w.pass(time.Second) // what was set aside is charged
		left := [2]int64{w.remaining("n2", "five", far), w.remaining("n3", "five", near)}
		if want := [2]int64{4 - int64(i), 3 - 2*int64(i)}; left != want {
			t.Errorf("atomic: %t: %d of 5 left, want %d", atomic, left, want)
		}
	}
}

// Promise: of items that stand or fall together all are sent on to one owner, or none is.
func TestRelayKeepsTogether(t *testing.T) {
	w, far := relayWorld(t)
	for _, other := range []string{"n1", "n3"} { // the asker, and the node that is asked
		keys := []string{far, w.key(other, 1)}
		a := &Ask{Hop: 1, Atomic: true, Relay: true, Deadline: w.now.Add(time.Second)}
		for i, key := range keys {
			it := AskItem{Limit: w.limits["five"], Key: key, Cost: 1}
			it.ID = ID{Origin: 7, Sequence: uint64(i + 1)}
			a.Items = append(a.Items, it)
		}
		for i, out := range w.nodes["n3"].Deliver(a).Items {
			if out.Status != StatusNotOwner {
				t.Errorf("with a key of %s: item %d: %+v", other, i, out)
			}
		}
		for i, owner := range []string{"n2", other} {
			if left := w.remaining(owner, "five", keys[i]); left != 5 {
				t.Errorf("with a key of %s: %s has %d left of 5", other, owner, left)
			}
		}
	}
}

// Promise: a take is charged once. An heir that stood still for longer than owners remember answers
// does not send on what may have lain at its door.
func TestHeirThatStoodStillRelaysNothing(t *testing.T) {
	w, key := relayWorld(t)
	w.meet = nil
	w.pass(3 * time.Second)
	n1, n3 := w.nodes["n1"], w.nodes["n3"]
	ask := &Ask{
		RingHash: n1.View().RingHash(), Relay: true, Deadline: w.now.Add(time.Minute),
		Items: []AskItem{{
			Limit: n1.Limits()["five"], Key: key, Cost: 1, ID: ID{Origin: 7, Sequence: 1},
		}},
	}
	for _, still := range []time.Duration{0, 2500 * time.Millisecond} {
		w.freeze("n3")
		w.pass(still)
		w.thaw("n3")
		a := n3.Deliver(ask).Items[0]
		if relayed := a.Status == StatusDone; relayed != (still == 0) {
			t.Errorf("when it stood still for %v: %+v", still, a)
		}
	}
}
