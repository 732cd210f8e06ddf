package servers

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"penstock/bench/contest"
)

// Point is how much is asked.
type Point struct {
	Name    string // where what String would say is not what there is to say
	Callers int    // each waits for its answer
	Items   int    // decisions asked for in one call
	// calls a second that leave on time, whatever the answers; 0: each caller asks again at once
	Rate  float64
	Any   bool   // of three nodes: any key; else those of the other two
	Each  bool   // callers take turns among the nodes; else all ask the first
	Key   string // what all ask for; empty: many keys
	Limit int64  // of Key; 0: more than is ever asked for
	Keys  int    // how many keys there are; 0: ten thousand
	Tool  bool   // redis-benchmark asks, not this process
}

func (p Point) String() string {
	switch {
	case p.Name != "":
		return p.Name
	case p.Rate > 0:
		return fmt.Sprintf("%.0f/s", p.Rate)
	case p.Any:
		return fmt.Sprintf("%d × %d any", p.Callers, p.Items)
	}
	return fmt.Sprintf("%d × %d", p.Callers, p.Items)
}

// The figures.
const (
	speed     = "decisions a second"
	median    = "p50"
	p99       = "p99"
	p999      = "p99.9"
	serverCPU = "server CPU"
	clientCPU = "client CPU"
	memory    = "memory"
	share     = "client's share of the CPU"
	failures  = "failed"
	unsent    = "unsent"
)

// Tables are what a report shows of the figures.
var Tables = []contest.Table{
	{Title: "Decisions a second", Short: "decisions/s", Figure: speed, Better: contest.More},
	{Title: "Median latency, µs", Short: "p50, µs", Figure: median, Better: contest.Less},
	{
		Title: "p99 latency, µs; of a rate, from when the call should have left", Short: "p99, µs",
		Figure: p99, Better: contest.Less,
	},
	{Title: "p99.9 latency, µs", Figure: p999, Better: contest.Less},
	{
		Title: "CPU of the servers per decision, µs", Short: "server CPU, µs", Figure: serverCPU,
		Digits: 2, Better: contest.Less,
	},
	{
		Title: "CPU of the client per decision, µs", Short: "client CPU, µs", Figure: clientCPU,
		Digits: 2,
	},
	{
		Title: "The client's share of the CPU, %", Short: "client's share, %", Figure: share,
	},
	{Title: "Calls that failed, %", Short: "failed, %", Figure: failures, Digits: 1},
	{Title: "Calls of a rate that nobody was free to send, %", Figure: unsent, Digits: 1},
	{Title: "Resident memory of the servers, MB", Short: "memory, MB", Figure: memory},
}

// ask lets callers ask for a while, and notes what it took. What is lazy is awake then: they have
// asked before.
func ask(r *running, p Point, d time.Duration, progress io.Writer) (map[string]float64, error) {
	if p.Tool {
		return askByTool(r, p, d)
	}
	stop := func() error { return nil }
	if r.beside != nil {
		stop = r.beside()
	}
	load(r, p, d/4)
	meter, before, own := contest.NewMeter(), r.cpu(), ownCPU()
	began := time.Now()
	got := load(r, p, d)
	elapsed := time.Since(began)
	served, asked := r.cpu()-before, ownCPU()-own
	if err := stop(); err != nil {
		return nil, err
	}
	if len(got.took) == 0 {
		return nil, fmt.Errorf("no call in %v", d)
	}
	if got.failed == len(got.took) { // a server may fail under load, and that is a result
		fmt.Fprintf(progress, "all calls failed, the last with: %v\n", got.fault)
		return map[string]float64{speed: 0, failures: 100}, nil
	}
	if got.failed > 0 {
		fmt.Fprintf(progress, "%d of %d calls failed, the last with: %v\n", got.failed,
			len(got.took), got.fault)
	}
	decisions := float64((len(got.took) - got.failed) * p.Items)
	figures := map[string]float64{
		speed:     decisions / elapsed.Seconds(),
		median:    got.quantile(0.5),
		p99:       got.quantile(0.99),
		p999:      got.quantile(0.999),
		serverCPU: float64(served.Nanoseconds()) / 1e3 / decisions,
		clientCPU: float64(asked.Nanoseconds()) / 1e3 / decisions,
		share:     100 * float64(asked) / float64(max(1, served+asked)),
		memory:    r.resident() / (1 << 20),
		failures:  100 * float64(got.failed) / float64(len(got.took)),
	}
	if p.Rate > 0 {
		figures[unsent] = 100 * float64(len(got.unsent)) / float64(len(got.took)+len(got.unsent))
	}
	if others := meter.Others(served + asked); others >= 0 {
		figures[contest.Others] = others
	}
	return figures, nil
}

