package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"penstock/cluster"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// benchVerb loads a cluster and judges what it admits.
type benchVerb struct {
	Addr    []string      `default:"127.0.0.1:7948" placeholder:"HOST:PORT" help:"gRPC doors to load, with commas; each request goes to one at random, or if that is down to the next."`
	Self    bool          `help:"Start three nodes in this process and load those."`
	Remote  bool          `help:"Allow addresses off loopback: only if those who run that cluster agree."`
	Timeout time.Duration `default:"1s" help:"Deadline of each request."`

	Rate     float64       `default:"2000" help:"Requests per second, sent on time whatever the answers; 0: as fast as the workers get answers."`
	Duration time.Duration `short:"d" default:"10s" help:"How long to send, 1h at most."`
	Workers  int           `short:"w" default:"64" help:"Requests under way at once, at most."`
	Batch    int           `default:"1" help:"Checks per request."`
	Cost     int64         `default:"1" help:"Units per check."`

	Keys   int     `default:"1000" help:"Number of keys."`
	Dist   string  `default:"zipf" enum:"zipf,uniform" help:"How often each key is drawn: zipf or uniform."`
	Zipf   float64 `default:"1.1" help:"Exponent of zipf, above 1: higher means that few keys get more."`
	Prefix string  `help:"Beginning of every key. Default: drawn anew, so that the keys are new, as the count of admissions needs."`
	Seed   uint64  `default:"1" help:"Seed of the random keys."`

	Limit string `placeholder:"NAME" help:"Check this limit of the cluster. Its window is not known here: admissions are then not judged."`
	inline
	credentials
	output
}

// The limit that is checked if the command line has none.
var benchLimit = inline{Algorithm: "gcra", LimitCount: 100, Per: per(time.Second)}

func (v *benchVerb) Run(sh shell) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := v.check(); err != nil {
		return err
	}
	if v.Self {
		nodes, err := startThree(ctx, newLogger(sh.err, logFormat{}.of(sh.err), slog.LevelError),
			selfSettings)
		if err != nil {
			return err
		}
		defer stopAll(nodes)
		v.Addr = nil
		for _, r := range nodes {
			v.Addr = append(v.Addr, r.member.GRPCAddr)
		}
	}
	t, err := v.target()
	if err != nil {
		return err
	}
	defer t.close()
	if err := v.warmUp(ctx, t); err != nil {
		return err
	}

	l := load{
		rate: v.Rate, duration: v.Duration, workers: v.Workers, seed: v.Seed, pause: pause,
		sender: t.sender,
	}
	counts := new(tally)
	done := showProgress(sh.err, v.Duration, counts)
	m := l.run(ctx, counts)
	done()
	report := v.report(t, counts, m)
	if err := v.print(sh.out, report, report.write); err != nil {
		return err
	}
	return report.failure(counts)
}

// checkLoad says what is wrong with how much is asked, and for how long.
func (v *benchVerb) checkLoad() error {
	switch {
	case v.Rate < 0 || v.Rate > 1e7:
		return fmt.Errorf("--rate %v: give 0 to 10000000 requests per second", v.Rate)
	case v.Duration < 10*time.Millisecond || v.Duration > time.Hour:
		return fmt.Errorf("--duration %v: give 10ms to 1h", v.Duration)
	case v.Workers < 1 || v.Workers > 10000:
		return fmt.Errorf("--workers %d: give 1 to 10000", v.Workers)
	}
	return nil
}

// check says what is wrong with the flags.
func (v *benchVerb) check() error {
	if err := v.checkLoad(); err != nil {
		return err
	}
	switch {
	case v.Batch < 1 || v.Batch > cluster.MaxItems:
		return fmt.Errorf("--batch %d: give 1 to %d", v.Batch, cluster.MaxItems)
	case v.Cost < 1 || v.Cost > maxUnits:
		return fmt.Errorf("--cost %d: give 1 to %d", v.Cost, maxUnits)
	case v.Keys < 1 || v.Keys > 10_000_000:
		return fmt.Errorf("--keys %d: give 1 to 10000000", v.Keys)
	case v.Zipf <= 1 || v.Zipf > 10:
		return fmt.Errorf("--zipf %v: give more than 1, at most 10", v.Zipf)
	case v.Timeout < time.Millisecond || v.Timeout > time.Minute:
		return fmt.Errorf("--timeout %v: give 1ms to 1m", v.Timeout)
	case len(v.Prefix) > cluster.MaxKey-16:
		return fmt.Errorf("--prefix: has %d bytes; at most %d leave room for the rest of the key",
			len(v.Prefix), cluster.MaxKey-16)
	case v.Limit != "" && v.given():
		return errors.New("give --limit or an inline limit (--algorithm …), not both")
	}
	return v.checkTargets()
}

