package limiter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"testing"
	"time"
	"unsafe"
)

// The constants of XXH64, by which strangers aim.
const (
	xx1, xx2, xx3 = 0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9
	xx4, xx5      = 0x85ebca77c2b2ae63, 0x27d4eb2f165667c5
)

// inverse is the odd number with which n, odd, has the product 1.
func inverse(n uint64) uint64 {
	x := n
	for range 6 {
		x *= 2 - n*x
	}
	return x
}

// unmixed undoes the last steps of XXH64.
func unmixed(h uint64) uint64 {
	un := func(h uint64, by int) uint64 { // what has become h by h ^= h >> by
		x := h
		for range 64 / by {
			x = h ^ x>>by
		}
		return x
	}
	h = un(h, 32) * inverse(xx3)
	h = un(h, 29) * inverse(xx2)
	return un(h, 33)
}

// collision is the i-th key of 16 bytes that has the hash of another key: the second half is solved
// for it. It takes no search.
func collision(i uint64, hash uint64) string {
	round := func(k uint64) uint64 { return bits.RotateLeft64(k*xx2, 31) * xx1 }
	step := func(h, k uint64) uint64 { return bits.RotateLeft64(h^round(k), 27)*xx1 + xx4 }
	first := step(xx5+16, i)
	before := bits.RotateLeft64((unmixed(hash)-xx4)*inverse(xx1), -27) ^ first // is round(second)
	second := bits.RotateLeft64(before*inverse(xx1), -31) * inverse(xx2)
	key := binary.LittleEndian.AppendUint64(nil, i)
	return string(binary.LittleEndian.AppendUint64(key, second))
}

// Promise: with a seed, keys that a stranger has chosen for their public hash lie all over the
// table. 20,000 of them with one hash, or of which the hash begins alike, are counted each in an
// entry of its own, and a newcomer with that very hash is not denied what others have used up.
func TestChosenKeysLockNobodyOut(t *testing.T) {
	const n, now = 20_000, Instant(1e18)
	const victim = "a newcomer"
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 10, Per: time.Hour}))
	same := func(i int) string { return collision(uint64(i), Hash(victim)) }
	if key := same(7); Hash(key) != Hash(victim) || key == victim {
		t.Fatalf("%q has the hash %x, and not %x: the attack of this test is none", key, Hash(key),
			Hash(victim))
	}
	var alike []string
	began := time.Now()
	for i := 0; len(alike) < n; i++ {
		if key := strconv.Itoa(i); Hash(key)>>58 == Hash(victim)>>58 {
			alike = append(alike, key)
		}
	}
	t.Logf("%d keys for one of 64 shards were found in %v", n, time.Since(began))
	for _, attack := range []struct {
		name string
		key  func(int) string
	}{{"one hash", same}, {"one shard", func(i int) string { return alike[i] }}} {
		for _, seed := range []uint64{0, 1, 0x1234567890abcdef} {
			table := NewTable(TableConfig{Bytes: 8 << 20, Shards: 64, Seed: seed})
			for i := range n {
				key := attack.key(i)
				table.Take(now, l, key, Hash(key), 10)
			}
			s := table.Stats()
			d := table.Take(now, l, victim, Hash(victim), 1)
			said := fmt.Sprintf("%s, seed %x: %d of %d keys have entries, %d share cells, the "+
				"newcomer: %v",
				attack.name, seed, s.Keys, n, s.Overflowed, d.Allowed)
			t.Log(said)
			if seed != 0 && (s.Keys != n || s.Overflowed != 0 || s.Evicted != 0 || !d.Allowed ||
				d.Remaining != 9) {
				t.Error(said)
			}
		}
	}
}

// Promise: the place of a key depends on all of its bytes, on its length and on the seed, and keys
// spread evenly.
func TestPlaces(t *testing.T) {
	p, q := newPlacement(1, 58, 64), newPlacement(2, 58, 64)
	seen := map[uint64]string{}
	for n := range 70 {
		b := make([]byte, n)
		for i := -1; i < n; i++ {
			if i >= 0 {
				b[i] = 1
			}
			key := string(b)
			if i >= 0 {
				b[i] = 0
			}
			at := p.of(key, 0)
			if other, taken := seen[at]; taken {
				t.Fatalf("%q and %q lie at one place", key, other)
			}
			seen[at] = key
			if at == q.of(key, 0) && n > 0 {
				t.Errorf("%q lies at one place under two seeds", key)
			}
		}
	}
	var counts [64]int
	for i := range 64_000 {
		counts[p.of(strconv.Itoa(i), 0)>>58]++
	}
	for shard, n := range counts {
		if n < 850 || n > 1150 {
			t.Errorf("shard %d has %d of 64,000 keys; 1000 are even", shard, n)
		}
	}
	public := newPlacement(0, 58, 64)
	if at := public.of("key", 42); at != 42 {
		t.Errorf("without a seed a key lies at %d, and its public hash is 42", at)
	}
}

// Promise: where a key lies depends on its bytes alone, and not on what lies beside them in memory.
func TestPlaceOfAKeyInABuffer(t *testing.T) {
	p := newPlacement(1, 58, 64)
	for n := range 70 {
		var places [2]uint64
		for i := range places {
			buffer := bytes.Repeat([]byte{byte('x' + i)}, 200)
			key := buffer[64 : 64+n]
			for j := range key {
				key[j] = byte(j)
			}
			places[i] = p.of(unsafe.String(unsafe.SliceData(key), n), 0)
		}
		if places[0] != places[1] {
			t.Errorf("a key of %d bytes lies at two places", n)
		}
	}
}
