package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// liar is member n5 of five, which says to the others what is not so. It has a valid id and boot,
// and names keys that it neither owns nor is an heir of.
type liar struct {
	w        *world
	rand     *rand.Rand
	limit    *limiter.Limit
	keys     []string
	owner    map[string]string // of each key
	parts    []uint16          // of the keys
	sequence uint64
}

// ten lasts longer than a test, so nothing comes back by itself.
var ten = limiter.Spec{
	Name: "ten", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
	Limit: 10, Per: 30 * 24 * time.Hour,
}

// newLiar charges three units to each of some keys of honest members with honest heirs.
func newLiar(t *testing.T, seed uint64) *liar {
	w := founded(t, 5, copiesOf(1), ten)
	g := &liar{
		w: w, rand: rand.New(rand.NewPCG(seed, 0)), limit: (*w.nodes["n1"].limits.Load())["ten"],
		owner: map[string]string{}, sequence: 1 << 40,
	}
	r := w.nodes["n1"].view.Load()
	for _, owner := range []string{"n1", "n2", "n3", "n4"} {
		for i, found := 0, 0; found < 10; i++ {
			key := w.key(owner, i)
			p := uint16(ring.Partition(limiter.Hash(key)))
			if r.Members[r.heir(int(p))].ID == "n5" || r.Members[r.secondHeir(int(p))].ID == "n5" ||
				slices.Contains(g.parts, p) {
				continue
			}
			found++
			g.keys, g.parts, g.owner[key] = append(g.keys, key), append(g.parts, p), owner
		}
	}
	w.pass(time.Second)
	g.charge(3, 7)
	w.pass(time.Second)
	return g
}

// charge takes cost units of each key, at honest members.
func (g *liar) charge(cost, want int64) {
	g.w.t.Helper()
	for i, key := range g.keys {
		at := [...]string{"n1", "n2", "n3", "n4"}[i%4]
		if g.w.nodes[at] == nil {
			at = "n2"
		}
		d := g.w.check(at, Item{Limit: "ten", Key: key, Cost: cost})[0]
		if !d.Allowed || d.Degraded || d.Remaining != want {
			g.w.t.Fatalf("a take of key %d, of %s, at %s: %+v; want %d left", i, g.owner[key], at,
				d, want)
		}
	}
}

// look demands that so much is left of each key, and that nothing is marked.
func (g *liar) look(when string, want int64) {
	g.w.t.Helper()
	wrong := 0
	for i, key := range g.keys {
		d := g.w.check("n2", Item{Limit: "ten", Key: key, Op: OpPeek})[0]
		if d.Degraded || d.Remaining != want {
			if wrong++; wrong == 1 {
				g.w.t.Errorf("%s: key %d, of %s: %+v; want %d left", when, i, g.owner[key], d, want)
			}
		}
	}
	if wrong > 0 {
		g.w.t.Errorf("%s: %d of %d keys are wrong", when, wrong, len(g.keys))
	}
}

// say sends a message of n5 to one of the others, or to all.
func (g *liar) say(to string, m *Move) {
	n := g.w.nodes[to]
	if n == nil {
		return
	}
	said, n5 := *m, g.w.nodes["n5"]
	said.From, said.To, said.ID, said.Secret = n5.boot, n.boot, "n5", n.view.Load().Secret
	n.Deliver(&Ask{Hop: 1, Deadline: g.w.now.Add(time.Second), Move: &said})
}

func (g *liar) sayAll(m *Move) {
	for _, to := range []string{"n1", "n2", "n3", "n4"} {
		g.say(to, m)
	}
}

// next is the number of the next message of copies.
func (g *liar) next() uint64 { g.sequence++; return g.sequence }

// high is a term above all that the others have heard of.
func (g *liar) high() uint64 {
	term := uint64(0)
	for _, n := range g.w.nodes {
		term = max(term, n.parts.term)
	}
	return term + 1<<termBits
}

