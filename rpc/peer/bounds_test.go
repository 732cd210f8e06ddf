package peer

import (
	"math"
	"slices"
	"testing"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter"
	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/ring"
	"penstock/rpc/door"
)

// Promise: what a frame may have is bounded, and each bound is exact: the most is read, and one
// more is refused.
func TestBoundsOfFramesAreExact(t *testing.T) {
	bytes := func(n int) []byte { return make([]byte, n) }
	key := []byte("k")
	move := func(m *peerv1.Move) *peerv1.Frame { return frameWith(&peerv1.Ask{Move: m}) }
	said := func(s ...*peerv1.Said) *peerv1.Frame {
		return frameWith(&peerv1.Ask{Words: theirWords(s...)})
	}
	item := func(it *peerv1.Item) *peerv1.Frame {
		return frameWith(&peerv1.Ask{Items: []*peerv1.Item{it}})
	}
	epoch := &peerv1.Epoch{Lineage: make([]byte, 8), Number: 1}
	const partition = ring.Partitions - 1
	for name, row := range map[string]struct {
		least, most int
		of          func(n int) *peerv1.Frame
	}{
		"asks": {0, maxAsks, func(n int) *peerv1.Frame {
			return &peerv1.Frame{Asks: slices.Repeat([]*peerv1.Ask{{Forget: []uint64{1}}}, n)}
		}},
		"items": {1, cluster.MaxItems, func(n int) *peerv1.Frame {
			return frameWith(&peerv1.Ask{Items: slices.Repeat([]*peerv1.Item{{Key: key}}, n)})
		}},
		"key of an item": {cluster.MinKey, cluster.MaxKey, func(n int) *peerv1.Frame {
			return item(&peerv1.Item{Key: bytes(n)})
		}},
		"op": {0, int(cluster.OpLease), func(n int) *peerv1.Frame {
			return item(&peerv1.Item{Key: key, Op: uint32(n)})
		}},
		"holder of an item": {0, limiter.MaxHolder, func(n int) *peerv1.Frame {
			return item(&peerv1.Item{Key: key, Hold: &peerv1.HoldTerms{Holder: bytes(n)}})
		}},
		"key of an entry": {cluster.MinKey, cluster.MaxKey, func(n int) *peerv1.Frame {
			return move(&peerv1.Move{Entries: []*peerv1.Entry{{Key: bytes(n)}}})
		}},
		"key of a charge": {cluster.MinKey, cluster.MaxKey, func(n int) *peerv1.Frame {
			return move(&peerv1.Move{Charges: []*peerv1.Charge{{Key: bytes(n)}}})
		}},
		"key of a hold": {cluster.MinKey, cluster.MaxKey, func(n int) *peerv1.Frame {
			return move(&peerv1.Move{Holds: []*peerv1.Hold{{Key: bytes(n)}}})
		}},
		"holder of a hold": {0, limiter.MaxHolder, func(n int) *peerv1.Frame {
			return move(&peerv1.Move{Holds: []*peerv1.Hold{{Key: key, Holder: bytes(n)}}})
		}},
		"decisions of a memory": {0, cluster.MaxItems, func(n int) *peerv1.Frame {
			return move(&peerv1.Move{Taken: []*peerv1.Memory{
				{Decisions: slices.Repeat([]*peerv1.Outcome{{}}, n)},
			}})
		}},
		"entries of a move": {0, maxRecords, func(n int) *peerv1.Frame {
			return move(&peerv1.Move{Entries: slices.Repeat([]*peerv1.Entry{{Key: key}}, n)})
		}},
		"marks of a move": {0, maxRecords, func(n int) *peerv1.Frame {
			return move(&peerv1.Move{Known: slices.Repeat([]*peerv1.Known{{}}, n)})
		}},
		"decisions of a move": {0, maxRecords, func(n int) *peerv1.Frame {
			memories := make([]*peerv1.Memory, (n+cluster.MaxItems)/(cluster.MaxItems+1))
			for i := range memories {
				left := min(n-i*(cluster.MaxItems+1)-1, cluster.MaxItems)
				memories[i] = &peerv1.Memory{
					Decisions: slices.Repeat([]*peerv1.Outcome{{}}, left),
				}
			}
			return move(&peerv1.Move{Taken: memories})
		}},
		"partition of a move": {0, partition, func(n int) *peerv1.Frame {
			return move(&peerv1.Move{Claim: []uint32{uint32(n)}})
		}},
		"partitions of a move": {0, ring.Partitions, func(n int) *peerv1.Frame {
			return move(&peerv1.Move{Claim: make([]uint32, n)})
		}},
		"boots": {0, ownership.MaxMembers, func(n int) *peerv1.Frame {
			return said(&peerv1.Said{Kind: 6, Epoch: epoch, Boots: make([]uint64, n)})
		}},
		"messages": {0, maxSaid, func(n int) *peerv1.Frame {
			return said(slices.Repeat([]*peerv1.Said{{Kind: 3}}, n)...)
		}},
		"id of words": {1, ownership.MaxName, func(n int) *peerv1.Frame {
			return frameWith(&peerv1.Ask{Words: &peerv1.Words{From: 9, Id: bytes(n)}})
		}},
		"addr of words": {0, maxPeerAddr, func(n int) *peerv1.Frame {
			return frameWith(&peerv1.Ask{Words: &peerv1.Words{
				From: 9, Id: []byte("n9"), Addr: bytes(n),
			}})
		}},
		"rivals": {0, ownership.MaxMembers, func(n int) *peerv1.Frame {
			return said(theirConfig(func(c *peerv1.Configuration) {
				c.Rivals = slices.Repeat([]*peerv1.Member{{Id: key, Boot: 3}}, n)
			}))
		}},
		"role": {0, 1, func(n int) *peerv1.Frame {
			return said(theirConfig(func(c *peerv1.Configuration) {
				c.Members[0].Role = uint32(n + n/2*254) // also where 8 bits are those of a role
			}))
		}},
		"copies": {0, 2, func(n int) *peerv1.Frame {
			return said(theirConfig(func(c *peerv1.Configuration) {
				c.Copies = uint32(n + n/3*255) // the same
			}))
		}},
	} {
		for _, n := range []int{row.least - 1, row.least, row.most, row.most + 1} {
			if n < 0 {
				continue
			}
			r, f := &frameReader{known: new(door.LimitCache)}, row.of(n)
			refused := ""
			err := r.read(frameOf(t, f), 0, func(_ uint64, _ *cluster.Ask, err error) {
				if err != nil {
					refused = err.Error()
				}
			})
			ok := refused == "" && err == nil
			if within := row.least <= n && n <= row.most; ok != within {
				t.Errorf("%s: %d, where %d to %d may be: refused with %q, %v", name, n, row.least,
					row.most, refused, err)
			}
		}
	}
}

