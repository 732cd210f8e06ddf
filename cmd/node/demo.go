package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// demoVerb runs three nodes in one process. They are as real as three processes: they find each
// other by gossip and ask each other over gRPC.
type demoVerb struct {
	LogLevel string `default:"warn" enum:"debug,info,warn,error" help:"debug, info, warn or error."`
	logFormat
}

const (
	demoNodes    = 3
	demoPortStep = 10 // between the ports of two nodes
	demoKey      = "alice"
	demoStart    = 30 * time.Second // at most, until all three know each other
)

// demoLimit is first_hit so that the sixth request within ten seconds is refused whenever one
// begins: with windows aligned to the clock some attempts would straddle two of them, and a bucket
// would refill while one types.
var demoLimit = limiter.Spec{
	Name: "demo", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 5,
	Per: 10 * time.Second,
}

func (v *demoVerb) Run(sh shell) error {
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	bottom, level := &screen{out: sh.out}, new(slog.LevelVar)
	level.Set(levelOf(v.LogLevel))
	logTo := sh.err
	if isTerminal(sh.out) && isTerminal(sh.err) {
		logTo = bottom
	}
	log := newLogger(logTo, v.of(sh.err), level)
	slog.SetDefault(log)
	nodes, err := startThree(signals, log, demoSettings)
	var taken *inUseError
	if errors.As(err, &taken) {
		return fmt.Errorf("%w; the demo needs the ports 7946 to 7950, 7956 to 7960 and "+
			"7966 to 7970", err)
	}
	if err != nil {
		return err
	}
	defer stopAll(nodes)
	defer level.Set(silence) // nodes that all end at once complain about each other
	fmt.Fprint(sh.out, demoGreeting(nodes))
	if isTerminal(sh.out) {
		return watch(signals, nodes, time.Second, func(c counts) { bottom.show(c.table()) })
	}
	last := ""
	return watch(signals, nodes, demoLineEvery, func(c counts) {
		if line := c.line(); line != last {
			last = line
			fmt.Fprintf(sh.out, "%s  %s\n", time.Now().Format(time.TimeOnly), line)
		}
	})
}

// demoLineEvery is how often a demo without a terminal says something, if there is something to
// say.
const demoLineEvery = 5 * time.Second

// demoSettings are node i of the demo: the default ports and each ten higher than the last.
func demoSettings(i int, first *running) (s settings, err error) {
	port := func(base int) string {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(base+i*demoPortStep))
	}
	s = settings{
		TrustRefused: true,
		Name:         fmt.Sprintf("node-%d", i+1), Gossip: port(7946), Peer: port(7947),
		GRPC: port(7948), HTTP: port(7949), Redis: port(7950),
	}
	if first != nil {
		s.Join = []string{first.gossip.Addr()}
	}
	l, err := limiter.New(demoLimit)
	s.named = cluster.Limits{demoLimit.Name: l}
	return s, err
}

// startThree starts three nodes and waits until each of them sees all. describe gives the settings
// of node i, with the first node to join from the second on.
func startThree(ctx context.Context, log *slog.Logger,
	describe func(i int, first *running) (settings, error),
) (nodes []*running, err error) {
	defer func() {
		if err != nil {
			stopAll(nodes)
		}
	}()
	var first *running
	for i := range demoNodes {
		s, err := describe(i, first)
		if err != nil {
			return nodes, err
		}
		s.Cluster, s.Role, s.Memory, s.nodes = "penstock-demo", cluster.RoleMember.String(),
			64<<20, demoNodes
		r, err := start(ctx, s, log.With("node", s.Name))
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, r)
		first = nodes[0]
	}
	ctx, cancel := context.WithTimeout(ctx, demoStart)
	defer cancel()
	for _, r := range nodes {
		for v := r.node.View(); v == nil || v.Active() < demoNodes; v = r.node.View() {
			if sleep(ctx, 20*time.Millisecond); ctx.Err() != nil {
				return nodes, fmt.Errorf("%s has not found the other nodes: %w", r.member.ID,
					context.Cause(ctx))
			}
		}
	}
	return nodes, nil
}

// stopAll stops nodes at once, without goodbye: nobody takes over from them.
func stopAll(nodes []*running) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var stopping sync.WaitGroup
	for _, r := range nodes {
		stopping.Go(func() { r.stop(ctx, 0) })
	}
	stopping.Wait()
}

