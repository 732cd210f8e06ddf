package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"penstock/bench/history/judge"
)

// tick is how long a charge may be on an owner alone: the interval of the copies.
const tick = 100 * time.Millisecond

// notice is how long a node that is cut off may go on deciding.
const notice = 1300 * time.Millisecond

// kind is a kind of fault.
type kind struct {
	name   string
	weight int
	least  int  // nodes that there must be
	spaces bool // needs network namespaces
	chaos  bool // two nodes at once: only make chaos draws it
	do     func(r *run, f *judge.Fault) error
}

func killed(n int) func(*run, *judge.Fault) error {
	return func(r *run, f *judge.Fault) error { return r.killWithin(f, r.victims(f, n), 0) }
}

func suspended(n int) func(*run, *judge.Fault) error {
	return func(r *run, f *judge.Fault) error { return r.stop(f, n) }
}

func cut(n int) func(*run, *judge.Fault) error {
	return func(r *run, f *judge.Fault) error { return r.cutOff(f, n) }
}

func parted(both bool) func(*run, *judge.Fault) error {
	return func(r *run, f *judge.Fault) error { return r.cutPair(f, both) }
}

var kinds = []kind{
	{name: "join", weight: 3, do: (*run).join},
	{name: "leave", weight: 2, least: 4, do: (*run).leave},
	{name: "restart", weight: 3, least: 3, do: (*run).restart},
	{name: "reload", weight: 1, do: (*run).reload},
	{name: "rotate-keys", weight: 1, do: (*run).rotateKeys},
	{name: "rotate-certificates", weight: 1, do: (*run).rotateCertificates},
	{name: "full-disk", weight: 2, do: (*run).fillDisk},
	{name: "slow-disk", weight: 2, do: (*run).slowDisk},
	{name: "upgrade", weight: 3, least: 3, do: (*run).upgrade},
	{name: "kill", weight: 4, least: 3, do: killed(1)},
	{name: "kill-leaving", weight: 1, least: 3, do: (*run).killLeaving},
	{name: "loss", weight: 1, spaces: true, do: (*run).lose},
	{name: "delay", weight: 1, spaces: true, do: (*run).delay},
	{name: "stop", weight: 2, least: 3, do: suspended(1)},
	{name: "cut-off", weight: 2, least: 3, spaces: true, do: cut(1)},
	{name: "cut-pair", weight: 1, least: 3, spaces: true, do: parted(true)},
	{name: "cut-one-way", weight: 1, least: 3, spaces: true, do: parted(false)},
	{name: "kill-pair", weight: 2, least: 5, chaos: true, do: killed(2)},
	{name: "kill-zone", weight: 2, least: 4, chaos: true, do: (*run).killZone},
	{name: "kill-most", weight: 1, least: 4, chaos: true, do: (*run).killMost},
	{name: "stop-pair", weight: 1, least: 5, chaos: true, do: suspended(2)},
	{name: "kill-agent", weight: 1, do: (*run).killAgent},
	{name: "stop-agent", weight: 1, do: (*run).stopAgent},
	{name: "cut-agent", weight: 1, spaces: true, do: (*run).cutAgent},
	{name: "cut-off-pair", weight: 1, least: 5, chaos: true, spaces: true, do: cut(2)},
}

// run is a cluster, what is asked of it, and what is done to it.
type run struct {
	options  *options
	out      writer
	cluster  *cluster
	recorder *recorder
	traffic  *traffic
	dice     *rand.Rand
	kinds    []kind
	reloads  int
	whole    bool // the cluster settled after the last fault
	leaks    []string
	once     sync.Once
	enough   atomic.Bool // an interrupt asked for no more faults
}

type writer interface{ Write([]byte) (int, error) }

