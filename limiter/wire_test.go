package limiter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// settledState is w as a table would take it over.
func settledState(l *Limit, now Instant, w []int64) []int64 {
	fitted := make([]int64, l.words())
	l.refit(fitted, w)
	return merged(l, now, fitted)
}

// TestWireIsTheState: a state that is read on the node that wrote it, at the same instant, is the
// written state. A reader later or with another clock admits nothing that the writer would have
// refused.
func TestWireIsTheState(t *testing.T) {
	forEveryShape(t, func(t *rapid.T, l *Limit) {
		now := Instant(rapid.Int64Range(1e18, 2e18).Draw(t, "now"))
		w := drawState(t, l, now, "state")
		b := l.EncodeState(slices.Clone(w), now)
		got, err := l.DecodeState(b, now)
		if err != nil {
			t.Fatal(err)
		}
		want := settledState(l, now, slices.Clone(w))
		if l.fresh(want, now) {
			clear(want)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("wrote %v (settled %v), read %v", w, want, got)
		}

		if (l.Algorithm == SlidingCounter || l.Algorithm == Concurrency) && want[0] > int64(now) {
			// A clock that has gone back counts it for longer. All was charged before now, so a
			// reader counts it from its next boundary on (landPart).
			return
		}
		late := Instant(rapid.Int64Range(0, int64(l.Per)/4).Draw(t, "on the way"))
		skew := Instant(rapid.Int64Range(-1e15, 1e15).Draw(t, "skew") / int64(l.Per) * int64(l.Per))
		if l.ClientTime {
			skew = 0 // nobody's clock counts but the clients'
		}
		got, err = l.DecodeState(b, now+late+skew)
		if err != nil {
			t.Fatal(err)
		}
		wait := Instant(rapid.Int64Range(0, 2*int64(l.Per)).Draw(t, "wait"))
		cost := rapid.Int64Range(1, 6).Draw(t, "cost")
		var here, there Decision
		l.decide(slices.Clone(want), now+wait+late, cost, &here)
		l.decide(got, now+wait+late+skew, cost, &there)
		if there.Allowed && !here.Allowed {
			t.Fatalf("%v after %v with %v on the way: the reader admits %d, which the writer "+
				"refuses (%+v)", w, wait, late, cost, here)
		}
	})
}

// TestWireOfAnotherForm: fields of the future are skipped, another algorithm is none of ours, and
// what is cut off is an error.
func TestWireOfAnotherForm(t *testing.T) {
	now := Instant(1e18)
	l := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 5, Per: time.Minute}))
	var d Decision
	w := make([]int64, l.words())
	l.decide(w, now, 3, &d)
	b := l.EncodeState(w, now)
	for _, more := range [][]byte{
		{7 << 3, 200, 1},
		{9<<3 | 2, 3, 'a', 'b', 'c'},
		{5<<3 | 5, 1, 2, 3, 4},
		{6<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8},
	} {
		for _, form := range [][]byte{
			append(slices.Clone(b), more...),
			append(slices.Clone(more), b...),
		} {
			if got, err := l.DecodeState(form, now); err != nil || !slices.Equal(got, w) {
				t.Errorf("with field %d: %v, %v", more[0]>>3, got, err)
			}
		}
	}
	for n := 1; n < len(b); n++ {
		if got, err := l.DecodeState(b[:n], now); err == nil &&
			!slices.Equal(got, make([]int64, 2)) {
			t.Errorf("the first %d of %d bytes are read as %v", n, len(b), got)
		}
	}
	other := mustBe(New(Spec{Name: "l", Algorithm: SlidingWindow, Limit: 5, Per: time.Minute}))
	if _, err := other.DecodeState(b, now); err == nil {
		t.Error("the state of a fixed window is read as one of a sliding window")
	}
}

func FuzzDecodeState(f *testing.F) {
	limits := make([]*Limit, len(shapes))
	for i, s := range shapes {
		s.Name = "l"
		limits[i] = mustBe(New(s))
		w := make([]int64, limits[i].words())
		var d Decision
		limits[i].decide(w, 1e18, 2, &d)
		f.Add(uint8(i), int64(1e18), limits[i].EncodeState(w, 1e18))
	}
	f.Add(uint8(5), int64(0), append([]byte{wireWords}, binary.AppendUvarint(nil, 1<<63)...))
	f.Fuzz(func(t *testing.T, kind uint8, now int64, b []byte) {
		l := limits[int(kind)%len(limits)]
		at := within(Instant(now))
		w, err := l.DecodeState(b, at)
		if err != nil {
			return
		}
		if again, err := l.DecodeState(l.EncodeState(w, at), at); err != nil || !l.fresh(w, at) &&
			!slices.Equal(w, again) {
			t.Fatalf("%v reads %v, which reads %v after %v", b, w, again, err)
		}
		var d Decision
		l.decide(w, at, 1, &d)
		most := d.Limit
		if l.inCredit(w) { // what was given back may be taken on top of the limit, and no more
			most -= w[1]
		}
		if d.Remaining < 0 || d.Remaining > most || most > d.Limit+maxCount ||
			d.RetryAfter < Never || d.Delay < 0 {
			t.Fatalf("%v: %+v", w, d)
		}
	})
}

