package limiters

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/bench/contest"
)

// TestAllLimit: each contestant does the work that it is measured for: 1000 of 1200 requests at
// once are admitted, and those of another key are another thousand.
func TestAllLimit(t *testing.T) {
	for _, c := range Contestants {
		t.Run(c.Name, func(t *testing.T) {
			running, err := c.Start(2)
			if err != nil {
				t.Fatal(err)
			}
			defer running.Stop()
			take := inMessages(running)
			for _, key := range []string{"alice", "bob"} {
				admitted := 0
				for range 1200 {
					admitted += take([]string{key})
				}
				if c.Name == Nothing && admitted != 1200 || c.Name != Nothing && admitted != Limit {
					t.Errorf("%s: %d of 1200 admitted", key, admitted)
				}
			}
		})
	}
}

// TestKeys: keys have 16 to 40 bytes, no two are the same, and draws are among them.
func TestKeys(t *testing.T) {
	const keys = 10_000
	known, bytes := map[string]int{}, 0
	for i := range keys {
		key := newKey(uint64(i))
		if len(key) < minKey || len(key) > maxKey {
			t.Fatalf("key %d is %q", i, key)
		}
		known[key] = i
		bytes += len(key)
	}
	if len(known) != keys || math.Abs(float64(bytes)/keys-28) > 0.2 {
		t.Errorf("%d different keys of %d, %d bytes", len(known), keys, bytes)
	}
	for _, zipf := range []bool{true, false} {
		d := newDraws(keys, zipf)
		counts := make([]int, keys)
		for i := range drawn {
			k, found := known[d.key(i)]
			if !found {
				t.Fatalf("draw %d is %q, no key", i, d.key(i))
			}
			counts[k]++
		}
		if d.key(drawn+3) != d.key(3) {
			t.Error("draws do not begin again")
		}
		// By Zipf (s = 1.01, v = 1) rank 0 comes 1/Σ k^−1.01 of the time, uniformly all come alike.
		sum := 0.0
		for k := range keys {
			sum += math.Pow(float64(k+1), -1.01)
		}
		want := drawn / sum
		if !zipf {
			want = drawn / keys
		}
		if got := float64(slices.Max(counts)); got < 0.95*want || got > 1.5*want {
			t.Errorf("zipf %v: the most frequent key comes %v times, want about %.0f", zipf, got,
				want)
		}
	}
}

// TestMeasure: of each contestant there is every figure that a table shows.
func TestMeasure(t *testing.T) {
	for _, c := range Contestants {
		figures, err := Measure(c, Plan{
			Keys: 100_000, Time: time.Millisecond,
			Collector: 4 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(c.Name, err)
		}
		for _, table := range Tables {
			x, measured := figures[table.Figure]
			if wanted := c.Name != Nothing || ofAll(table); measured != wanted || math.IsNaN(x) ||
				math.IsInf(x, 0) {
				t.Errorf("%s: %s is %v (measured: %v)", c.Name, table.Figure, x, measured)
			}
		}
	}
}

// ofAll reports whether a table shows something that also no limiter has.
func ofAll(t contest.Table) bool {
	return t.Figure == allocations || strings.Contains(t.Figure, "ns per decision")
}

// BenchmarkTake is a decision on a key that the limiter knows, by each contestant in turn: go test
// -bench . -cpu 1,2
func BenchmarkTake(b *testing.B) {
	for _, exponent := range []int{3, 4, 5, 6, 7} {
		keys := int(math.Pow10(exponent))
		for _, dist := range []string{"zipf", "uniform"} {
			stream := newDraws(keys, dist == "zipf")
			for _, c := range Contestants {
				b.Run(fmt.Sprintf("keys=1e%d/dist=%s/limiter=%s", exponent, dist, c.Name),
					func(b *testing.B) {
						benchmarkTake(b, c, keys, stream)
					})
			}
		}
	}
}

func benchmarkTake(b *testing.B, c Contestant, keys int, stream *draws) {
	running, err := c.Start(keys)
	if err != nil {
		b.Fatal(err)
	}
	defer running.Stop()
	take := running.Worker()
	for i := range keys {
		take(newKey(uint64(i)))
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		take := inMessages(running)
		var message [MessageSize]string
		for i := 0; pb.Next(); {
			n := 0
			for more := true; more && n < len(message); more = n < len(message) && pb.Next() {
				message[n] = stream.key(i)
				n, i = n+1, i+1
			}
			take(message[:n])
		}
	})
}
