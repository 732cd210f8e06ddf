package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/ring"
	"penstock/rpc/client"
)

var (
	walks      = flag.Int("walks", 1, "how many walks TestWalks takes")
	walkSteps  = flag.Int("walk.steps", 6, "steps of each walk")
	walkSeed   = flag.Uint64("walk.seed", 1, "seed of the first one; the next has the next")
	walkOrders = flag.Int(
		"walk.orders",
		0,
		"how many more orders of joining TestEachNodeDies draws",
	)
	walkLarge = flag.Int("walk.large", 20_000, "keys in TestNodeDiesBesideALargeTable")
	walkKeys  = flag.Int("walk.keys", 1000, "keys that are charged before the first step")
)

const walkLimits = `
limits:
  - {name: kept, algorithm: fixed_window, anchor: first_hit, limit: 1000, per: 240h}
`

const walkLimit = 1000

// quiet is how long nobody charges anything before a node is killed.
const quiet = time.Second

// A walk is a cluster of processes that come and go, and what has been charged to its keys.
type walk struct {
	t      *testing.T
	limits string
	said   []string // what was done, for the report of a failure
	nodes  map[string]*process
	gone   map[string]bool  // killed, and not back: the others miss them for ten minutes
	spent  map[string]int64 // by key
	next   int              // number of the next key that is new
}

func newWalk(t *testing.T) *walk {
	w := &walk{
		t:      t,
		limits: write(t, walkLimits),
		nodes:  map[string]*process{},
		gone:   map[string]bool{},
		spent:  map[string]int64{},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was done: %s", strings.Join(w.said, ", "))
		}
	})
	return w
}

func (w *walk) note(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// names are the nodes that live.
func (w *walk) names() []string { return slices.Sorted(maps.Keys(w.nodes)) }

// start starts nodes, all at once, and waits until everybody sees everybody.
func (w *walk) start(names ...string) {
	w.t.Helper()
	w.note("start %s", strings.Join(names, " and "))
	args := []string{"--limits", w.limits}
	for _, name := range w.names() {
		args = append(args, "--join", w.nodes[name].gossip)
	}
	if len(w.nodes) == 0 { // the first one listens before the others look for it
		w.nodes[names[0]] = serveProcess(w.t, names[0], args...)
		args, names = append(args, "--join", w.nodes[names[0]].gossip), names[1:]
	}
	started := make([]*process, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { started[i] = serveProcess(w.t, name, args...) })
	}
	all.Wait()
	for i, name := range names {
		w.nodes[name] = started[i]
		delete(w.gone, name)
	}
	w.see()
}

// see waits until all see all.
func (w *walk) see() {
	w.t.Helper()
	for _, name := range w.names() {
		waitForMembers(w.t, w.nodes[name], len(w.nodes))
	}
}

// kill ends a node with kill -9.
func (w *walk) kill(name string) {
	w.t.Helper()
	w.note("kill %s", name)
	w.gone[name] = true
	w.end(name, syscall.SIGKILL)
}

// rest waits for a quiet second, and then until every partition is held and has a whole copy.
func (w *walk) rest() {
	w.t.Helper()
	time.Sleep(quiet)
	var nodes []*process
	for _, name := range w.names() {
		nodes = append(nodes, w.nodes[name])
	}
	awaitCopies(w.t, nodes)
}

// awaitCopies waits until nodes hold all partitions, each with a whole copy, which takes longer on
// a busy machine or with a large table.
func awaitCopies(t *testing.T, nodes []*process) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(
		20 * time.Millisecond) {
		if err = copied(nodes); err == nil {
			return
		}
	}
	t.Fatalf("not in two minutes: %v", err)
}

// copied says which partitions are held by none of nodes, or have no whole copy.
func copied(nodes []*process) error {
	held := 0.0
	for _, n := range nodes {
		_, page, err := n.call("GET", "/metrics")
		if err != nil {
			return err
		}
		held += metric(page, `penstock_partitions{state="held"}`)
		without := metric(page, "penstock_unreplicated_partitions")
		lag := metric(page, "penstock_replication_lag_seconds")
		if len(nodes) > 1 && (without > 0 || lag > 0) {
			return fmt.Errorf("%s: %v partitions without a whole copy, %v s behind", n.name,
				without, lag)
		}
	}
	if held != ring.Partitions {
		return fmt.Errorf("%v of %d partitions are held", held, ring.Partitions)
	}
	return nil
}

