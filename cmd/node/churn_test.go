package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

var (
	churnNodes = flag.Int("churn.nodes", 3, "nodes of the clusters in TestChurn")
	churnCopy  = flag.Int("churn.copies", 1,
		"--copies of the clusters in TestChurn; with 2 and five nodes, two die at once as well")
	churnLive = flag.Int("churn.live", 3000,
		"keys in TestChurn that have been charged before, and must keep their counts")
	churnRate  = flag.Int("churn.rate", 300, "checks per second in TestChurn")
	churnLimit = flag.Int64("churn.limit", 40, "limit of each of the keys that TestChurn asks for")
	churnFor   = flag.Duration("churn.for", 2*time.Second,
		"how long TestChurn goes on after each fault")
	churnStop = flag.Duration("churn.stop", 6*time.Second,
		"how long TestChurn stops a node with SIGSTOP, beside a second")
	churnSteps = flag.Int("churn.steps", 0,
		"rounds of each kind in TestStepByStep; with 0 it takes two of one kind and one of another")
	churnFailover = flag.Duration("churn.failover", time.Second,
		"--failover of the clusters in TestChurn")
	churnOut = flag.String("churn.out", "",
		"file that TestChurn's table is written to, as Markdown")
)

const churnLimits = `
limits:
  - {name: hot, algorithm: fixed_window, anchor: first_hit, limit: %d, per: 10m}
  - {name: live, algorithm: gcra, limit: 10, per: 240h}
`

// A fault is what TestChurn does to a cluster under load. Promised is the extra that the deciding
// nodes may admit for a key that is asked lambda times a second. Nodes that fall back, and say so,
// use their shares.
type fault struct {
	name     string
	run      func(c *churn)
	promised func(lambda float64) int64
}

var churns = []fault{
	{"nothing", func(c *churn) {}, none},
	// what a process costs that takes over nothing
	{"an agent joins", func(c *churn) { c.addAgents(len(c.nodes)) }, none},
	{"a node joins", func(c *churn) { c.add(len(c.nodes)) }, none},
	{"two agents join at once", func(c *churn) { c.addAgents(len(c.nodes), len(c.nodes)+1) }, none},
	{"two nodes join at once", func(c *churn) { c.add(len(c.nodes), len(c.nodes)+1) }, none},
	{"a node leaves (SIGTERM)", func(c *churn) { c.leave(1) }, none},
	{"rolling restart of all", func(c *churn) {
		for i := range c.nodes {
			c.leave(i)
			c.add(i)
		}
	}, none},
	{"a node dies (kill -9)", func(c *churn) { c.signal(1, syscall.SIGKILL) }, lastTick},
	{"a node dies while it hands over (SIGTERM, kill -9)", func(c *churn) {
		c.signal(1, syscall.SIGTERM)
		time.Sleep(stopGrace + 50*time.Millisecond)
		_ = c.nodes[1].cmd.Process.Kill() // it may have ended by itself
	}, lastTick},
}

func none(float64) int64 { return 0 }

// lastTick is λ×(s+d): what is charged in the last 100 ms before a crash, and on its way, is
// forgotten. d is taken as large as s, for a machine on which everything shares a few cores.
func lastTick(lambda float64) int64 { return int64(math.Ceil(lambda * 0.2)) }

// churn is a cluster of processes under load.
type churn struct {
	t      *testing.T
	limits string
	nodes  []*process

	clients atomic.Pointer[[]*client.Client] // of the nodes that live
	asked   *asked
	fences  bool // a node was stopped
}

// add starts nodes, or starts them again, all at once.
func (c *churn) add(indices ...int) { c.start(nil, indices...) }

// addAgents starts nodes that own nothing.
func (c *churn) addAgents(indices ...int) { c.start([]string{"--role", "agent"}, indices...) }

func (c *churn) start(role []string, indices ...int) {
	args := append(c.flags(), role...)
	started := make([]*process, len(indices))
	var all sync.WaitGroup
	for k, i := range indices {
		all.Go(func() { started[k] = serveProcess(c.t, fmt.Sprintf("n%d", i+1), args...) })
	}
	all.Wait()
	before := len(c.nodes)
	for k, i := range indices {
		if i == len(c.nodes) {
			c.nodes = append(c.nodes, nil)
		}
		c.nodes[i] = started[k]
	}
	if slices.Min(indices) < before {
		before = 0 // a returning node listens elsewhere: all must know
	}
	c.dialFrom(before)
	active := 0
	for _, p := range c.nodes {
		if p.alive() {
			active++
		}
	}
	for _, p := range c.nodes {
		if p.alive() {
			waitForMembers(c.t, p, active)
		}
	}
}

