package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: refunds and resets are made once, and last. The file of a node that was killed undoes
// them neither at the holders that have gone on, nor where that node holds again, and what was
// charged since counts.
func TestWhatWasGivenBackSinceAFileStaysSo(t *testing.T) {
	for _, first := range []string{"what the file says", "a copy"} {
		t.Run(first+" comes first", func(t *testing.T) {
			givesBackSinceAFile(t, first == "a copy")
		})
	}
}

// givesBackSinceAFile: if copyFirst, holders begin copies at the node that has come back before
// they hear what its file says.
func givesBackSinceAFile(t *testing.T, copyFirst bool) {
	w := founded(t, 5, copiesOf(1), five)
	const keys = 600
	w.spend(keys, "n1", "n2", "n3", "n4", "n5") // two of five
	w.pass(time.Second)
	d, ms := w.save("n2"), w.members(5)
	d.head.Partial = true
	w.pass(time.Second)
	giveBack := func(from string, keys ...int) {
		t.Helper()
		for _, i := range keys {
			it := Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpReset}
			if i%3 == 1 {
				it = Item{Limit: "five", Key: fmt.Sprint("k", i), Cost: -2}
			}
			if d := w.check(from, it)[0]; d.Degraded || d.Remaining != 5 {
				t.Fatalf("key %d is given back: %+v", i, d)
			}
		}
	}
	var before, after []int
	for i := range keys {
		switch {
		case i%3 == 2:
		case i%2 == 0:
			before = append(before, i)
		default:
			after = append(after, i)
		}
	}
	giveBack("n3", before...)
	w.pass(time.Second)
	w.kill("n2")
	w.show([]Member{ms[0], ms[2], ms[3], ms[4]}, 0, "n1", "n3", "n4", "n5")
	w.pass(3 * time.Second)
	giveBack("n3", after...)
	for i := 2; i < keys; i += 6 { // and one more of some
		w.check("n4", Item{Limit: "five", Key: fmt.Sprint("k", i), Cost: 1})
	}
	ms[1].Boot += 10
	w.restart("n2", ms[1].Boot, w.limits, d)
	w.show(ms, 0, "n1", "n2", "n3", "n4", "n5")
	back, meet := w.now, w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; copyFirst && m != nil && m.Stored > 0 && w.now < back.Add(time.Second) {
			c.Err = ErrUnsent
			return
		}
		if meet == nil {
			c.Answer = deliver()
			return
		}
		meet(c, deliver)
	}
	w.nodes["n2"].Start()
	w.pass(3 * time.Second)
	w.wantOneHolderEach("when n2 is back")
	wrong := make(map[int64]int)
	for i := range keys {
		want := int64(5)
		switch {
		case i%6 == 2:
			want = 2
		case i%3 == 2:
			want = 3
		}
		d := w.check([]string{"n1", "n2", "n5"}[i%3],
			Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpPeek})[0]
		if d.Degraded || d.Remaining != want {
			wrong[d.Remaining-want]++
		}
	}
	if len(wrong) > 0 {
		t.Errorf("so many keys have so much more left than they should: %v", wrong)
	}
}

// Promise: the owner is stopped: what was given back and reset while it was stays so when it goes
// on, and what it had charged just before the stop is charged, also where its heir has not heard of
// that.
func TestWhatWasGivenBackWhileTheOwnerWasStoppedStaysSo(t *testing.T) {
	for _, heirs := range []int{1, 2} {
		t.Run(fmt.Sprint(heirs, " copies"), func(t *testing.T) {
			givesBackDuringAStop(t, heirs)
		})
	}
}

