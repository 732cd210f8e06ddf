package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"penstock/bench/contest"
	"penstock/bench/inprocess"
	"penstock/cluster"
	"penstock/embedded"
	"penstock/limiter"
	"penstock/rpc/clock"
	"penstock/rpc/peer"
)

const embeddedName = "penstock, embedded"

var inProcess = Row{
	Name: "inprocess", Title: "In process, at the owner of the key: a call of a function",
	contestants: []contestant{
		{name: Base, start: itself("node")},
		{name: embeddedName, start: itself("embedded")},
		{
			name: gubernatorName, builds: gubernatorSource,
			start: func(p *Programs) (*running, error) {
				return &running{program: []string{
					filepath.Join(p.Dir, gubernatorSource.name),
					inprocess.Verb, "v1",
				}}, nil
			},
		},
	},
	points:  closed(1, 64),
	measure: measureElsewhere,
	Tables: []contest.Table{
		{
			Title: "Decisions a second", Short: "decisions/s", Figure: inprocess.Speed,
			Better: contest.More,
		},
		{
			Title: "CPU of a decision, µs", Short: "CPU, µs", Figure: inprocess.CPU, Digits: 2,
			Better: contest.Less,
		},
		{
			Title: "Allocations of a decision", Short: "allocations", Figure: inprocess.Allocations,
			Digits: 2,
		},
		{
			Title: "Bytes that a decision allocates", Short: "bytes allocated",
			Figure: inprocess.Bytes,
		},
	},
	Aims: []contest.Aim{
		faster("in process through Node.Check, owner-local, 1 caller", "1 × 1", 60, gubernatorName),
		faster("… 64 callers", "64 × 1", 60, gubernatorName),
		{
			Work: "… its allocations", Job: contest.Job{Contestant: Base, Point: "1 × 1"},
			Figure: inprocess.Allocations, Better: contest.Less, Want: 1,
		},
	},
}

func itself(what string) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		return &running{program: []string{p.Self, inprocess.Verb, what}}, nil
	}
}

// measureElsewhere runs the contestant's program, which measures itself.
func measureElsewhere(
	r *running, p Point, d time.Duration, _ io.Writer,
) (map[string]float64, error) {
	var out, said bytes.Buffer
	cmd := exec.Command(r.program[0], append(append([]string{}, r.program[1:]...),
		strconv.Itoa(p.Callers), d.String())...)
	cmd.Stdout, cmd.Stderr = &out, &said
	others, err := contest.Watch(cmd)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	var figures map[string]float64
	if err := json.Unmarshal(out.Bytes(), &figures); err != nil {
		return nil, fmt.Errorf("it answered %q: %w", out.String(), err)
	}
	if others >= 0 {
		figures[contest.Others] = others
	}
	return figures, nil
}

// InProcess measures penstock as a function: what is "node" (cluster.Node.Check) or "embedded"
// (embedded.Node.Take), then how, as inprocess.Main wants it.
func InProcess(args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("%s wants node or embedded, callers and time", inprocess.Verb)
	}
	spec := limiter.Spec{
		Name: "big", Algorithm: limiter.GCRA, Limit: 8_000_000,
		Per: 8000 * time.Hour,
	}
	switch args[0] {
	case "node":
		n, _, err := Lone(spec)
		if err != nil {
			return err
		}
		return inprocess.Main(args[1:], out, func() func(string) error {
			items, decisions := make([]cluster.Item, 1), make([]cluster.Decision, 1)
			return func(key string) error {
				items[0] = cluster.Item{Limit: "big", Key: key, Cost: 1}
				r := cluster.Request{Items: items}
				if err := n.Check(&r, decisions); err != nil {
					return err
				}
				if !decisions[0].Allowed {
					return errDenied
				}
				return nil
			}
		})
	case "embedded":
		ctx := context.Background()
		n, err := embedded.Start(ctx, embedded.Config{Name: "bench", Limits: []limiter.Spec{spec}})
		if err != nil {
			return err
		}
		defer n.Close(ctx)
		return inprocess.Main(args[1:], out, func() func(string) error {
			return func(key string) error {
				d, err := n.Take(ctx, "big", key, 1)
				if err == nil && !d.Allowed {
					err = errDenied
				}
				return err
			}
		})
	}
	return fmt.Errorf("%s: %q is neither node nor embedded", inprocess.Verb, args[0])
}

// Lone is a node that is alone, as embedded.Start makes one.
func Lone(specs ...limiter.Spec) (*cluster.Node, *clock.Clock, error) {
	clock := clock.New()
	me := cluster.Member{ID: "bench", Boot: 1, State: cluster.StateActive}
	n, err := cluster.New(cluster.Config{
		ID: me.ID, Boot: me.Boot, Clock: clock, Table: limiter.NewTable(limiter.TableConfig{}),
		Network: peer.NewLines(peer.LinesConfig{
			ID: me.ID, Boot: me.Boot, Cluster: "bench",
			Clock: clock,
		}),
	})
	if err != nil {
		return nil, nil, err
	}
	limits := cluster.Limits{}
	for _, spec := range specs {
		if limits[spec.Name], err = limiter.New(spec); err != nil {
			return nil, nil, err
		}
	}
	n.SetLimits(limits)
	n.Start()
	v, err := cluster.NewView(me.ID, []cluster.Member{me})
	if err == nil {
		n.SetView(v)
	}
	return n, clock, err
}
