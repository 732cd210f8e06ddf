package limiter_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"penstock/limiter"
)

// TestKeys: a walk by pages, with the table growing, shrinking and losing keys between them, sees
// each key with the prefix that was there all the while once, under each of its limits, with what
// it has left; and no other twice.
func TestKeys(t *testing.T) {
	for seed := range int64(6) {
		rnd := rand.New(rand.NewSource(seed))
		table := limiter.NewTable(limiter.TableConfig{Bytes: 16 << 20, Shards: 1 << (seed % 4)})
		one, two := mustNew(t, everyKind[0]), mustNew(t, everyKind[2])
		key := func(i int) (string, uint64) {
			k := fmt.Sprintf("%c/%0*d", 'a'+i%3, 1+i%60, i)
			if i%50 == 0 {
				return k, uint64(i % 1000) // some hashes have several keys
			}
			return k, limiter.Hash(k)
		}
		const keys = 12_000
		take := func(i int, l *limiter.Limit) {
			k, hash := key(i)
			table.Take(start, l, k, hash, 1+int64(i%4))
			table.Take(start, l.Share(3), k, hash, 1)
		}
		for i := range keys {
			take(i, one)
			if i%5 == 0 {
				take(i, two)
			}
		}
		seen := map[string]int{}
		var at limiter.Cursor
		for page, more := 0, true; more; page++ {
			most, got := 1+rnd.Intn(900), 0
			at, more = table.Keys(start, "b/", at, most,
				func(l *limiter.Limit, k string, d limiter.Decision) {
					got++
					seen[l.Name+" "+k]++
					if !strings.HasPrefix(k, "b/") {
						t.Fatalf("%q has another prefix", k)
					}
					// nobody holds a lock
					table.Take(start, one, fmt.Sprint("from within ", k), 1<<63, 0)
					if strings.Contains(k, "later") {
						return
					}
					var i int
					fmt.Sscan(strings.TrimLeft(k[2:len(k)-1], "0")+k[len(k)-1:], &i)
					if want := 5 - int64(1+i%4); d.Remaining != want {
						t.Fatalf("%s of %s: %+v, want %d to remain", k, l.Name, d, want)
					}
				})
			if got > most+24 {
				t.Fatalf("page %d has %d keys, want %d or a few more", page, got, most)
			}
			for range rnd.Intn(300) { // others come and go
				k := fmt.Sprintf("b/later-%d", rnd.Intn(5000))
				if rnd.Intn(3) == 0 {
					table.Reset(start, one, k, limiter.Hash(k))
				} else {
					table.Take(start, one, k, limiter.Hash(k), 1)
				}
			}
		}
		if s := table.Stats(); s.Overflowed != 0 {
			t.Fatalf("no room for all: %+v", s)
		}
		for i := range keys {
			k, _ := key(i)
			want := map[bool]int{true: 1}[strings.HasPrefix(k, "b/")]
			if seen["gcra "+k] != want || i%5 == 0 && seen["fixed "+k] != want {
				t.Fatalf("%s is seen %d times and %d times", k, seen["gcra "+k], seen["fixed "+k])
			}
		}
		for k, n := range seen {
			if n != 1 || strings.Contains(k, "\x00") {
				t.Fatalf("%s is seen %d times", k, n)
			}
		}
	}
}

// TestKeysEnds: an empty table has no keys, one without the prefix is walked in calls of bounded
// length, and asking for none returns none.
func TestKeysEnds(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 64 << 20})
	l := mustNew(t, everyKind[0])
	walk := func(prefix string, most int) (keys []string, calls int) {
		var at limiter.Cursor
		for more := true; more && calls < 1000; calls++ {
			at, more = table.Keys(start, prefix, at, most,
				func(_ *limiter.Limit, k string, _ limiter.Decision) {
					keys = append(keys, k)
				})
		}
		return keys, calls
	}
	if keys, calls := walk("", 10); len(keys) != 0 || calls > 2 {
		t.Errorf("%d keys of an empty table in %d calls", len(keys), calls)
	}
	for i := range 200_000 {
		table.Take(start, l, fmt.Sprint(i), limiter.Hash(fmt.Sprint(i)), 1)
	}
	if keys, calls := walk("12345", 1<<30); !slices.Equal(slices.Sorted(slices.Values(keys)),
		[]string{
			"12345", "123450", "123451", "123452", "123453", "123454", "123455", "123456",
			"123457", "123458", "123459",
		}) || calls < 3 || calls > 20 {
		t.Errorf("%v in %d calls", keys, calls)
	}
	if keys, _ := walk("1", 0); len(keys) != 0 {
		t.Errorf("%d keys where none is wanted", len(keys))
	}
	at, more := table.Keys(start, "", limiter.Cursor{Part: 1 << 30}, 10,
		func(*limiter.Limit, string, limiter.Decision) {
			t.Error("a key behind the last")
		})
	if more {
		t.Errorf("more behind the last: %v", at)
	}
}