func givesBackDuringAStop(t *testing.T, heirs int) {
	w := founded(t, 4, copiesOf(heirs), five)
	const keys = 600
	w.spend(keys, "n1", "n2", "n3", "n4") // two of five
	w.pass(time.Second)
	late := make(map[string]bool) // charged once more just before the stop
	for i := 100; i < 120; i++ {
		late[w.key("n2", i)] = true
	}
	for key := range late {
		w.check("n2", Item{Limit: "five", Key: key, Cost: 1})
	}
	w.freeze("n2")
	w.pass(2 * time.Second)
	ms := w.members(4)
	w.show([]Member{ms[0], ms[2], ms[3]}, 0, "n1", "n3", "n4") // gossip has forgotten it
	for i := range keys {
		it := Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpReset}
		switch i % 4 {
		case 0:
			it = Item{Limit: "five", Key: fmt.Sprint("k", i), Cost: -2}
		case 1:
			it = Item{Limit: "five", Key: fmt.Sprint("k", i), Cost: 1}
		case 2:
			continue
		}
		if d := w.check("n3", it)[0]; d.Degraded {
			t.Fatalf("key %d while n2 is stopped: %+v", i, d)
		}
	}
	w.pass(20 * time.Second) // until no table has an entry of what was reset
	w.thaw("n2")
	w.show(ms, 0, "n1", "n3", "n4")
	w.pass(3 * time.Second)
	w.wantOneHolderEach("when n2 goes on")
	if w.nodes["n2"].parts.Held() == 0 {
		t.Error("n2 holds nothing again")
	}
	wrong := make(map[int64]int)
	peek := func(at, key string, want int64) {
		d := w.check(at, Item{Limit: "five", Key: key, Op: OpPeek})[0]
		if d.Degraded || d.Remaining != want {
			wrong[d.Remaining-want]++
		}
	}
	for i := range keys {
		peek([]string{"n1", "n2", "n4"}[i%3], fmt.Sprint("k", i), []int64{5, 2, 3, 5}[i%4])
	}
	for key := range late {
		peek("n1", key, 4)
	}
	if len(wrong) > 0 {
		t.Errorf("so many keys have so much more left than they should: %v", wrong)
	}
}

// Promise: … and what was given back while the heir was stopped stays so, if the owner leaves in
// order before the heir goes on.
func TestWhatWasGivenBackWhileTheHeirWasStoppedStaysSo(t *testing.T) {
	w := founded(t, 4, copiesOf(1), five)
	const keys = 600
	w.spend(keys, "n1", "n2", "n3", "n4") // two of five
	w.pass(time.Second)
	w.freeze("n2")
	back := make(map[string]bool)
	for i := range keys {
		key := fmt.Sprint("k", i)
		v := w.nodes["n1"].View()
		hash := limiter.Hash(key)
		if r := w.nodes["n1"].view.Load(); v.Members[v.Owner(hash)].ID != "n1" ||
			r.Members[r.heir(r.Partition(hash))].ID != "n2" {
			continue
		}
		w.check("n1", []Item{
			{Limit: "five", Key: key, Cost: -2}, {Limit: "five", Key: key, Op: OpReset},
		}[i%2])
		back[key] = true
	}
	ms := w.members(4)
	ms[0].State = StateLeaving
	w.show(ms, 0, "n1", "n3", "n4")
	w.leaves("n1")
	w.pass(time.Second)
	w.show([]Member{ms[2], ms[3]}, 0, "n3", "n4")
	w.pass(20 * time.Second)
	w.thaw("n2")
	w.show(ms[1:], 0, "n2", "n3", "n4")
	w.pass(3 * time.Second)
	w.wantOneHolderEach("when n2 goes on")
	if w.nodes["n2"].parts.Held() == 0 {
		t.Error("n2 holds nothing again")
	}
	wrong := make(map[int64]int)
	for i := range keys {
		key, want := fmt.Sprint("k", i), int64(3)
		if back[key] {
			want = 5
		}
		d := w.check("n3", Item{Limit: "five", Key: key, Op: OpPeek})[0]
		if d.Degraded || d.Remaining != want {
			wrong[d.Remaining-want]++
		}
	}
	if len(wrong) > 0 {
		t.Errorf("of %d keys so many have so much more left than they should: %v", len(back), wrong)
	}
}
