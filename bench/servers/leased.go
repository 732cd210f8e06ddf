package servers

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"penstock/bench/contest"
	gubernator "penstock/proto/gubernator"
	"penstock/rpc/client"
)

const (
	leasesName = "penstock, leases in the client"
	doorName   = "penstock, Gubernator's API"
	globalName = "gubernator, GLOBAL"
)

const (
	extra = "extra"
	given = "given"
)

// leased is one key that all ask for, through three nodes in turns. A limit that is never reached
// shows how fast that is; one that is shows whether it holds.
var leased = Row{
	Name: "leased", Title: "One hot key, asked for through three nodes",
	contestants: []contestant{
		{name: Base, start: hotTakes(client.Config{}), points: hotPoints},
		{name: leasesName, start: hotTakes(client.Config{Leases: true})},
		{name: doorName, start: hotDoor, points: hotPoints},
		{name: globalName, builds: gubernatorSource, points: hotPoints, start: hotGlobal},
	},
	points:  append(slices.Clone(hotPoints), Point{Name: hotLoop, Callers: 1, Items: 1}),
	measure: askHot,
	Tables: append(append([]contest.Table{}, Tables...),
		contest.Table{Title: "Admitted beyond the limit of 1000", Short: "extra", Figure: extra},
		contest.Table{
			Title: "Admitted of the limit, %", Short: "given, %", Figure: given,
			Digits: 1,
		},
		contest.Table{
			Title: "CPU of a take in a loop, ns, one caller", Short: "CPU in a loop, ns",
			Figure: loopCPU,
		},
		contest.Table{
			Title: "Allocations of a take in a loop", Short: "allocations", Figure: loopObjects,
			Digits: 3,
		}),
	Aims: []contest.Aim{
		faster("hot key, leased, through 3 nodes, 64 callers", "64 × 1", 25, globalName),
		{
			Work: "… extra", Job: contest.Job{Contestant: Base, Point: "64 × 1, limit 1000"},
			Figure: extra, Better: contest.Less, Want: 0,
		},
		{
			Work: "… extra, leases in the client",
			Job:  contest.Job{Contestant: leasesName, Point: "64 × 1, limit 1000"}, Figure: extra,
			Better: contest.Less, Want: 0,
		},
		hotAim("leased key in the client, one caller", loopCPU, 120, "ns"),
		hotAim("… its allocations", loopObjects, 0.001, ""),
		{Work: "… extra, Gubernator's API", Job: contest.Job{
			Contestant: doorName,
			Point:      "64 × 1, limit 1000",
		}, Figure: extra, Better: contest.Less, Want: 0},
	},
}

// hotLoop is one caller that takes again and again, without a look at the clock in between.
const hotLoop = "1 × 1, in a loop"

// The figures of it.
const (
	loopCPU     = "CPU in a loop"
	loopObjects = "allocations in a loop"
)

var hotPoints = []Point{
	{Name: "64 × 1", Callers: 64, Items: 1, Each: true},
	{Name: "64 × 1, limit 1000", Callers: 64, Items: 1, Each: true, Limit: few},
}

func hotAim(work, figure string, want float64, unit string) contest.Aim {
	return contest.Aim{
		Work: work, Job: contest.Job{Contestant: leasesName, Point: hotLoop},
		Figure: figure, Better: contest.Less, Want: want, Unit: unit,
	}
}

// few is the limit that is reached, per hour: lent-few.
const few = 1000

func hotTakes(config client.Config) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r, doors, err := nodes(p, 3)
		if err != nil {
			return r, err
		}
		return r, r.askTakes(doors, "lent", config)
	}
}

func hotDoor(p *Programs) (*running, error) {
	r, doors, err := nodes(p, 3)
	if err != nil {
		return r, err
	}
	return r, r.askAsGubernator(doors, gubernator.Behavior_GLOBAL)
}

// hotGlobal asks Gubernator for a key with its behavior GLOBAL.
func hotGlobal(p *Programs) (*running, error) {
	r, doors, err := gubernators(p, 3)
	if err != nil {
		return r, err
	}
	return r, r.askAsGubernator(doors, gubernator.Behavior_GLOBAL)
}

// askHot asks for a new key. If its limit is reached, the figure is how much is admitted.
func askHot(r *running, p Point, d time.Duration, progress io.Writer) (map[string]float64, error) {
	p.Key = fmt.Sprintf("hot-%d", time.Now().UnixNano())
	switch {
	case p.Name == hotLoop:
		return askInLoop(r, p, d)
	case p.Limit == 0:
		return ask(r, p, d, progress)
	}
	meter, before, own := contest.NewMeter(), r.cpu(), ownCPU()
	got := load(r, p, 2*d)
	if got.failed > got.denied {
		fmt.Fprintf(progress, "%d of %d calls failed, the last with: %v\n", got.failed-got.denied,
			len(got.took), got.fault)
	}
	admitted := float64(len(got.took) - got.failed)
	figures := map[string]float64{
		extra: max(0, admitted-float64(p.Limit)), given: 100 * admitted / float64(p.Limit),
		failures: 100 * float64(got.failed-got.denied) / float64(len(got.took)),
	}
	if others := meter.Others(r.cpu() - before + ownCPU() - own); others >= 0 {
		figures[contest.Others] = others
	}
	return figures, nil
}

// askInLoop has one caller ask for d. The CPU is that of this process, and so of the client.
func askInLoop(r *running, p Point, d time.Duration) (map[string]float64, error) {
	const burst = 1000 // takes between two looks at the clock
	call := r.caller(0, p)
	loop := func(d time.Duration) (n float64, err error) {
		for began := time.Now(); n == 0 || time.Since(began) < d; n += burst {
			for range burst {
				if err := call(); err != nil {
					return 0, err
				}
			}
		}
		return n, nil
	}
	if _, err := loop(d / 4); err != nil {
		return nil, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	meter, served, own := contest.NewMeter(), r.cpu(), ownCPU()
	n, err := loop(d)
	if err != nil {
		return nil, err
	}
	asked := ownCPU() - own
	runtime.ReadMemStats(&after)
	figures := map[string]float64{
		loopCPU:     float64(asked.Nanoseconds()) / n,
		loopObjects: float64(after.Mallocs-before.Mallocs) / n,
	}
	if others := meter.Others(asked + r.cpu() - served); others >= 0 {
		figures[contest.Others] = others
	}
	return figures, nil
}