// frameWith is a frame with a limit and this ask.
func frameWith(a *peerv1.Ask) *peerv1.Frame {
	f := goodFrame()
	a.Tag, f.Asks = 1, []*peerv1.Ask{a}
	return f
}

// The same for answers to an ask of two items, besides what asks have as well.
func TestBoundsOfAnswersAreExact(t *testing.T) {
	for name, row := range map[string]struct {
		most int
		of   func(n int) *peerv1.Answer
	}{
		"outcomes": {2, func(n int) *peerv1.Answer {
			return &peerv1.Answer{Outcomes: slices.Repeat([]*peerv1.Outcome{{}}, n)}
		}},
		"owners": {2, func(n int) *peerv1.Answer {
			return &peerv1.Answer{Owners: slices.Repeat([]*peerv1.Owner{{}}, n)}
		}},
		"status": {int(cluster.StatusLost), func(n int) *peerv1.Answer {
			return &peerv1.Answer{Outcomes: []*peerv1.Outcome{{Status: uint32(n)}}}
		}},
		"refused": {ring.Partitions, func(n int) *peerv1.Answer {
			return &peerv1.Answer{Move: &peerv1.MoveAnswer{Refused: make([]uint32, n)}}
		}},
	} {
		for _, n := range []int{row.most, row.most + 1} {
			if _, _, err := readAnswer(wireOf(t, row.of(n)), 2,
				new(lineageMemo)); (err == nil) != (n <= row.most) {
				t.Errorf("%s: %d, where %d may be: %v", name, n, row.most, err)
			}
		}
	}
	last := byte(cluster.StandingBereft)
	standings := wireOf(t, &peerv1.Answer{Move: &peerv1.MoveAnswer{
		Standings: []byte{last, last + 1, 255},
	}})
	a, _, err := readAnswer(standings, 0, new(lineageMemo))
	if want := []cluster.Standing{
		cluster.StandingBereft, cluster.StandingBusy, cluster.StandingBusy,
	}; err != nil || !slices.Equal(a.Move.Standings, want) {
		t.Errorf("standings %d are read as %v, want %v", last, a.Move.Standings, want)
	}
}

// Promise: a number that is too large for its field is the largest there, and never a small one.
func TestLargeNumbersStayLarge(t *testing.T) {
	const much = math.MaxInt64
	asks, err := readFrame(&frameReader{known: new(door.LimitCache)}, frameOf(t,
		frameWith(&peerv1.Ask{Hop: 256, Move: &peerv1.Move{
			AgeNs: -1, LackAgeNs: -1,
			Entries: []*peerv1.Entry{{Key: []byte("k"), AgeNs: -1}},
			Taken:   []*peerv1.Memory{{Partition: 1 << 16}},
			Holds:   []*peerv1.Hold{{Key: []byte("k"), State: 256}},
		}})), 0)
	if err != nil || asks[0].err != "" {
		t.Fatal(asks, err)
	}
	m := asks[0].ask.Move
	got := []int64{
		int64(asks[0].ask.Hop), int64(m.Age), int64(m.Lack.Age), int64(m.Entries[0].Age),
		int64(m.Taken[0].Partition), int64(m.Holds[0].State),
	}
	if want := []int64{255, much, much, much, 1<<16 - 1, 255}; !slices.Equal(got, want) {
		t.Errorf("they are read as %d, want %d", got, want)
	}
	for _, hold := range []uint32{255, 256} {
		it, err := readOutcome(wireOf(t, &peerv1.Outcome{Hold: hold}))
		if err != nil || it.Decision.Hold != 255 {
			t.Errorf("the state %d of a hold is read as %d, %v", hold, it.Decision.Hold, err)
		}
	}
	// 1000 + 1<<58 ms are one second in 64 bits of nanoseconds
	c := theirConfig(func(c *peerv1.Configuration) { c.Failover = 1000 + 1<<58 }).Config
	if got, err := readConfig(wireOf(t, c)); err == nil {
		t.Errorf("a failover of %d ms is read as %v", c.Failover, got.Failover)
	}
}
