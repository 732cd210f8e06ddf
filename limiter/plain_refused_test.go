package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Promise: a limit that limits nothing leaves no trace in a table: no entry, no rule, no units that
// are reserved, and no refusal that is counted.
func TestUnlimitedLeavesNoTrace(t *testing.T) {
	of := mustBe(New(Spec{
		Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour,
	}, Override{Key: "a*", Unlimited: true}))
	l, now, hash := of.For("a"), Instant(1e18), Hash("a")
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	before := table.Stats()
	items := []Item{{l, "a", hash, Request{Cost: 7}}}
	out := make([]Decision, 1)
	answers := []Decision{
		table.Take(now, l, "a", hash, 7), table.Peek(now, l, "a", hash, 7),
		table.Reset(now, l, "a", hash), table.putBack(now, l, "a", hash, 3, 7),
	}
	for _, all := range []func() bool{
		func() bool { return table.TakeAll(now, items, out) },
		func() bool { return table.reserveAll(now, items, out) },
	} {
		if out[0] = (Decision{}); !all() {
			t.Error("refused")
		}
		answers = append(answers, out[0])
	}
	for i, d := range answers {
		want := Decision{Allowed: true, Limit: MaxLimit, Remaining: MaxLimit, RetryAfter: Never}
		if d != want {
			t.Errorf("answer %d: %+v, want %+v", i, d, want)
		}
	}
	w := []int64{int64(now) - int64(now)%int64(time.Hour), 7}
	table.adjustReserved(l, "a", hash, 5)
	table.Merge(now, l, "a", hash, w)
	if !table.Import(now, &Entry{Limit: l, Key: "a", State: l.EncodeState(w, now)}, true) {
		t.Error("a state is called broken")
	}
	if table.Stats() != before || table.shards[0].reserved != nil ||
		table.rules.learn(l, nil) != nil || table.rules.lost[configured].cells.Load() != nil {
		t.Errorf("%+v became %+v", before, table.Stats())
	}
}

// Promise: what comes from elsewhere under a limit without room is remembered, an entry or a cell,
// so that the limit is refused until it is over, also when there is room; what is over already, or
// cannot be read, is not.
func TestStatesWithoutRoomInPlainWords(t *testing.T) {
	now := Instant(1e18)
	from := NewTable(TableConfig{Bytes: 1, Shards: 1})
	of := Spec{Name: "l", Algorithm: FixedWindow, Limit: 5, Per: time.Hour}
	l := mustBe(New(of))
	from.Take(now, l, "k", Hash("k"), 3)
	long := strings.Repeat("k", MaxKey+1) // which has no entry
	from.Take(now, l, long, Hash(long), 3)
	entry, cell := from.Save(now, 0)[0], from.Save(now, 1)[0]
	end := now.Add(time.Hour - time.Duration(int64(now)%int64(time.Hour)))
	state := func(b []byte) Entry { return Entry{Limit: l, Key: "k", State: b} }
	for what, c := range map[string]struct {
		e          Entry
		at         Instant
		read, lost bool
	}{
		"an entry":              {entry, now, true, true},
		"a cell":                {cell, now, true, true},
		"an entry that is over": {entry, now.Add(2 * time.Hour), true, false},
		"a broken entry":        {state([]byte{0xff}), now, false, false},
		"a broken cell":         {state(cell.State[:9]), now, false, false},
		"a cell cut off":        {state(cell.State[:len(cell.State)-1]), now, false, false},
	} {
		to := NewTable(TableConfig{Bytes: 1, Shards: 1})
		to.rules.count = maxRules
		e := c.e
		e.Age = time.Duration(c.at - now)
		if got := to.Import(c.at, &e, false); got != c.read {
			t.Errorf("%s is read: %t", what, got)
		}
		if d := to.Take(c.at, l, "other", Hash("other"), 1); d != noRoom(l) {
			t.Errorf("%s: without room: %+v", what, d)
		}
		to.rules.count, to.rules.refusals = 0, [classes]int{}
		for _, at := range []Instant{c.at, end - 1, end} {
			lost := c.lost && at < end
			if d := to.Take(max(at, c.at), l, "k", Hash("k"), 1); d.Allowed == lost {
				t.Errorf("%s: with room, at %d: %+v", what, at, d)
			}
		}
	}
}

// Promise: requests together of which one finds no room for what its limit keeps now change
// nothing, wherever they stand, and one refusal is counted.
func TestTogetherWithoutRoomForAState(t *testing.T) {
	const now = Instant(1e18)
	spec := Spec{Name: "log", Algorithm: SlidingLog, Limit: 1960, Per: time.Hour}
	log, meter := mustBe(New(spec)), mustBe(New(Spec{
		Name: "meter", Algorithm: GCRA, Limit: 5, Per: time.Hour,
	}))
	spec.Limit = 2000
	longer := mustBe(New(spec))
	for turn := range 3 {
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		table.Track()
		for i := range 3 { // they fill it
			key := fmt.Sprint(i)
			table.Take(now, log, key, Hash(key), 7)
		}
		table.Take(now, meter, "known", Hash("known"), 2)
		items := []Item{
			{meter, "known", Hash("known"), Request{Cost: 1}},
			{meter, "newcomer", Hash("newcomer"), Request{Cost: 1}},
			{longer, "1", Hash("1"), Request{Cost: 1}},
		}
		items = append(items[turn:], items[:turn]...)
		before, out := table.Stats(), make([]Decision, 3)
		if table.TakeAll(now, items, out) {
			t.Fatalf("turn %d: there is room", turn)
		}
		before.Refused++
		if got := table.Stats(); got != before {
			t.Errorf("turn %d: %+v became %+v", turn, before, got)
		}
		for i, it := range items {
			want := map[string]int64{"known": 3, "newcomer": 5, "1": 1993}[it.Key]
			if d := table.Peek(now, it.Limit, it.Key, it.Hash, 0); d.Remaining != want {
				t.Errorf("turn %d: %d are left of %s, want %d", turn, d.Remaining, it.Key, want)
			}
			if it.Limit == longer && out[i] != noRoom(longer) {
				t.Errorf("turn %d: without room: %+v", turn, out[i])
			}
		}
		table.check(t)
	}
}