// metric is a number of a page of metrics, or -1.
func metric(page, name string) float64 {
	for line := range strings.Lines(page) {
		if text, found := strings.CutPrefix(line, name+" "); found {
			if x, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil {
				return x
			}
		}
	}
	return -1
}

// leave ends a node with SIGTERM.
func (w *walk) leave(name string) {
	w.t.Helper()
	w.note("leave %s", name)
	w.end(name, syscall.SIGTERM)
}

func (w *walk) end(name string, signal syscall.Signal) {
	w.t.Helper()
	p := w.nodes[name]
	delete(w.nodes, name)
	if err := p.cmd.Process.Signal(signal); err != nil {
		w.t.Fatal(err)
	}
	p.exitCode(w.t)
}

// pause stops a node for a while with SIGSTOP.
func (w *walk) pause(name string, d time.Duration) {
	w.t.Helper()
	w.note("stop %s for %v", name, d)
	p := w.nodes[name].cmd.Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(d)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
}

func (w *walk) dial() (clients []*client.Client) {
	for _, name := range w.names() {
		c, err := client.New(client.Config{Targets: []string{w.nodes[name].grpc}})
		if err != nil {
			w.t.Fatal(err)
		}
		clients = append(clients, c)
	}
	return clients
}

// ask asks for cost units of each key, through all nodes in turn, a thousand keys at once.
func (w *walk) ask(keys []string, cost int64, heard func(key string, d *penstockv1.Decision)) {
	w.t.Helper()
	clients := w.dial()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			defer c.Close()
			for k := i * 1000; k < len(keys); k += 1000 * len(clients) {
				some := keys[k:min(k+1000, len(keys))]
				items := make([]*penstockv1.Item, len(some))
				for n, key := range some {
					items[n] = &penstockv1.Item{Limit: "kept", Key: []byte(key), Cost: &cost}
				}
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				decisions, err := checkItems(ctx, c, items)
				cancel()
				if err != nil {
					w.t.Error(err)
					return
				}
				mu.Lock()
				for n, d := range decisions {
					heard(some[n], d)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// charge charges cost units to each of some keys. If no single node decided a charge, nothing is
// known of that key from then on.
func (w *walk) charge(cost int64, keys ...string) {
	w.t.Helper()
	w.note("charge %d to %d keys", cost, len(keys))
	w.ask(keys, cost, func(key string, d *penstockv1.Decision) {
		if d.Degraded {
			delete(w.spent, key)
			return
		}
		if w.spent[key] += cost; d.Remaining != walkLimit-w.spent[key] {
			w.t.Errorf("%s: %d remain after %d were charged: %v", key, d.Remaining, w.spent[key], d)
		}
	})
}

// fresh makes keys that nobody has asked for.
func (w *walk) fresh(n int) (keys []string) {
	for range n {
		keys = append(keys, fmt.Sprintf("key-%d", w.next))
		w.next++
	}
	return keys
}

// some draws keys that have been charged.
func (w *walk) some(dice *rand.Rand, n int) []string {
	keys := slices.Sorted(maps.Keys(w.spent))
	dice.Shuffle(len(keys), func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
	return keys[:min(n, len(keys))]
}

// count asks for all keys until somebody decides for each, and returns how many counts were lost.
func (w *walk) count() (lost, much int) {
	w.t.Helper()
	waiting := slices.Sorted(maps.Keys(w.spent))
	units := int64(0)
	eventually(w.t, "all keys have an owner", func() error {
		var again []string
		w.ask(waiting, 0, func(key string, d *penstockv1.Decision) {
			switch want := walkLimit - w.spent[key]; {
			case d.Degraded:
				again = append(again, key)
				return
			case d.Remaining > want:
				lost++
				units += d.Remaining - want
			case d.Remaining < want:
				much++
			}
			w.spent[key] = walkLimit - d.Remaining // go on from here
		})
		waiting = again
		if len(again) > 0 {
			return fmt.Errorf("%d keys are answered by nobody who may", len(again))
		}
		return nil
	})
	if lost+much > 0 {
		w.t.Errorf(
			"of %d keys %d have lost %d units, %d have too much",
			len(w.spent),
			lost,
			units,
			much,
		)
	}
	return lost, much
}

// orders are in which nodes join: those of a group together.
var orders = [][]string{
	{"n1", "n2", "n3"},
	{"n1 n2 n3"},
	{"n2", "n5", "n1 n3", "n4"},
}

// Promise: whichever node dies, and whenever and with whomever it has joined, nothing is forgotten
// that was charged before the last second. Each node is killed, those first that have come last,
// and comes back under its name.
func TestEachNodeDies(t *testing.T) {
	t.Parallel()
	drawn := slices.Clone(orders)
	dice := rand.New(rand.NewPCG(*walkSeed, 2))
	for range *walkOrders {
		drawn = append(drawn, drawOrder(dice))
	}
	for _, order := range drawn {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			w := newWalk(t)
			for _, group := range order {
				w.start(strings.Fields(group)...)
				w.charge(1, w.fresh(200)...) // before the next ones join
			}
			victims := strings.Fields(strings.Join(order, " "))
			slices.Reverse(victims)
			for _, victim := range victims {
				w.charge(2, w.some(dice, 300)...)
				w.rest()
				w.kill(victim)
				w.count()
				w.start(victim)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// drawOrder draws in which order three to five nodes join, and which of them together.
func drawOrder(dice *rand.Rand) (order []string) {
	for _, i := range dice.Perm(3 + dice.IntN(3)) {
		name := fmt.Sprintf("n%d", i+1)
		if len(order) > 0 && dice.IntN(2) == 0 {
			order[len(order)-1] += " " + name
		} else {
			order = append(order, name)
		}
	}
	return order
}

// Promise: the same with a table of which a look takes dozens of messages, while all of it is
// charged once more.
func TestNodeDiesBesideALargeTable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("charges twenty thousand keys")
	}
	w := newWalk(t)
	w.start("n1", "n2")
	keys := w.fresh(*walkLarge)
	w.charge(1, keys...)
	w.start("n3")
	for _, victim := range []string{"n3", "n1"} {
		w.charge(1, keys...)
		w.rest()
		w.kill(victim)
		w.count()
		w.start(victim)
	}
}

// A node that is stopped for as long as it takes to be declared dead, and goes on, costs nothing
// that was charged before.
func TestStopCostsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("stops a node for eight seconds")
	}
	w := newWalk(t)
	w.start("n1", "n2", "n3")
	w.charge(2, w.fresh(2000)...)
	w.rest()
	w.pause("n2", 8*time.Second)
	w.see()
	w.count()
}

// step draws what happens next to a cluster of at most five.
func (w *walk) step(dice *rand.Rand) {
	w.t.Helper()
	names := w.names()
	one := names[dice.IntN(len(names))]
	few := len(names)-1 <= len(w.gone)+1 // one less would be no majority
	switch x := dice.IntN(10); {
	case few || x < 3 && len(names) < 5:
		fresh := slices.Sorted(maps.Keys(w.gone))
		for i := range 6 {
			if name := fmt.Sprintf("n%d", i+1); w.nodes[name] == nil && !w.gone[name] {
				fresh = append(fresh, name)
			}
		}
		w.start(fresh[:min(len(fresh), 1+dice.IntN(2))]...)
	case x < 5:
		w.leave(one)
		w.see()
	case x < 6:
		w.leave(one)
		w.start(one)
	case x < 8:
		w.rest()
		w.kill(one)
		if dice.IntN(2) == 0 {
			w.see()
		} else {
			w.start(one)
		}
	default:
		w.rest()
		w.pause(one, time.Duration(dice.Int64N(int64(9*time.Second))))
		w.see()
	}
	w.charge(1, w.fresh(dice.IntN(500))...)
	w.charge(1, w.some(dice, dice.IntN(500))...)
}

// Promise: as above, on walks of starts, leaves, crashes, restarts and stops.
func TestWalks(t *testing.T) {
	t.Parallel()
	for i := range *walks {
		seed := *walkSeed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 1))
			w := newWalk(t)
			w.start("n1")
			w.charge(1, w.fresh(*walkKeys)...)
			for range *walkSteps {
				w.step(dice)
				w.count()
				if t.Failed() {
					return
				}
			}
			t.Logf("%d keys, %s", len(w.spent), strings.Join(w.said, ", "))
		})
	}
}
