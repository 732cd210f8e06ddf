package main

import (
	"fmt"
	"path/filepath"
	"time"

	"penstock/sim"
)

// replayPage is what the page of policy replay says, without its plots.
type replayPage struct {
	log, limit string // the limit is empty if rules decide
	headline   string
	changed    *changed     // what the log says itself; nil: nothing
	tables     [][][]string // each with its heads in the first row
}

// writePage writes the page that --html asks for.
func (v *policyReplayVerb) writePage(p replayPage, line *timeline) error {
	if v.HTML == "" {
		return nil
	}
	by := "the rules of " + filepath.Base(v.Limits)
	if p.limit != "" {
		by = fmt.Sprintf("limit %s of %s", p.limit, filepath.Base(v.Limits))
	}
	about := fmt.Sprintf("What %s would have decided. %s.", by, p.headline)
	if p.changed != nil {
		about += fmt.Sprintf(" %s.", p.changed)
	}
	return writeFile(v.HTML, sim.ReplayPage{
		Title:  p.log + ", replayed",
		About:  about,
		From:   line.from,
		Step:   line.step(),
		Counts: line.counts,
		Tables: p.tables,
	}.WriteHTML)
}

// timeline counts what became of requests by the time of the log, in equal steps. It begins with
// steps of a second, and makes them twice as long whenever they are too many for a plot.
type timeline struct {
	from    time.Time // of the first request
	seconds int64     // of a step; 0: no request was counted yet
	counts  []sim.ReplayCount
}

// mostSteps is how many steps a timeline has at most: a plot has a few pixels for each.
const mostSteps = 400

func (t *timeline) step() time.Duration { return time.Duration(t.seconds) * time.Second }

// count counts a request. Their times do not go back.
func (t *timeline) count(at time.Time, r ruling) {
	if t.seconds == 0 {
		t.from, t.seconds = at.Truncate(time.Second), 1
	}
	i := int((at.Unix() - t.from.Unix()) / t.seconds)
	for i >= mostSteps {
		t.double()
		i /= 2
	}
	for i >= len(t.counts) {
		t.counts = append(t.counts, sim.ReplayCount{})
	}
	switch c := &t.counts[i]; {
	case r.refuses != "":
		c.Denied++
	case r.delay > 0:
		c.Delayed++
	default:
		c.Allowed++
	}
}

// double makes one step of each two.
func (t *timeline) double() {
	t.seconds *= 2
	half := t.counts[:0]
	for i := 0; i < len(t.counts); i += 2 {
		c := t.counts[i]
		if i+1 < len(t.counts) {
			c = c.Plus(t.counts[i+1])
		}
		half = append(half, c)
	}
	t.counts = half
}