// Promise: of an entry that is gone with its limit nothing is told; and without a Guard everything
// is kept.
func TestNothingIsToldOfWhatIsGone(t *testing.T) {
	now := Instant(1e18)
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	table.Track()
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	stays := mustBe(New(Spec{Name: "stays", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	table.Take(now, l, "gone", Hash("gone"), 2)
	table.Take(now, stays, "there", Hash("there"), 2)
	table.Import(now, &Entry{Limit: l, Key: "gone"}, true)
	table.rules.mu.Lock()
	table.rules.reclaimLocked(table.rules.index.Load(), table.shards)
	table.rules.mu.Unlock()
	var told []string
	table.Changed(now, func(_ uint64, e Entry) { told = append(told, e.Key) })
	if !slices.Equal(told, []string{"there"}) {
		t.Errorf("told are %q", told)
	}
	table.Discard()
	if d := table.Peek(now, stays, "there", Hash("there"), 0); d.Remaining != 3 {
		t.Errorf("there is no Guard, and %+v", d)
	}
}

// Promise: limits that lost a state, by a hash of 1024, are refused until the latest of what was
// lost there is over.
func TestLostStatesInPlainWords(t *testing.T) {
	meter := func(draw *rand.Rand) *Limit {
		return mustBe(New(Spec{
			Name: fmt.Sprint(draw.IntN(4)), Algorithm: GCRA, Limit: 5, Per: 5 * time.Second,
		}))
	}
	for seed := range uint64(300) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var lost lostStates
		ends, now := map[uint64]Instant{}, oneOf[Instant](draw, 1e18, -5e9+1) // or before 1970
		for range 40 {
			l, w := meter(draw), []int64{0}
			if units := draw.IntN(3); draw.IntN(3) == 0 {
				end := now.Add(time.Duration(units) * time.Second)
				w[0] = int64(end)
				if last, known := ends[l.seed%1024]; units > 0 && (!known || last < end) {
					ends[l.seed%1024] = end
				}
				lost.add(now, l, w)
			}
			now = now.Add(time.Duration(draw.IntN(3)) * time.Second / 2)
			l = meter(draw)
			if end, known := ends[l.seed%1024]; lost.of(now, l) != (known && end > now) {
				t.Fatalf("seed %d: %s is lost: %t", seed, l.Name, lost.of(now, l))
			}
		}
		if (lost.cells.Load() != nil) != (len(ends) > 0) {
			t.Fatalf("seed %d: there is memory for %d", seed, len(ends))
		}
	}
}

// Promise: a hold that ends while there is no room for its limit gives back what it reserved, and
// nothing that it used is forgotten: the limit is refused for as long as that counts.
func TestHoldEndsWithoutRoomForItsLimit(t *testing.T) {
	now := Instant(1e18)
	l := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 5, Per: time.Hour}))
	for used := range int64(2) {
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		book, rs, id := NewLedger(table, nil), &table.rules, HoldID{1, 2}
		book.Open(now, []HoldRequest{
			{ID: id, Limit: l, Key: "k", Hash: Hash("k"), Units: 3, TTL: time.Minute},
		}, make([]Decision, 1))
		rs.mu.Lock()
		rs.reclaimLocked(rs.index.Load(), table.shards)
		rs.count = maxRules
		rs.mu.Unlock()
		if d := book.Settle(now, id, Hash("k"), "", used); d.Hold != HoldSettled {
			t.Fatalf("%d used: %+v", used, d)
		}
		rs.count, rs.refusals = 0, [classes]int{}
		if d := table.Take(now, l, "k", Hash("k"), 5); d.Allowed != (used == 0) {
			t.Errorf("%d used, with room: %+v", used, d)
		}
		if d := table.Take(now.Add(time.Hour), l, "k", Hash("k"), 5); !d.Allowed {
			t.Errorf("%d used, in the next window: %+v", used, d)
		}
	}
}

// Promise: a caller that asks again for a hold that it has is told the delay of one that would be
// opened now; where none would be, the longest one.
func TestDelaysOfHoldsInPlainWords(t *testing.T) {
	now := Instant(1e18)
	for used := range int64(20) {
		for _, on := range []OnDeny{DenyReject, DenyDelay} {
			s := Spec{Name: "l", Algorithm: GCRA, Limit: 10, Per: time.Second, OnDeny: on, Burst: 2}
			if on == DenyDelay {
				s.MaxDelay = time.Second
			}
			l, table := mustBe(New(s)), NewTable(TableConfig{Bytes: 1})
			table.Merge(now, l, "k", Hash("k"), []int64{int64(now) + used*1e8})
			r := HoldRequest{Limit: l, Key: "k", Hash: Hash("k"), Units: 1}
			want := time.Duration(0)
			if on == DenyDelay {
				want = max(0, min(s.MaxDelay, time.Duration(used-1)*time.Second/10))
			}
			if got := r.delayOfAnother(now, table); got != want {
				t.Errorf("%v, %d used: %v, want %v", on, used, got, want)
			}
		}
	}
}