func newRun(o *options, dir string, out writer) (*run, error) {
	r := &run{
		options:  o,
		out:      out,
		recorder: &recorder{began: time.Now()},
		dice:     rand.New(rand.NewPCG(o.seed, 2)),
	}
	var err error
	if r.cluster, err = newCluster(o, dir); err != nil {
		return nil, err
	}
	r.traffic = newTraffic(r.recorder, r.cluster, o.seed)
	if err = r.choose(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *run) close() {
	r.once.Do(func() {
		if r.traffic != nil {
			r.traffic.close()
		}
		_ = r.cluster.close()
	})
}

// choose is which kinds are drawn.
func (r *run) choose() error {
	where := "a network namespace for each node"
	if r.cluster.net.loopback {
		where = "loopback: no cuts, no loss (" + r.cluster.net.why + ")"
	}
	fmt.Fprintln(r.out, "nodes are on", where)
	if err := r.cluster.noFreeze; err != nil {
		fmt.Fprintln(r.out, "disks are in memory, so none is slow:", err)
	}
	wanted := strings.FieldsFunc(r.options.faults, func(c rune) bool { return c == ',' })
	for _, name := range wanted {
		if !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name }) {
			return fmt.Errorf("-faults: there is no kind %q", name)
		}
	}
	able := map[string]bool{
		"delay": r.cluster.net.delays(), "loss": r.cluster.net.loses(),
		"full-disk": r.cluster.disks, "upgrade": r.cluster.previous != "",
		"kill-zone":  r.cluster.zones > 1,
		"kill-agent": len(r.cluster.agents) > 0,
		"stop-agent": len(r.cluster.agents) > 0,
		"cut-agent":  len(r.cluster.agents) > 0,
		"slow-disk":  r.cluster.disks && r.cluster.noFreeze == nil,
		// a build before this one may know them only from its start
		"rotate-keys": r.cluster.previous == "", "rotate-certificates": r.cluster.previous == "",
	}
	for _, k := range kinds {
		named := slices.Contains(wanted, k.name)
		can, special := able[k.name]
		switch {
		case len(wanted) > 0 && !named, len(wanted) == 0 && k.chaos && !r.options.chaos:
		case k.spaces && r.cluster.net.loopback, special && !can:
			fmt.Fprintf(r.out, "SKIPPED: %s cannot be done here\n", k.name)
		default:
			r.kinds = append(r.kinds, k)
		}
	}
	if len(r.kinds) == 0 {
		return errors.New("no kind of fault is left to draw")
	}
	return nil
}

// play starts the nodes, asks, draws faults until the time is over, and looks at all counters.
func (r *run) play() error {
	n := r.options.nodes
	if drawn := 3 + r.dice.IntN(4); n == 0 {
		n = drawn
	}
	fmt.Fprintf(r.out, "seed %d, %d nodes, %d requests a second\n", r.options.seed, n,
		r.options.rate)
	for _, node := range slices.Concat(r.cluster.nodes[:n], r.cluster.agents) {
		if err := r.cluster.start(node); err != nil {
			return err
		}
	}
	if err := r.cluster.settle(30 * time.Second); err != nil {
		return fmt.Errorf("the cluster does not come together: %w", err)
	}
	r.whole = true
	if err := r.traffic.connect(); err != nil {
		return err
	}
	r.recorder.began = time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var asking sync.WaitGroup
	asking.Go(func() { r.recorder.watch(ctx) })
	r.traffic.charge()
	asking.Go(func() { r.traffic.run(ctx, r.options.rate) })
	time.Sleep(2 * time.Second)
	r.measure()
	var err error
	end := time.Now().Add(time.Duration(r.options.seconds) * time.Second)
	for time.Now().Before(end) && err == nil && !r.enough.Load() {
		err = r.fault()
		r.rest(500, 1500)
	}
	cancel()
	asking.Wait()
	if err != nil {
		return err // what was heard until then is judged
	}
	time.Sleep(2 * time.Second)
	r.traffic.lookAtAll()
	r.compare()
	return nil
}

func (r *run) rest(least, most int) {
	time.Sleep(time.Duration(least+r.dice.IntN(most-least)) * time.Millisecond)
}

