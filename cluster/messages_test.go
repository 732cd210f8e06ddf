package cluster

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// script is an input of FuzzPeerMessages, read byte by byte: after its end it says 0.
type script struct {
	left []byte
	read []byte // all of it until now, with the zeros after its end
}

func (s *script) byte() (b byte) {
	if len(s.left) > 0 {
		b, s.left = s.left[0], s.left[1:]
	}
	s.read = append(s.read, b)
	return b
}

// number is small, or as far off as it can be.
func (s *script) number() uint64 {
	b := s.byte()
	if b < 128 {
		return uint64(b)
	}
	return ^uint64(0) >> (b & 63) << (s.byte() & 63)
}

// partitions are a few, also some that do not exist; of them one that matters to the test.
func (s *script) partitions(chosen uint16) []uint16 {
	var list []uint16
	for range s.byte() & 3 {
		if p := uint16(s.number()); p == 1 {
			list = append(list, chosen)
		} else {
			list = append(list, p)
		}
	}
	return list
}

func (s *script) bytes() []byte {
	n := int(s.byte() & 31)
	for range n {
		s.byte()
	}
	return slices.Clone(s.read[len(s.read)-n:])
}

// forger makes messages to n1 of a script's bytes, and looks at a key of which nothing is left.
type forger struct {
	w         *world
	limit     *limiter.Limit
	keys      []string        // of n1, in the order in which they are spent
	spent     string          // the one that the test looks at
	partition uint16          // of spent
	freed     bool            // a message has given units of spent back, as a peer may
	asked     int             // messages since spent was chosen
	passed    int             // how often time has passed since then
	kept      []string        // those keys before it that no message has given back
	named     map[uint16]bool // that a member has said something of: their holder may be in doubt
	cutOff    bool            // a member has said that it is cut off: then n1 may be as well
}

const (
	messagesPerKey = 64
	passesPerKey   = 4 // of time: it costs more than messages do
	keysPerWorld   = 512
)

func newForger(t testing.TB) *forger {
	month := five
	month.Per = 30 * 24 * time.Hour
	w := newWorldOf(t, limiter.TableConfig{Bytes: 1 << 20, Shards: 1}, 3, month)
	g := &forger{w: w, limit: w.nodes["n1"].Limits()["five"], named: map[uint16]bool{}}
	for v, k := w.nodes["n1"].View(), 0; len(g.keys) < keysPerWorld; k++ {
		if key := fmt.Sprintf("spent-%d", k); v.Owns(limiter.Hash(key)) {
			g.keys = append(g.keys, key)
		}
	}
	g.next()
	return g
}

// pass lets time pass. Timers that have fired are forgotten.
func (g *forger) pass(d time.Duration) {
	g.passed++
	g.w.due = slices.DeleteFunc(g.w.due, func(x *timer) bool { return x.stop })
	g.w.pass(d)
}

// next chooses another key, and spends it.
func (g *forger) next() {
	if g.spent != "" && !g.freed {
		g.kept = append(g.kept, g.spent)
	}
	g.spent, g.keys, g.freed, g.asked, g.passed = g.keys[0], g.keys[1:], false, 0, 0
	g.partition = uint16(ring.Partition(limiter.Hash(g.spent)))
	d := g.w.check("n1", Item{Limit: "five", Key: g.spent, Cost: 5})[0]
	// If members have put in doubt what n1 holds, the key was not charged there.
	g.freed = d.Degraded || d.Source != SourceOwner
}

// play lets a script happen, and looks at its keys after it.
func (g *forger) play(s *script) error {
	n := g.w.nodes["n1"]
	for len(s.left) > 0 {
		switch s.byte() & 7 {
		case 0:
			if long := time.Duration(s.byte()) * time.Millisecond; g.passed < passesPerKey {
				g.pass(long)
			}
		case 7:
			if err := g.look(g.spent); err != nil || len(g.keys) == 0 {
				return err
			}
			g.next()
		default:
			a := g.ask(s)
			if answer := n.Deliver(a); len(answer.Items) != len(a.Items) {
				return fmt.Errorf("%d answers to %d items", len(answer.Items), len(a.Items))
			}
			if g.asked++; g.asked == messagesPerKey {
				return g.look(g.spent)
			}
		}
	}
	return g.look(g.spent)
}

// look returns an error if a key has units again that no message gave back, or the node remembers
// too many senders.
func (g *forger) look(key string) error {
	n := g.w.nodes["n1"]
	kept := len(n.intake.inbox) + len(n.intake.former)
	if kept > 2 { // those that there are
		return fmt.Errorf("%d senders are remembered", kept)
	}
	d := g.w.check("n1", Item{Limit: "five", Key: key, Op: OpPeek})[0]
	switch {
	case d.Remaining == 0, key == g.spent && g.freed:
	case d.Source == SourceFallback && d.Degraded && g.inDoubt(key):
	default:
		return fmt.Errorf("%d of 5 are left of %s after all were taken, decided by %s of %s",
			d.Remaining, key, d.Source, d.Owner)
	}
	return nil
}

// inDoubt reports whether members have said what makes n1 leave the key to others.
func (g *forger) inDoubt(key string) bool {
	return g.named[uint16(ring.Partition(limiter.Hash(key)))] ||
		g.cutOff && g.w.nodes["n1"].right.minority.Load()
}

// lookLater lets time pass, and looks at all keys that were spent before.
func (g *forger) lookLater() error {
	g.pass(time.Second)
	for _, key := range g.kept {
		if err := g.look(key); err != nil {
			return err
		}
	}
	return g.look(g.spent)
}

