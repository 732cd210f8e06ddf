package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// What a liar says, as TestLies of package cluster does: claims, copies, gifts and answers of
// partitions of others.

// claims claims partitions of others, with false copies, and false news of what has come here.
func (g *liar) claims(m *cluster.Move) {
	m.Claim, m.Epoch = g.of(), g.from.stated.agreed.Epoch
	m.Addr = oneOf(g.dice, "", "x")
	m.Known, m.Heard = g.known(m.Claim), oneOf(g.dice, 0, 1, uint64(1)<<62)
}

// copies says that copies of what others hold begin, are whole or end here, or are lent, with what
// they count.
func (g *liar) copies(m *cluster.Move) {
	m.Sequence = g.next()
	of := g.of()
	switch g.dice.IntN(5) {
	case 0, 1:
		m.Begin, m.Whole = of, g.maybe(of)
	case 2:
		m.Lent, m.Whole = of, g.maybe(of)
		m.Known = g.known(of)
	case 3:
		m.End = of
	}
	if g.chance(0.2) {
		m.Lack = cluster.Lack{Of: of, Age: oneOf(g.dice, 0, time.Second)}
	}
	g.counts(m)
}

// counts says what is counted under keys: too much, nothing, or units that were never set aside.
func (g *liar) counts(m *cluster.Move) {
	m.Age = oneOf(g.dice, 0, 0, time.Second)
	m.Pass = oneOf(g.dice, 0, 1, uint64(farPass))
	m.Complete = g.chance(0.5)
	if g.chance(0.5) {
		m.Entries = g.entries()
	}
	if g.chance(0.2) {
		m.Holds = g.holds()
	}
}

// unnumbered says what is counted without a Sequence.
func (g *liar) unnumbered(m *cluster.Move) {
	m.Entries = g.entries()
	if g.chance(0.3) {
		m.Holds = g.holds()
	}
	if g.chance(0.3) {
		m.Taken = g.taken()
	}
	if g.chance(0.3) {
		m.Lent = g.of()
	}
}

// gives gives partitions of others away.
func (g *liar) gives(m *cluster.Move) {
	m.Sequence, m.Epoch = g.next(), g.from.stated.agreed.Epoch
	m.Gift = g.of()
	m.Begin = g.maybe(m.Gift)
	m.Whole = g.maybe(m.Begin)
	if g.chance(0.3) {
		m.Entries = g.entries()
	}
	if g.chance(0.3) {
		m.Taken = g.taken()
	}
}

// answers says what takes were answered by, that nobody has asked for yet.
func (g *liar) answers(m *cluster.Move) {
	m.Sequence, m.Taken = g.next(), g.taken()
}

// unbelievable is a term that no node can have come by.
func (g *liar) unbelievable(m *cluster.Move) { m.Term = ^uint64(0) >> g.dice.IntN(3) }

// entries say of keys that so much is used.
func (g *liar) entries() (list []limiter.Entry) {
	w, now := g.world, g.from.now()
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	used := oneOf(g.dice, 0, 1, int64(w.rules[0].limit.Capacity()))
	for _, key := range g.some() {
		for i := range w.rules {
			l, hash := w.rules[i].limit, limiter.Hash(key)
			table.Take(now, l, key, hash, used)
			e := table.Entry(now, l, key, hash)
			if used == 0 {
				e.State = nil
			}
			list = append(list, e)
		}
	}
	return list
}

// holds set units of keys aside.
func (g *liar) holds() (list []cluster.HoldCopy) {
	for i, key := range g.some() {
		list = append(list, cluster.HoldCopy{Left: time.Hour, Hold: limiter.Hold{
			ID: limiter.HoldID{
				Origin: 99, Sequence: uint64(i),
			}, Limit: g.world.rules[0].limit, Key: key, Units: 5, State: limiter.HoldOpen,
		}})
	}
	return list
}

// taken are answers to takes that others are about to ask for: their ids are guessed from those
// that they have asked by.
func (g *liar) taken() (list []cluster.Memory) {
	of := g.of()
	d := limiter.Decision{
		Allowed: g.chance(0.7), Limit: g.world.rules[0].limit.Capacity(),
		Remaining: g.dice.Int64N(9),
	}
	back := g.chance(0.2)
	for _, m := range g.world.machines {
		last, known := g.takes[m.id]
		if !known {
			continue
		}
		for i := range uint64(40) {
			asked := cluster.ID{Origin: last.Origin, Sequence: last.Sequence + 1 + i}
			whole := cluster.ID{Origin: asked.Origin ^ wholeOrigin, Sequence: asked.Sequence}
			for _, id := range []cluster.ID{asked, takeOf(asked), whole} {
				list = append(list, cluster.Memory{
					ID: id, Partition: of[i%uint64(len(of))], GivesBack: back,
					Decisions: []limiter.Decision{d},
				})
			}
		}
	}
	return list
}

// wholeOrigin is by what the ID of a take that is decided as a whole differs.
const wholeOrigin = 1 << 59

// retold is a message that the liar's node has sent or got, changed in one field. It is without
// the copies in it: a liar that begins copies and never ends them keeps their receiver from leaving
// (docs/security.md).
func (g *liar) retold() *cluster.Move {
	m := g.overheard[g.dice.IntN(len(g.overheard))].Clone()
	m.Begin, m.Whole, m.Lent, m.Entries, m.Holds = nil, nil, nil, nil, nil
	if m.Sequence != 0 && g.chance(0.8) { // else it is an old one
		m.Sequence = g.next()
	}
	of := g.of()
	changes := []func(){
		func() { m.Term = oneOf(g.dice, 0, g.high(), ^uint64(0)) },
		func() { m.Claim, m.Epoch = of, g.from.stated.agreed.Epoch },
		func() { m.Known = g.known(of) },
		func() { m.Heard = oneOf(g.dice, 0, uint64(1)<<62) },
		func() { m.Sequence = oneOf(g.dice, 0, g.next()) },
		func() { m.Age = oneOf(g.dice, -time.Second, time.Second, 2*time.Hour) },
		func() { m.Entries = g.entries() },
		func() { m.Holds = g.holds() },
		func() { m.Begin = of },
		func() { m.Whole = of },
		func() { m.End = of },
		func() { m.Lent = of },
		func() { m.Lack.Of = of },
		func() { m.Pass = oneOf(g.dice, 0, uint64(farPass)) },
		func() { m.Complete = !m.Complete },
		func() { m.Gift, m.Epoch = of, g.from.stated.agreed.Epoch },
		func() { m.Taken = g.taken() },
	}
	changes[g.dice.IntN(len(changes))]()
	return m
}