// fault draws one, does it, and waits until the cluster is whole again.
func (r *run) fault() error {
	live := len(r.cluster.in(up))
	var possible []kind
	for _, k := range r.kinds {
		room := k.name != "join" || live < maxNodes
		for range k.weight {
			if live >= k.least && room {
				possible = append(possible, k)
			}
		}
	}
	// Members that were killed come back, so only a leave may make a cluster too small.
	k := kind{name: "join", do: (*run).join}
	if len(possible) > 0 && live >= 3 {
		k = possible[r.dice.IntN(len(possible))]
	}
	f := &judge.Fault{Kind: k.name}
	if err := r.done(f, k.do); err != nil {
		return fmt.Errorf("%s %v: %w", k.name, f.Nodes, err)
	}
	for _, n := range r.cluster.asked(down) {
		if slices.Contains(f.Nodes, n.name) && strings.HasPrefix(k.name, "kill") {
			r.rest(100, 1000)
			back := &judge.Fault{Kind: "back"}
			if err := r.done(back, func(r *run, f *judge.Fault) error {
				return r.start(f, n)
			}); err != nil {
				return fmt.Errorf("back %s: %w", n.name, err)
			}
		}
	}
	return nil
}

// done runs a fault and records it.
func (r *run) done(f *judge.Fault, do func(*run, *judge.Fault) error) error {
	f.Slack = tick + r.recorder.way()
	f.Start = r.recorder.now()
	err := do(r, f)
	if f.Struck == 0 {
		f.Struck = r.recorder.now()
	}
	f.End = r.recorder.now()
	if err == nil {
		late := r.cluster.settle(30 * time.Second)
		if r.whole = late == nil; !r.whole {
			f.Never = true
			fmt.Fprintf(r.out, "%s %v: not whole 30 s later: %v\n", f.Kind, f.Nodes, late)
			if f.Gone && strings.HasPrefix(f.Kind, "kill") {
				r.recover()
			}
		}
	}
	f.Settled = r.recorder.now()
	if f.Gone && strings.HasPrefix(f.Kind, "kill") {
		f.End = f.Settled
	}
	fmt.Fprintf(r.out, "%s\n", f)
	r.recorder.mu.Lock()
	defer r.recorder.mu.Unlock()
	r.recorder.faults = append(r.recorder.faults, f)
	return err
}

// recover does what an operator does when a majority is gone for good. The fault stays one that
// did not settle; without this, no node could join for the rest of the run.
func (r *run) recover() {
	for _, n := range r.cluster.in(up) {
		said, err := exec.Command(r.cluster.program(n), "recover", "--addr",
			"unix://"+n.path("grpc"), "--timeout", "30s").CombinedOutput()
		fmt.Fprintf(r.out, "recover %s: %s\n", n.name, bytes.TrimSpace(said))
		if err == nil {
			_ = r.cluster.settle(30 * time.Second)
			return
		}
	}
}

// victims draws nodes that run.
func (r *run) victims(f *judge.Fault, n int) []*node {
	live := r.cluster.in(up)
	r.dice.Shuffle(len(live), func(i, k int) { live[i], live[k] = live[k], live[i] })
	return r.name(f, live[:n])
}

// name notes which nodes a fault is about, and whether others have copies of all that those hold.
func (r *run) name(f *judge.Fault, victims []*node) []*node {
	n, zones := len(victims), map[string]bool{}
	for _, v := range victims {
		f.Nodes = append(f.Nodes, v.name)
		zones[r.cluster.zone(v)] = true
	}
	away := r.cluster.zones > 1 && len(zones) == 1 && len(r.cluster.in(up)) > n
	f.Alone = r.cluster.copies == 0
	f.Copied = r.whole && (n <= r.cluster.copies || r.cluster.copies > 0 && away)
	return victims
}

func (r *run) start(f *judge.Fault, n *node) error {
	f.Nodes = []string{n.name}
	return r.cluster.start(n)
}

