// Package inprocess measures a limiter that is called as a function, in the process that it is in.
// It is a module of its own, without any other, so that programs with different dependencies
// measure by the same lines.
package inprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Verb is how a program is told to measure: Verb, what, the number of callers, and how long. It
// answers with figures, as JSON.
const Verb = "in-process"

// The figures.
const (
	Speed       = "decisions a second"
	CPU         = "CPU"         // µs per decision
	Allocations = "allocations" // per decision
	Bytes       = "allocated bytes"
)

const manyKeys = 10_000

// Key is one of ten thousand.
func Key(i int) string { return fmt.Sprintf("account:%09d", i%manyKeys*7919) }

// Main measures what args say, after the verb and what: callers and time. caller is how each asks
// for one unit of a key; that it is refused is an error.
func Main(args []string, out io.Writer, caller func() func(key string) error) error {
	if len(args) != 2 {
		return fmt.Errorf("%s wants a number of callers and a time", Verb)
	}
	callers, err := strconv.Atoi(args[0])
	d, err2 := time.ParseDuration(args[1])
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if callers < 1 || d <= 0 {
		return fmt.Errorf("%s of %d callers for %v; at least 1 and above 0 are accepted", Verb,
			callers, d)
	}
	keys := make([]string, manyKeys)
	for i := range keys {
		keys[i] = Key(i)
	}
	if _, err := measure(callers, d/4, keys, caller); err != nil {
		return err
	}
	figures, err := measure(callers, d, keys, caller)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(figures)
}

func measure(
	callers int, d time.Duration, keys []string, caller func() func(string) error,
) (map[string]float64, error) {
	const burst = 64 // decisions between two looks at the clock
	var asked atomic.Int64
	var failed atomic.Pointer[failure]
	var group sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	worked, began := cpuTime(), time.Now()
	for id := range callers {
		take := caller()
		group.Go(func() {
			n := 0
			for first := true; first || time.Since(began) < d &&
				failed.Load() == nil; first = false {
				for range burst {
					if err := take(keys[(id*997+n)%manyKeys]); err != nil {
						// not the address of err: it would be allocated for each decision
						failed.Store(&failure{err})
						return
					}
					n++
				}
			}
			asked.Add(int64(n))
		})
	}
	group.Wait()
	took, cpu := time.Since(began), cpuTime()-worked
	runtime.ReadMemStats(&after)
	if f := failed.Load(); f != nil {
		return nil, f.err
	}
	n := float64(asked.Load())
	return map[string]float64{
		Speed: n / took.Seconds(), CPU: float64(cpu.Nanoseconds()) / 1e3 / n,
		Allocations: float64(after.Mallocs-before.Mallocs) / n,
		Bytes:       float64(after.TotalAlloc-before.TotalAlloc) / n,
	}, nil
}

// failure is why a caller gave up.
type failure struct{ err error }

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
