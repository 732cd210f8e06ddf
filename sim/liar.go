package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// A liar is a member that says to others what is not so, beside what its node says. It has a valid
// id and boot, and names keys that it neither owns nor is one of the two to own next, whichever
// members are there (draw_liar.go). The promise is that these keys do not suffer. Its
// node is a real one: it answers claims as all do, and clients that ask it hear what owners say.
//
// It speaks of a key to the owner and to those that keep a copy of it. Others, which know nothing
// better, believe it, and nothing is promised of that (docs/security.md).
//
// Judges do not hear of lies (judge.lied). They expect what they would without.

// liarPlan is a member that lies.
type liarPlan struct {
	node int
	keys []string // of others, that it speaks of: all that clients ask for
	lies []lie    // by time
}

// lie is one message to one member.
type lie struct {
	at   time.Duration
	to   int
	says uint64 // what is said is drawn from this
}

// liarStream is that of what a lie says.
const liarStream = 40

// liar is the one of a world.
type liar struct {
	*liarPlan
	world *world
	// the latest messages of its node, and to it: lies that are nearly true are made of them
	overheard []*cluster.Move
	term      uint64                // the highest that it has heard of, or said
	sequence  map[*machine]uint64   // of the latest message to a machine
	takes     map[string]cluster.ID // the latest of each other member

	// while it makes up a lie
	dice  *rand.Rand
	from  *process
	to    *process
	about []string // keys that to owns, or has copies of
}

// termStep is by how much a term is higher than the one before.
const termStep = 1 << 24

// numberStep is how many lies have room between two messages of the liar's node that have a
// Sequence. Without room they would be taken for repeats of lies, and its copies would not end.
const numberStep = 1 << 20

// farPass is beyond all passes of a world.
const farPass = 1 << 40

// mostOverheard is how many messages a liar knows by heart.
const mostOverheard = 40

// newLiar is that of w, with what it is to say; nil if no member lies.
func newLiar(w *world) *liar {
	if w.plan.liar == nil {
		return nil
	}
	g := &liar{
		liarPlan: w.plan.liar, world: w, sequence: make(map[*machine]uint64),
		takes: make(map[string]cluster.ID),
	}
	for _, l := range g.lies {
		w.at(l.at, func() { g.lie(l) })
	}
	return g
}

// overhears has the liar hear what a process sends to a machine: what its own node says or is told,
// and by which ids others ask.
func (g *liar) overhears(p *process, a *cluster.Ask, to *machine) {
	if g == nil {
		return
	}
	me := g.world.machines[g.node]
	for i := range a.Items {
		if id := a.Items[i].ID; p.machine != me && id.Origin != 0 {
			g.takes[p.machine.id] = id
		}
	}
	if a.Move == nil || a.For != 0 || p.machine != me && to != me {
		return
	}
	g.term = max(g.term, a.Move.Term)
	if p.machine == me {
		g.sequence[to] = max(g.sequence[to], a.Move.Sequence)
	}
	if len(g.overheard) == mostOverheard {
		g.overheard = slices.Delete(g.overheard, 0, 1)
	}
	g.overheard = append(g.overheard, a.Move.Clone())
}

// renumbered is what the liar's node sends, with room for lies before the next message, or gets: it
// knows its own numbers.
func (g *liar) renumbered(p *process, a *cluster.Ask, to *machine) *cluster.Move {
	me := g.world.machines[g.node]
	switch {
	case a.Move == nil:
	case p.machine == me && a.Move.From == p.boot && a.Move.Sequence != 0:
		m := *a.Move
		m.Sequence *= numberStep
		return &m
	case to == me && a.Move.Heard != 0:
		m := *a.Move
		m.Heard /= numberStep
		return &m
	}
	return a.Move
}

// lie has the liar say something.
func (g *liar) lie(l lie) {
	from, to := g.world.machines[g.node], g.world.machines[l.to]
	if from.process == nil || from.frozen || from.process.stated.agreed == nil ||
		to.process == nil {
		return
	}
	g.dice, g.from, g.to = stream(l.says, liarStream), from.process, to.process
	if g.about = g.concern(to); len(g.about) == 0 {
		return
	}
	a := &cluster.Ask{Hop: 1}
	if g.dice.IntN(12) == 0 {
		g.forgets(a)
	} else {
		a.Move = g.move()
	}
	g.world.trace.add(happening{at: g.world.now, kind: lies, node: from, peer: to})
	g.world.forge(g.from, to, a)
}

