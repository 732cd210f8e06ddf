package limiter_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"penstock/limiter"
)

// draws is a stream of keys by number. Their bytes are composed one after the other in the same
// place, as requests come out of a network buffer, so what is measured does not include fetching a
// million keys from memory.
type draws []uint32

const drawn = 1 << 20

func newDraws(keys int, dist string) draws {
	rnd := rand.New(rand.NewSource(1))
	draw := func() uint64 { return uint64(rnd.Int63n(int64(keys))) }
	if dist == "zipf" {
		draw = rand.NewZipf(rnd, 1.01, 1, uint64(keys-1)).Uint64
	}
	d := make(draws, drawn)
	for i := range d {
		d[i] = uint32(draw() * 0x9e3779b1 % uint64(keys)) // neighbours in rank are none in number
	}
	return d
}

// keyBuffer composes keys of 16 to 40 bytes.
type keyBuffer [40]byte

// key is key number i. It is gone when the next one is composed.
func (b *keyBuffer) key(i uint32) string {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	binary.LittleEndian.PutUint64(b[0:], x)
	return unsafe.String(&b[0], 16+x>>32%25)
}

var benchLimits = []limiter.Spec{
	{Name: "bench", Algorithm: limiter.GCRA, Limit: 1000, Per: time.Hour},
	{Name: "bench", Algorithm: limiter.FixedWindow, Limit: 1000, Per: time.Hour},
	{Name: "bench", Algorithm: limiter.SlidingWindow, Limit: 1000, Per: time.Hour},
}

// BenchmarkTake is the decision on one request. All keys are in the table, 1000 an hour each, and a
// microsecond passes between two requests. Keys are made and hashed 256 at a time with the clock
// stopped, so ns/op is the decision's own. The median of these runs is reported too, because other
// load hardly changes it. Each request comes alone, or the table is told of all 256 first
// (Table.Expect, with its cost included).
func BenchmarkTake(b *testing.B) {
	for _, spec := range benchLimits {
		for exponent := 3; exponent <= 7; exponent++ {
			keys := int(math.Pow10(exponent))
			for _, dist := range []string{"zipf", "uniform"} {
				for _, come := range []string{"alone", "expected"} {
					name := fmt.Sprintf("alg=%v/keys=1e%d/dist=%s/come=%s", spec.Algorithm,
						exponent, dist, come)
					b.Run(name, func(b *testing.B) {
						benchTake(b, spec, keys, dist, come == "expected")
					})
				}
			}
		}
	}
}

// prepared are keys with their hashes, as a server has them that has just read a message.
type prepared struct {
	keys   [256]keyBuffer
	key    [256]string
	hashes [256]uint64
}

func (p *prepared) fill(stream draws, from int) {
	for i := range p.keys {
		p.key[i] = p.keys[i].key(stream[(from+i)%drawn])
		p.hashes[i] = limiter.Hash(p.key[i])
	}
}