// flags are those of a node that joins the others.
func (c *churn) flags() []string {
	flags := []string{
		"--limits", c.limits, "--copies", fmt.Sprint(*churnCopy),
		"--failover", churnFailover.String(),
	}
	for _, p := range c.nodes {
		if p.alive() {
			return append(flags, "--join", p.gossip)
		}
	}
	return flags
}

func (c *churn) leave(i int) {
	began := time.Now()
	c.signal(i, syscall.SIGTERM)
	if code := c.nodes[i].exitCode(c.t); code != 0 {
		c.t.Errorf("%s leaves with exit code %d", c.nodes[i].name, code)
	}
	c.t.Logf("%s has handed over and left %v after SIGTERM", c.nodes[i].name,
		time.Since(began).Round(time.Millisecond))
}

func (c *churn) signal(i int, s syscall.Signal) {
	if err := c.nodes[i].cmd.Process.Signal(s); err != nil {
		c.t.Error(err)
	}
}

// pause stops a node. When it goes on it must not go by what it knew: of what others have used up
// meanwhile it admits nothing.
func (c *churn) pause(i int, d time.Duration) {
	c.fences = true
	c.signal(i, syscall.SIGSTOP)
	time.Sleep(d)
	c.signal(i, syscall.SIGCONT)
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// asked is what clients saw.
type asked struct {
	prefix string // of the keys that are asked for

	checks, failed, degraded atomic.Int64
	admitted                 [hotKeys]atomic.Int64
	first                    atomic.Pointer[error]

	// Set by tests that judge each answer: the units that were admitted of a key and can be
	// forgotten by no fault any more, and whether those that are admitted now are such.
	sure     [hotKeys]atomic.Int64
	counting atomic.Bool

	mu      sync.Mutex // guards below
	latency []time.Duration
	right   [hotKeys][]time.Time // when a key had a right answer: by its owner, within the deadline
	// when a key had an answer of a node that decides for it, marked or not
	decided [hotKeys][]time.Time
	wrong   []string  // answers without a mark that have forgotten what is sure
	ended   time.Time // nobody asks any more
	// when the deciding node first denied a key: its window is longer than the test; zero: never
	used  [hotKeys]time.Time
	stale int // undegraded yes to what was asked after that
}

const hotKeys = 30

// ask asks for the hot keys in turn until stop, at the rate, through all running nodes. A key is
// not asked for before its turn, even if others fail.
func (c *churn) ask(stop chan struct{}) {
	a := c.asked
	var all sync.WaitGroup
	ticker := time.NewTicker(time.Millisecond) // the machine may know no shorter one
	defer ticker.Stop()
	began := time.Now()
	for i := 0; ; {
		select {
		case <-stop:
			a.ended = time.Now()
			all.Wait()
			return
		case <-ticker.C:
		}
		clients := *c.clients.Load()
		for ; i < int(time.Since(began).Seconds()*float64(*churnRate)); i++ {
			// not always the same node for a key
			to, key := clients[(i+i/hotKeys)%len(clients)], i%hotKeys
			all.Go(func() { a.check(c.t.Context(), to, key) })
		}
	}
}

func (a *asked) check(ctx context.Context, to *client.Client, key int) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	began, sure, counting := time.Now(), a.sure[key].Load(), a.counting.Load()
	d, err := checkItems(ctx, to, []*penstockv1.Item{item("hot", a.name(key))})
	took := time.Since(began)
	a.checks.Add(1)
	switch {
	case err != nil:
		a.failed.Add(1)
		// that is a slow machine: a figure, not a fault
		if !errors.Is(err, context.DeadlineExceeded) {
			a.first.CompareAndSwap(nil, &err)
		}
		return
	case d[0].Degraded:
		a.degraded.Add(1)
	}
	if d[0].Allowed {
		a.admitted[key].Add(1)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latency = append(a.latency, took)
	if !d[0].Degraded || d[0].Source != penstockv1.Source_SOURCE_FALLBACK {
		a.decided[key] = append(a.decided[key], time.Now())
	}
	if !d[0].Degraded {
		a.judge(key, sure, counting, d[0])
		a.right[key] = append(a.right[key], time.Now())
		if !d[0].Allowed && a.used[key].IsZero() {
			a.used[key] = time.Now()
		}
		if d[0].Allowed && !a.used[key].IsZero() && began.After(a.used[key]) {
			a.stale++
		}
	}
}

func (a *asked) name(key int) string { return fmt.Sprintf("%shot-%d", a.prefix, key) }

// judge looks whether an answer without a mark knows of all units that were sure when the question
// was asked, and counts what it admits.
func (a *asked) judge(key int, sure int64, counting bool, d *penstockv1.Decision) {
	own := int64(0)
	if d.Allowed {
		own = 1
	}
	if used := d.Limit - d.Remaining - own; used < sure {
		a.wrong = append(a.wrong, fmt.Sprintf("%s: %d units were sure, and without a mark an "+
			"answer knows of %d: %v", a.name(key), sure, used, d))
	}
	if counting {
		a.sure[key].Add(own)
	}
}

// extra is what was admitted of the hot keys beyond their limit: of all, and of the worst.
func (a *asked) extra(limit int64) (sum, worst int64) {
	for i := range a.admitted {
		over := max(0, a.admitted[i].Load()-limit)
		sum, worst = sum+over, max(worst, over)
	}
	return sum, worst
}

func (a *asked) p99() time.Duration {
	slices.Sort(a.latency)
	if len(a.latency) == 0 {
		return 0
	}
	return a.latency[len(a.latency)*99/100]
}

// gaps are the longest times that keys were without a right answer: of the key in the middle, and
// of the worst. In them is the time from one question to the next.
func (a *asked) gaps() (middle, worst time.Duration) { return a.gapsOf(&a.right) }

func (a *asked) gapsOf(answers *[hotKeys][]time.Time) (middle, worst time.Duration) {
	var longest [hotKeys]time.Duration
	for key, at := range answers {
		at = append(slices.SortedFunc(slices.Values(at), time.Time.Compare), a.ended)
		for i := 1; i < len(at); i++ {
			longest[key] = max(longest[key], at[i].Sub(at[i-1]))
		}
	}
	slices.Sort(longest[:])
	return longest[hotKeys/2], longest[hotKeys-1]
}

// TestChurn asks real clusters of processes while nodes come, go and die, and counts what is
// admitted beyond the limit, what fails, and which counts are lost. Joins, leaves and rolling
// restarts cost nothing of it; a node that dies or is stopped takes its last tick along. With more
// keys, a higher rate and more time it measures:
//
//	go test ./cmd/node -run TestChurn -v -timeout 30m -churn.live=1000000 -churn.rate=2000 \
//		-churn.for=10s -churn.nodes=5 -churn.stop=30s
func TestChurn(t *testing.T) {
	table := []string{
		"| fault | checks | errors | degraded | extra | of one key | promised | counts lost | " +
			"p99 | a key without a right answer: the middle one | the worst |",
		"|---|---|---|---|---|---|---|---|---|---|---|",
	}
	faults := churns
	for _, d := range []time.Duration{time.Second, *churnStop} {
		name := fmt.Sprintf("a node is stopped (SIGSTOP) for %v and goes on", d)
		faults = append(faults, fault{name, func(c *churn) { c.pause(1, d) }, lastTick})
	}
	if *churnCopy > 1 && *churnNodes > 4 {
		faults = append(faults, fault{"two nodes die at once (kill -9)", func(c *churn) {
			c.signal(1, syscall.SIGKILL)
			c.signal(2, syscall.SIGKILL)
		}, lastTick})
	}
	for _, x := range faults {
		t.Run(x.name, func(t *testing.T) {
			limits := write(t, fmt.Sprintf(churnLimits, *churnLimit))
			c := &churn{t: t, limits: limits, asked: new(asked)}
			for i := range *churnNodes {
				c.add(i)
			}
			c.dialFrom(0) // so that each knows all
			c.settled()
			c.chargeLive()

			stop := make(chan struct{})
			var asking sync.WaitGroup
			asking.Go(func() { c.ask(stop) })
			time.Sleep(500 * time.Millisecond)
			x.run(c)
			time.Sleep(*churnFor)
			close(stop)
			asking.Wait()
			a := c.asked

			sum, worst := a.extra(*churnLimit)
			promised := min(*churnLimit, x.promised(float64(*churnRate)/hotKeys))
			lost := c.lostLive()
			middle, longest := a.gaps()
			table = append(table,
				fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d of %d | %v | %v | %v |",
					x.name,
					a.checks.Load(), a.failed.Load(), a.degraded.Load(), sum, worst, promised, lost,
					*churnLive,
					a.p99().Round(100*time.Microsecond), middle.Round(time.Millisecond),
					longest.Round(time.Millisecond)))
			// At any load of the machine, a crashed owner can forget no more than a limit, and
			// nodes that fall back admit no more than their shares. How much of that a fault costs
			// is a figure.
			most := int64(0)
			if promised > 0 {
				most += *churnLimit
			}
			if a.degraded.Load() > 0 {
				most += *churnLimit
			}
			if worst > most {
				t.Errorf("%d of a key are admitted beyond its limit; there can be %d at most",
					worst, most)
			}
			if c.fences && a.stale > 0 {
				t.Errorf("%d times a key was admitted, undegraded, that had been used up: by a "+
					"node that went on where it was stopped", a.stale)
			}
			if lost > 0 {
				t.Errorf("%d of %d keys have lost what was charged to them long before", lost,
					*churnLive)
			}
			if e := a.first.Load(); e != nil && promised == 0 {
				t.Errorf("%d of %d checks have failed: %v", a.failed.Load(), a.checks.Load(), *e)
			} else if e != nil {
				t.Logf("the first error: %v", *e)
			}
		})
	}
	text := strings.Join(table, "\n") + "\n"
	t.Logf("%d nodes, %d live keys, %d checks a second over %d keys with limit %d:\n%s",
		*churnNodes, *churnLive, *churnRate, hotKeys, *churnLimit, text)
	if *churnOut != "" {
		if err := os.WriteFile(*churnOut, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// dialFrom makes clients for the nodes from that one on, each of which uses the others when its own
// cannot be reached; those of nodes before it stay. They are connected when they are first asked:
// what that takes is not the cluster's.
func (c *churn) dialFrom(first int) {
	var clients []*client.Client
	if first > 0 {
		clients = slices.Clone(*c.clients.Load())
	}
	for i := first; i < len(c.nodes); i++ {
		var targets []string
		for k := range c.nodes {
			if p := c.nodes[(i+k)%len(c.nodes)]; p.alive() {
				targets = append(targets, p.grpc)
			}
		}
		to, err := client.New(client.Config{Targets: targets})
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { to.Close() })
		if _, err := adminOf(to).Members(c.t.Context(), &penstockv1.MembersRequest{}); err != nil {
			c.t.Fatal(err)
		}
		clients = append(clients, to)
	}
	c.clients.Store(&clients)
}

// liveBatch is how many live keys are asked for at once.
const liveBatch = 1000

// chargeLive takes 3 of 10 from every live key.
func (c *churn) chargeLive() {
	c.eachLive(3, *churnLive, func(d *penstockv1.Decision) {
		if !d.Allowed {
			c.t.Errorf("a live key before the fault: %v", d)
		}
	})
	c.settled()
	awaitCopies(c.t, c.nodes)
}

// settled waits until no live key's answer is degraded.
func (c *churn) settled() {
	var last *penstockv1.Decision
	degraded := 0
	for range 300 {
		degraded = 0
		// some of each partition
		c.eachLive(0, min(*churnLive, 20_000), func(d *penstockv1.Decision) {
			if d.Degraded {
				degraded++
				last = d
			}
		})
		if degraded == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Errorf("%d answers stay degraded, the last of them %v", degraded, last)
}

// lostLive counts the live keys with more than 7 left, once the right node decides.
func (c *churn) lostLive() (lost int) {
	c.settled()
	c.eachLive(0, *churnLive, func(d *penstockv1.Decision) {
		if d.Remaining > 7 {
			lost++
		}
	})
	return lost
}

func (c *churn) eachLive(cost int64, most int, see func(*penstockv1.Decision)) {
	to := dial(c.t, c.nodes[0])
	for from := 0; from < most; from += liveBatch {
		var items []*penstockv1.Item
		for i := from; i < min(from+liveBatch, most); i++ {
			items = append(items, &penstockv1.Item{
				Limit: "live",
				Key:   fmt.Appendf(nil, "live-%d", i), Cost: &cost,
			})
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		decisions, err := checkItems(ctx, to, items)
		cancel()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, d := range decisions {
			see(d)
		}
	}
}
