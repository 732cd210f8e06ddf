// Package cores measures how penstock's table, and a node's Check, grow with the number of cores,
// and which locks callers wait for. Follow one measurement: Measure fills a table with a million
// keys; lets one caller for each core decide, with GOMAXPROCS from one to as many as the machine
// has; and then lets more and more callers decide while the runtime notes waits for locks.
// Model says from that what more cores would bring.
package cores

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"penstock/bench/limiters"
	"penstock/bench/servers"
	"penstock/cluster"
	"penstock/limiter"
)

// Wanted are the numbers of cores that are asked about.
var Wanted = []int{1, 2, 4, 8, 16}

// Contestant is what decides, and how its keys are drawn.
type Contestant struct {
	Name string
	zipf bool
	// start fills it with keys, and returns what makes callers
	start func(keys int) (func() take, error)
}

// take decides on a key, now.
type take func(key string) bool

// The contestants.
const (
	TableUniform = "table, uniform"
	TableZipf    = "table, Zipf"
	NodeUniform  = "Node.Check, uniform"
	NodeZipf     = "Node.Check, Zipf"
	Apart        = "a table for each caller"
)

// Contestants are all of them. Where each caller has a table of its own nothing is shared but the
// machine's memory, so that is what its cores can bring at most.
var Contestants = []Contestant{
	{TableUniform, false, sharedTable},
	{TableZipf, true, sharedTable},
	{NodeUniform, false, node},
	{NodeZipf, true, node},
	{Apart, false, tables},
}

// Point is what was measured with so many cores.
type Point struct {
	Cores int
	Speed float64            // decisions a second; 0: the machine has fewer cores
	Locks map[string]float64 // % of the callers' time in which they wait for it, by name
}

// Measure measures c for d at each number of cores. It should have a process to itself.
func Measure(c Contestant, keys int, d time.Duration) (points []Point, err error) {
	if keys < 1 || d <= 0 {
		return nil, fmt.Errorf("%d keys and %v of time; at least 1 and above 0 are accepted", keys,
			d)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	draws := limiters.NewDraws(keys, c.zipf)
	caller, err := c.start(keys)
	if err != nil {
		return nil, err
	}
	for _, n := range Wanted {
		p := Point{Cores: n}
		if n <= runtime.NumCPU() {
			if _, err := run(draws, caller, n, d/4); err != nil {
				return nil, err
			}
			if p.Speed, err = run(draws, caller, n, d); err != nil {
				return nil, err
			}
		}
		if p.Locks, err = watchLocks(n, func() error {
			_, err := run(draws, caller, n, d)
			return err
		}); err != nil {
			return nil, err
		}
		points = append(points, p)
	}
	return points, nil
}

var errRefused = errors.New("a request is refused that is within its limit")

// run has n callers decide on n cores, and says how many decisions a second they make.
func run(
	draws *limiters.Draws, caller func() take, n int, d time.Duration,
) (speed float64, err error) {
	const burst = 64 // decisions between two looks at the clock
	runtime.GOMAXPROCS(n)
	var asked atomic.Int64
	var refused atomic.Bool
	var group sync.WaitGroup
	began := time.Now()
	for id := range n {
		take := caller()
		group.Go(func() {
			from := id * limiters.Drawn / n
			i := from
			for i == from || time.Since(began) < d {
				for range burst {
					if !take(draws.Key(i)) {
						refused.Store(true)
						return
					}
					i++
				}
			}
			asked.Add(int64(i - from))
		})
	}
	group.Wait()
	if refused.Load() {
		return 0, errRefused
	}
	return float64(asked.Load()) / time.Since(began).Seconds(), nil
}

// spec is a limit that never refuses. A unit comes back after 0.36 s, so a key that has been
// charged first is not as good as never seen, and may be removed, for an hour.
var spec = limiter.Spec{
	Name: "big", Algorithm: limiter.GCRA, Limit: 80_000_000, Per: 8000 * time.Hour,
}

const first = 10_000

// newTable is a table with so many keys.
func newTable(keys int) (take, error) {
	l, err := limiter.New(spec)
	if err != nil {
		return nil, err
	}
	t := limiter.NewTable(limiter.TableConfig{})
	now := limiters.Clock()
	for i := range keys {
		key := limiters.NewKey(i)
		if !t.Take(now(), l, key, limiter.Hash(key), first).Allowed {
			return nil, errRefused
		}
	}
	return func(key string) bool {
		return t.Take(now(), l, key, limiter.Hash(key), 1).Allowed
	}, nil
}

// sharedTable is one table for all callers.
func sharedTable(keys int) (func() take, error) {
	t, err := newTable(keys)
	return func() take { return t }, err
}

// tables are as many as there are cores, each with all keys.
func tables(keys int) (func() take, error) {
	all := make([]take, runtime.NumCPU())
	for i := range all {
		var err error
		if all[i], err = newTable(keys); err != nil {
			return nil, err
		}
	}
	var next atomic.Int64
	return func() take { return all[int(next.Add(1))%len(all)] }, nil
}

// node is Node.Check of one item, at the owner.
func node(keys int) (func() take, error) {
	n, _, err := servers.Lone(spec)
	if err != nil {
		return nil, err
	}
	const message = 100
	items, out := make([]cluster.Item, 0, message), make([]cluster.Decision, message)
	for i := range keys {
		items = append(items, cluster.Item{Limit: spec.Name, Key: limiters.NewKey(i), Cost: first})
		if len(items) == message || i == keys-1 {
			if err := n.Check(&cluster.Request{Items: items}, out[:len(items)]); err != nil {
				return nil, err
			}
			items = items[:0]
		}
	}
	return func() take {
		items, out := make([]cluster.Item, 1), make([]cluster.Decision, 1)
		return func(key string) bool {
			items[0] = cluster.Item{Limit: spec.Name, Key: key, Cost: 1}
			r := cluster.Request{Items: items}
			return n.Check(&r, out) == nil && out[0].Allowed
		}
	}, nil
}