// ask is the next message. Peers are believed, so whatever a member itself could make of the spent
// key's counter is left out: its copies, and holds of it.
func (g *forger) ask(s *script) *Ask {
	a := &Ask{
		RingHash: s.number(), Hop: s.byte(),
		Deadline: g.w.now.Add(time.Duration(s.byte()) * time.Millisecond), From: s.number(),
	}
	flags := s.byte()
	a.Atomic, a.Relay = flags&1 != 0, flags&2 != 0
	for range flags >> 2 & 3 {
		a.Items = append(a.Items, g.item(s))
	}
	for range flags >> 4 & 3 {
		a.Forget = append(a.Forget, [2]uint64{limiter.Hash(g.spent), s.number()}[s.byte()&1])
	}
	if flags&64 != 0 {
		a.Move = g.move(s)
	}
	return a
}

func (g *forger) key(s *script) string {
	return [4]string{
		g.spent, "other", "key-1",
		"",
	}[s.byte()&3]
}

func (g *forger) item(s *script) AskItem {
	it := AskItem{
		Limit: g.limit, Key: g.key(s), Op: Op(s.byte() % byte(OpLease+1)), Cost: int64(s.number()),
		ID: ID{Origin: s.number(), Sequence: s.number()}, Tell: s.byte()&1 != 0,
	}
	if it.Op.holds() {
		it.Hold = &HoldTerms{
			ID: ID{
				Origin:   s.number(),
				Sequence: s.number(),
			}, TTL: time.Duration(s.number()), Holder: string(s.bytes()),
		}
	}
	if it.Key == g.spent && givesBack(it.Op, it.Cost) {
		g.freed = true
	}
	return it
}

func (g *forger) move(s *script) *Move {
	who, flags := s.byte(), s.byte()
	m := &Move{
		From: [4]uint64{2, 3, 77, s.number()}[who&3],
		ID:   [4]string{"n2", "n3", "n1", "evil"}[who>>2&3],
		To:   1, Addr: string(s.bytes()), Term: s.number(),
		Claiming: Claiming{Claim: s.partitions(g.partition)},
		Copying: Copying{
			Begin: s.partitions(g.partition), End: s.partitions(g.partition),
			Lent: s.partitions(g.partition),
		},
		Giving: Giving{Gift: s.partitions(g.partition)},
	}
	if flags&64 != 0 {
		m.Whole = s.partitions(g.partition)
		m.Lack = Lack{s.partitions(g.partition), time.Duration(s.number())}
	}
	if flags&2 != 0 {
		m.Sequence, m.Age = s.number(), time.Duration(s.number())
	}
	member := who&3 < 2 && who>>2&3 == who&3
	if member {
		for _, p := range slices.Concat(m.Claim, m.Begin, m.End, m.Lent, m.Gift) {
			g.named[p] = true
		}
	}
	for range flags >> 2 & 3 {
		key := g.key(s)
		if member && key == g.spent {
			key = "other"
		}
		m.Entries = append(m.Entries, limiter.Entry{
			Limit: g.limit, Key: key, State: s.bytes(),
			Age: time.Duration(s.number()),
		})
		m.Charges = append(m.Charges,
			Charge{Limit: g.limit, Key: key, Units: int64(s.number()), Reset: s.byte()&1 != 0})
		m.Holds = append(m.Holds, HoldCopy{Left: time.Duration(s.number()), Hold: limiter.Hold{
			ID: limiter.HoldID{
				Origin:   s.number(),
				Sequence: s.number(),
			}, Limit: g.limit, Key: key, Units: int64(s.number()),
			State: limiter.HoldState(s.byte() & 3), Used: int64(s.number()),
		}})
		m.Taken = append(m.Taken,
			Memory{ID: ID{Origin: s.number(), Sequence: s.number()}, Partition: uint16(s.number())})
	}
	return m
}

// Promise: no sequence of messages makes a node crash, fill its memory with made-up senders, or
// forget what was charged to a key that none of them names in a refund or a reset. Making nodes
// takes longer than a thousand messages: a world lasts for many inputs, each with a key of its own.
func FuzzPeerMessages(f *testing.F) {
	// By default the fuzzer tries for up to a minute to make an input shorter, and mutates nothing
	// meanwhile. The flag goes before it.
	if tries := flag.Lookup("test.fuzzminimizetime"); tries.Value.String() == tries.DefValue {
		tries.Value.Set("5x")
	}
	f.Add([]byte{})
	f.Add([]byte{1, 0, 1, 255, 0, 4, 0, 0, 1, 0, 0, 0}) // a take
	// a claim, and time
	f.Add([]byte{1, 0, 1, 255, 0, 64, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 200, 2, 255})
	f.Add([]byte{1, 0, 1, 255, 0, 64, 14, 6, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 8, 1})
	var g *forger
	var history []byte // of all inputs of g, as one input
	f.Fuzz(func(t *testing.T, in []byte) {
		if g == nil || len(g.keys) == 0 {
			g, history = newForger(t), nil
		}
		g.w.t = t
		s := &script{left: in}
		err := g.play(s)
		if history = append(append(history, s.read...), 7); err == nil && len(g.keys)%64 == 0 {
			err = g.lookLater()
		}
		if err != nil {
			g = nil
			t.Fatalf("%v\nIf the input alone does not show it, this one does: %q", err, history)
		}
		if len(g.keys) > 0 {
			g.next()
		}
	})
}
