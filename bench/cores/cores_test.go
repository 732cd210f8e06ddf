package cores

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMeasure: every contestant decides at each number of cores that the machine has, and is
// watched at all.
func TestMeasure(t *testing.T) {
	for _, c := range Contestants {
		points, err := Measure(c, 1000, time.Millisecond)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if len(points) != len(Wanted) || points[0].Speed <= 0 {
			t.Errorf("%s: %+v", c.Name, points)
		}
		for _, p := range points {
			for lock, share := range p.Locks {
				if share < 0 || share > 100 || lock == "" {
					t.Errorf("%s, %d cores: %.1f %% of %q", c.Name, p.Cores, share, lock)
				}
			}
		}
	}
	if _, err := Measure(Contestants[0], 0, time.Second); err == nil {
		t.Error("no keys are taken")
	}
}

// TestLocksAreFound: a lock for which callers wait most of the time is in the profile, by the name
// of the function that holds it.
func TestLocksAreFound(t *testing.T) {
	const callers = 4
	shares, err := watchLocks(callers, func() error {
		var mu sync.Mutex
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				for range 5 {
					holdForAMoment(&mu)
				}
			})
		}
		group.Wait()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	share := shares["penstock/bench/cores.holdForAMoment"]
	if share < 20 || share > 100 { // three of four wait
		t.Errorf("%.1f %% of the time, in %v", share, shares)
	}
}

//go:noinline
func holdForAMoment(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
	time.Sleep(5 * time.Millisecond)
}

func TestParseLocks(t *testing.T) {
	const said = `--- mutex:
cycles/second=1000
sampling period=1
500 3 @ 0x1 0x2
#	0x1	internal/sync.(*Mutex).Unlock+0x5d	/go/mutex.go:194
#	0x2	penstock/limiter.(*Table).Take+0x14e	/table.go:1
#	0x3	penstock/cluster.(*Node).Check+0x14e	/check.go:1
250 1 @ 0x1
#	0x1	penstock/limiter.(*Table).Take+0x20	/table.go:9
2000 1 @ 0x9
#	0x9	runtime.unlock+0x1	/go/lock.go:1
`
	got, err := parseLocks(strings.NewReader(said))
	if err != nil || len(got) != 2 || got["penstock/limiter.(*Table).Take"] != 0.75 ||
		got[runtimes] != 2 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"cycles/second=x", "cycles/second=1\nmany 1 @ 0x1"} {
		if _, err := parseLocks(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestModel: what has no loss is linear with any number of cores; a loss that is all waiting for
// locks is Amdahl's; one that is none of it stays bounded, but not by the universal law.
func TestModel(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f := Model([]Point{{Cores: 1, Speed: 10}, {Cores: 2, Speed: 20}, {Cores: 4}})
	near("no loss", f.Linear(16), 1)
	near("no loss", f.USL(16), 1)

	// a fifth more time with two cores, all of it in locks: 1/6 of 1.2
	f = Model([]Point{
		{Cores: 1, Speed: 12},
		{Cores: 2, Speed: 20, Locks: map[string]float64{"a": 100.0 / 12, "b": 100.0 / 12}},
	})
	near("locks at 2", f.Linear(2), 1/1.2)
	near("locks at 16", f.Linear(16), 1/(1+0.2*15))
	near("locks at 16, USL", f.USL(16), 1/(1+0.2*15))

	f = Model([]Point{{Cores: 1, Speed: 11}, {Cores: 2, Speed: 20}})
	near("lines at 2", f.Linear(2), 1/1.1)
	near("lines at 16", f.Linear(16), 1/(1+0.2*15/16))
	near("lines at 2, USL", f.USL(2), 1/1.1)
	near("lines at 16, USL", f.USL(16), 1/(1+0.05*16*15))
}
