package sim

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
)

var (
	agreedSeeds = flag.Int("sim.agreed", 12, "drawn worlds to run in which members agree")
	agreedFrom  = flag.Uint64("sim.agreed.from", 1, "the first of them")
)

// agreedRed are worlds in which members agree and a promise breaks: what has to turn green before
// all worlds are played so.
var agreedRed = map[string]contradiction{
	"minority-for-13-minutes": {ready, "two silent of five are evicted after ten seconds (R7)"},
	"two-of-four-die":         {ready, "two of three voters are gone at once: the rest waits 650 ms (R11)"},
}

// agreedRedSeeds are the same among the kept seeds and the first 300.
var agreedRedSeeds = map[uint64]promise{}

// runAgreed is Run for the same world with members that agree on their list.
func runAgreed(seed uint64) *Report {
	p := draw(seed)
	p.agreed = true
	w := newWorld(p, nil)
	w.run()
	return w.report()
}

// Promise: every promise holds where members agree as well.
func TestAgreedSeeds(t *testing.T) {
	n := uint64(*agreedSeeds)
	var seeds []uint64
	for i := range n {
		seeds = append(seeds, *agreedFrom+i)
		if i < n/4 {
			seeds = append(seeds, HoldSeeds+*agreedFrom+i)
		}
		if i < n/8 {
			seeds = append(seeds, DiskSeeds+*agreedFrom+i, CalendarSeeds+*agreedFrom+i)
		}
	}
	if n >= certainly && *agreedFrom == 1 {
		seeds = append(seeds, KeptSeeds()...)
	}
	held := 0
	for _, seed := range seeds {
		want, red := agreedRedSeeds[seed]
		switch r := runAgreed(seed); {
		case r.OK() && !red, !r.OK() && red && r.Failure.Promise == promiseWords[want][0]:
			held++
		case r.OK():
			t.Errorf("seed %d holds every promise: take it out of the table", seed)
		default:
			t.Errorf("seed %d, %s, %s: %s", seed, r.World.Sky, r.Failure.Promise, r.Failure.Detail)
		}
	}
	t.Logf("%d of %d worlds went as expected", held, len(seeds))
}

// Promise: the worlds that showed a fault of the protocol without agreement hold with it.
func TestAgreedWorlds(t *testing.T) {
	files, err := filepath.Glob("testdata/worlds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no worlds: %v", err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			s := readScenario(t, path)
			s.plan.agreed = true
			x, red := agreedRed[name]
			switch r := s.Run(); {
			case r.OK() && red:
				t.Errorf("every promise holds, where %q was expected to break: take it out", promiseWords[x.promise][0])
			case !r.OK() && (!red || r.Failure.Promise != promiseWords[x.promise][0]):
				t.Errorf("%s: %s", r.Failure.Promise, r.Failure.Detail)
			}
		})
	}
}
