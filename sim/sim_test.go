package sim

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// All promises of a healthy cluster, and those that hold in spite of loss and outages, in a few hundred worlds.
func TestPromisesHold(t *testing.T) {
	n := 300
	if testing.Short() {
		n = 40
	}
	s := Check(1, n, runtime.GOMAXPROCS(0), nil)
	var text strings.Builder
	if err := s.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if !s.OK() {
		t.Fatal(text.String())
	}
	t.Log("\n" + text.String())

	// What never happens cannot have been tested.
	for what, count := range map[string]int{
		"calm worlds": s.Skies[string(calm)], "lossy worlds": s.Skies[string(lossy)], "worlds with outages": s.Skies[string(outage)],
		"lost messages": s.Messages.Lost, "doubled messages": s.Messages.Doubled, "overtaken messages": s.Messages.Overtaken,
		"messages to nobody": s.Messages.Refused, "calls that timed out": s.Messages.TimedOut,
		"crashes": s.Faults.Crashes, "freezes": s.Faults.Freezes, "cuts": s.Faults.Cuts,
		"declared deaths": s.Faults.Deaths, "views": s.Faults.Views,
		"admissions": s.Admitted, "denials": s.Denied, "degraded decisions": s.Degraded,
	} {
		if count == 0 {
			t.Errorf("there were no %s in %d worlds", what, n)
		}
	}
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
	for seed := range n {
		first, second := Run(seed), Run(seed)
		if first.TraceHash != second.TraceHash {
			t.Errorf("seed %d: trace %s, then %s", seed, first.TraceHash, second.TraceHash)
		}
		if a, b := printed(t, first), printed(t, second); !bytes.Equal(a, b) {
			t.Errorf("seed %d printed\n%s\nand then\n%s", seed, a, b)
		}
		if other, twice := hashes[first.TraceHash]; twice {
			t.Errorf("seeds %d and %d have the same trace", seed, other)
		}
		hashes[first.TraceHash] = seed
	}
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

// A failing seed is a bug report: it says what broke, what came before, and how to see it again, in the same words
// each time.
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
	for _, want := range []string{"BROKEN at ", "input", "is asked: ", "penstock sim --seed 3\n", `"replay": "penstock sim --seed 3"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q:\n%s", want, text)
		}
	}
	if again := fail(); again != text {
		t.Errorf("failed differently:\n%s\nand then\n%s", text, again)
	}
}

func TestSummaryDoesNotDependOnWorkers(t *testing.T) {
	text := func(workers int) string {
		var b strings.Builder
		calls := 0
		s := Check(500, 6, workers, func(*Summary) { calls++ })
		if err := s.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if calls != s.Seeds || s.Seeds != 6+len(KeptSeeds()) {
			t.Errorf("%d workers: %d seeds, %d calls of progress", workers, s.Seeds, calls)
		}
		return b.String()
	}
	if one, five := text(1), text(5); one != five {
		t.Errorf("one worker:\n%s\nfive workers:\n%s", one, five)
	}
}