// entries say of each key that so much is used.
func (g *liar) entries(used int64) (list []limiter.Entry) {
	knows := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	for _, key := range g.keys {
		hash := limiter.Hash(key)
		knows.Take(g.w.now, g.limit, key, hash, used)
		list = append(list, knows.Entry(g.w.now, g.limit, key, hash))
	}
	return list
}

// copies says something about copies, in order, to all.
func (g *liar) copies(c Copying, known ...Known) {
	c.Sequence = g.next()
	g.sayAll(&Move{Term: g.high(), Copying: c, Claiming: Claiming{Known: known}})
}

// claims claims the keys of others, and says what it knows of them.
func (g *liar) claims(c Claiming) {
	c.Claim = g.parts
	g.sayAll(&Move{Term: g.high(), Addr: "x", Epoch: g.epoch(), Claiming: c})
}

// gives gives the keys of others away.
func (g *liar) gives(c Copying) {
	c.Sequence = g.next()
	g.sayAll(&Move{
		Term: g.high(), Epoch: g.epoch(), Copying: c, Giving: Giving{Gift: g.parts},
	})
}

func (g *liar) epoch() ownership.Epoch { return g.w.nodes["n5"].right.roll.Load().epoch() }

// nothing says of each key that nothing is used.
func (g *liar) nothing() (list []limiter.Entry) {
	for _, e := range g.entries(1) {
		e.State = nil
		list = append(list, e)
	}
	return list
}

// holds sets units of each key aside.
func (g *liar) holds() (list []HoldCopy) {
	for i, key := range g.keys {
		list = append(list, HoldCopy{Left: time.Hour, Hold: limiter.Hold{
			ID: limiter.HoldID{Origin: 99, Sequence: uint64(i)}, Limit: g.limit, Key: key,
			Units: 5, State: limiter.HoldOpen,
		}})
	}
	return list
}

// remembered are answers to the takes that members are about to ask for, of all partitions of keys
// here, or of partitions that n5 owns.
func (g *liar) remembered(own bool) (list []Memory) {
	parts := g.parts
	if r := g.w.nodes["n2"].view.Load(); own {
		for p := range ring.Partitions {
			if r.Members[r.owner(p)].ID == "n5" {
				parts = []uint16{uint16(p)}
			}
		}
	}
	for _, id := range []string{"n1", "n2", "n3", "n4"} {
		n := g.w.nodes[id]
		if n == nil {
			continue
		}
		for i := range uint64(40) {
			asked := ID{Origin: n.boot | nodeOrigin, Sequence: n.sequence.Load() + 1 + i}
			for _, id := range []ID{asked, ofReport(asked), ofWhole(asked)} {
				list = append(list, Memory{
					ID: id, Partition: parts[i%uint64(len(parts))],
					Decisions: []limiter.Decision{{Allowed: true, Limit: 10, Remaining: 9}},
				})
			}
		}
	}
	return list
}

// answers says what takes are answered by, in order, to all.
func (g *liar) answers(own bool) {
	g.sayAll(&Move{
		Term: g.high(), Copying: Copying{Sequence: g.next()},
		Giving: Giving{Taken: g.remembered(own)},
	})
}

// forget has denials of each key be forgotten.
func (g *liar) forget() {
	for _, id := range []string{"n1", "n2", "n3", "n4"} {
		if n := g.w.nodes[id]; n != nil {
			a := &Ask{Hop: 1, Deadline: g.w.now.Add(time.Second), From: 5}
			for _, key := range g.keys {
				a.Forget = append(a.Forget, limiter.Hash(key))
			}
			n.Deliver(a)
		}
	}
}

