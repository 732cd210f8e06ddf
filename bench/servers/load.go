package servers

import (
	"cmp"
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
	Callers int     // who each wait for their answer
	Items   int     // decisions asked for in one call
	Rate    float64 // calls a second that leave on time, whatever the answers; 0: each caller asks again at once
	Any     bool    // of three nodes: any key; else those of the other two
}

func (p Point) String() string {
	switch {
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
	serverCPU = "server CPU"
	clientCPU = "client CPU"
	memory    = "memory"
	failures  = "failed"
)

// measure lets callers ask for a while, and notes what it took.
func measure(r *running, p Point, d time.Duration, progress io.Writer) (map[string]float64, error) {
	load(r, p, d/4) // what is lazy is awake then
	meter, before, own := contest.NewMeter(), r.cpu(), ownCPU()
	began := time.Now()
	got := load(r, p, d)
	if len(got.took) == 0 {
		return nil, fmt.Errorf("no call in %v", d)
	}
	if got.failed == len(got.took) { // a server may fail under load, and that is a result
		fmt.Fprintf(progress, "all calls failed, the last with: %v\n", got.fault)
		return map[string]float64{speed: 0, failures: 100}, nil
	}
	took, elapsed := got.took, time.Since(began)
	served, asked := r.cpu()-before, ownCPU()-own
	decisions := float64((len(took) - got.failed) * p.Items)
	slices.Sort(took)
	figures := map[string]float64{
		speed:     decisions / elapsed.Seconds(),
		median:    float64(took[len(took)/2].Nanoseconds()) / 1e3,
		p99:       float64(took[len(took)*99/100].Nanoseconds()) / 1e3,
		serverCPU: float64(served.Nanoseconds()) / 1e3 / decisions,
		clientCPU: float64(asked.Nanoseconds()) / 1e3 / decisions,
		memory:    r.resident() / (1 << 20),
		failures:  100 * float64(got.failed) / float64(len(took)),
	}
	if others := meter.Others(served + asked); others >= 0 {
		figures[contest.Others] = others
	}
	return figures, nil
}

// answers are what load got: how long each call took, of a rate from when it should have left, and how many failed.
type answers struct {
	took   []time.Duration
	failed int
	fault  error // of one that failed
}

// load has all callers ask for d.
func load(r *running, p Point, d time.Duration) (all answers) {
	var mu sync.Mutex
	var group sync.WaitGroup
	var next atomic.Int64 // call, of a rate
	began := time.Now()
	for id := range p.Callers {
		ask := r.caller(id, p)
		group.Go(func() {
			var own answers
			for {
				from := time.Now()
				if p.Rate > 0 {
					from = began.Add(time.Duration(float64(next.Add(1)) / p.Rate * 1e9))
					time.Sleep(time.Until(from))
				}
				if from.Sub(began) >= d {
					break
				}
				if err := ask(); err != nil {
					own.failed++
					own.fault = err
				}
				own.took = append(own.took, time.Since(from))
			}
			mu.Lock()
			defer mu.Unlock()
			all.took, all.failed = append(all.took, own.took...), all.failed+own.failed
			all.fault = cmp.Or(all.fault, own.fault)
		})
	}
	group.Wait()
	return all
}

// ownCPU is the processor time of this process, which is the client.
func ownCPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