// answers are what load got: how long each call took, of a rate from when it should have left, and
// how many failed.
type answers struct {
	took   []time.Duration
	unsent []time.Duration // how late calls are that nobody was free to send
	failed int
	fault  error // of one that failed
	denied int   // of failed: refused by the limit
}

// add adds what another load got.
func (a *answers) add(b answers) {
	a.took, a.unsent = append(a.took, b.took...), append(a.unsent, b.unsent...)
	a.failed, a.denied = a.failed+b.failed, a.denied+b.denied
	a.fault = cmp.Or(a.fault, b.fault)
}

// quantile is that of the latencies, in µs, of calls that were not sent at least what they were
// late by.
func (a *answers) quantile(q float64) float64 {
	all := slices.Concat(a.took, a.unsent)
	slices.Sort(all)
	return float64(all[min(len(all)-1, int(q*float64(len(all))))].Nanoseconds()) / 1e3
}

// load has all callers ask for d.
func load(r *running, p Point, d time.Duration) (all answers) {
	var mu sync.Mutex
	var group sync.WaitGroup
	began := time.Now()
	next := func(asked int) (time.Time, bool) {
		now := time.Now()
		return now, asked == 0 || now.Sub(began) < d // once at least, however busy the machine is
	}
	if p.Rate > 0 {
		// the goroutine that keeps the time never waits for a caller
		due := make(chan time.Time, int(p.Rate*d.Seconds())+1)
		group.Go(func() { pace(began, p.Rate, d, due) })
		next = func(int) (time.Time, bool) {
			from, open := <-due
			return from, open
		}
	}
	var late atomic.Bool
	for id := range p.Callers {
		call := r.caller(id, p)
		group.Go(func() {
			var own answers
			for from, more := next(0); more; from, more = next(1) {
				// those that wait still are too many
				if p.Rate > 0 && (late.Load() || time.Since(began) > d+d/4) {
					late.Store(true)
					own.unsent = append(own.unsent, time.Since(from))
					continue
				}
				if err := call(); err != nil {
					own.failed++
					own.fault = err
					if errors.Is(err, errDenied) {
						own.denied++
					}
				}
				own.took = append(own.took, time.Since(from))
			}
			mu.Lock()
			defer mu.Unlock()
			all.add(own)
		})
	}
	group.Wait()
	return all
}

// pace says when each call should leave, once it should. The system call sleeps precisely, where
// the runtime's own sleep is rounded up to a millisecond on some machines.
func pace(began time.Time, rate float64, d time.Duration, due chan<- time.Time) {
	defer close(due)
	for i := 0; ; i++ {
		at := time.Duration(float64(i) / rate * 1e9)
		if at >= d || len(due) == cap(due) {
			return
		}
		for wait := time.Until(began.Add(at)); wait > 0; wait = time.Until(began.Add(at)) {
			ts := syscall.NsecToTimespec(int64(wait))
			_ = syscall.Nanosleep(&ts, nil)
		}
		due <- began.Add(at)
	}
}

// ownCPU is the processor time of this process, which is the client.
func ownCPU() time.Duration { return used(syscall.RUSAGE_SELF) }

func used(by int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(by, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
