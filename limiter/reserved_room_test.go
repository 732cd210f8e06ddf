package limiter

import (
	"fmt"
	"testing"
	"time"
)

// Promise: a flood of random keys: 0 extra. What a hold has used is charged, and told to a copy,
// also while there is no room for a newcomer: in the entries, in what is to be told, or at all.
func TestSettledWithoutRoom(t *testing.T) {
	now := Instant(1e18)
	for _, spec := range []Spec{
		{Algorithm: FixedWindow, Limit: 10, Per: 24 * time.Hour},
		{Algorithm: GCRA, Limit: 10, Per: 24 * time.Hour},
		{Algorithm: TokenBucket, Limit: 10, Per: 24 * time.Hour},
		{Algorithm: SlidingWindow, Limit: 10, Per: 24 * time.Hour},
		{Algorithm: SlidingLog, Limit: 10, Per: 24 * time.Hour},
	} {
		for _, bytes := range []int64{1, 1 << 12, 1 << 14, 1 << 16, 1 << 18} {
			spec.Name = "settled"
			t.Run(fmt.Sprint(spec.Algorithm, " in ", bytes, " bytes"), func(t *testing.T) {
				settlesWithoutRoom(t, now, mustBe(New(spec)), bytes)
			})
		}
	}
}

func settlesWithoutRoom(t *testing.T, now Instant, l *Limit, bytes int64) {
	table := NewTable(TableConfig{Bytes: bytes})
	table.Track()
	book := NewLedger(table, nil)
	refused := 0
	for i := 0; refused < 2000 && i < 40_000; i++ {
		key := fmt.Sprint("flood ", i)
		if d := table.Take(now, l, key, Hash(key), 5); !d.Allowed {
			refused++
		}
	}
	keys := []string{"a newcomer", "another one", "one more"}
	for i := range uint64(300) {
		key := keys[i%3]
		r := HoldRequest{
			ID: HoldID{1, i}, Limit: l, Key: key, Hash: Hash(key), Units: 3, TTL: time.Minute,
		}
		if !book.Open(now, []HoldRequest{r}, make([]Decision, 1)) {
			continue
		}
		used := int64(3)
		if i%2 == 0 {
			used = 2
		}
		if d := book.Settle(now, r.ID, r.Hash, "", used); d.Hold != HoldSettled {
			t.Fatalf("hold %d is not settled: %+v", i, d)
		}
		table.Take(now, l, key, r.Hash, 1) // admitted or not, it shows what is left
	}
	charged := make(map[string]int64)
	for i := range uint64(300) {
		h, found := book.Get(HoldID{1, i})
		if found && h.State == HoldSettled {
			charged[h.Key] += h.Used
		}
	}
	other := NewTable(TableConfig{Bytes: 1 << 20})
	table.Changed(now, func(_ uint64, e Entry) { other.Import(now, &e, true) })
	for _, key := range keys {
		if charged[key] > 10 {
			t.Errorf("%s: %d of 10 are charged", key, charged[key])
		}
		for name, x := range map[string]*Table{"": table, " in a copy": other} {
			if d := x.Peek(now, l, key, Hash(key), 0); d.Remaining > 10-charged[key] {
				t.Errorf("%s%s: %d are charged, and %d remain", key, name, charged[key],
					d.Remaining)
			}
		}
	}
}

// Promise: … also of a key that is there, if its limit was changed so that its state needs more
// room than there is.
func TestReportedWithoutRoomToGrow(t *testing.T) {
	now, grown := Instant(1e18), 0
	small := mustBe(New(Spec{Name: "log", Algorithm: SlidingLog, Limit: 2, Per: time.Hour}))
	large := mustBe(New(Spec{Name: "log", Algorithm: SlidingLog, Limit: 60, Per: time.Hour}))
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	table.Track()
	for i := range 1000 {
		key := fmt.Sprint("key ", i)
		table.Take(now, small, key, Hash(key), 1)
	}
	for i := range 1000 {
		key := fmt.Sprint("key ", i)
		if before := table.Stats().Refused; !table.Do(now, large, key, Hash(key),
			Request{Cost: 0}).Allowed || table.Stats().Refused != before {
			continue
		}
		left := table.Peek(now, large, key, Hash(key), 0).Remaining
		refused := !table.Take(now, large, key, Hash(key), 1).Allowed
		d := table.Do(now, large, key, Hash(key), Request{Cost: 7, Report: true})
		after := table.Peek(now, large, key, Hash(key), 0).Remaining
		if !refused {
			left--
		} else if left > 1 {
			grown++
		}
		if after > max(0, left-7) || !d.Allowed {
			t.Fatalf("%s: %d of %d remain after a report of 7: %+v", key, after, left, d)
		}
	}
	if grown == 0 {
		t.Error("there was room for every key")
	}
}

// Promise: … and while keys without an entry are refused: that ends before the charge does.
func TestReportedWhileNewcomersAreRefused(t *testing.T) {
	now := Instant(1e18)
	l := mustBe(New(Spec{Name: "day", Algorithm: FixedWindow, Limit: 10, Per: 24 * time.Hour}))
	table := NewTable(TableConfig{Bytes: 1 << 16})
	table.Take(now, l, "known", Hash("known"), 1)
	putOff(&table.rules.of(l).shut, now.Add(time.Second))
	if d := table.Take(now, l, "k", Hash("k"), 1); d.Allowed {
		t.Fatalf("a newcomer is not refused: %+v", d)
	}
	table.Do(now, l, "k", Hash("k"), Request{Cost: 4, Report: true})
	if d := table.Peek(now.Add(2*time.Second), l, "k", Hash("k"), 0); d.Remaining != 6 {
		t.Errorf("after a report of 4 of 10: %+v", d)
	}
}
