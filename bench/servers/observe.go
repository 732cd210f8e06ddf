package servers

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"penstock/bench/contest"
	"penstock/limiter"
	"penstock/rpc/door"
	"penstock/rpc/native"
)

const (
	againName    = "the same once more"
	readyName    = "collector, no check sampled"
	sampledName  = "1 % of the checks sampled"
	unseenName   = "1000 limits without metrics"
	countedName  = "1000 limits with metrics"
	observePoint = "16 × 1"
)

// observe is what it costs to look at a node. The first four are nodes of which only the tracing
// differs; the second of them shows what two nodes differ by that are alike. The last two are this
// program (Alone), since penstock serve always has metrics.
var observe = Row{
	Name: "observe", Title: "What tracing and metrics cost: one node, its own API",
	contestants: []contestant{
		{name: Base, start: ownCheck},
		{name: againName, start: ownCheck},
		{name: readyName, start: traced("0")},
		{name: sampledName, start: traced("0.01")},
		{name: unseenName, start: alone("none")},
		{name: countedName, start: alone("metrics")},
	},
	points:   []Point{{Name: observePoint, Callers: 16, Items: 1}},
	together: askInTurns,
	Tables:   Tables,
	Aims: []contest.Aim{
		costs("tracing off, beside itself: CPU of a check", againName, Base, 1.01),
		costs("tracing on, no check sampled", readyName, Base, 1.01),
		costs("tracing, 1 % of the checks sampled", sampledName, Base, 1.03),
		costs("metrics of 1000 limits, read once a second", countedName, unseenName, 1.02),
	},
}

// costs is the aim of at most so many times the servers' CPU of another one.
func costs(work, contestant, against string, want float64) contest.Aim {
	return contest.Aim{
		Work: work, Job: contest.Job{Contestant: contestant, Point: observePoint},
		Against: jobs(observePoint, against), Figure: serverCPU, Better: contest.Less, Want: want,
	}
}

// traced is a node that sends spans of this share of its checks to a collector in this process,
// which throws them away.
func traced(ratio string) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		collector := httptest.NewServer(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
		r, doors, err := nodes(p, 1, "--trace-endpoint", collector.URL, "--trace-ratio", ratio)
		r.stops = append(r.stops, func() error { collector.Close(); return nil })
		if err != nil {
			return r, err
		}
		return r, r.askCheck(doors[0], "big")
	}
}

// AloneVerb is how this program is told to be Alone.
const AloneVerb = "serve-alone"

// aloneLimits is how many limits it has.
const aloneLimits = 1000

func aloneLimit(i int) string { return fmt.Sprintf("limit-%d", i%aloneLimits) }

// Alone runs a node that is alone and has a thousand limits, until it is killed. args are the
// address for clients, that of the page /metrics, and metrics or none: whether it has metrics.
func Alone(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%s wants two addresses, and metrics or none", AloneVerb)
	}
	specs := make([]limiter.Spec, aloneLimits)
	for i := range specs {
		specs[i] = limiter.Spec{
			Name: aloneLimit(i), Algorithm: limiter.GCRA, Limit: 8_000_000, Per: 8000 * time.Hour,
		}
	}
	n, clock, err := Lone(specs...)
	if err != nil {
		return err
	}
	client, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	page, err := net.Listen("tcp", args[1])
	if err != nil {
		return err
	}
	config := native.Config{Node: n, Clock: clock}
	shown := http.NotFoundHandler()
	if args[2] == "metrics" {
		config.Metrics = door.NewMetrics(n)
		shown = promhttp.HandlerFor(config.Metrics.Registry, promhttp.HandlerOpts{})
	}
	failed := make(chan error, 2)
	go func() { failed <- http.Serve(page, shown) }()
	go func() { failed <- native.NewServer(config).Serve(client) }()
	return <-failed
}

// alone is such a node. Its page is read, whether it shows something or not.
func alone(what string) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r := &running{}
		addrs, err := freePorts("127.0.0.1", 2)
		if err != nil {
			return r, err
		}
		s, err := p.start(p.Self, nil, AloneVerb, addrs[0], addrs[1], what)
		if err != nil {
			return r, err
		}
		r.servers = append(r.servers, s)
		if err := cmp.Or(s.awaitListener(addrs[0]), s.awaitListener(addrs[1])); err != nil {
			return r, err
		}
		r.look = func() error {
			answer, err := http.Get("http://" + addrs[1] + "/metrics")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			_, err = io.Copy(io.Discard, answer.Body)
			if err == nil && what == "metrics" && answer.StatusCode != http.StatusOK {
				err = fmt.Errorf("/metrics answers %s", answer.Status)
			}
			return err
		}
		return r, r.askCheckOf(addrs[0], func() func() string {
			i := 0
			return func() string { i += 7; return aloneLimit(i) }
		})
	}
}

// turns a round has, of each contestant; a page of metrics is read once in so many, which is once a
// second of load.
const (
	roundTurns = 20
	lookTurns  = 10
)

// askInTurns lets callers ask all contestants in short turns, so that the machine does the same to
// all, and adds up what the turns took.
func askInTurns(
	all map[string]*running, p Point, each time.Duration, progress io.Writer,
) (map[string]map[string]float64, error) {
	names := slices.Sorted(maps.Keys(all))
	sums := map[string]*sum{}
	for _, name := range names {
		sums[name] = new(sum)
		load(all[name], p, each/5)
	}
	meter, own := contest.NewMeter(), ownCPU()
	for turn := range roundTurns {
		for i := range names {
			name := names[(i+turn)%len(names)]
			if err := sums[name].turn(all[name], p, each/5, turn%lookTurns == 0); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	var served time.Duration
	for name, s := range sums {
		served += s.served
		if s.fault != nil {
			fmt.Fprintf(progress, "%s: %d calls failed, one with: %v\n", name, s.failed, s.fault)
		}
	}
	others := meter.Others(served + ownCPU() - own)
	figures := map[string]map[string]float64{}
	for name, s := range sums {
		figures[name] = s.figures()
		figures[name][memory] = all[name].resident() / (1 << 20)
		if others >= 0 {
			figures[name][contest.Others] = others
		}
	}
	return figures, nil
}

// sum is what the turns of a contestant took.
type sum struct {
	answers
	elapsed       time.Duration
	served, asked time.Duration
}

// turn has callers ask r for d.
func (s *sum) turn(r *running, p Point, d time.Duration, look bool) error {
	before, err := r.preciseCPU()
	if err != nil {
		return err
	}
	if look && r.look != nil {
		if err := r.look(); err != nil {
			return err
		}
	}
	own, began := ownCPU(), time.Now()
	got := load(r, p, d)
	s.elapsed += time.Since(began)
	s.asked += ownCPU() - own
	after, err := r.preciseCPU()
	s.served += after - before
	s.took, s.failed = append(s.took, got.took...), s.failed+got.failed
	s.fault = cmp.Or(s.fault, got.fault)
	return err
}

func (s *sum) figures() map[string]float64 {
	n := float64(max(1, len(s.took)-s.failed))
	return map[string]float64{
		speed:     n / s.elapsed.Seconds(),
		median:    s.quantile(0.5),
		p99:       s.quantile(0.99),
		p999:      s.quantile(0.999),
		serverCPU: float64(s.served.Nanoseconds()) / 1e3 / n,
		clientCPU: float64(s.asked.Nanoseconds()) / 1e3 / n,
		share:     100 * float64(s.asked) / float64(max(1, s.served+s.asked)),
		failures:  100 * float64(s.failed) / float64(max(1, len(s.took))),
	}
}