// demoGreeting says what runs where, and what to do with it. With the command above it and the
// table below it fits a terminal of 80 columns and 24 lines.
func demoGreeting(nodes []*running) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Three nodes in this process, with the limit %q: %d per %v for each key.\n",
		demoLimit.Name, demoLimit.Limit, demoLimit.Per)
	fmt.Fprintf(&b, "Their page: http://%s/ui/ (any node has it). Ctrl-C ends the demo.\n\n",
		nodes[0].member.HTTPAddr)
	rows := [][]string{{"  NODE", "HTTP", "GRPC", "REDIS"}}
	for _, r := range nodes {
		rows = append(rows, []string{
			"  " + r.member.ID, r.member.HTTPAddr, r.member.GRPCAddr,
			r.address("--redis"),
		})
	}
	columns(&b, rows)
	view := nodes[0].node.View()
	owner := view.Members[view.Owner(limiter.Hash(demoKey))].ID
	fmt.Fprintf(&b, "\nAsk any node (%s owns the key %q); the sixth answer in %v is 429:\n\n",
		owner, demoKey, demoLimit.Per)
	fmt.Fprintf(&b, `  for p in %s %s; do
    curl -s -o /dev/null -w '%%{http_code}\n' \
      "http://127.0.0.1:$p/v1/check?limit=%s&key=%s"
  done
`, ports(nodes), ports(nodes), demoLimit.Name, demoKey)
	fmt.Fprintf(&b, "  curl -i 'http://%s/v1/check?limit=%s&key=%s'\n", nodes[2].member.HTTPAddr,
		demoLimit.Name, demoKey)
	_, port, _ := net.SplitHostPort(nodes[0].address("--redis"))
	fmt.Fprintf(&b, "  redis-cli -p %s CL.THROTTLE %s 4 5 10   # this limit comes "+
		"along\n\n", port, demoKey)
	return b.String()
}

// ports are the nodes' HTTP ports, with blanks between.
func ports(nodes []*running) string {
	var words []string
	for _, r := range nodes {
		_, port, _ := net.SplitHostPort(r.member.HTTPAddr)
		words = append(words, port)
	}
	return strings.Join(words, " ")
}

// watch calls show every so often with what the nodes count, until ctx ends or a node fails.
func watch(ctx context.Context, nodes []*running, every time.Duration, show func(counts)) error {
	failed := make(chan error, len(nodes))
	for _, r := range nodes {
		go func() {
			select {
			case err := <-r.failed:
				failed <- err
			case <-ctx.Done():
			}
		}()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	before := countAll(nodes, counts{})
	show(before)
	for {
		select {
		case <-tick.C:
			before = countAll(nodes, before)
			show(before)
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// counts is what the nodes of a demo have counted at one instant.
type counts struct {
	at    time.Time
	nodes []nodeCounts
}

type nodeCounts struct {
	name, state                string
	allowed, denied, forwarded uint64
	keys                       int // that this node decides for: copies for others are theirs
	// checks answered at this node's doors since the counts before
	perSecond float64
}

func countAll(nodes []*running, before counts) counts {
	c := counts{at: time.Now()}
	for i, r := range nodes {
		s, v := r.node.Stats(), r.node.View()
		n := nodeCounts{
			name: r.member.ID, state: v.Me().State.String(), keys: ownKeys(r.node),
			allowed: s.Allowed(), denied: s.Denied(), forwarded: s.Forwarded.Load(),
		}
		if before.nodes != nil {
			b := before.nodes[i]
			n.perSecond = float64(n.allowed+n.denied-b.allowed-b.denied) / c.at.Sub(
				before.at).Seconds()
		}
		c.nodes = append(c.nodes, n)
	}
	return c
}

// ownKeys counts the keys that a node decides for.
func ownKeys(node *cluster.Node) (n int) {
	const page = 10_000
	for from, more := (limiter.Cursor{}), true; more; {
		from, more = node.Keys("", from, page, func(*limiter.Limit, string, limiter.Decision) {
			n++
		})
	}
	return n
}

// table is for a terminal. It is at most 72 columns wide.
func (c counts) table() string {
	var b strings.Builder
	row := func(name, state string, cells ...string) {
		fmt.Fprintf(&b, "%-8s %-8s", name, state)
		for _, cell := range cells {
			fmt.Fprintf(&b, " %10s", cell)
		}
		b.WriteByte('\n')
	}
	row("NODE", "STATE", "CHECKS/S", "ALLOWED", "DENIED", "FORWARDED", "KEYS")
	all := nodeCounts{}
	for _, n := range c.nodes {
		row(n.name, n.state, n.cells()...)
		all.perSecond += n.perSecond
		all.allowed += n.allowed
		all.denied += n.denied
		all.forwarded += n.forwarded
		all.keys += n.keys
	}
	row("all", "", all.cells()...)
	return b.String()
}

func (n nodeCounts) cells() []string {
	return []string{
		fmt.Sprintf("%.1f", n.perSecond), thousands(int64(n.allowed)), thousands(int64(n.denied)),
		thousands(int64(n.forwarded)), thousands(int64(n.keys)),
	}
}

// line is for a log: the totals, and what each node has answered.
func (c counts) line() string {
	var words []string
	for _, n := range c.nodes {
		words = append(words, fmt.Sprintf("%s %s: %d allowed, %d denied", n.name, n.state,
			n.allowed, n.denied))
	}
	return strings.Join(words, "; ")
}