// lies are what n5 says, by name.
var lies = []struct {
	name string
	say  func(g *liar)
}{
	{"claims", func(g *liar) { g.claims(Claiming{}) }},
	{"claims with false copies", func(g *liar) {
		for of := uint64(1); of < 5; of++ {
			known := []Known{{Of: of, Pass: 1 << 40, Whole: g.parts}}
			g.claims(Claiming{Known: known, Heard: 1 << 62})
		}
	}},
	{"copies that begin", func(g *liar) { g.copies(Copying{Begin: g.parts}) }},
	{"copies that begin and end", func(g *liar) {
		g.copies(Copying{Begin: g.parts, Whole: g.parts})
		g.copies(Copying{End: g.parts})
	}},
	{"copies that begin, with entries", func(g *liar) {
		g.copies(Copying{Begin: g.parts, Entries: g.entries(9), Complete: true})
	}},
	{"copies that begin, with entries of nothing", func(g *liar) {
		g.copies(Copying{Begin: g.parts, Whole: g.parts, Entries: g.nothing(), Complete: true})
	}},
	{"ends", func(g *liar) { g.copies(Copying{End: g.parts}) }},
	{"entries", func(g *liar) { g.copies(Copying{Entries: g.entries(9)}) }},
	{"entries without a number", func(g *liar) {
		g.sayAll(&Move{Term: g.high(), Copying: Copying{Entries: g.entries(9)}})
	}},
	{"copies that are lent", func(g *liar) {
		g.copies(Copying{Lent: g.parts, Whole: g.parts}, Known{Of: 1, Whole: g.parts})
	}},
	{"copies that are lent, with entries", func(g *liar) { // of n1, says n5, before it has died
		g.copies(Copying{Lent: g.parts, Whole: g.parts, Entries: g.entries(9)},
			Known{Of: 1, Whole: g.parts})
	}},
	{"what is lacking", func(g *liar) { g.copies(Copying{Lack: Lack{Of: g.parts}}) }},
	{"what is lacking of copies that are lent", func(g *liar) {
		g.copies(Copying{Lent: g.parts, Lack: Lack{Of: g.parts}})
	}},
	{"gifts", func(g *liar) { g.gives(Copying{}) }},
	{"gifts with copies", func(g *liar) {
		g.gives(Copying{Begin: g.parts, Whole: g.parts})
	}},
	{"holds", func(g *liar) { g.copies(Copying{Holds: g.holds()}) }},
	{"answers to takes", func(g *liar) { g.answers(false) }},
	{"answers to takes, without a number", func(g *liar) {
		g.sayAll(&Move{
			Term: g.high(), Copying: Copying{Entries: g.entries(1)[:1]},
			Giving: Giving{Taken: g.remembered(false)},
		})
	}},
	{"answers to takes, of partitions of its own", func(g *liar) { g.answers(true) }},
	{"answers to takes, with what is lent", func(g *liar) {
		for i := range g.parts {
			m := g.remembered(false)
			for k := range m {
				m[k].Partition = g.parts[i]
			}
			g.sayAll(&Move{
				Term: g.high(), Copying: Copying{Lent: g.parts[i : i+1]}, Giving: Giving{Taken: m},
			})
		}
	}},
	{"terms beyond belief", func(g *liar) { g.sayAll(&Move{Term: ^uint64(0)}) }},
	{"words to forget denials", (*liar).forget},
}

// Promise: nobody else's keys suffer from a member that lies in one of these ways, also not when
// their owner has died since, and has come back.
func TestLies(t *testing.T) {
	for _, lie := range lies {
		t.Run(lie.name, func(t *testing.T) { lieFor(t, 1, lie.say) })
	}
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("all, %d", seed), func(t *testing.T) {
			lieFor(t, seed, func(g *liar) {
				for range 1 + g.rand.IntN(4) {
					lies[g.rand.IntN(len(lies))].say(g)
				}
			})
		})
	}
}