func benchTake(b *testing.B, spec limiter.Spec, keys int, dist string, expected bool) {
	l, err := limiter.New(spec)
	if err != nil {
		b.Fatal(err)
	}
	t := limiter.NewTable(limiter.TableConfig{
		Bytes: max(limiter.DefaultBytes, int64(keys)*110),
		Seed:  1,
	})
	stream := newDraws(keys, dist)
	start := limiter.Instant(1_700_000_000e9)
	buf := &keyBuffer{}
	keyBytes := 0
	for i := range keys {
		key := buf.key(uint32(i))
		keyBytes += len(key)
		t.Take(start, l, key, limiter.Hash(key), 1)
	}
	if got := t.Stats().Keys; got != keys {
		b.Fatalf("%d keys in the table, want %d", got, keys)
	}
	var mu sync.Mutex
	var runs []time.Duration
	workers, allowed := 0, 0
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		p := new(prepared)
		mu.Lock()
		i := workers * drawn / 2
		workers++
		mu.Unlock()
		own := make([]time.Duration, 0, b.N/len(p.keys)+1)
		now, yes := start, 0
		for pb.Next() {
			p.fill(stream, i)
			began := time.Now()
			if expected {
				for i, hash := range p.hashes {
					t.Expect(l, p.key[i], hash)
				}
			}
			n := 0
			for ; n < len(p.keys) && (n == 0 || pb.Next()); n++ {
				if t.Take(now, l, p.key[n], p.hashes[n], 1).Allowed {
					yes++
				}
				now += 1000
			}
			if i += n; n == len(p.keys) {
				own = append(own, time.Since(began))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		runs, allowed = append(runs, own...), allowed+yes
	})
	b.StopTimer()
	s := t.Stats()
	if len(runs) > 0 {
		slices.Sort(runs)
		sum := time.Duration(0)
		for _, d := range runs {
			sum += d
		}
		each := float64(len(prepared{}.keys) * workers)
		b.ReportMetric(float64(sum)/float64(len(runs))/each, "ns/op")
		b.ReportMetric(float64(runs[len(runs)/2])/each, "median-ns/op")
	}
	b.ReportMetric(float64(s.Bytes)/float64(s.Keys), "bytes/key")
	b.ReportMetric(float64(s.Bytes-int64(keyBytes))/float64(s.Keys), "bytes-beyond-key/key")
	b.ReportMetric(100*float64(allowed)/float64(b.N), "%allowed")
}

// BenchmarkLine is about the least that a decision can cost with a million keys, in any table. The
// key is composed and hashed, and one word of a cache line of its own is changed, in as much memory
// as the table takes.
func BenchmarkLine(b *testing.B) {
	for _, dist := range []string{"zipf", "uniform"} {
		b.Run("keys=1e6/dist="+dist, func(b *testing.B) {
			type line [8]uint64
			lines := make([]line, 1_260_000)
			for i := range lines {
				lines[i][0] = 1
			}
			stream := newDraws(1e6, dist)
			buf := &keyBuffer{}
			for i := 0; b.Loop(); i++ {
				at, _ := bits.Mul64(limiter.Hash(buf.key(stream[i%drawn])), uint64(len(lines)))
				lines[at][0]++
			}
		})
	}
}

// BenchmarkKey is what a request costs before it comes to a table: its key is composed and hashed.
func BenchmarkKey(b *testing.B) {
	stream := newDraws(1e6, "zipf")
	buf := &keyBuffer{}
	var sum uint64
	for i := 0; b.Loop(); i++ {
		sum += limiter.Hash(buf.key(stream[i%drawn]))
	}
	_ = sum
}

// BenchmarkChanged is one charged key being told, of the 10,000 that were charged since the last
// time.
func BenchmarkChanged(b *testing.B) {
	now := limiter.Instant(1e18)
	// never denies
	l, err := limiter.New(limiter.Spec{
		Name: "changed", Algorithm: limiter.GCRA, Limit: 1 << 40,
		Per: time.Hour,
	})
	if err != nil {
		b.Fatal(err)
	}
	table := limiter.NewTable(limiter.TableConfig{})
	table.Track()
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-of-%09d-in-all", i*7919)
	}
	told := 0
	for told < b.N {
		b.StopTimer()
		for _, k := range keys {
			table.Take(now, l, k, limiter.Hash(k), 1)
		}
		b.StartTimer()
		table.Changed(now, func(uint64, limiter.Entry) { told++ })
	}
}

// BenchmarkScan is a look through a table of 100,000 keys that copies a quarter of them, as for a
// node that joins three.
func BenchmarkScan(b *testing.B) {
	now := limiter.Instant(1e18)
	l, err := limiter.New(limiter.Spec{
		Name: "copied", Algorithm: limiter.GCRA, Limit: 10,
		Per: 24 * time.Hour,
	})
	if err != nil {
		b.Fatal(err)
	}
	table := limiter.NewTable(limiter.TableConfig{})
	for i := range 100_000 {
		k := fmt.Sprintf("account:%09d", i)
		table.Take(now, l, k, limiter.Hash(k), 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range table.Parts() {
			table.Scan(now, i, func(hash uint64) bool { return hash%4 == 0 },
				func(uint64, limiter.Entry) {})
		}
	}
}
