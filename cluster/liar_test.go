package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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

// lies are what n5 says, by name.
var lies = []struct {
	name string
	say  func(g *liar)
}{
	{"claims", func(g *liar) {
		for _, id := range []string{"n1", "n2", "n3", "n4"} {
			m := &Move{Term: g.high(), Addr: "x"}
			m.Epoch, m.Claim = g.w.nodes["n5"].right.roll.Load().epoch(), g.parts
			g.say(id, m)
		}
	}},
	{"claims with false copies", func(g *liar) {
		for of := uint64(1); of < 5; of++ {
			m := &Move{Term: g.high()}
			m.Epoch, m.Claim = g.w.nodes["n5"].right.roll.Load().epoch(), g.parts
			m.Known = []Known{{Of: of, Pass: 1 << 40, Whole: g.parts}}
			m.Heard = 1 << 62
			g.sayAll(m)
		}
	}},
	{"copies that begin", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.Begin = g.next(), g.parts
		g.sayAll(m)
	}},
	{"copies that begin and end", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.Begin, m.Whole = g.next(), g.parts, g.parts
		g.sayAll(m)
		m = &Move{Term: g.high()}
		m.Sequence, m.End = g.next(), g.parts
		g.sayAll(m)
	}},
	{"copies that begin, with entries", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.Begin, m.Entries, m.Complete = g.next(), g.parts, g.entries(9), true
		g.sayAll(m)
	}},
	{"copies that begin, with entries of nothing", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.Begin, m.Whole, m.Complete = g.next(), g.parts, g.parts, true
		for _, e := range g.entries(1) {
			e.State = nil
			m.Entries = append(m.Entries, e)
		}
		g.sayAll(m)
	}},
	{"ends", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.End = g.next(), g.parts
		g.sayAll(m)
	}},
	{"entries", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.Entries = g.next(), g.entries(9)
		g.sayAll(m)
	}},
	{"entries beside the order", func(g *liar) {
		g.sayAll(&Move{Term: g.high(), Copying: Copying{Entries: g.entries(9)}})
	}},
	{"copies that are lent", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.Lent, m.Whole = g.next(), g.parts, g.parts
		m.Known = []Known{{Of: 1, Whole: g.parts}}
		g.sayAll(m)
	}},
	{"copies that are lent, with entries", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.Lent, m.Whole, m.Entries = g.next(), g.parts, g.parts, g.entries(9)
		m.Known = []Known{{Of: 1, Whole: g.parts}} // it has died, says n5, before it has
		g.sayAll(m)
	}},
	{"what is lacking", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.Lack = g.next(), Lack{Of: g.parts}
		g.sayAll(m)
	}},
	{"what is lacking of copies that are lent", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence, m.Lent, m.Lack = g.next(), g.parts, Lack{Of: g.parts}
		g.sayAll(m)
	}},
	{"gifts", func(g *liar) {
		m := &Move{Term: g.high(), Epoch: g.w.nodes["n5"].right.roll.Load().epoch()}
		m.Sequence, m.Gift = g.next(), g.parts
		g.sayAll(m)
	}},
	{"gifts with copies", func(g *liar) {
		m := &Move{Term: g.high(), Epoch: g.w.nodes["n5"].right.roll.Load().epoch()}
		m.Sequence, m.Begin, m.Whole, m.Gift = g.next(), g.parts, g.parts, g.parts
		g.sayAll(m)
	}},
	{"holds", func(g *liar) {
		m := &Move{Term: g.high()}
		m.Sequence = g.next()
		for i, key := range g.keys {
			m.Holds = append(m.Holds, HoldCopy{Left: time.Hour, Hold: limiter.Hold{
				ID: limiter.HoldID{Origin: 99, Sequence: uint64(i)}, Limit: g.limit, Key: key,
				Units: 5, State: limiter.HoldOpen,
			}})
		}
		g.sayAll(m)
	}},
	{"terms beyond belief", func(g *liar) {
		g.sayAll(&Move{Term: ^uint64(0)})
	}},
	{"words to forget denials", func(g *liar) {
		for _, id := range []string{"n1", "n2", "n3", "n4"} {
			if n := g.w.nodes[id]; n != nil {
				a := &Ask{Hop: 1, Deadline: g.w.now.Add(time.Second), From: 5}
				for _, key := range g.keys {
					a.Forget = append(a.Forget, limiter.Hash(key))
				}
				n.Deliver(a)
			}
		}
	}},
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
	for left := int64(7); left > 4; left-- {
		for range 5 {
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

// Promise: copies of a member that is not to hold a partition wait while the owner's are kept. They
// are not called taken, and are as soon as the owner has said that its own end.
func TestCopiesOfStrangersWait(t *testing.T) {
	g := newLiar(t, 1)
	n1, p := g.w.nodes["n1"], g.parts[0]
	heir := g.w.nodes[g.w.heirOf("n1", g.keys[0])]
	say := func(from *Node, m *Move) *MoveAnswer {
		m.From, m.To, m.ID, m.Secret = from.boot, heir.boot, from.id, heir.view.Load().Secret
		m.Term, m.Sequence = g.high(), g.next()
		return heir.Deliver(&Ask{Hop: 1, Deadline: g.w.now.Add(time.Second), Move: m}).Move
	}
	begin := func() *Move { return &Move{Copying: Copying{Begin: []uint16{p}}} }
	if a := say(g.w.nodes["n5"], begin()); a != nil {
		t.Errorf("while the copy is the owner's it is answered by %+v", a)
	}
	if a := say(n1, &Move{Copying: Copying{End: []uint16{p}}}); a == nil || !a.Applied {
		t.Fatalf("the end of the owner's is answered by %+v", a)
	}
	if a := say(g.w.nodes["n5"], begin()); a == nil || !a.Applied ||
		heir.parts.list[p].copyOf != g.w.nodes["n5"].boot {
		t.Errorf("afterwards it is answered by %+v", a)
	}
}
