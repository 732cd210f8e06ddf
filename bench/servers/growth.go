package servers

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"penstock/bench/contest"
	penstockv1 "penstock/proto/penstock/v1"
)

const (
	clientName   = "penstock, Go client"
	ownName      = "penstock's own API"
	rulesName    = "penstock, rules"
	inBatches    = "decisions a second, 100 at once"
	inBatchesCPU = "server CPU, 100 at once"
)

// callers is how many ask at once.
var callers = Row{
	Name: "callers", Title: "More callers, one node", Axis: "callers",
	contestants: []contestant{
		{name: Base, start: ownCheck},
		{name: clientName, start: ownTakes},
		{name: emptyName, start: empty},
	},
	points: numbered(func(n int) Point {
		return Point{Callers: n, Items: 1}
	}, 1, 4, 16, 64, 256, 1000),
}

// batch is how many decisions a call asks for.
var batch = Row{
	Name: "batch", Title: "More decisions in a call, Gubernator's API, one node, 16 callers",
	Axis: "decisions in a call",
	contestants: []contestant{
		{name: Base, start: ownDoor(1)},
		{name: ownName, start: ownCheck},
		{name: clientName, start: ownBatches(1)},
		{name: gubernatorName, builds: gubernatorSource, start: theirs(1)},
	},
	points: numbered(func(n int) Point { return Point{Callers: 16, Items: n} }, 1, 10, 100, 1000),
}

// mostLimits is how many limits a node accepts; rules are asked about up to the same number.
const mostLimits = 10_000

// limitsRow is how many limits a node has, or rules by which a request's attributes meet one.
var limitsRow = Row{
	Name: "limits", Title: "More limits and rules, one node, 64 callers", Axis: "limits",
	contestants: append(each(Base, manyLimits, 1, 10, 100, 1000, mostLimits),
		each(rulesName, manyRules, 1, 10, 100, 1000, mostLimits)...),
	points: numbered(func(int) Point {
		return Point{Callers: 64, Items: 1}
	}, 1, 10, 100, 1000, mostLimits),
}

// nodesRow is how many nodes there are, all on this machine. Callers take turns among them.
var nodesRow = Row{
	Name:  "nodes",
	Title: "More nodes on the same machine, any key through any node, Gubernator's API",
	Axis:  "nodes",
	contestants: append(fresh(each(Base, ownDoor, 1, 3, 5, 7, 9)),
		fresh(built(each(gubernatorName, theirs, 1, 3, 5)))...),
	points: numbered(func(int) Point {
		return Point{Callers: 64, Items: 1, Each: true}
	}, 1, 3, 5, 7, 9),
	measure: func(r *running, p Point, d time.Duration, progress io.Writer) (map[string]float64,
		error,
	) {
		figures, err := ask(r, p, d, progress)
		if err != nil {
			return nil, err
		}
		p.Callers, p.Items = 16, 100
		many, err := ask(r, p, d, progress)
		if err != nil {
			return nil, err
		}
		figures[inBatches], figures[failures] = many[speed], max(figures[failures], many[failures])
		if cpu, measured := many[serverCPU]; measured {
			figures[inBatchesCPU] = cpu
		}
		figures[memory] /= float64(len(r.servers))
		return figures, nil
	},
	Tables: []contest.Table{
		{
			Title: "Decisions a second, 64 callers, one in a call", Short: "decisions/s",
			Figure: speed, Better: contest.More,
		},
		{
			Title: "Decisions a second, 16 callers, 100 in a call", Short: "100 in a call",
			Figure: inBatches, Better: contest.More,
		},
		{
			Title: "Median latency, µs, 64 callers, one in a call", Short: "p50, µs",
			Figure: median,
			Better: contest.Less,
		},
		{
			Title: "CPU of the servers per decision, µs, one in a call", Short: "server CPU, µs",
			Figure: serverCPU, Digits: 1, Better: contest.Less,
		},
		{
			Title: "CPU of the servers per decision, µs, 100 in a call", Short: "100 in a call",
			Figure: inBatchesCPU, Digits: 2, Better: contest.Less,
		},
		{Title: "Calls that failed, %", Short: "failed, %", Figure: failures, Digits: 1},
		{Title: "Resident memory of a node, MB", Short: "MB a node", Figure: memory},
	},
}

// numbered are points that are called by their number.
func numbered(point func(n int) Point, numbers ...int) (points []Point) {
	for _, n := range numbers {
		p := point(n)
		p.Name = fmt.Sprint(n)
		points = append(points, p)
	}
	return points
}

// each is a contestant that is another one at each point.
func each(
	name string, start func(n int) func(*Programs) (*running, error), numbers ...int,
) (all []contestant) {
	for _, n := range numbers {
		all = append(all, contestant{
			name: name, start: start(n),
			points: []Point{{Name: fmt.Sprint(n)}},
		})
	}
	return all
}

func fresh(all []contestant) []contestant {
	for i := range all {
		all[i].fresh = true
	}
	return all
}

func built(all []contestant) []contestant {
	for i := range all {
		all[i].builds = gubernatorSource
	}
	return all
}

// manyLimits is a node that has n limits, of which the last is asked.
func manyLimits(n int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		var b strings.Builder
		b.WriteString("limits:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {name: limit-%d, algorithm: gcra, limit: 8000000, per: 8000h}\n",
				i+1)
		}
		file := filepath.Join(p.Dir, fmt.Sprintf("limits-%d.yaml", n))
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			return nil, err
		}
		r, doors, err := nodes(p, 1, "--limits", file)
		if err != nil {
			return r, err
		}
		return r, r.askCheck(doors[0], fmt.Sprintf("limit-%d", n))
	}
}

// manyRules is a node that has n rules, each for a plan of its own, and asked with attributes that
// meet the last.
func manyRules(n int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		var b strings.Builder
		b.WriteString("limits:\n  - {name: big, algorithm: gcra, limit: 8000000, per: " +
			"8000h}\nrules:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {match: {plan: plan-%d}, apply: [{limit: big, key: "+
				"\"{account}\"}]}\n", i+1)
		}
		file := filepath.Join(p.Dir, fmt.Sprintf("rules-%d.yaml", n))
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			return nil, err
		}
		r, doors, err := nodes(p, 1, "--limits", file)
		if err != nil {
			return r, err
		}
		conn, err := r.dial(doors[0])
		asker, plan := penstockv1.NewRateLimiterClient(conn), fmt.Sprintf("plan-%d", n)
		r.caller = func(id int, p Point) func() error {
			key := turns(id, p)
			return func() error {
				out, err := asker.Check(context.Background(),
					&penstockv1.CheckRequest{Attributes: map[string]string{
						"plan":    plan,
						"account": key(),
					}})
				switch {
				case err != nil:
					return err
				case len(out.Decisions) != 1:
					return fmt.Errorf("%d rules are met, want 1", len(out.Decisions))
				case !out.Decisions[0].Allowed:
					return errDenied
				}
				return nil
			}
		}
		return r, err
	}
}
