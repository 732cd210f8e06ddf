package ownership

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// half begins in a configuration with a pair of voters and others beside it. Boots are numbered in
// the order of ids.
func (w *world) half(voters string, ids ...string) {
	w.lossy = true
	c := &Configuration{Epoch: Epoch{Founded(99), 1}}
	for i, id := range ids {
		m := Member{ID: id, Boot: Boot(i + 1)}
		n := &node{id: id, rate: 1000, offset: Instant(i) * 1000 * ms, electors: ids}
		w.nodes, w.next = append(w.nodes, n), m.Boot
		w.boot(n, w.keep(m, ids))
		if c.Members = append(c.Members, m); strings.Contains(voters, id) {
			c.Voters = append(c.Voters, m.Boot)
		}
	}
	slices.SortFunc(c.Members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	for _, n := range w.nodes {
		n.s.install(n.clock(w.now), c)
	}
}

// bGoesOn cuts a off until b has gone on with c.
func (w *world) bGoesOn(t *testing.T) {
	t.Helper()
	w.sever("a", "b c", true)
	w.run(3 * second)
	if c := w.node("c").s.config; !c.Marked() || !c.Has(w.node("b").s.me.Boot) {
		t.Fatalf("c is in %v", c)
	}
}

// heals ends all cuts, and demands that everybody agrees.
func (w *world) heals(t *testing.T) {
	t.Helper()
	clear(w.cut)
	w.run(8 * second)
	if w.wrong == "" {
		w.wrong = w.agreed()
	}
	if w.wrong != "" {
		t.Error(w.wrong)
		t.Log(strings.Join(w.log, "\n"))
	}
}

// Promise: two nodes never decide for one key unmarked. A half of a pair that has accepted a
// successor does not hear that it was decided, and is evicted. When the other half dies, those that
// are left of that successor go on, and not this one beside them.
func TestHalfThatHasAcceptedFollows(t *testing.T) {
	for _, healed := range []bool{false, true} {
		w := newWorld(1, 3)
		w.half("bc", "c", "b", "a")
		b, c := w.node("b"), w.node("c")
		w.drop = func(_, to string, m Message) bool {
			_, decided := m.(Decided)
			return decided && to == "b"
		}
		for c.s.config.Epoch.Number == 1 {
			w.run(time.Millisecond)
		}
		if b.s.voter.accepted == 0 || b.s.config.Epoch.Number != 1 {
			t.Fatalf("b has accepted %v in %v", b.s.voter.accepted, b.s.config)
		}
		w.sever("b", "a c", true)
		w.drop = nil
		w.run(3 * second)
		w.kill("c")
		w.sever("b", "c", false)
		w.sever("b", "a", !healed)
		w.run(3 * second)
		w.heals(t)
	}
}

// Promise: a cluster of two goes on when one of them dies, also while a third one joins. What the
// dead one had asked this one to accept is as good as decided.
func TestHalfDecidesWhatItHasAccepted(t *testing.T) {
	w := newWorld(1, 3)
	w.half("bc", "c", "b", "a")
	b := w.node("b")
	w.drop = func(_, to string, m Message) bool {
		_, accepted := m.(Accepted)
		return accepted && to == "c"
	}
	for b.s.voter.accepted == 0 {
		w.run(time.Millisecond)
	}
	w.kill("c")
	w.run(200 * time.Millisecond)
	if why := w.agreed(); why != "" || len(b.s.config.Epoch.Lineage) != 8 {
		t.Errorf("%s; b is in %v", why, b.s.config)
		t.Log(strings.Join(w.log, "\n"))
	}
	w.heals(t)
}

// Promise: two nodes never decide for one key unmarked. Two that leave at once have each said
// farewell, and vote until one of them is the last.
func TestPairThatLeavesEndsAsOne(t *testing.T) {
	for seed := range seeds(100) {
		w := newWorld(seed, 3)
		w.skewed = true
		w.trio("a", "b")
		for _, n := range w.nodes {
			w.run(time.Duration(w.random.IntN(40)) * time.Millisecond)
			w.step(n, Leave{})
		}
		w.run(3 * second)
		if w.wrong != "" {
			t.Fatalf("seed %d: %s\n%s", seed, w.wrong, strings.Join(w.log, "\n"))
		}
	}
}

// Promise: of two that decide for one key both mark it. One half goes on with c, and dies as its
// cut from the other one ends; c does not see that, and decides until its right is over.
func TestHalfMarksBesideWhatFollowedTheDead(t *testing.T) {
	for try := range 20 {
		w := newWorld(1, 3)
		w.half("ab", "a", "b", "c")
		w.run(10 * time.Millisecond)
		w.sever("a", "b c", true)
		w.run(3*second + time.Duration(try)*20*time.Millisecond)
		if c := w.node("c").s; !c.config.Marked() || !c.Deciding(w.node("c").clock(w.now)) {
			t.Fatalf("c is in %v", c.config)
		}
		w.sever("b", "c", true)
		w.kill("b")
		w.sever("a", "b", false)
		w.run(3 * second)
		w.heals(t)
	}
}

// Promise: most voters die at once, and the rest goes on by itself. One half has gone on with c,
// and dies: the other one has met c, and is gone as a boot. Where it has not, c waits for it.
func TestWhoFollowedAHalfOutlivesIt(t *testing.T) {
	for _, c := range []struct{ cut, back, goesOn bool }{
		{false, false, true}, {false, true, true}, {true, false, false}, {true, true, false},
	} {
		w := newWorld(1, 3)
		w.half("ab", "b", "a", "c")
		w.run(10 * time.Millisecond)
		w.bGoesOn(t)
		w.sever("a", "c", c.cut)
		w.run(second)
		w.kill("b")
		if w.run(second); c.back {
			w.start("b", "a", "b", "c")
			w.run(second)
		}
		if n := w.node("c"); n.s.Deciding(n.clock(w.now)) != c.goesOn {
			t.Errorf("%+v: c goes on %t", c, !c.goesOn)
		}
		w.heals(t)
	}
}

// Promise: the same with a member that has no vote and was cut off together with the other half. It
// is nobody's rival by name, and c has to hear that it is gone as well, however long ago that was.
func TestWhoFollowedAHalfWaitsForAllOthers(t *testing.T) {
	for _, early := range []bool{false, true} {
		w := newWorld(1, 3)
		w.half("ab", "b", "a", "c", "d", "e")
		w.run(10 * time.Millisecond)
		w.sever("a d", "b c e", true)
		w.run(3 * second)
		c := w.node("c")
		goesOn := func(want bool, when string) {
			t.Helper()
			if w.run(second); c.s.Deciding(c.clock(w.now)) != want {
				t.Errorf("d dies early %t: c goes on %t, %s", early, !want, when)
			}
		}
		dies := func(id string) {
			w.kill(id)
			clear(w.cut)
			w.sever("d", "b c e", id == "a" && !early)
			w.sever("a", "b c e", id == "d" && early)
		}
		if early {
			dies("d")
			w.run(100 * time.Millisecond)
		}
		number := c.s.config.Epoch.Number
		w.kill("e")
		if goesOn(true, "with b"); c.s.config.Epoch.Number == number || !c.s.config.Marked() {
			t.Fatalf("c is in %v", c.s.config)
		}
		dies("a")
		w.kill("b")
		if !early {
			goesOn(false, "and d may have gone on")
			dies("d")
		}
		goesOn(true, "when all others are gone")
		if w.wrong != "" {
			t.Error(w.wrong)
		}
	}
}

// Promise: after graceful changes all goes on. The half that goes on leaves while the other one is
// cut off, and gives all to c; when the cut ends, c goes on with the other one.
func TestHalfThatGoesOnLeaves(t *testing.T) {
	w := newWorld(1, 3)
	w.half("ab", "b", "a", "c")
	w.run(10 * time.Millisecond)
	w.bGoesOn(t)
	w.sever("a", "c", false)
	w.run(second)
	w.step(w.node("b"), Leave{})
	w.run(3 * second)
	w.heals(t)
	if w.node("b").up {
		t.Error("b does not leave")
	}
}

// Promise: nobody is stuck for ever. A half has accepted what it has proposed itself, and is cut
// off. The other one has not heard of that, goes on with c, and dies.
func TestHalfThatIsBoundIsNotStuck(t *testing.T) {
	for _, cut := range []string{"a", "a c"} {
		w := newWorld(1, 3)
		w.half("ab", "b", "a", "c")
		w.drop = func(_, to string, m Message) bool {
			a, accept := m.(Accept)
			return accept && to == "a" && a.Value.Epoch.Number == 2
		}
		b := w.node("b")
		for b.s.voter.accepted == 0 {
			w.run(time.Millisecond)
		}
		w.sever("b", cut, true)
		w.drop = nil
		w.run(3 * second)
		if c := w.node("c").s.config; len(c.Epoch.Lineage) != 16 {
			t.Fatalf("c is in %v", c)
		}
		w.kill("a")
		w.sever("b", "a", false)
		w.run(3 * second)
		w.heals(t)
	}
}

// Promise: the last node of a cluster decides again at the instant at which it sees that the other
// one is gone, also of those that were more before. It does not wait until it renews once more.
func TestWhoIsLeftDecidesAtOnce(t *testing.T) {
	for _, gone := range []int{1, 2} {
		p := Default()
		c := &Configuration{Epoch: Epoch{Founded(9), 4}}
		for i := range gone + 1 {
			m := Member{ID: string(rune('a' + i)), Boot: Boot(i + 1)}
			c.Members, c.Voters = append(c.Members, m), append(c.Voters, m.Boot)
		}
		now := Instant(time.Hour)
		s, _ := Within(&p, c.Members[0], now, c)
		for _, v := range c.Voters[1:] {
			s.Step(now, LineUp{v})
			s.Step(now, Received{v, RenewAck{c.Epoch, now, now}})
		}
		s.Step(now, Poll{})
		if now = now.Add(100 * time.Millisecond); !s.Deciding(now) {
			t.Fatalf("%d of %d: it has no right before", gone, gone+1)
		}
		for _, v := range c.Voters[1:] {
			s.Step(now, LineEnded{v})
			s.Step(now, AddressRefused{v})
		}
		s.Step(now, Poll{})
		if got := s.Config(); len(got.Members) != 1 || got.Marked() || !s.Deciding(now) {
			t.Errorf("%d of %d are gone: %v, it decides: %v", gone, gone+1, got, s.Deciding(now))
		}
	}
}
