package ownership

import (
	"slices"
	"testing"
	"time"
)

// Promise: a member that is asked to step down stays asked while most others miss it. A voter that
// has begun an epoch, and not heard yet which members the others miss, does not take the member for
// reached.
func TestStepDownIsNotTakenBack(t *testing.T) {
	for seed := range seeds(20) {
		w := newWorld(seed, 3, 0)
		w.trio("a", "b", "c", "d", "e")
		var first Instant
		w.drop = func(_, to string, m Message) bool {
			if _, is := m.(Decided); is && to == "b" { // it hears renewals before it hears this
				if first == 0 {
					first = w.now
				}
				return w.now < first.Add(30*time.Millisecond)
			}
			if r, relayed := m.(Relayed); relayed {
				m = r.Inner
			}
			_, taken := m.(Taken) // so a keeps what it holds
			return taken
		}
		for _, id := range []string{"b", "c", "d"} {
			w.step(w.node(id), Unreached{1})
		}
		config := func() *Configuration { return w.node("b").s.config }
		for range 200 {
			if m, _ := config().Member(1); m.Role == RoleLeaving {
				break
			}
			w.run(10 * time.Millisecond)
		}
		asked := config()
		if m, _ := asked.Member(1); m.Role != RoleLeaving {
			t.Fatalf("seed %d: a was not asked to step down: %v", seed, asked)
		}
		w.run(400 * time.Millisecond)
		if now := config(); now.Epoch != asked.Epoch {
			t.Errorf("seed %d: %v is followed by %v while nothing changes", seed, asked, now)
		}
	}
}

// Promise: a member that said farewell, and became an owner again by a proposer that had not heard
// so, has its right as all others do: nobody evicts it before that has run out.
func TestFarewellOfBeforeSaysNothing(t *testing.T) {
	w := newWorld(1, 3, 0)
	w.trio("a", "b", "c")
	b := w.node("b").s
	now := w.node("b").clock(w.now)
	follow := func(role Role) *Configuration {
		c := *b.config
		c.Previous, c.Epoch.Number = c.Epoch, c.Epoch.Number+1
		c.Members = slices.Clone(c.Members)
		c.Members[0].Role = role
		return &c
	}
	b.receive(now, 3, Decided{follow(RoleLeaving)})
	b.receive(now, 1, Farewell{b.config.Epoch})
	without := func() *Configuration {
		c := follow(RoleOwner)
		c.Members = c.Members[1:]
		return c
	}
	if !b.wouldAccept(now, without()) {
		t.Error("a has said farewell, and b waits for it")
	}
	b.receive(now, 3, Decided{follow(RoleOwner)})
	if b.wouldAccept(now, without()) {
		t.Error("a is an owner again, and b evicts it at once")
	}
}
