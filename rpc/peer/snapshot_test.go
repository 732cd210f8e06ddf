package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/clock"
	"penstock/rpc/rpctest"
)

func snapshotOf(t testing.TB, table *limiter.Table) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := WriteSnapshot(&b, &cluster.FileHead{}, table, limiter.NewLedger(table, nil),
		clock.New()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// chargedTable has k keys under each of three limits, and a share, which is not for a file.
func chargedTable(t testing.TB, k int) *limiter.Table {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 64 << 20})
	now := clock.New().Now()
	for _, s := range []limiter.Spec{
		{
			Name: "window", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Hour,
			Anchor: limiter.FirstHit,
		},
		{Name: "log", Algorithm: limiter.SlidingLog, Limit: 50, Per: time.Hour},
		{
			Name: "everywhere", Algorithm: limiter.GCRA, Limit: 10, Burst: 10, Per: time.Hour,
			Consistency: limiter.Replicated,
		},
	} {
		l := rpctest.MustLimit(s)
		for i := range k {
			key := fmt.Sprint("key-", i)
			table.Take(now, l, key, limiter.Hash(key), 2)
		}
		if s.Name == "window" {
			table.Take(now, l.Share(3), "alone", limiter.Hash("alone"), 1)
		}
	}
	return table
}

// restored is what a table knows after b was read into it.
func restored(t testing.TB, b []byte) (table *limiter.Table, err error) {
	table = limiter.NewTable(limiter.TableConfig{Bytes: 64 << 20})
	clock := clock.New()
	err = ReadSnapshot(bytes.NewReader(b), func(written time.Time, m *cluster.Move) {
		entries := m.Entries
		if age := time.Since(written); age < 0 || age > time.Hour {
			t.Errorf("written %v ago", age)
		}
		for i := range entries {
			if !table.Import(clock.Now(), &entries[i], false) {
				t.Errorf("%q is broken", entries[i].Key)
			}
		}
	})
	return table, err
}

// Promise: what is written is read, in bounded pieces.
func TestSnapshot(t *testing.T) {
	const keys = 3000
	table, err := restored(t, snapshotOf(t, chargedTable(t, keys)))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	table.Each(clock.New().Now(), func(l *limiter.Limit, key string, _ []int64,
		d limiter.Decision,
	) bool {
		seen[l.Name]++
		if used := d.Limit - d.Remaining; used != 2 {
			t.Errorf("%s of %q: %d are charged instead of 2", l.Name, key, used)
		}
		return true
	})
	if fmt.Sprint(seen) != fmt.Sprint(map[string]int{
		"window": keys, "log": keys, "everywhere": keys,
	}) {
		t.Errorf("entries by limit: %v", seen)
	}
}

// Promise: … holds too, with what is left of their time, their holder and what became of them, in
// bounded pieces.
func TestSnapshotOfHolds(t *testing.T) {
	const holds = 2500
	table := limiter.NewTable(limiter.TableConfig{Bytes: 64 << 20})
	book, clock := limiter.NewLedger(table, nil), clock.New()
	l := rpctest.MustLimit(limiter.Spec{
		Name: "window", Algorithm: limiter.FixedWindow, Limit: 1 << 20, Per: time.Hour,
		Anchor: limiter.FirstHit,
	})
	now, hash := clock.Now(), limiter.Hash("key")
	for i := range uint64(holds) {
		r := limiter.HoldRequest{
			ID: limiter.HoldID{Origin: 1, Sequence: i}, Limit: l, Key: "key", Hash: hash, Units: 3,
			TTL: time.Hour, Holder: "me", Charge: i%2 == 0, Client: i + 5,
		}
		if !book.Open(now, []limiter.HoldRequest{r}, make([]limiter.Decision, 1)) {
			t.Fatal("refused")
		}
	}
	book.Settle(now, limiter.HoldID{Origin: 1, Sequence: 7}, hash, "", 2)
	var b bytes.Buffer
	head := cluster.FileHead{
		Others: []string{"n2", "n3"}, Secret: 77,
		Lack: []cluster.Lack{{Of: []uint16{1, 4092}, Age: 3}, {Of: []uint16{7}, Age: 2}},
	}
	if n, err := WriteSnapshot(&b, &head, table, book, clock); err != nil || n != holds+1 {
		// and the entry of what was charged
		t.Fatalf("%d are written, %v", n, err)
	}
	records, seen := 0, map[uint64]bool{}
	var again cluster.FileHead
	err := ReadSnapshot(&b, func(_ time.Time, m *cluster.Move) {
		list := m.Holds
		if AddToHead(&again, m); len(list) == 0 {
			return
		}
		records++
		for _, h := range list {
			want := limiter.Hold{
				ID: h.ID, Limit: h.Limit, Key: "key", Holder: "me", Units: 3,
				Charge: h.ID.Sequence%2 == 0, State: limiter.HoldOpen, Client: h.ID.Sequence + 5,
			}
			if h.ID.Sequence == 7 {
				want.Units, want.Used, want.State = 0, 2, limiter.HoldSettled
			}
			if h.Hold != want || h.ID.Origin != 1 || h.Limit.Name != "window" ||
				h.Left > time.Hour || h.Left < 59*time.Minute || seen[h.ID.Sequence] {
				t.Fatalf("%+v", h)
			}
			seen[h.ID.Sequence] = true
		}
	})
	if err != nil || len(seen) != holds || records != 3 {
		t.Errorf("%d holds in %d records, %v", len(seen), records, err)
	}
	if !reflect.DeepEqual(again, head) {
		t.Errorf("the head %+v comes back as %+v", head, again)
	}
}