// lieFor has n5 lie at drawn moments, while keys are charged, their owner dies, and comes back.
func lieFor(t *testing.T, seed uint64, say func(g *liar)) {
	g := newLiar(t, seed)
	w := g.w
	times := 5
	if testing.Short() {
		times = 1
	}
	for left := int64(7); left > 4; left-- {
		for range times {
			w.pass(time.Duration(g.rand.IntN(50)) * time.Millisecond)
			say(g)
			g.look("while n5 lies", left)
		}
		g.charge(1, left-1)
	}
	w.wantOneHolderEach("while n5 lies")
	w.pass(time.Second)
	say(g)
	w.die("n1", w.members(5))
	w.pass(3 * time.Second)
	g.look("n1 is gone", 4)
	w.wantOneHolderEach("n1 is gone")
	g.charge(1, 3)
	w.start("n1", 11)
	ms := w.members(5)
	ms[0].Boot = 11
	w.show(ms, 0, "n1", "n2", "n3", "n4", "n5")
	w.pass(3 * time.Second)
	g.look("n1 has come back", 3)
	w.wantOneHolderEach("n1 has come back")
	if w.nodes["n1"].Held() == 0 {
		t.Error("n1 holds nothing")
	}
	g.charge(1, 2)
}

// Promise: copies of an outsider wait while the owner's are kept. They are not called taken, and
// are as soon as the owner has said that its own end. Older copies do not wait: that would be for
// ever.
func TestCopiesOfOutsidersWait(t *testing.T) {
	g := newLiar(t, 1)
	n1, n5, p := g.w.nodes["n1"], g.w.nodes["n5"], g.parts[0]
	heir := g.w.nodes[g.w.heirOf("n1", g.keys[0])]
	say := func(from *Node, term uint64, m *Move) *MoveAnswer {
		m.From, m.To, m.ID, m.Secret = from.boot, heir.boot, from.id, heir.view.Load().Secret
		m.Term, m.Sequence = term, g.next()
		return heir.Deliver(&Ask{Hop: 1, Deadline: g.w.now.Add(time.Second), Move: m}).Move
	}
	begin := func() *Move { return &Move{Copying: Copying{Begin: []uint16{p}}} }
	if a := say(n5, heir.parts.list[p].held.term-1, begin()); a == nil || !a.Applied ||
		heir.parts.list[p].copyOf != n1.boot {
		t.Errorf("an older copy than the owner's is answered by %+v", a)
	}
	if a := say(n5, g.high(), begin()); a != nil {
		t.Errorf("while the copy is the owner's it is answered by %+v", a)
	}
	end := &Move{Copying: Copying{End: []uint16{p}}}
	if a := say(n1, g.high(), end); a == nil || !a.Applied {
		t.Fatalf("the end of the owner's is answered by %+v", a)
	}
	if a := say(n5, g.high(), begin()); a == nil || !a.Applied ||
		heir.parts.list[p].copyOf != n5.boot {
		t.Errorf("afterwards it is answered by %+v", a)
	}
}

// Promise: a take that is reported is charged, whatever a member says of what was given back under
// its ID; and not again if it was let in.
func TestReportsAreAnsweredByTakes(t *testing.T) {
	w := founded(t, 1, copiesOf(0), ten)
	hd, hash := &w.nodes["n1"].holder, limiter.Hash("k")
	for sequence, back := range []bool{false, true} {
		it := flight{hash: hash}
		it.Report = true
		it.Op, it.Cost, it.ID = OpTake, 1, ID{Origin: 7, Sequence: uint64(sequence)}
		it.Limit = (*w.nodes["n1"].limits.Load())["ten"]
		hd.recent.Learn(w.now, []Memory{{
			ID: ofReport(it.ID), Partition: uint16(hd.partition(hash)), GivesBack: back,
			Decisions: []limiter.Decision{{Allowed: true}},
		}})
		var out limiter.Decision
		if taken := hd.hasTaken(w.now, &it, &out); taken == back {
			t.Errorf("something was given back: %t; it was let in: %t", back, taken)
		}
	}
}
