package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// Promise: agents may come and go freely. One that has asked nothing for long asks as if it had.
func TestAgentAsksAfterALongSilence(t *testing.T) {
	w := newWorld(t, 2, five)
	ms := append(w.members(2), Member{ID: "sidecar", Boot: 9, Role: RoleAgent, State: StateActive})
	w.start("sidecar", 9)
	w.show(ms, 0, "n1", "n2", "sidecar")
	w.pass(10 * time.Second)
	for i := range 20 {
		if d := w.take("sidecar", "five", w.key("n1", i)); d.Degraded || d.Owner != "n1" {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
}

// Promise: one node decides, whatever order the news comes in. A claimer who has not heard of a
// member yet gets nothing that this one may hold.
func TestClaimerWhoDoesNotKnowEverybodyGetsNothing(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	ms := w.members(5)
	w.start("n4", 4)
	w.show(ms[:4], 0, "n4", "n1", "n2") // n3 has not heard of it
	w.pass(time.Second)
	ms[0].State = StateLeaving
	w.show(ms[:4], 0, "n4", "n1", "n2")
	w.show(ms[:3], 0, "n3")
	w.pass(time.Second)
	delete(w.nodes, "n1") // and who has given something to n4 is gone
	w.show(ms[1:4], 0, "n4", "n2")
	w.show(ms[1:3], 0, "n3")
	w.pass(time.Second)
	if w.nodes["n4"].Held() == 0 {
		t.Fatal("n4 holds nothing, so there is nothing to take")
	}
	w.start("n5", 5)
	w.show([]Member{ms[1], ms[2], ms[4]}, 0, "n5", "n3")
	w.pass(2 * time.Second)
	if _, many := w.holders(); many > 0 {
		t.Fatalf("%d partitions have two holders", many)
	}
	w.show(ms[1:], 0, "n2", "n3", "n4", "n5")
	w.pass(2 * time.Second)
	w.wantOneHolderEach("when all know all")
	w.wantRemaining("when all know all", keys, 3, "n2", "n3", "n4", "n5")
}

// Promise: one node decides, whatever order the news comes in. What a claimer was told of members
// that it does not know holds when who has told it is gone; but not for ever, for they may be gone
// as well.
func TestWhoWasToldOfOthersWaitsForThem(t *testing.T) {
	for _, live := range []bool{true, false} {
		w := newWorld(t, 3, five)
		const keys = 100
		w.spend(keys, "n1", "n2", "n3")
		w.pass(time.Second)
		ms := w.members(4)
		w.start("n4", 4)
		w.show(ms[2:], 0, "n4")
		w.pass(50 * time.Millisecond) // n3 tells it of n1 and n2
		delete(w.nodes, "n3")
		if !live {
			delete(w.nodes, "n1")
			delete(w.nodes, "n2")
		}
		w.pass(strangerLasts - time.Second)
		if got := w.nodes["n4"].Held(); got != 0 {
			t.Fatalf("n4 holds %d partitions, and has heard nothing of those that hold them", got)
		}
		if live {
			w.show(slices.Delete(slices.Clone(ms), 2, 3), 0, "n1", "n2", "n4")
		}
		w.pass(2 * time.Second)
		w.wantOneHolderEach("in the end")
		if live {
			w.wantRemaining("in the end", keys, 3, "n1", "n2", "n4")
		}
	}
}

// Promise: a node that leaves takes no count along. What it is just giving away is not off its
// hands yet, and if whom it gives it to is gone, or refuses, it goes on.
func TestGiftThatDoesNotArriveComesBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		meets func(c *Call)
	}{
		{"gone", func(c *Call) { c.Err = errors.Join(ErrUnsent, ErrGone) }},
		{"refused", func(c *Call) { c.Answer = &Answer{Move: &MoveAnswer{Applied: true, Refused: c.Ask.Move.Gift}} }},
	} {
		w := newWorld(t, 2, five)
		const keys = 300
		w.spend(keys, "n1", "n2")
		w.pass(time.Second)
		total, owed, claimed := w.nodes["n2"].Held(), 0, w.claimed()
		w.meet = func(call *Call, deliver func() *Answer) {
			if m := call.Ask.Move; m != nil && len(m.Gift) > 0 {
				owed = w.nodes["n2"].Held()
				c.meets(call)
				return
			}
			call.Answer = deliver()
		}
		ms := w.members(2)
		ms[1].State = StateLeaving
		w.show(ms, 0, "n1", "n2")
		w.pass(500 * time.Millisecond)
		if held := w.nodes["n2"].Held(); owed != total || held != total || w.claimed() != claimed {
			t.Errorf("%s: who leaves has %d partitions on its hands while a gift is under way and %d later, want %d", c.name, owed, held, total)
		}
		w.meet = nil
		w.pass(time.Second)
		w.wantOneHolderEach(c.name)
		w.wantRemaining(c.name, keys, 3, "n1", "n2")
	}
}