// join starts a node that was never there, or has left.
func (r *run) join(f *judge.Fault) error {
	absent := r.cluster.in(down)
	return r.start(f, absent[r.dice.IntN(len(absent))])
}

// leave ends a node by SIGTERM. It says for a second that it is not ready before it goes, and so
// long, at most, a load balancer sends requests there.
func (r *run) leave(f *judge.Fault) error {
	return r.goodbye(r.victims(f, 1)[0])
}

func (r *run) goodbye(n *node) error {
	if err := n.signal(syscall.SIGTERM); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	r.cluster.set(n, draining)
	if err := n.gone(); err != nil {
		return err
	}
	r.cluster.set(n, down)
	if code := n.process.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s left with exit code %d: %s", n.name, code, r.cluster.tail(n))
	}
	return nil
}

func (r *run) restart(f *judge.Fault) error {
	n := r.victims(f, 1)[0]
	if err := r.goodbye(n); err != nil {
		return err
	}
	return r.cluster.start(n)
}

func (r *run) reload(f *judge.Fault) error {
	r.reloads++
	name := r.cluster.limits + ".new"
	if err := os.WriteFile(name, []byte(limitsFile(r.reloads)), 0o644); err != nil {
		return err
	}
	if err := os.Rename(name, r.cluster.limits); err != nil {
		return err
	}
	for _, n := range r.cluster.asked(up) {
		f.Nodes = append(f.Nodes, n.name)
		if err := n.signal(syscall.SIGHUP); err != nil {
			return err
		}
	}
	time.Sleep(300 * time.Millisecond)
	return nil
}

// killZone ends all nodes of a zone; others have copies of what they hold.
func (r *run) killZone(f *judge.Fault) error {
	live, zones := r.cluster.in(up), map[string][]*node{}
	for _, n := range live {
		zones[r.cluster.zone(n)] = append(zones[r.cluster.zone(n)], n)
	}
	victims := zones[r.cluster.zone(live[r.dice.IntN(len(live))])]
	if len(zones) < 2 {
		victims = victims[:1]
	}
	return r.killWithin(f, r.name(f, victims), 0)
}

// killMost leaves one or two nodes. Each of the others is killed so soon after the one before that
// the members may or may not have agreed to go on without that one.
func (r *run) killMost(f *judge.Fault) error {
	n := len(r.cluster.in(up)) - 1 - r.dice.IntN(2)
	return r.killWithin(f, r.victims(f, n), 80)
}