// TestScanAndSweep: what is wanted and nothing else leaves, with its state, and what is no longer
// wanted is swept; shares stay.
func TestScanAndSweep(t *testing.T) {
	now := Instant(1e18)
	for _, shards := range []int{1, 8, 64} {
		from, to := NewTable(TableConfig{
			Bytes:  8 << 20,
			Shards: shards,
		}), NewTable(TableConfig{Bytes: 8 << 20, Shards: 4})
		var limits []*Limit
		for i, s := range shapes {
			s.Name = string(rune('α' + i))
			limits = append(limits, mustBe(New(s)))
		}
		wanted := func(hash uint64) bool { return hash%3 == 0 }
		inside := 0
		key := func(i int) string {
			return string(rune('A'+i%26)) + string(binary.AppendUvarint(nil, uint64(i)))
		}
		for i := range 3000 {
			l := limits[i%len(limits)]
			from.Take(now, l, key(i), Hash(key(i)), 1+int64(i%3))
			from.Take(now, l.Share(3), key(i), Hash(key(i)), 1)
			if wanted(Hash(key(i))) {
				inside++
			}
		}
		moved := 0
		for part := range from.Parts() {
			from.Scan(now, part, wanted, func(hash uint64, e Entry) {
				if hash != Hash(e.Key) || !to.Import(now, &e, false) {
					t.Fatalf("the table does not read its own %+v", e)
				}
				moved++
			})
		}
		if moved != inside || to.Stats().Keys != inside {
			t.Fatalf("%d left, %d came in, want %d", moved, to.Stats().Keys, inside)
		}
		for i := range 3000 {
			l := limits[i%len(limits)]
			want := from.Peek(now, l, key(i), Hash(key(i)), 4)
			if !wanted(Hash(key(i))) {
				want = NewTable(TableConfig{}).Peek(now, l, key(i), Hash(key(i)), 4)
			}
			if got := to.Peek(now, l, key(i), Hash(key(i)), 4); got != want {
				t.Fatalf("%v: %+v here, %+v there", l.Name, want, got)
			}
		}
		from.Guard(func(_ Instant, hash uint64) bool { return wanted(hash) }, wanted)
		for range 3 { // an entry may move from what comes next to what has been looked at
			from.Sweep(now, 2*from.Stats().Slots)
		}
		if s := from.Stats(); s.Keys != 3000+inside {
			t.Fatalf("%d entries are left, want %d and 3000 shares", s.Keys, inside)
		}
	}
}

// TestGuard: what the guard refuses is not decided by any door of the table.
func TestGuard(t *testing.T) {
	now := Instant(1e18)
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 8})
	open := true
	table.Guard(func(_ Instant, hash uint64) bool { return open || hash < 1<<63 }, nil)
	low, high := "", ""
	for i := 0; low == "" || high == ""; i++ {
		k := string(binary.AppendUvarint(nil, uint64(i)))
		if Hash(k) < 1<<63 {
			low = k
		} else {
			high = k
		}
	}
	table.Take(now, l, high, Hash(high), 2)
	open = false
	var all [2]Decision
	items := []Item{{l, low, Hash(low), Request{Cost: 1}}, {l, high, Hash(high), Request{Cost: 1}}}
	if table.TakeAll(now, items, all[:]) || !all[0].Closed || !all[1].Closed {
		t.Errorf("%+v", all)
	}
	for _, d := range []Decision{
		table.Take(now, l, high, Hash(high), 1), table.Take(now, l, high, Hash(high), 0),
		table.Peek(now, l, high, Hash(high), 1),
		table.Reset(now, l, high, Hash(high)),
	} {
		if d != (Decision{Closed: true}) {
			t.Errorf("%+v", d)
		}
	}
	if d := table.Take(now, l, low, Hash(low), 1); !d.Allowed || d.Closed {
		t.Errorf("%+v", d)
	}
	if d := table.Take(now, l.Share(2), high, Hash(high), 1); !d.Allowed || d.Closed {
		t.Errorf("of a share: %+v", d)
	}
	open = true
	if d := table.Peek(now, l, high, Hash(high), 0); d.Remaining != 3 {
		t.Errorf("something was charged or forgotten while the key was closed: %+v", d)
	}
}

