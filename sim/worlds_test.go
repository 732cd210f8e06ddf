package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Promise: the worlds that once showed a fault hold every promise.
func TestKeptWorlds(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/worlds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no worlds: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			if r := readScenario(t, path).Run(); !r.OK() {
				t.Errorf("%s: %s", r.Failure.Promise, r.Failure.Detail)
			}
		})
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
