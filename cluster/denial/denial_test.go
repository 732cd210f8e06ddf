package denial

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
)

func limitOf(t *testing.T, name string) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(limiter.Spec{
		Name: name, Algorithm: limiter.GCRA, Limit: 5,
		Per: time.Minute, Burst: 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func key(l *limiter.Limit, name string) Key {
	return Key{Limit: l, Key: name, Hash: limiter.Hash(name)}
}

// no is a denial of cost for a minute, asked for at sent, that the owner 7 has promised to tell the
// end of.
func no(sent limiter.Instant, cost int64) *Answer {
	return &Answer{
		By: 7, Sent: sent, Cost: cost, Told: true,
		Denied: limiter.Decision{RetryAfter: time.Minute},
	}
}

const start = limiter.Instant(1_700_000_000_000_000_000)

// Promise: a node denies by itself only what the owner's denial covers, and asks the owner in time
// to renew it.
func TestFind(t *testing.T) {
	l, other := limitOf(t, "five"), limitOf(t, "other")
	alice := key(l, "alice")
	for _, row := range []struct {
		what  string
		after time.Duration
		key   Key
		cost  int64
		named bool
		want  bool
	}{
		{"the same cost", 1, alice, 2, false, true},
		{"a larger one waits longer", 1, alice, 3, false, false},
		{"a smaller one may fit", 1, alice, 1, false, false},
		{"more than the limit has another answer", 1, alice, 6, false, false},
		{"another key", 1, key(l, "bob"), 2, false, false},
		{"another key with the same hash", 1, Key{l, "bob", alice.Hash}, 2, false, false},
		{"another limit", 1, key(other, "alice"), 2, false, false},
		{"an id that may be a repeat", 1, alice, 2, true, false},
		{"time to renew", Lasts - Renew, alice, 2, false, false},
		{"too old", Lasts, alice, 2, false, false},
	} {
		var c Cache
		c.Note(start, alice, no(start, 2))
		v := c.Find(start.Add(row.after), row.key, row.cost, row.named, 2*time.Second)
		if v.Denied != row.want || v.Denied &&
			(v.By != 7 || v.Answer.Allowed || v.Answer.RetryAfter != time.Minute-row.after) {
			t.Errorf("%s: %+v, want denied: %t", row.what, v, row.want)
		}
	}
}

// Promise: one request renews a denial while the others are denied from memory; an id is denied
// once no repeat is recognised.
func TestRenewal(t *testing.T) {
	var c Cache
	k := key(limitOf(t, "five"), "alice")
	now := start
	for range 4 {
		c.Note(now, k, no(now, 2))
		now = now.Add(Lasts - Renew)
		if c.Find(now, k, 2, false, 0).Denied || !c.Find(now, k, 2, false, 0).Denied {
			t.Fatalf("at %v not one request renews", now)
		}
	}
	if c.Note(now, k, no(now, 2)); !c.Find(now.Add(1), k, 2, true, 2*time.Second).Denied {
		t.Error("after more than two seconds of denials, an id is asked for again")
	}
}

// Promise: a denial that is over gives way to the next one, whatever that covers.
func TestNextDenial(t *testing.T) {
	var c Cache
	k := key(limitOf(t, "five"), "alice")
	c.Note(start, k, no(start, 2))
	c.Note(start.Add(Lasts), k, no(start.Add(Lasts), 3))
	if !c.Find(start.Add(Lasts), k, 3, false, 0).Denied {
		t.Error("the second denial is not followed")
	}
}

// Promise: a denial finds room where others are over, or were forgotten.
func TestRoomForTheNext(t *testing.T) {
	var c Cache
	l := limitOf(t, "five")
	for i := range CacheMost/cacheShards + 1 {
		c.Note(start, Key{l, fmt.Sprint(i), 5}, no(start, 1))
	}
	c.Forget(start, 5)
	for i := range CacheMost/cacheShards + 1 {
		c.Note(start, Key{l, fmt.Sprint(i), 5}, no(start, 1))
	}
	late := start.Add(2 * time.Minute)
	c.Note(late, Key{l, "late", 5}, no(late, 1))
	if !c.Find(late, Key{l, "late", 5}, 1, false, 0).Denied || c.Len() != 1 {
		t.Errorf("the latest denial found no room; there are %d", c.Len())
	}
}

// Promise: a denial that is overtaken by the news of its end is not followed.
func TestForgetOvertakes(t *testing.T) {
	var c Cache
	k := key(limitOf(t, "five"), "alice")
	c.Forget(start.Add(2), k.Hash)
	c.Note(start.Add(3), k, no(start.Add(1), 2))
	if c.Find(start.Add(4), k, 2, false, 0).Denied {
		t.Error("a denial from before a refund")
	}
	c.Note(start.Add(6), k, no(start.Add(5), 2))
	if !c.Find(start.Add(7), k, 2, false, 0).Denied {
		t.Error("a denial from after it is not followed")
	}
	if c.Forget(start.Add(8), k.Hash); c.Find(start.Add(9), k, 2, false, 0).Denied || c.Len() != 0 {
		t.Errorf("%d denials are left", c.Len())
	}
}

// Promise: both memories are bounded, and empty when everything in them is over.
func TestBounds(t *testing.T) {
	var c Cache
	var w Watches
	l := limitOf(t, "five")
	able := func() bool { return true }
	for i := range 2 * WatchesMost {
		k := key(l, fmt.Sprint(i))
		c.Note(start, k, no(start, 1))
		w.Promise(start, 9, k.Hash, able)
	}
	if c.Len() != CacheMost || w.Len() != WatchesMost {
		t.Errorf("%d denials and %d promises, want %d and %d", c.Len(), w.Len(), CacheMost,
			WatchesMost)
	}
	if c.Sweep(start.Add(1)); c.Len() != CacheMost {
		t.Errorf("%d denials are left of %d that are not over", c.Len(), CacheMost)
	}
	for turn := range uint64(watchShards) {
		w.Sweep(start.Add(WatchLasts), turn)
	}
	if c.Sweep(start.Add(2 * time.Minute)); c.Len() != 0 || w.Len() != 0 {
		t.Errorf("%d denials and %d promises are left", c.Len(), w.Len())
	}
	for i := range 2 * WatchesMost {
		if k := key(l, fmt.Sprint(i)); c.Find(start, k, 1, false, 0).Known {
			t.Fatalf("%q is found after its denial was swept", k.Key)
		}
	}
}

// Promise: an owner tells each node that watches a key, but for the one that gave back, and keeps
// what was renewed since.
func TestWatches(t *testing.T) {
	var w Watches
	for _, boot := range []uint64{1, 2, 3} {
		if !w.Promise(start, boot, 42, func() bool { return boot != 3 }) && boot != 3 {
			t.Errorf("%d is promised nothing", boot)
		}
	}
	var told []uint64
	w.Each(start.Add(1), []uint64{42, 43}, 1,
		func(boot, hash uint64) { told = append(told, boot, hash) })
	if fmt.Sprint(told) != "[2 42]" || !w.Watched(42, 1) || w.Watched(43, 0) {
		t.Errorf("told: %v", told)
	}
	w.Promise(start.Add(5), 2, 42, func() bool { return true })
	w.Told(start.Add(1), 1, []uint64{42})
	w.Told(start.Add(1), 2, []uint64{42})
	if w.Watched(42, 2) || !w.Watched(42, 1) ||
		fmt.Sprint(w.Hashes(func(uint64) bool { return true })) != "[42]" {
		t.Errorf("%d promises are left, want that of 2 alone", w.Len())
	}
}

// Promise: a promise to tell lasts WatchLasts and no longer, and watched keys are named in one
// order.
func TestPromisesEnd(t *testing.T) {
	var w Watches
	var want []uint64
	for i := range uint64(40) {
		w.Promise(start, 1, 39-i, func() bool { return true })
		want = append(want, i)
	}
	if got := w.Hashes(func(uint64) bool { return true }); !slices.Equal(got, want) {
		t.Errorf("watched keys are %v", got)
	}
	told := func(at limiter.Instant) (n int) {
		w.Each(at, want, 2, func(boot, hash uint64) { n++ })
		return n
	}
	if n := told(start.Add(WatchLasts - 1)); n != 40 {
		t.Errorf("%d of 40 are told before the end", n)
	}
	if n := told(start.Add(WatchLasts)); n != 0 {
		t.Errorf("%d are told at the end", n)
	}
}

// Promise: denials are in a row if each was asked for while its owner would still have told the end
// of the one before, by the slower clock; a client may repeat a take from before a gap.
func TestRowsOfDenials(t *testing.T) {
	k := key(limitOf(t, "five"), "alice")
	told := start.Add(WatchLasts - WatchLasts/ClockGain)
	for _, late := range []time.Duration{-1, 0, 1} {
		var c Cache
		c.Note(start, k, no(start, 2))
		sent := told.Add(late)
		c.Note(sent, k, no(sent, 2))
		if denied := c.Find(sent+1, k, 2, true, time.Second).Denied; denied != (late <= 0) {
			t.Errorf("asked for %v after the end, in a row: %t", late, denied)
		}
	}
}