// TestChanged: each entry that has changed is told once, with its state at that time, also one that
// was reset; and also where a shard has more of them than are copied at once.
func TestChanged(t *testing.T) {
	for _, keys := range []int{100, 20 * changedAtOnce} {
		testChanged(t, keys)
	}
}

func testChanged(t *testing.T, keys int) {
	now := Instant(1e18)
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 50, Per: time.Hour}))
	table, copied := NewTable(TableConfig{
		Bytes:  1 << 22,
		Shards: 8,
	}), NewTable(TableConfig{Bytes: 1 << 22})
	table.Track()
	rnd := rand.New(rand.NewSource(1))
	for round := range max(4, 5000/keys) {
		touched := map[string]bool{}
		for range rnd.Intn(4 * keys) {
			k := string(rune('a' + rnd.Intn(keys)))
			switch cost := int64(rnd.Intn(4)) - 1; {
			case rnd.Intn(30) == 0:
				table.Reset(now, l, k, Hash(k))
			case cost < 0 && table.Peek(now, l, k, Hash(k), 0).Remaining == l.Limit:
				// nothing to give back
			case cost == 0 || !table.Take(now, l, k, Hash(k), cost).Allowed:
			default:
				touched[k] = true
			}
		}
		told := map[string]bool{}
		table.Changed(now, func(hash uint64, e Entry) {
			if told[e.Key] || hash != Hash(e.Key) || e.Limit != l {
				t.Fatalf("round %d: %q is told twice or wrong: %+v", round, e.Key, e)
			}
			told[e.Key] = true
			copied.Import(now, &e, true)
		})
		for k := range touched {
			if !told[k] {
				t.Fatalf("round %d: %q is not told", round, k)
			}
		}
		for i := range keys {
			k := string(rune('a' + i))
			if a, b := table.Peek(
				now, l, k, Hash(k), 0,
			), copied.Peek(now, l, k, Hash(k), 0); a != b {
				t.Fatalf("round %d, %q: %+v, its copy %+v", round, k, a, b)
			}
		}
	}
	b := 0
	table.Changed(now, func(uint64, Entry) { b++ })
	if b != 0 {
		t.Errorf("%d entries are told again", b)
	}
}

// TestChangedWhileKeysYield: a key that loses its slot while others are told is told as well, by
// the state that it has in its cells.
func TestChangedWhileKeysYield(t *testing.T) {
	now := Instant(1e18)
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 1000, Per: time.Hour}))
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	table.Track()
	take := func(key string, cost int64) { table.Take(now, l, key, Hash(key), cost) }
	untold := map[string]bool{}
	for i := 0; table.Stats().Overflowed == 0; i++ {
		key := fmt.Sprint("first-", i)
		take(key, 1)
		untold[key] = true
	}
	if len(untold) < 2*changedAtOnce {
		t.Fatalf("%d keys fill the table, which are told at once", len(untold))
	}
	yielded := false
	table.Changed(now, func(_ uint64, e Entry) {
		delete(untold, e.Key)
		for i := 0; !yielded && i < 2000; i++ {
			take(fmt.Sprint("second-", i), 900)
		}
		yielded = true
	})
	if table.Stats().Evicted == 0 || len(untold) > 0 {
		t.Errorf("%d keys are not told; %+v", len(untold), table.Stats())
	}
}

// Promise: no request is denied that the model would admit. Nodes with copies are told of refunds,
// also if the table grows or is swept before: then the entry is as good as never seen, and would be
// removed.
func TestWhatWasGivenBackIsTold(t *testing.T) {
	now := Instant(1e18)
	for name, consistency := range map[string]Consistency{
		"exact":      Exact,
		"replicated": Replicated,
	} {
		l := mustBe(New(Spec{
			Name: "l", Algorithm: FixedWindow, Anchor: FirstHit, Limit: 5,
			Per: time.Hour, Consistency: consistency,
		}))
		for how, giveBack := range map[string]func(table *Table, k string){
			"refunded": func(table *Table, k string) { table.Take(now, l, k, Hash(k), -3) },
			"reset":    func(table *Table, k string) { table.Reset(now, l, k, Hash(k)) },
			"refunded with others": func(table *Table, k string) {
				table.TakeAll(now, []Item{{
					Limit: l, Key: k, Hash: Hash(k),
					Request: Request{Cost: -3},
				}}, make([]Decision, 1))
			},
		} {
			table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 2})
			table.Track()
			const keys = 100
			for i := range keys {
				k := fmt.Sprint("k", i)
				table.Take(now, l, k, Hash(k), 3)
			}
			table.Changed(now, func(uint64, Entry) {})
			for i := range keys {
				giveBack(table, fmt.Sprint("k", i))
			}
			for i := range 1000 { // it grows
				k := fmt.Sprint("new", i)
				table.Take(now, l, k, Hash(k), 1)
			}
			table.Sweep(now, 1<<20)
			told := 0
			table.Changed(now, func(_ uint64, e Entry) {
				if e.Key[0] == 'k' && len(e.State) == 0 {
					told++
				}
			})
			if want := map[Consistency]int{Exact: keys}[consistency]; told != want {
				t.Errorf("%s, %s: %d of %d keys are told to be as new", name, how, told, want)
			}
			table.Sweep(now, 1<<20)
			if n := table.Stats().Keys; n != 1000 {
				t.Errorf("%s, %s: then %d entries are left, of 1000 that count", name, how, n)
			}
		}
	}
}