// checkTargets refuses other machines, unless they are meant.
func (v *benchVerb) checkTargets() error {
	for _, addr := range v.Addr {
		d, err := parseTarget(addr)
		if err != nil {
			return err
		}
		if !v.Remote && !d.loopback() {
			return fmt.Errorf("--addr %s is another machine: a load generator can take it down; "+
				"say --remote if that is meant", addr)
		}
	}
	return nil
}

// selfSettings are node i of bench --self: on free ports.
func selfSettings(i int, first *running) (settings, error) {
	const free = "127.0.0.1:0"
	s := settings{
		TrustRefused: true, Name: fmt.Sprintf("node-%d", i+1), Gossip: free, Peer: free,
		GRPC: free, HTTP: "off",
	}
	if first != nil {
		s.Join = []string{first.gossip.Addr()}
	}
	return s, nil
}

// target is what the workers of a run share.
type target struct {
	// one per address, which asks the next ones while that is down
	clients []*client.Client
	drawer  func(r *mathrand.Rand) (draw func() int) // of keys' numbers
	prefix  string
	limit   string
	inline  *penstockv1.InlineLimit
	rule    string // the limit in words
	oracle  *oracle
	batch   int
	cost    int64
	timeout time.Duration
}

func (v *benchVerb) target() (*target, error) {
	t := &target{prefix: v.Prefix, limit: v.Limit, batch: v.Batch, cost: v.Cost, timeout: v.Timeout}
	if t.prefix == "" {
		t.prefix = "bench-" + rand.Text()[:8] + "-"
	}
	if v.Limit == "" {
		l := v.inline
		if !l.given() {
			l = benchLimit
		}
		limit, wire, err := l.limit("bench")
		if err != nil {
			return nil, err
		}
		t.inline, t.oracle = wire, newOracle(limit, v.Cost, v.Keys)
		t.rule = fmt.Sprintf("%s, %s per %v", l.Algorithm, thousands(limit.Limit), limit.Per)
	} else {
		t.rule = v.Limit + " of the cluster"
	}
	for i := range v.Addr {
		c, err := v.dial(slices.Concat(v.Addr[i:], v.Addr[:i]))
		if err != nil {
			t.close()
			return nil, err
		}
		t.clients = append(t.clients, c)
	}
	t.drawer = v.drawer
	return t, nil
}

// drawer draws numbers of keys for one worker from its source r.
func (v *benchVerb) drawer(r *mathrand.Rand) (draw func() int) {
	if v.Dist == "uniform" || v.Keys == 1 {
		return func() int { return r.IntN(v.Keys) }
	}
	z := mathrand.NewZipf(r, v.Zipf, 1, uint64(v.Keys-1))
	return func() int { return int(z.Uint64()) }
}

func (t *target) close() {
	for _, c := range t.clients {
		c.Close()
	}
}

