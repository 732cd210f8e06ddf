package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// contradiction is a promise that the protocol of today does not hold in a world, with the reason.
// It is no excuse: when the product holds the promise, the test fails, and the entry has to go.
type contradiction struct {
	promise promise
	reason  string
}

// contradictions are the worlds of testdata/worlds that are expected to be red. All others are
// green.
var contradictions = map[string]contradiction{
	"minority-for-13-minutes": {ready, "two silent of five are evicted after two seconds (R7)"},
	"two-of-four-die": {
		ready,
		"two of three voters are gone at once: the rest waits 650 ms (R11)",
	},
}

// Promise: the worlds that once showed a fault show it as long as it is there, and never again
// after that.
func TestKeptWorlds(t *testing.T) {
	files, err := filepath.Glob("testdata/worlds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no worlds: %v", err)
	}
	unplayed := make(map[string]bool)
	for name := range contradictions {
		unplayed[name] = true
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		delete(unplayed, name)
		t.Run(name, func(t *testing.T) {
			r := readScenario(t, path).Run()
			x, red := contradictions[name]
			switch {
			case !red && r.OK():
			case !red:
				t.Errorf("%s: %s", r.Failure.Promise, r.Failure.Detail)
			case r.OK():
				t.Errorf(
					"every promise holds, where %q was expected to break (%s): take it out of the table",
					promiseWords[x.promise][0],
					x.reason,
				)
			case r.Failure.Promise != promiseWords[x.promise][0]:
				t.Errorf("%q breaks, where %q was expected to (%s): %s",
					r.Failure.Promise, promiseWords[x.promise][0], x.reason, r.Failure.Detail)
			default:
				t.Logf("expected: %s: %s", r.Failure.Promise, r.Failure.Detail)
			}
		})
	}
	for name := range unplayed {
		t.Errorf("%s is in the table, and there is no such file", name)
	}
}

// Extra is measured against the windows that were in force. Three nodes hold windows of ten
// minutes; one dies, and what was charged in the last moments before is admitted once more: exactly
// what clients were told too much.
func TestExtraIsOfWindowsInForce(t *testing.T) {
	text, err := os.ReadFile("testdata/worlds/last-to-join-dies-small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := parsed(t, string(text)).Run()
	sum := r.Limits[0].Sum
	tooMuch := sum.Admitted - 60*1000
	if tooMuch <= 0 || sum.Extra < tooMuch || sum.Extra > tooMuch+sum.Failed {
		t.Errorf(
			"%d admitted where 60 keys have 1000 each, and extra is %d",
			sum.Admitted,
			sum.Extra,
		)
	}
}
