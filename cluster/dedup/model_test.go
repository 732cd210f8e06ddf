package dedup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
)

// naive is a window that keeps every answer for ever, and looks through all of them.
type naive []*answer

type answer struct {
	Memory
	at             limiter.Instant
	learned, share bool
	outdated       bool // there is a later one that says the same
	told           bool // as newly given back
}

// last is the latest answer to id that counts at now and fits, or nil.
func (n naive) last(now limiter.Instant, id ID, fits func(*answer) bool) *answer {
	for i := len(n) - 1; i >= 0; i-- {
		if a := n[i]; a.ID == id && now < a.at.Add(Lasts) && fits(a) {
			return a
		}
	}
	return nil
}

func (n naive) lastOf(now limiter.Instant, t Take, decisions int) *answer {
	return n.last(now, t.ID, func(a *answer) bool {
		return len(a.Decisions) == decisions && a.countsIn(t.Partition) &&
			(!a.learned || a.GivesBack == t.GivesBack)
	})
}

// countsIn reports whether this is an answer to takes of keys in partition.
func (a *answer) countsIn(partition int) bool {
	return !a.learned || int(a.Partition) == partition
}

// memory is an answer as another node is told of it.
func (a *answer) memory(now limiter.Instant) string {
	m := a.Memory
	m.Age = time.Duration(now - a.at)
	return fmt.Sprintf("%+v", m)
}

func drawDecision(draw *rand.Rand) limiter.Decision {
	n := func() int64 { return draw.Int64N(4) }
	d := limiter.Decision{
		Allowed: (draw.IntN(2) == 0), Limit: n(),
		Remaining: n(), RetryAfter: time.Duration(n()),
		ResetAfter: time.Duration(n()),
	}
	if draw.IntN(6) == 0 {
		d.Delay = time.Duration(n())
	}
	return d
}