// warmUp opens every connection, and finds out before the clock runs whether there is a node at
// each address: once it does, one that is missing goes unnoticed.
func (v *benchVerb) warmUp(ctx context.Context, t *target) error {
	ask := func(c *client.Client, addr string) error {
		ctx, cancel := context.WithTimeout(ctx, max(v.Timeout, 2*time.Second))
		defer cancel()
		_, err := adminOf(c).Members(ctx, &penstockv1.MembersRequest{})
		return client.Explain(err, []string{addr})
	}
	for i, addr := range v.Addr {
		alone, err := v.dial([]string{addr})
		if err != nil {
			return err
		}
		err = ask(alone, addr)
		alone.Close()
		if err == nil {
			err = ask(t.clients[i], addr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sender makes the requests of one worker.
func (t *target) sender(r *mathrand.Rand) sendFunc {
	draw := t.drawer(r)
	return func(ctx context.Context) outcome {
		items, keys := make([]*penstockv1.Item, t.batch), make([]int, t.batch)
		for i := range items {
			keys[i] = draw()
			items[i] = &penstockv1.Item{
				Limit: t.limit, Inline: t.inline, Key: strconv.AppendInt([]byte(t.prefix),
					int64(keys[i]), 10), Cost: &t.cost,
			}
		}
		// A call that is under way when the run ends has its whole time: its answer still counts.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout)
		defer cancel()
		decisions, err := checkItems(ctx, t.clients[r.IntN(len(t.clients))], items, false)
		if err != nil || len(decisions) != t.batch {
			return outcome{failed: t.batch, err: err}
		}
		return t.count(keys, decisions)
	}
}

func (t *target) count(keys []int, decisions []*penstockv1.Decision) (o outcome) {
	for i, d := range decisions {
		if d.Allowed {
			o.allowed++
		} else {
			o.denied++
		}
		if d.Degraded {
			o.degraded++
		}
		if t.oracle != nil {
			t.oracle.count(keys[i], d.Allowed)
		}
	}
	return o
}

// benchReport is the result of a run.
type benchReport struct {
	Targets   []string    `json:"targets"`
	Limit     string      `json:"limit"`
	Seconds   float64     `json:"seconds"`
	Workers   int         `json:"workers"`
	Batch     int         `json:"batch"`
	Keys      int         `json:"keys"`
	Dist      string      `json:"dist"`
	Wanted    float64     `json:"requests_per_second_wanted"` // 0: as fast as possible
	Requests  int64       `json:"requests"`
	PerSecond float64     `json:"requests_per_second"`
	Checks    int64       `json:"checks"`
	ChecksPS  float64     `json:"checks_per_second"`
	Allowed   int64       `json:"allowed"`
	Denied    int64       `json:"denied"`
	Degraded  int64       `json:"degraded"`
	Failed    int64       `json:"errors"`
	Unsent    int64       `json:"requests_unsent"`
	FirstErr  string      `json:"first_error,omitempty"`
	Latency   percentiles `json:"latency_us"`
	Lag       percentiles `json:"send_lag_us"`
	Verdict   *verdict    `json:"admitted,omitempty"` // nil: not judged
}

// percentiles are µs.
type percentiles struct {
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

func percentilesOf(h *hdrhistogram.Histogram) percentiles {
	q := h.ValueAtQuantile
	return percentiles{P50: q(50), P90: q(90), P99: q(99), P999: q(99.9), Max: h.Max()}
}

func (v *benchVerb) report(t *target, c *tally, m measured) *benchReport {
	seconds := m.last.Sub(m.first).Seconds()
	b := &benchReport{
		Targets: v.Addr, Limit: t.rule, Seconds: round(seconds), Workers: v.Workers, Batch: v.Batch,
		Keys: v.Keys, Dist: v.Dist,
		Wanted: v.Rate, Requests: c.requests.Load(), Allowed: c.allowed.Load(),
		Denied:   c.denied.Load(),
		Degraded: c.degraded.Load(), Failed: c.failed.Load(), Unsent: m.unsent,
		Latency: percentilesOf(m.latency), Lag: percentilesOf(m.lag),
	}
	b.PerSecond = round(float64(b.Requests) / seconds)
	b.Checks = b.Allowed + b.Denied + b.Failed
	b.ChecksPS = round(float64(b.Checks) / seconds)
	if err := c.firstErr.Load(); err != nil {
		b.FirstErr = client.Explain(*err, b.Targets).Error()
	}
	if t.oracle != nil {
		verdict := t.oracle.judge(m.first, m.last, b.Failed)
		b.Verdict = &verdict
	}
	return b
}

func round(x float64) float64 { return math.Round(x*10) / 10 }

// write prints the report for people, in 80 columns.
func (b *benchReport) write(w io.Writer) error {
	us := func(n int64) string { return brief(time.Duration(n) * time.Microsecond) }
	wanted := "as fast as the answers come: latency counts from the real send time"
	if b.Wanted > 0 {
		wanted = fmt.Sprintf("%s/s wanted; latency counts from the intended send time",
			thousands(int64(b.Wanted)))
	}
	rows := [][]string{
		{"targets", strings.Join(b.Targets, " ")},
		{"limit", b.Limit},
		{"load", fmt.Sprintf("%s keys, %s; %d per request; %d workers", thousands(int64(b.Keys)),
			b.Dist, b.Batch, b.Workers)},
		{"requests", fmt.Sprintf("%s in %.1fs, %s/s", thousands(b.Requests), b.Seconds,
			thousands(int64(b.PerSecond)))},
		{"", wanted},
		{"checks", fmt.Sprintf("%s, %s/s", thousands(b.Checks), thousands(int64(b.ChecksPS)))},
		{"allowed", thousands(b.Allowed)},
		{"denied", thousands(b.Denied)},
		{"errors", thousands(b.Failed)},
		{"degraded", thousands(b.Degraded)},
		{"latency", fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s",
			us(b.Latency.P50), us(b.Latency.P90), us(b.Latency.P99), us(b.Latency.P999),
			us(b.Latency.Max))},
	}
	if b.Wanted > 0 {
		rows = append(rows, []string{
			"of it lag",
			fmt.Sprintf("p50 %s  p99 %s  max %s, before a worker sent the request",
				us(b.Lag.P50), us(b.Lag.P99), us(b.Lag.Max)),
		})
	}
	if b.Unsent > 0 {
		rows = append(rows, []string{
			"unsent",
			fmt.Sprintf("%s requests were due but found no worker: the rate is beyond reach",
				thousands(b.Unsent)),
		})
	}
	if b.FirstErr != "" {
		rows = append(rows, []string{"first error", b.FirstErr})
	}
	rows = append(rows, b.verdictRows()...)
	return columns(w, rows)
}

func (b *benchReport) verdictRows() [][]string {
	v := b.Verdict
	if v == nil {
		return [][]string{{"exact", "not judged: the window of a named limit is not known here"}}
	}
	word := "yes"
	switch {
	case v.Extra > 0:
		word = fmt.Sprintf("NO: %s units too many, on %s of %s keys", thousands(v.Extra),
			thousands(int64(v.Over)), thousands(int64(v.Keys)))
	case v.Missing > 0:
		word = fmt.Sprintf("no: %s units refused that one limiter would have admitted",
			thousands(v.Missing))
	}
	return [][]string{
		{"admitted", fmt.Sprintf("%s units of %s keys; one limiter alone: at most %s",
			thousands(v.Admitted), thousands(int64(v.Keys)), thousands(v.Bound))},
		{"", v.Rule},
		{"exact", word},
	}
}

// failure is what makes a bench exit 1: nobody answered, or too much was admitted.
func (b *benchReport) failure(c *tally) error {
	switch {
	case b.Allowed+b.Denied == 0:
		if err := c.firstErr.Load(); err != nil {
			return fmt.Errorf("no check was answered: %w", client.Explain(*err, b.Targets))
		}
		return errors.New("no check was answered")
	case b.Verdict != nil && b.Verdict.Extra > 0:
		return fmt.Errorf("the cluster admitted %d units more than the limit", b.Verdict.Extra)
	}
	return nil
}

// showProgress writes a line a second to a terminal, or one every ten seconds elsewhere. The caller
// calls done.
func showProgress(w io.Writer, duration time.Duration, c *tally) (done func()) {
	every, terminal := 10*time.Second, isTerminal(w)
	if terminal {
		every = time.Second
	}
	began, stop, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	bottom := &screen{out: w}
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				if terminal {
					bottom.show("")
				}
				return
			}
			line := fmt.Sprintf("%v of %v: %s allowed, %s denied, %s errors\n",
				time.Since(began).Round(time.Second), duration,
				thousands(c.allowed.Load()), thousands(c.denied.Load()), thousands(c.failed.Load()))
			if terminal {
				bottom.show(line)
			} else {
				io.WriteString(w, line)
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
