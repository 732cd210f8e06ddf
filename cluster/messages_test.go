package cluster

import (
	"flag"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// script is an input of FuzzPeerMessages, read byte by byte: after its end it says 0.
type script []byte

func (s *script) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
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
	n := min(int(s.byte()&31), len(*s))
	b := (*s)[:n]
	*s = (*s)[n:]
	return b
}

// forger makes messages to n1 of a script's bytes. It knows which key the test looks at.
type forger struct {
	w         *world
	limit     *limiter.Limit
	spent     string // a key of n1 that nothing is left of
	partition uint16 // of spent
	freed     bool   // a message has given units of spent back, as a peer may
}

// ask is the next message. Peers are believed, so whatever a member itself could make of the spent key's counter is
// left out: its copies, and holds of it.
func (g *forger) ask(s *script) *Ask {
	a := &Ask{
		RingHash: s.number(), Hop: s.byte(), Deadline: g.w.now.Add(time.Duration(s.byte()) * time.Millisecond), From: s.number(),
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

func (g *forger) key(s *script) string { return [4]string{g.spent, "other", "key-1", ""}[s.byte()&3] }

func (g *forger) item(s *script) AskItem {
	it := AskItem{
		Limit: g.limit, Key: g.key(s), Op: Op(s.byte() % byte(OpLease+1)), Cost: int64(s.number()),
		ID: ID{Origin: s.number(), Sequence: s.number()}, Tell: s.byte()&1 != 0,
	}
	if it.Op.holds() {
		it.Hold = &HoldTerms{
			ID: ID{Origin: s.number(), Sequence: s.number()}, TTL: time.Duration(s.number()), Holder: string(s.bytes()),
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
		From: [4]uint64{2, 3, 77, s.number()}[who&3], ID: [4]string{"n2", "n3", "n1", "evil"}[who>>2&3], To: 1,
		Addr: string(s.bytes()), Term: s.number(), CutOff: flags&1 != 0, Members: s.number(),
		Claim: s.partitions(g.partition), Begin: s.partitions(g.partition), End: s.partitions(g.partition),
		Lent: s.partitions(g.partition), Gift: s.partitions(g.partition), Unasked: []uint64{s.number()},
	}
	if flags&2 != 0 {
		m.Sequence, m.Age = s.number(), time.Duration(s.number())
	}
	member := who&3 < 2 && who>>2&3 == who&3
	for range flags >> 2 & 3 {
		key := g.key(s)
		if member && key == g.spent {
			key = "other"
		}
		m.Entries = append(m.Entries, limiter.Entry{Limit: g.limit, Key: key, State: s.bytes(), Age: time.Duration(s.number())})
		m.Charges = append(m.Charges, Charge{Limit: g.limit, Key: key, Units: int64(s.number()), Reset: s.byte()&1 != 0})
		m.Holds = append(m.Holds, HoldCopy{Left: time.Duration(s.number()), Hold: limiter.Hold{
			ID: limiter.HoldID{Origin: s.number(), Sequence: s.number()}, Limit: g.limit, Key: key, Units: int64(s.number()),
			State: limiter.HoldState(s.byte() & 3), Used: int64(s.number()),
		}})
		m.Taken = append(m.Taken, Memory{ID: ID{Origin: s.number(), Sequence: s.number()}, Partition: uint16(s.number())})
	}
	return m
}

// Promise: no sequence of messages makes a node crash, fill its memory with made-up senders, or forget what was charged to a
// key that none of them names in a refund or a reset.
func FuzzPeerMessages(f *testing.F) {
	// By default the fuzzer tries for up to a minute to make an input shorter, and mutates nothing meanwhile. The flag goes
	// before it.
	if tries := flag.Lookup("test.fuzzminimizetime"); tries.Value.String() == tries.DefValue {
		tries.Value.Set("5x")
	}
	f.Add([]byte{})
	f.Add([]byte{1, 0, 1, 255, 0, 4, 0, 0, 1, 0, 0, 0})                                    // a take
	f.Add([]byte{1, 0, 1, 255, 0, 64, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 200, 2, 255}) // a claim, and time
	f.Add([]byte{1, 0, 1, 255, 0, 64, 14, 6, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 8, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		w := newWorldOf(t, limiter.TableConfig{Bytes: limiter.MinBytes, Shards: 1}, 3, five)
		n := w.nodes["n1"]
		g := &forger{w: w, limit: n.Limits()["five"], spent: w.key("n1", 0)}
		g.partition = uint16(ring.Partition(limiter.Hash(g.spent)))
		w.check("n1", Item{Limit: "five", Key: g.spent, Cost: 5})
		s := script(in)
		for range 64 {
			if len(s) == 0 {
				break
			}
			if s.byte()&3 == 0 {
				w.pass(time.Duration(s.byte()) * time.Millisecond)
				continue
			}
			a := g.ask(&s)
			if answer := n.Deliver(a); len(answer.Items) != len(a.Items) {
				t.Fatalf("%d answers to %d items", len(answer.Items), len(a.Items))
			}
		}
		w.pass(time.Second)
		if d := w.check("n1", Item{Limit: "five", Key: g.spent, Op: OpPeek})[0]; d.Remaining > 0 && !g.freed {
			t.Fatalf("%d of 5 are left after all were taken, decided by %s of %s", d.Remaining, d.Source, d.Owner)
		}
		kept := len(n.strangers) + len(n.acquainted) + len(n.inbox) + len(n.hearsay) + len(n.former)
		if kept > mostAcquainted {
			t.Fatalf("%d senders are remembered", kept)
		}
	})
}