// Promise: a window answers as one that has kept everything: repeats within Lasts and no later ones
// get the answer of the first, of a share too, alone or together; what is told to others is all
// that an owner has answered, once and in order, and nothing that only a share has. A take that a
// share has admitted is charged unless an owner has answered.
func TestWindowAgainstNaive(t *testing.T) {
	for seed := range uint64(40) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var w Window
		var all naive
		w.Seed(draw.Uint64())
		now, large := limiter.Instant(1<<40), 0
		plain := seed%4 == 0 // each answer fits into a record
		later := func() time.Duration {
			return pick(draw, []time.Duration{0, 0, 1, Lasts / 16, Lasts / 2, Lasts - 1, Lasts})
		}
		// neighbours, places that meet, and one id that is far from all
		drawID := func() ID {
			return pick(draw, []ID{{1, 1}, {1, 2}, {1, 1 + shards*run*8}, {2, 1}, {3, 1 << 50}})
		}
		remember := func(a *answer) {
			if len(a.Decisions) != 1 || a.Decisions[0].Delay != 0 {
				large++
			}
			all = append(all, a)
		}
		for range 200 {
			now = now.Add(later())
			id := drawID()
			partition := uint16(draw.IntN(3))
			given := []limiter.Decision{drawDecision(draw)}
			if plain {
				given[0].Delay = 0
			} else if draw.IntN(3) == 0 {
				given = append(given, drawDecision(draw))
			}
			back := draw.IntN(3) == 0
			asked := Take{ID: id, Partition: int(partition), GivesBack: back}
			known := all.lastOf(now, asked, len(given))
			switch draw.IntN(8) {
			case 0, 1, 2:
				kept, taken := draw.IntN(5) > 0, false
				out := make([]limiter.Decision, len(given))
				take := func() bool { taken = true; copy(out, given); return kept }
				var again bool
				if len(out) == 1 && (draw.IntN(2) == 0) {
					again = w.OnceAlone(now, asked, &out[0], take)
				} else {
					again = w.Once(now, asked, out, take)
				}
				want := given
				if known != nil {
					want = known.Decisions
				} else if kept {
					remember(&answer{Memory: Memory{id, partition, 0, given, back}, at: now})
				}
				if again != (known != nil) || again == taken || !slices.Equal(out, want) {
					t.Fatalf("%v: again %t, taken %t, %+v; want %+v", id, again, taken, out, want)
				}
			case 3:
				m := Memory{id, partition, later(), given, back}
				w.Learn(now, []Memory{m})
				switch {
				case known == nil || known.share && given[0].Allowed:
					remember(&answer{Memory: m, at: now, learned: true})
				case !known.share && known.at < now.Add(-m.Age):
					known.outdated = true
					later := *known
					later.at, later.outdated, later.told = now, false, false
					remember(&later)
				}
			case 4:
				w.Share(now, asked)
				if alone := all.lastOf(now, asked, 1); alone != nil {
					alone.share = true
				}
			case 5:
				want, got := "", ""
				if a := all.last(now, id, func(a *answer) bool {
					return !a.share && a.countsIn(int(partition))
				}); a != nil {
					want = a.memory(now)
				}
				w.Recall(now, id, int(partition), func(m Memory) { got += fmt.Sprintf("%+v", m) })
				if got != want {
					t.Fatalf("%v is recalled as %q, want %q", id, got, want)
				}
			case 6:
				tell := func(fn func(Memory)) {
					w.Each(now, func(p uint16) bool { return p != partition }, fn)
				}
				all.check(t, now, tell, func(a *answer) bool { return a.Partition != partition })
			case 7:
				kept, taken, alone := draw.IntN(5) > 0, false, all.lastOf(now, asked, 1)
				var out limiter.Decision
				owed := asked
				owed.Owed = true
				again := w.OnceAlone(now, owed, &out, func() bool {
					taken, out = true, given[0]
					return kept
				})
				want := given[0]
				switch {
				case alone != nil && !alone.share:
					want = alone.Decisions[0]
				case alone == nil && kept:
					remember(&answer{
						Memory: Memory{id, partition, 0, given[:1], back}, at: now,
					})
				}
				if again == taken || taken != (alone == nil || alone.share) || out != want {
					t.Fatalf("%v: charged %t, again %t, %+v; want %+v", id, taken, again, out, want)
				}
			}
			switch draw.IntN(6) {
			case 0:
				tell := func(fn func(Memory)) { w.NewlyGivenBack(now, fn) }
				all.check(t, now, tell, func(a *answer) bool { return a.GivesBack && !a.told })
				for _, a := range all {
					a.told = true
				}
			case 1:
				tell := func(fn func(Memory)) {
					w.GivenBack(now, func(p uint16) bool { return p != partition }, fn)
				}
				all.check(t, now, tell,
					func(a *answer) bool { return a.GivesBack && a.Partition != partition })
			}
			alone := all.lastOf(now, asked, 1)
			learned, shared := alone != nil && alone.learned, alone != nil && alone.share
			if w.Learned(now, asked) != learned || w.Shared(now, asked) != shared {
				t.Fatalf("%v: learned %t, shared %t; want %t, %t", id, w.Learned(now, asked),
					w.Shared(now, asked), learned, shared)
			}
		}
		apart := 0
		for i := range w.shards {
			apart += len(w.shards[i].many)
		}
		if apart > large {
			t.Fatalf("%d answers are kept apart, and %d do not fit into a record", apart, large)
		}
	}
}

// check compares what others are told with those answers of the owner that fit.
func (n naive) check(
	t *testing.T, now limiter.Instant, tell func(fn func(Memory)), fits func(*answer) bool,
) {
	t.Helper()
	want, got := map[ID][]string{}, map[ID][]string{}
	for _, a := range n {
		if now < a.at.Add(Lasts) && !a.share && !a.outdated && fits(a) {
			want[a.ID] = append(want[a.ID], a.memory(now))
		}
	}
	tell(func(m Memory) { got[m.ID] = append(got[m.ID], fmt.Sprintf("%+v", m)) })
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("others are told %v, want %v", got, want)
	}
}

// Promise: ids in sequence lie beside each other, each in a place of its own; and where those of an
// origin lie follows from a secret, so nobody can have many meet.
func TestPlacesOfIDs(t *testing.T) {
	var w, other Window
	other.Seed(42)
	moved := 0
	for origin := range uint64(64) {
		places, in := map[string]bool{}, map[*shard]bool{}
		for sequence := range uint64(run) {
			s, place := w.shard(ID{origin, 1<<20 + sequence})
			in[s] = true
			places[fmt.Sprintf("%p %d", s, place)] = true
		}
		if len(in) > 2 || len(places) != run {
			t.Fatalf("%d ids in sequence are in %d shards and %d places", run, len(in), len(places))
		}
		_, here := w.shard(ID{origin, 1 << 20})
		if _, there := other.shard(ID{origin, 1 << 20}); here != there {
			moved++
		}
	}
	if moved < 60 {
		t.Errorf("under another secret %d of 64 origins have another place", moved)
	}
}

func pick[T any](draw *rand.Rand, from []T) T { return from[draw.IntN(len(from))] }
