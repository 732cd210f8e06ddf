package sim

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// firstSeeds plays the kept seeds, the first hundred, and their like of other kinds, once for all
// tests that look at what became of them. CI plays three hundred, by the program itself.
var firstSeeds = sync.OnceValue(func() *Summary {
	return Check(KeptSeeds(), 1, certainly, runtime.GOMAXPROCS(0), nil)
})

// All promises of a healthy cluster, and those that hold in spite of loss and outages, in a few
// hundred worlds.
func TestPromisesHold(t *testing.T) {
	s := firstSeeds()
	var text strings.Builder
	if err := s.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if !s.OK() {
		t.Fatal(text.String())
	}
	t.Log("\n" + text.String())

	for p := range promises {
		if name := promiseWords[p][0]; s.Checks[name] == 0 {
			t.Errorf("the promise %q was never looked at", name)
		}
	}
}

// Promise: the same seed gives the same world, the same trace and the same bytes.
func TestSameSeedSameBytes(t *testing.T) {
	n := uint64(100)
	if testing.Short() {
		n = 15
	}
	hashes := make(map[string]uint64)
	var mu sync.Mutex // guards hashes
	var wg sync.WaitGroup
	seeds := make(chan uint64)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range seeds {
				first, second := Run(seed), Run(seed)
				if first.TraceHash != second.TraceHash {
					t.Errorf("seed %d: trace %s, then %s", seed, first.TraceHash, second.TraceHash)
				}
				if a, b := printed(t, first), printed(t, second); !bytes.Equal(a, b) {
					t.Errorf("seed %d printed\n%s\nand then\n%s", seed, a, b)
				}
				mu.Lock()
				if other, twice := hashes[first.TraceHash]; twice {
					t.Errorf("seeds %d and %d have the same trace", seed, other)
				}
				hashes[first.TraceHash] = seed
				mu.Unlock()
			}
		})
	}
	for seed := range n {
		seeds <- seed
	}
	close(seeds)
	wg.Wait()
}

func printed(t *testing.T, r *Report) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReportIsEightyColumnsWide(t *testing.T) {
	n := uint64(30)
	if testing.Short() {
		n = 8
	}
	for seed := range n {
		var b strings.Builder
		if err := Run(seed).WriteText(&b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("seed %d: %d columns: %s", seed, n, line)
			}
		}
	}
}

// A failing seed is a bug report: it says what broke, what came before, and how to see it again, in
// the same words each time.
func TestFailureTellsHowToSeeItAgain(t *testing.T) {
	fail := func() string {
		w := newWorld(draw(3), func(p *process) {
			p.door = disguise{door: p.door, deliver: nil, check: nil}
			p.node.SetLimits(nil)
		})
		w.run()
		return string(printed(t, w.report()))
	}
	text := fail()
	for _, want := range []string{
		"BROKEN at ", "input", "is asked: ", "penstock sim --seed 3\n",
		`"replay": "penstock sim --seed 3"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q:\n%s", want, text)
		}
	}
	if again := fail(); again != text {
		t.Errorf("failed differently:\n%s\nand then\n%s", text, again)
	}
}

func TestSummaryDoesNotDependOnWorkers(t *testing.T) {
	kept := KeptSeeds()[:20]
	if testing.Short() {
		kept = kept[:3]
	}
	text := func(workers int) string {
		var b strings.Builder
		calls := 0
		s := Check(kept, 500, 6, workers, func(*Summary) { calls++ })
		if err := s.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if calls != s.Seeds || s.Seeds != 7+len(kept) {
			t.Errorf("%d workers: %d seeds, %d calls of progress", workers, s.Seeds, calls)
		}
		return b.String()
	}
	if one, five := text(1), text(5); one != five {
		t.Errorf("one worker:\n%s\nfive workers:\n%s", one, five)
	}
}

// A share of an allowance that is too large is a failure, of as many seeds as have a steady share.
func TestAllowancesThatAreTooLargeFail(t *testing.T) {
	for seeds, want := range map[int]int{steadily - 1: 0, steadily: 1} {
		s := &Summary{}
		s.allowed.of[anyCharge], s.allowed.used[lateTwice] = 100, 6
		if s.sumUp(seeds); len(s.Beyond) != want {
			t.Errorf("of %d seeds %v are used too often", seeds, s.Beyond)
		}
	}
}

// What never happens has not been tested: among seeds enough, each kind of fault has to have been
// injected.
func TestKindsThatAreMissingFail(t *testing.T) {
	s := &Summary{Faults: FaultReport{Crashes: 1}}
	if s.sumUp(certainly - 1); !s.OK() {
		t.Errorf("few seeds must not have everything, and %v are missing", s.Missing)
	}
	if s.sumUp(certainly); s.OK() || !slices.Contains(s.Missing, "freezes") ||
		slices.Contains(s.Missing, "crashes") {
		t.Errorf("of many seeds %v are missing", s.Missing)
	}
	var b strings.Builder
	if err := s.WriteText(&b); err != nil || !strings.Contains(b.String(), "FAILED: ") ||
		!strings.Contains(b.String(), "freezes") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}