// TestChangesStayShort: if nobody asks, each entry is listed about once, however often it is
// removed and made anew.
func TestChangesStayShort(t *testing.T) {
	var c changes
	for i := range 1 << 20 {
		c.append(uint32(i%1000)*0x9e3779b1, 1)
	}
	if len(c.list) > 1<<17 {
		t.Errorf("%d changes of 1000 entries", len(c.list))
	}
}

// TestStateOfTheDocs: the binary form is what its doc says, byte for byte, so that another program
// can read it.
func TestStateOfTheDocs(t *testing.T) {
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 1, Per: time.Second}))
	w := []int64{1e18 + 1e9}
	if got, want := l.EncodeState(
		w, 1e18,
	), []byte{0x08, 1, 0x12, 5, 0x80, 0xa8, 0xd6, 0xb9, 0x07}; !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

// TestClientsTimeIsTheSameEverywhere: the mark and the session of a bucket that goes by its
// clients' time are not moved to the reader's clock, only the instant at which it was last asked.
func TestClientsTimeIsTheSameEverywhere(t *testing.T) {
	l := mustBe(New(Spec{
		Name: "smyte", Algorithm: TokenBucket, Limit: 5, Per: time.Minute,
		Anchor: FirstHit, ClientTime: true, Sessions: true,
	}))
	w := make([]int64, l.words())
	var d Decision
	l.answer(w, 1000e9, &Request{Cost: 2, At: 77e9, Timed: true}, &d)
	got, err := l.DecodeState(l.EncodeState(w, 1010e9), 5010e9)
	if want := []int64{2, 77e9, 5000e9, 77e9}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

// Promise: every node restarts with --data-dir, also into a release that counts clients' time in
// milliseconds: a bucket that was written in nanoseconds has the tokens that it had, and is
// refilled when it would have been.
func TestClientTimeInNanosecondsIsRead(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		l, err := New(Spec{
			Name: "l", Algorithm: TokenBucket, Anchor: FirstHit, Limit: 10, Per: time.Minute,
			ClientTime: true, Sessions: sessions,
		})
		if err != nil {
			t.Fatal(err)
		}
		const at = Instant(1_700_000_000_000_000_000)
		var packed []byte
		// missing, mark, asked, session
		for _, x := range []int64{7, int64(at) + 1, 0, int64(at) + 2e6}[:l.words()] {
			packed = binary.AppendUvarint(packed, zigzag(x))
		}
		old := append([]byte{wireAlgorithm, byte(TokenBucket), wireWords, byte(len(packed))},
			packed...)
		want := []int64{7, int64(at)/1e6 + 1, int64(at), int64(at)/1e6 + 2}[:l.words()]
		got, err := l.DecodeState(old, at)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("sessions %t: %v, %v; want %v", sessions, got, err, want)
		}
		if again, err := l.DecodeState(l.EncodeState(got, at), at); err != nil ||
			!slices.Equal(again, want) {
			t.Errorf("sessions %t, written and read: %v, %v; want %v", sessions, again, err, want)
		}
	}
}

// TestDiscard: one call leaves nothing of keys that are not kept, and all of those that are.
func TestDiscard(t *testing.T) {
	const now, keys = Instant(1e18), 5000
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	table := NewTable(TableConfig{Bytes: 8 << 20, Shards: 8})
	kept := func(hash uint64) bool { return hash>>7%2 == 0 }
	table.Guard(func(Instant, uint64) bool { return true }, kept)
	for i := range keys {
		k := fmt.Sprint("k", i)
		table.Take(now, l, k, Hash(k), 2)
	}
	table.Discard()
	for i := range keys {
		k := fmt.Sprint("k", i)
		d := table.Peek(now, l, k, Hash(k), 0)
		if want := int64(5); kept(Hash(k)) && d.Remaining != want-2 || !kept(Hash(k)) &&
			d.Remaining != want {
			t.Fatalf("%d of %s are left, and it is %t that it is kept", d.Remaining, k,
				kept(Hash(k)))
		}
	}
}