// Promise: a file that is cut off or damaged anywhere is said to be, with the place; what was in
// order before is taken.
func TestDamagedSnapshots(t *testing.T) {
	whole := snapshotOf(t, chargedTable(t, 3))
	for n := range whole {
		if _, err := restored(t, whole[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are read as if they were all", n, len(whole))
		} else if errors.Is(err, ErrForeign) {
			t.Fatalf("the first %d bytes are somebody else's: %v", n, err)
		}
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		if _, err := restored(t, b); err == nil {
			t.Fatalf("byte %d is wrong and nobody says so", i)
		}
	}
	table, err := restored(t, whole[:len(whole)-1])
	if err == nil || !strings.Contains(err.Error(), "ends in the middle of the record at byte") ||
		table.Stats().Keys != 9 {
		t.Errorf("without its last byte: %v, %d keys", err, table.Stats().Keys)
	}
}

func TestForeignSnapshots(t *testing.T) {
	for _, x := range []struct{ file, want string }{
		{"#!/bin/sh\n# a long script of somebody", `it begins with "#!/bin/sh\n# a long `},
		{"penstock counters 2\nwhatever", `it has form "2", and this release knows 1`},
	} {
		err := ReadSnapshot(strings.NewReader(x.file), func(time.Time, *cluster.Move) {
			t.Error("read")
		})
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%.20q: %v", x.file, err)
		}
	}
}

type full struct{ left int }

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestSnapshotSaysThatTheDiskIsFull(t *testing.T) {
	table := chargedTable(t, 3000)
	for _, room := range []int{0, 100_000} {
		if _, err := WriteSnapshot(&full{room}, &cluster.FileHead{}, table,
			limiter.NewLedger(table, nil), clock.New()); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("with room for %d bytes: %v", room, err)
		}
	}
}

// mendSums makes the checksums of the records of b right, so that what the records say is read.
func mendSums(b []byte) {
	for rest := b[min(len(snapshotTitle), len(b)):]; len(rest) > recordHead; {
		size := int64(binary.LittleEndian.Uint32(rest))
		if size > int64(len(rest)-recordHead) {
			return
		}
		body := rest[recordHead : recordHead+size]
		binary.LittleEndian.PutUint32(rest[4:], crc32.Checksum(body, castagnoli))
		rest = rest[recordHead+size:]
	}
}

// Promise: no file makes a node crash, and memory is bounded by the largest record there may be.
func FuzzSnapshot(f *testing.F) {
	rpctest.MinimizeBriefly()
	whole := snapshotOf(f, chargedTable(f, 1))
	for _, mend := range []bool{false, true} {
		f.Add(whole, mend)
		f.Add(whole[:len(whole)/2], mend)
		f.Add([]byte(snapshotTitle), mend)
	}
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		if mend {
			b = bytes.Clone(b)
			mendSums(b)
		}
		table := limiter.NewTable(limiter.TableConfig{Bytes: limiter.MinBytes, Shards: 1})
		_ = ReadSnapshot(bytes.NewReader(b), func(_ time.Time, m *cluster.Move) {
			entries := m.Entries
			for i := range entries {
				table.Import(0, &entries[i], false)
			}
		})
	})
}