// killWithin ends nodes by kill -9, each one up to so many milliseconds after the one before.
func (r *run) killWithin(f *judge.Fault, victims []*node, apart int) error {
	f.Forgets, f.Marks, f.Gone, f.Again = true, true, true, 250*time.Millisecond
	if apart == 0 {
		for _, v := range victims {
			r.cluster.set(v, down)
		}
	}
	f.Start = r.recorder.now()
	for i, v := range victims {
		if apart > 0 {
			if i > 0 {
				r.rest(0, apart)
			}
			r.cluster.set(v, down)
		}
		if err := v.signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	for _, v := range victims {
		if err := v.gone(); err != nil {
			return err
		}
	}
	f.Struck = r.recorder.now()
	return nil
}

// killLeaving kills a node while it hands over.
func (r *run) killLeaving(f *judge.Fault) error {
	f.Forgets, f.Marks, f.Gone, f.Again = true, true, true, 250*time.Millisecond
	v := r.victims(f, 1)[0]
	if err := v.signal(syscall.SIGTERM); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	r.cluster.set(v, draining)
	time.Sleep(700*time.Millisecond + time.Duration(r.dice.IntN(300))*time.Millisecond)
	f.Start = r.recorder.now()
	_ = v.signal(syscall.SIGKILL) // it may have ended by itself
	if err := v.gone(); err != nil {
		return err
	}
	r.cluster.set(v, down)
	f.Struck = r.recorder.now()
	return nil
}

// stop suspends nodes.
func (r *run) stop(f *judge.Fault, n int) error { return r.suspend(f, r.victims(f, n)) }

func (r *run) suspend(f *judge.Fault, victims []*node) error {
	f.Forgets, f.Marks, f.Gone, f.Heal = true, true, true, time.Second
	f.Again = silence(len(victims))
	for _, v := range victims {
		r.cluster.set(v, stopped)
	}
	f.Start = r.recorder.now()
	for _, v := range victims {
		if err := v.signal(syscall.SIGSTOP); err != nil {
			return err
		}
	}
	for _, v := range victims {
		v.stands()
	}
	f.Struck = r.recorder.now()
	r.rest(300, 5000)
	for _, v := range victims {
		if err := v.signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	for _, v := range victims {
		r.cluster.set(v, up)
	}
	return nil
}

// silence is how long it takes until members go on without n of them that are silent.
func silence(n int) time.Duration {
	if n > 1 {
		return 2 * time.Second
	}
	return time.Second
}

// cutOff parts some nodes, fewer than half, from all others.
func (r *run) cutOff(f *judge.Fault, n int) error {
	f.Forgets, f.Marks, f.Cut, f.After = true, true, true, notice
	f.Again, f.Heal = silence(n), 10*time.Second
	minority := r.victims(f, n)
	f.OneOfTwo = r.cluster.copies == 2 && n > 1
	var here, there []string
	all := r.cluster.in(up)
	for _, v := range all {
		if at := r.cluster.net.address(v.index); slices.Contains(minority, v) {
			here = append(here, at)
		} else {
			there = append(there, at)
		}
	}
	f.Start = r.recorder.now()
	for _, v := range all {
		from := here
		if slices.Contains(minority, v) {
			from = there
		}
		if err := r.cluster.net.cut(v.name, from); err != nil {
			return err
		}
	}
	f.Struck = r.recorder.now()
	r.rest(2500, 7000)
	return r.heal(f, all)
}

// cutPair parts two nodes from each other; if it is one way, the second hears nothing of the first.
func (r *run) cutPair(f *judge.Fault, both bool) error {
	f.Marks, f.Again, f.Heal = true, time.Second, 10*time.Second
	v := r.victims(f, 2)
	if err := r.cluster.net.cut(v[1].name,
		[]string{r.cluster.net.address(v[0].index)}); err != nil {
		return err
	}
	if both {
		if err := r.cluster.net.cut(v[0].name,
			[]string{r.cluster.net.address(v[1].index)}); err != nil {
			return err
		}
	}
	f.Struck = r.recorder.now()
	r.rest(2500, 7000)
	return r.heal(f, v)
}

func (r *run) heal(f *judge.Fault, nodes []*node) error {
	f.Undone = r.recorder.now()
	for _, n := range nodes {
		if err := r.cluster.net.heal(n.name); err != nil {
			return err
		}
	}
	return nil
}

// lose drops some packets between all nodes.
func (r *run) lose(f *judge.Fault) error {
	f.Marks, f.Again = true, time.Hour // all of it is excused, until it is over
	all := r.cluster.in(up)
	for _, n := range all {
		if err := r.cluster.net.lose(n.name, 0.005+0.02*r.dice.Float64()); err != nil {
			return err
		}
	}
	f.Struck = r.recorder.now()
	r.rest(2000, 5000)
	return r.heal(f, all)
}

// delay makes every way longer.
func (r *run) delay(f *judge.Fault) error {
	f.Marks, f.Again = true, time.Hour
	all := r.cluster.in(up)
	for _, n := range all {
		if err := r.cluster.net.delay(n.name, fmt.Sprintf("%dms", 5+r.dice.IntN(30))); err != nil {
			return err
		}
	}
	f.Struck = r.recorder.now()
	r.rest(2000, 5000)
	for _, n := range all {
		if err := r.cluster.net.undelay(n.name); err != nil {
			return err
		}
	}
	return nil
}