// Promise: a node that joins gets what it should hold, also if the View changed while it was being
// given to another one, who refuses.
func TestRefusedGiftGoesToTheOwner(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3")
	w.start("n4", 4)
	w.start("n5", 5)
	all := []string{"n1", "n2", "n3", "n4", "n5"}
	ms := w.members(5)
	refused := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && len(m.Gift) > 0 && c.To.ID == "n4" && refused == 0 {
			refused = len(m.Gift)
			changed := slices.Clone(ms)
			changed[3].State, changed[4].State = StateJoining, StateActive
			for _, id := range all {
				w.nodes[id].SetView(w.view(id, changed))
			}
		}
		c.Answer = deliver()
	}
	ms[4].State = StateJoining
	w.show(ms, 0, all...)
	w.pass(3 * time.Second)
	if refused == 0 {
		t.Fatal("nothing was given to n4")
	}
	w.wantOneHolderEach("after the join")
	v := w.nodes["n1"].View()
	for p := range ring.Partitions {
		if owner := v.Members[v.owner(p)].ID; !w.nodes[owner].HoldsPartition(p) {
			t.Fatalf("%s should hold partition %d, and does not", owner, p)
		}
	}
	w.wantRemaining("after the join", keys, 3, "n1", "n2", "n3", "n5")
}

// Promise: a node that leaves takes no count along. Who has given it something, and hears late that
// it was taken, keeps the copies that have come back from there meanwhile: it gets the rest with
// the gift, and no more.
func TestCopiesOvertakeWhatConfirmsAGift(t *testing.T) {
	w := newWorld(t, 2, five)
	const keys = 300
	w.spend(keys, "n1", "n2")
	w.pass(time.Second)
	w.start("n3", 3)
	silent := true
	w.meet = func(c *Call, deliver func() *Answer) {
		c.Answer = deliver()
		if m := c.Ask.Move; silent && m != nil && len(m.Gift) > 0 && c.To.ID == "n3" {
			c.Err = errSilent
		}
	}
	ms := w.members(3)
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(500 * time.Millisecond)
	if w.nodes["n3"].Held() == 0 {
		t.Fatal("n3 has got nothing")
	}
	ms[2].State = StateLeaving
	w.show(ms, 0, "n1", "n2")
	silent = false
	w.pass(time.Second)
	w.show(ms, 0, "n3") // as the last to hear
	w.pass(2 * time.Second)
	w.wantOneHolderEach("when n3 leaves")
	if n := w.nodes["n3"].Held(); n != 0 {
		t.Errorf("n3 leaves, and holds %d partitions", n)
	}
	w.wantRemaining("when n3 leaves", keys, 3, "n1", "n2")
}

// Promise: a node that joins changes no count. Copies of a holder that lives are not lent to who
// claims: they would be merged with what the holder gives, which is newer.
func TestCopiesOfALivingHolderAreNotLent(t *testing.T) {
	spec := five
	spec.Name, spec.Per, spec.Anchor = "five", time.Hour, limiter.FirstHit
	w := newWorld(t, 3, spec)
	const keys = 600
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second) // copies
	w.start("n4", 4)
	lent := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil {
			lent += len(m.Lent)
		}
		c.Answer = deliver()
	}
	w.show(w.members(4), 0, "n4") // it claims before anybody has heard that it is there
	w.show(w.members(4), 100*time.Millisecond, "n1", "n2", "n3")
	w.pass(2 * time.Second)
	if lent > 0 {
		t.Errorf("%d copies were lent", lent)
	}
	w.wantOneHolderEach("after the join")
	w.wantRemaining("after the join", keys, 3, "n1", "n2", "n3", "n4")
}

// Promise: a node that joins, no request failed. An asker who has not heard of the new owner is
// told who that is.
func TestStrangerIsAskedWhoOwnsTheKey(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3")
	w.start("n4", 4)
	w.show(w.members(4), 0, "n4", "n1", "n2") // n3 has not heard of it
	w.pass(freshLasts + time.Second)
	if w.nodes["n4"].Held() == 0 {
		t.Fatal("n4 holds nothing, so there is nothing to ask it for")
	}
	w.wantRemaining("at who knows nothing of the owner", keys, 3, "n3")

	ms := w.members(4)
	ms[3].Boot = 14
	w.kill("n4")
	w.start("n4", 14)
	w.show(ms, 0, "n4", "n1", "n2", "n3")
	w.pass(2 * time.Second)
	w.nodes["n3"].SetView(w.view("n3", w.members(4))) // old news: it believes in the boot before
	w.wantRemaining("at who knows an older boot of the owner", keys, 3, "n3")
}

