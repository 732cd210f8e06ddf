package sim

import (
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: where nothing fails a level is decided with its owner, unless the client had left less
// time than the takes of its request need, one after the other, and that was over.
func TestTreeOutOfTime(t *testing.T) {
	const far = 60 * time.Millisecond
	w := newWorld(&plan{
		seed: 1, sky: calm, weather: weather{far: far}, sweepEvery: time.Second,
		machines: []machinePlan{{clock: clock{start: 1_700_000_000_000_000_000}}},
	}, nil)
	p, r := w.machines[0].process, &request{}
	judge := &treeJudge{
		common: w.judge.common,
		asked:  map[*request][][]levelTerm{r: {make([]levelTerm, 3), make([]levelTerm, 3)}},
	}
	for _, x := range []struct {
		name           string
		patience, left time.Duration
		i              int
		want           bool
	}{
		// each take goes ten ways, all but an eighth of which is on the way to a decision
		{"too little for the first", 10*far*8/7 - 1, 0, 0, true},
		{"enough for the first", 10 * far * 8 / 7, 0, 0, false},
		{"not enough for both", 20*far*8/7 - 1, 0, 1, true},
		{"enough for both", 20 * far * 8 / 7, 0, 1, false},
		{"time was left", 8 * far, far + 1, 1, false},
		{"an eighth was left, for the way back", 8 * far, far, 1, true},
	} {
		r.patience = x.patience
		h := &hearing{request: r, process: p, deadline: p.now() + limiter.Instant(x.left)}
		if got := judge.outOfTime(h, x.i); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}