// forge posts what the node of p has not written. Nobody waits for the answer.
func (w *world) forge(p *process, to *machine, a *cluster.Ask) {
	l := w.network.letter()
	l.from, l.to, l.boot, l.ask, l.lie = p, to, to.process.boot, *a, true
	l.left, l.sent = time.Second, w.now
	w.course.sent(askBytes(a))
	l.uses = 1
	l.uses += w.post(p.machine, to, (*arriving)(l))
	l.drop()
}

// forgets says that something was given back to keys: so denials of them are over.
func (g *liar) forgets(a *cluster.Ask) {
	a.From = g.from.boot
	for _, key := range g.some() {
		a.Forget = append(a.Forget, limiter.Hash(key))
	}
}

// move is what the liar says about partitions. Whatever it is, it comes from the liar and is for
// the one that it lies to: anything else is told by its address.
func (g *liar) move() *cluster.Move {
	var m *cluster.Move
	if len(g.overheard) > 0 && g.chance(0.25) {
		m = g.retold()
	} else {
		m = &cluster.Move{Term: g.high()}
		says := oneOf(g.dice, (*liar).claims, (*liar).copies, (*liar).copies, (*liar).gives,
			(*liar).answers, (*liar).unnumbered, (*liar).unbelievable)
		says(g, m)
	}
	m.From, m.To, m.ID = g.from.boot, g.to.boot, g.from.machine.id
	m.Secret = g.world.plan.secret
	if m.Sequence == 0 && len(m.Lent) > 0 {
		m.Entries, m.Holds = nil, nil // as if from a file: nothing is promised of these
	}
	return m
}

func (g *liar) chance(part float64) bool { return g.dice.Float64() < part }

// high is a term above all that the liar has heard of, by a little.
func (g *liar) high() uint64 {
	g.term += uint64(1+g.dice.IntN(3)) * termStep
	return g.term
}

// next is the number of the next message to the one that the liar lies to.
func (g *liar) next() uint64 {
	g.sequence[g.to.machine]++
	return g.sequence[g.to.machine]
}

// some are keys that the liar speaks of: all that concern the one that it lies to, or a few.
func (g *liar) some() []string {
	if g.chance(0.3) {
		return g.about
	}
	first := g.dice.IntN(len(g.about))
	return g.about[first:min(len(g.about), first+1+g.dice.IntN(8))]
}

// of are the partitions of some keys.
func (g *liar) of() (parts []uint16) {
	for _, key := range g.some() {
		parts = append(parts, uint16(g.world.plan.partition(limiter.Hash(key))))
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}

// concern are the keys that a machine owns or keeps a copy of, in the eyes of the liar.
func (g *liar) concern(m *machine) (keys []string) {
	ring, heirs := placed(owners(g.from.stated.view)), g.world.plan.copies.Heirs()
	for _, key := range g.keys {
		k := g.world.plan.partition(limiter.Hash(key))
		next := ring
		for range 1 + heirs {
			owner := next.ownerOf(k)
			if owner == m.id {
				keys = append(keys, key)
			}
			next = placed(slices.DeleteFunc(slices.Clone(next.ids), func(id string) bool {
				return id == owner
			}))
		}
	}
	return keys
}

// maybe is partitions, or none.
func (g *liar) maybe(of []uint16) []uint16 {
	if g.chance(0.5) {
		return nil
	}
	return of
}

// anyBoot is one of a process that is there, or was.
func (g *liar) anyBoot() uint64 {
	m := g.world.machines[g.dice.IntN(len(g.world.machines))]
	return g.world.plan.boot(m.index, 1+g.dice.IntN(max(1, m.boots)))
}

// known says of which holders the liar has whole copies, or lends them.
func (g *liar) known(of []uint16) (known []cluster.Known) {
	for range g.dice.IntN(4) {
		known = append(known, cluster.Known{
			Of: g.anyBoot(), Pass: oneOf(g.dice, 0, 1, uint64(farPass)), Whole: of,
		})
	}
	return known
}
