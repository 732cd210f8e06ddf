package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// plainPage is the keys of a shard behind a mix, those of one mix together: until there are as many
// as are wanted, or they lie 1024 slots behind the home of that mix. It ends at the last mix that
// is on the page, or at 0 if no other follows.
func plainPage(
	s *shard, now Instant, prefix string, after uint32, most int,
) (keys []string, last uint32) {
	st, index := &s.entries, s.rules.index.Load()
	first := homeOf(after, st.capacity)
	for i := range st.slots[:st.capacity+st.spill] {
		e := &st.slots[i]
		if e.head == 0 || e.mix() <= after {
			continue
		}
		if e.mix() != last && last != 0 && (len(keys) >= most || i >= first+1024) {
			return keys, last
		}
		last = e.mix()
		l := index.byID(e.rule()).limit.Load()
		if !l.isShare() && strings.HasPrefix(st.key(e), prefix) && !l.fresh(st.state(e), now) {
			var d Decision
			l.decide(slices.Clone(st.state(e)), now, 0, &d)
			keys = append(keys, fmt.Sprint(l.Name, st.key(e), d))
		}
	}
	return keys, 0
}

// Promise: a call of Keys goes on page by page and shard by shard, until it has as many keys as are
// wanted or has seen 64 pages; it says where it has ended, and whether anything is left.
func TestPagesOfKeysInPlainWords(t *testing.T) {
	ended, broken := 0, 0
	for seed := range uint64(40) {
		draw := rand.New(rand.NewPCG(seed, 1))
		now := Instant(1e18)
		table := NewTable(TableConfig{Bytes: 8 << 20, Shards: oneOf(draw, 1, 4, 128)})
		l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Second}))
		limits := []*Limit{l, l.Share(2), mustBe(New(Spec{
			Name: "log", Algorithm: SlidingLog, Limit: 3, Per: time.Second,
		}))}
		for range draw.IntN(9000) {
			key := fmt.Sprint(oneOf(draw, "a", "b"), draw.IntN(9000))
			hash := Hash(key)
			if draw.IntN(3) == 0 {
				hash = draw.Uint64N(64) << 58 // many of one mix
			}
			at := now.Add(oneOf(draw, 0, -time.Second))
			table.Take(at, oneOf(draw, limits...), key, hash, 1)
		}
		for range 30 {
			prefix, most := oneOf(draw, "", "a", "b1", "c"), oneOf(draw, 0, 1, 5, 900, 1<<30)
			from := Cursor{uint32(draw.IntN(len(table.shards) + 1)), draw.Uint32()}
			if draw.IntN(2) == 0 {
				from = Cursor{}
			}
			var got, want []string
			note := func(l *Limit, key string, d Decision) {
				got = append(got, fmt.Sprint(l.Name, key, d))
			}
			end, more := table.Keys(now, prefix, from, most, note)
			at, parts := from, len(table.shards)
			for page := 0; page < 64 && len(want) < most && int(at.Part) < parts; page++ {
				var keys []string
				keys, at.Mix = plainPage(&table.shards[at.Part], now, prefix, at.Mix,
					most-len(want))
				if want = append(want, keys...); at.Mix == 0 {
					at.Part++
				}
			}
			left := int(at.Part) < parts
			if !slices.Equal(got, want) || end != at || more != left {
				t.Fatalf("seed %d: %d of %q from %+v: %d keys until %+v, %t; want %d until %+v, %t",
					seed, most, prefix, from, len(got), end, more, len(want), at, left)
			}
			if left {
				broken++
			} else {
				ended++
			}
		}
	}
	if ended < 100 || broken < 100 {
		t.Errorf("%d calls ended, %d did not; that proves little", ended, broken)
	}
}
