package rpc

import (
	"fmt"
	"strings"
	"testing"
)

// steps of a script, by their first bytes.
const (
	stepPass     = 0
	stepReset    = 2
	stepLook     = 3
	stepAgain    = 4
	stepSpoil    = 5
	stepList     = 6
	stepTogether = 7
	stepFaulty   = 8
	stepHold     = 9
	stepTake     = 10
)

// doorSeeds are scripts that reach each door and each check of FuzzDoorRequests.
func doorSeeds() (seeds [][]byte) {
	for m := range meters {
		item := byte(m * keysOfMeter)
		for w := range doorWays {
			if a := (asking{meter: meters[m]}); !doorWays[w].fits(&a) {
				continue
			}
			way := byte(w)
			seeds = append(seeds, costSeed(item, way), spoilSeed(item, way, 0, 1, 2),
				spoilSeed(item, way, 3, 0, 4), []byte{
					stepList, 2, item, 0, way, item, 3, item + 1, 0, item, 2,
					stepTogether, way, 1, item, 2, item + 1, 3, item, 3, stepPass, 1,
					stepTogether, way, 2, item, 0, item + 1, 0, item, 1,
					stepReset, 1, item, way, item + 1,
				})
			var faulty []byte
			for kind := range byte(wrongs - 1) {
				faulty = append(faulty, stepFaulty, kind+8*way, item, 2, way, item, 0,
					stepFaulty, kind+128+64, item, 2, way, item, 0)
			}
			seeds = append(seeds, faulty)
		}
	}
	for m := range byte(5) {
		seeds = append(seeds, []byte{
			stepTake, m * 2, 0, 0, stepHold, m * 2, 3, 0, 0, stepHold, m * 2, 2, 1, 1,
			stepHold, m * 2, 8, 2, 1, stepPass, 3, stepHold, m * 2, 4, 3, 2, stepTake, m * 2, 3, 3,
		})
	}
	return seeds
}

// costSeed takes all kinds of costs of one key by one way.
func costSeed(item, way byte) (script []byte) {
	for _, cost := range []byte{0, 1, 3, 8, 9, 14, 15, 2, 13} {
		script = append(script, stepTake, item|128, cost, way, stepAgain, 0)
	}
	return append(script, stepPass, way, stepLook, item, 2, way, stepTake, item|32, 3, way,
		stepTake, item|64, 8, way, stepTake, item, 12, way, stepPass, 7, stepTake, item, 5, way)
}

// spoilSeed changes bytes of requests by one way, in some of the kinds of changes.
func spoilSeed(item, way byte, kinds ...byte) []byte {
	script := []byte{stepTake, item, 2, way}
	for i, kind := range kinds {
		script = append(script, stepSpoil, item, 2, way, kind, 250-60*byte(i), way)
	}
	return script
}

// Promise: the seeds of FuzzDoorRequests have each way answer each limit that it has words for, and
// refuse what is wrong; they repeat, settle, and change bytes.
func TestDoorSeedsReachEachDoor(t *testing.T) {
	h := newHouse(t)
	defer h.close()
	seen := map[string]bool{}
	for i, seed := range doorSeeds() {
		v := newVisit(h, i+1, seed)
		v.log = func(format string, a ...any) {
			what, _, _ := strings.Cut(format, " ")
			if len(a) > 2 {
				if replies, said := a[2].([]reply); said {
					answered := len(replies) > 0 && !replies[0].fault
					what = fmt.Sprintf("%s %s %v", what, a[0], answered)
				}
			}
			seen[what] = true
		}
		if err := v.play(); err != nil {
			t.Fatalf("seed %d: %v", i, err)
		}
	}
	want := []string{"reserve", "settle", "repeat"}
	for _, w := range doorWays {
		want = append(want, "asked "+w.name+" true", "asked "+w.name+" false",
			"spoiled "+w.name+" false")
	}
	for _, what := range append(want, "spoiled HTTP query true") {
		if !seen[what] {
			t.Errorf("never: %s", what)
		}
	}
}
