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
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
)

// demoVerb runs three nodes in one process. They are as real as three processes: they find each
// other by gossip and ask each other over gRPC. On a terminal there is an agent, too, and a key of
// the keyboard kills the owner of a key and brings it back.
type demoVerb struct {
	LogLevel string `default:"error" enum:"debug,info,warn,error" help:"debug, info, warn, error."`
	logFormat
}

const (
	demoNodes    = 3
	demoPortStep = 10 // between the ports of two nodes
	demoKey      = "alice"
	demoStart    = 30 * time.Second // at most, until all know each other
)

// demoLimit is first_hit so that the sixth request within ten seconds is refused whenever one
// begins: with windows aligned to the clock some attempts would straddle two of them, and a bucket
// would refill while one types.
var demoLimit = limiter.Spec{
	Name: "demo", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 5,
	Per: 10 * time.Second,
}

// demoQuota counts what is sent while a node is killed. Its window is long, so each unit that the
// heir did not know of is seen.
var demoQuota = limiter.Spec{
	Name: "quota", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 10_000,
	Per: time.Hour,
}

// demoSpecs are the limits of the demo.
var demoSpecs = []limiter.Spec{
	demoLimit, demoQuota,
	{Name: "api", Algorithm: limiter.GCRA, Limit: 100, Per: time.Second, Burst: 200},
	{Name: "login", Algorithm: limiter.SlidingWindow, Limit: 10, Per: time.Minute},
}

// demoRules put requests under limits by what they are.
var demoRules = []rules.Rule{
	{
		Name: "logins", Match: map[string][]string{"path": {"/login*"}},
		Apply: []rules.Apply{{Limit: "login", Key: "{user}"}},
	},
	{
		Name: "calls", Match: map[string][]string{"path": {"/api/*"}},
		Apply: []rules.Apply{{Limit: "api", Key: "{user}"}, {Limit: "quota", Key: "{user}"}},
	},
}

// loadDemo puts limits and rules of the demo into s.
func loadDemo(s *settings) error {
	s.named = cluster.Limits{}
	for _, spec := range demoSpecs {
		l, err := limiter.New(spec)
		if err != nil {
			return err
		}
		s.named[spec.Name] = l
	}
	var err error
	s.ruled, err = rules.New(demoRules, s.named)
	return err
}

func (v *demoVerb) Run(sh shell) error {
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	defer stop()
	level := new(slog.LevelVar)
	level.Set(levelOf(v.LogLevel))
	bottom := &screen{out: sh.out}
	logTo := sh.err
	if isTerminal(sh.out) && isTerminal(sh.err) {
		logTo = bottom
	}
	log := newLogger(logTo, v.of(sh.err), level)
	slog.SetDefault(log)
	d, err := startDemo(ctx, log, demoSettings, sh.keyboard() != nil)
	var taken *inUseError
	if errors.As(err, &taken) {
		return fmt.Errorf("%w; the demo needs the ports 7946 to 7950, 7956 to 7960 and "+
			"7966 to 7970, and on a terminal 7976 to 7980", err)
	}
	if err != nil {
		return err
	}
	defer d.stop()
	defer level.Set(silence) // nodes that all end at once complain about each other
	fmt.Fprint(sh.out, demoGreeting(d.nodes))
	switch {
	case sh.keyboard() != nil:
		return d.operate(ctx, sh, bottom)
	case isTerminal(sh.out):
		return d.watch(ctx, time.Second, func(c counts) { bottom.show(c.table()) })
	}
	last := ""
	return d.watch(ctx, demoLineEvery, func(c counts) {
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
		Name:        fmt.Sprintf("node-%d", i+1),
		memberFlags: memberFlags{TrustRefused: true},
		doorFlags: doorFlags{
			Gossip: port(7946), Peer: port(7947), GRPC: port(7948), HTTP: port(7949),
			Redis: port(7950),
		},
	}
	if first != nil {
		s.Join = []string{first.gossip.Addr()}
	}
	return s, loadDemo(&s)
}

// demo is the nodes of a demo.
type demo struct {
	log    *slog.Logger
	failed chan error // gets what ends a node at work

	mu    sync.Mutex // guards below
	nodes []*running // by number; the agent comes last
	down  int        // number of the one that was killed; −1: none
}

// startDemo starts three nodes and, if one is wanted, an agent. See startThree for describe.
func startDemo(ctx context.Context, log *slog.Logger,
	describe func(i int, first *running) (settings, error), agent bool,
) (*demo, error) {
	nodes, err := startThree(ctx, log, describe)
	if err != nil {
		return nil, err
	}
	d := &demo{log: log, failed: make(chan error, 1), nodes: nodes, down: -1}
	if agent {
		if err := d.startAgent(ctx, describe); err != nil {
			d.stop()
			return nil, err
		}
	}
	for _, r := range d.nodes {
		d.follow(r)
	}
	return d, nil
}

// startAgent starts one, and waits until it knows the members.
func (d *demo) startAgent(ctx context.Context,
	describe func(i int, first *running) (settings, error),
) error {
	s, err := describe(demoNodes, d.nodes[0])
	if err != nil {
		return err
	}
	s.Name, s.Role = "agent-1", cluster.RoleAgent.String()
	r, err := startOne(ctx, s, d.log)
	if err != nil {
		return err
	}
	d.nodes = append(d.nodes, r)
	ctx, cancel := context.WithTimeout(ctx, demoStart)
	defer cancel()
	select {
	case <-r.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s has not found the nodes: %w", s.Name, context.Cause(ctx))
	}
}

// follow has the end of a node at work end the demo. A node that is stopped leaves first.
func (d *demo) follow(r *running) {
	r.tasks.Go(func() {
		select {
		case err := <-r.failed:
			select {
			case d.failed <- err:
			default:
			}
		case <-r.leaving.Done():
		}
	})
}

// stop stops all nodes at once.
func (d *demo) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	stopAll(d.living())
}