// Promise: nodes that leave, no request failed. Who has not heard that the owner and its heir have
// left asks others who decides.
func TestOwnerAndHeirHaveLeftUnheard(t *testing.T) {
	w := newWorld(t, 4, five)
	ms := w.members(4)
	w.pass(time.Second)
	ms[0].State, ms[1].State = StateLeaving, StateLeaving
	w.show(ms, 0, "n1", "n2", "n3") // n4 has not heard of it
	w.pass(2 * time.Second)
	w.kill("n1")
	w.kill("n2")
	old, tried := w.nodes["n4"].View(), 0
	for i := range 2000 {
		key := fmt.Sprintf("key-%d", i)
		hash := limiter.Hash(key)
		if old.Owner(hash) != old.Find("n1") || old.heir(ring.Partition(hash)) != old.Find("n2") || !w.nodes["n3"].Holds(hash) {
			continue
		}
		tried++
		if d := w.take("n4", "five", key); d.Degraded || d.Owner != "n3" || d.Remaining != 4 {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
	if tried < 10 {
		t.Fatalf("only %d keys have n1 as owner and n2 as heir", tried)
	}
}

// Promise: nodes that leave, no request failed. If who should decide has not heard so, and names
// who has left, others are asked.
func TestOwnerNamesWhoHasLeft(t *testing.T) {
	w := newWorld(t, 5, five)
	w.pass(time.Second)
	ms := w.members(5)
	for _, i := range []int{0, 1, 3, 4} {
		ms[i].State = StateLeaving
	}
	w.show(ms, 0, "n3", "n4", "n5") // so n4 and n5 give all to n3
	w.pass(2 * time.Second)
	if n := w.nodes["n4"].Held() + w.nodes["n5"].Held(); n > 0 {
		t.Fatalf("who leaves still holds %d partitions", n)
	}
	w.kill("n4")
	w.kill("n5")
	w.show(w.members(3), 0, "n1") // and n2 has heard of nothing
	asker, old, tried := w.nodes["n1"].View(), w.nodes["n2"].View(), 0
	for i := range 2000 {
		key := fmt.Sprintf("key-%d", i)
		hash := limiter.Hash(key)
		if old.Owner(hash) != old.Find("n4") || old.heir(ring.Partition(hash)) != old.Find("n5") || asker.Owner(hash) != asker.Find("n2") {
			continue
		}
		tried++
		if d := w.take("n1", "five", key); d.Degraded || d.Owner != "n3" || d.Remaining != 4 {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
	if tried < 10 {
		t.Fatalf("only %d keys are owned by n4, then by n5, then by n2", tried)
	}
}

// Promise: nodes that join, no request failed. Two who have heard different news, and each take the
// other one for the owner, ask the one that still decides and has heard nothing.
func TestTwoNameEachOther(t *testing.T) {
	w := newWorld(t, 1, five)
	w.pass(time.Second)
	w.start("n2", 2)
	w.start("n3", 3)
	ms := w.members(3)
	w.show(ms, 0, "n3")
	ms = w.members(3)
	ms[1].State = StateJoining
	w.show(ms, 0, "n2")
	at2, at3, tried := w.nodes["n2"].View(), w.nodes["n3"].View(), 0
	for i := range 2000 {
		key := fmt.Sprintf("key-%d", i)
		hash := limiter.Hash(key)
		if at2.Owner(hash) != at2.Find("n3") || at3.Owner(hash) != at3.Find("n2") {
			continue
		}
		tried++
		if d := w.take("n2", "five", key); d.Degraded || d.Owner != "n1" || d.Remaining != 4 {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
	if tried < 10 {
		t.Fatalf("only %d keys are owned by n3 for n2 and by n2 for n3", tried)
	}
}

// Who was met on the way may be asked again as all others.
func TestAnotherIsWhoWasMet(t *testing.T) {
	w := newWorld(t, 2, five)
	n := w.nodes["n1"]
	r := n.meet(w.now, n.view.Load(), []Member{{ID: "stranger", Boot: 9}})
	if got := n.another(w.now, r, 1); got != 2 {
		t.Errorf("after n2: %d, want the stranger", got)
	}
	if got := n.another(w.now, r, 2); got != 1 {
		t.Errorf("after the stranger: %d, want n2", got)
	}
}

// Promise: somebody decides. Who is in the View is no stranger, also if it was noted as one while
// that View was made.
func TestWhoIsInTheViewIsNoStranger(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n1 := w.nodes["n1"]
	n1.strangers[w.nodes["n2"].boot] = w.now.Add(time.Hour) // longer than this test
	w.kill("n3")
	w.pass(5 * time.Second)
	w.wantOneHolderEach("after n3 has died")
}