// living are the nodes that are not down. The caller holds mu, or is alone.
func (d *demo) living() (list []*running) {
	for i, r := range d.nodes {
		if i != d.down {
			list = append(list, r)
		}
	}
	return list
}

// startOne starts a node of the demo's cluster.
func startOne(ctx context.Context, s settings, log *slog.Logger) (*running, error) {
	s.Cluster, s.Memory, s.nodes = "penstock-demo", 64<<20, demoNodes
	return start(ctx, s, log.With("node", s.Name))
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
		s.Role = cluster.RoleMember.String()
		r, err := startOne(ctx, s, log)
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

// demoGreeting says where the page is, what runs where, and what to do with it. With the command
// above it and the table below it fits a terminal of 80 columns and 24 lines.
func demoGreeting(nodes []*running) string {
	var b strings.Builder
	what := "Three nodes"
	if len(nodes) > demoNodes {
		what += " and an agent"
	}
	fmt.Fprintf(&b, "Page of the cluster: http://%s/ui/ (any node has it)\n",
		nodes[0].member.HTTPAddr)
	fmt.Fprintf(&b, "%s. Limit %q: %d per %v for each key. Ctrl-C ends.\n",
		what, demoLimit.Name, demoLimit.Limit, demoLimit.Per)
	rows := [][]string{{"  NODE", "HTTP", "GRPC", "REDIS"}}
	for _, r := range nodes {
		rows = append(rows, []string{
			"  " + r.member.ID, r.member.HTTPAddr, r.member.GRPCAddr,
			r.doors.address("--redis"),
		})
	}
	columns(&b, rows)
	fmt.Fprintf(&b, "Ask any node (%s owns the key %q); the sixth answer in %v is 429:\n",
		ownerOf(nodes[0], demoKey), demoKey, demoLimit.Per)
	members := ports(nodes[:demoNodes])
	fmt.Fprintf(&b, `  for p in %s %s; do curl -so /dev/null \
    -w '%%{http_code}\n' "127.0.0.1:$p/v1/check?limit=%s&key=%s"; done
`, members, members, demoLimit.Name, demoKey)
	fmt.Fprintf(&b, "  curl -i 'http://%s/v1/check?limit=%s&key=%s'\n", nodes[2].member.HTTPAddr,
		demoLimit.Name, demoKey)
	_, port, _ := net.SplitHostPort(nodes[0].doors.address("--redis"))
	fmt.Fprintf(&b, "  redis-cli -p %s CL.THROTTLE %s 4 5 10   # this limit comes "+
		"along\n", port, demoKey)
	fmt.Fprintf(&b, "  penstock check -a path=/api/orders -a user=%s   # rules choose limits\n\n",
		demoKey)
	return b.String()
}

// ownerOf is the name of the node that owns a key in the ring that r sees.
func ownerOf(r *running, key string) string {
	view := r.node.View()
	return view.Members[view.Owner(limiter.Hash(key))].ID
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
