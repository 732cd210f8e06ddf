package limiters

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"penstock/bench/contest"
)

// Plan is what is measured of a contestant.
type Plan struct {
	Keys      int
	Time      time.Duration // for each figure of speed
	Collector time.Duration // longest for the collector's figures; 0 leaves them out
}

// The figures.
const (
	allocations = "allocations per decision"
	keyBytes    = "bytes per key beyond its own"
	inUse       = "bytes per key beyond its own, while at work"
	allowed     = "share allowed"
	collecting  = "collector's share of the CPU"
	pause       = "longest pause"
	stopping    = "longest stop"
	cycles      = "collections"
	cycle       = "CPU of a collection"
)

func speed(dist string, cores int) string {
	return fmt.Sprintf("ns per decision, %s, %d cores", dist, cores)
}

func work(dist string, cores int) string { return "CPU " + speed(dist, cores) }

// Tables are what a report shows of the figures.
var Tables = []contest.Table{
	{
		Title: "CPU of a decision, ns, keys by Zipf (1.01), one core", Short: "CPU, Zipf, ns",
		Figure: work("zipf", 1), Better: contest.Less,
	},
	{
		Title: "CPU of a decision, ns, keys drawn uniformly, one core", Short: "uniform",
		Figure: work("uniform", 1), Better: contest.Less,
	},
	{
		Title: "CPU of a decision, ns, keys by Zipf, two cores", Figure: work("zipf", 2),
		Better: contest.Less,
	},
	{
		Title: "CPU of a decision, ns, keys drawn uniformly, two cores", Figure: work("uniform", 2),
		Better: contest.Less,
	},
	{
		Title: "Time between two decisions, ns, Zipf, one core", Short: "time, Zipf, ns",
		Figure: speed("zipf", 1), Better: contest.Less,
	},
	{
		Title: "Time between two decisions, ns, uniform, one core", Figure: speed("uniform", 1),
		Better: contest.Less,
	},
	{
		Title: "Time between two decisions, ns, Zipf, two cores together", Short: "two cores",
		Figure: speed("zipf", 2), Better: contest.Less,
	},
	{
		Title:  "Time between two decisions, ns, uniform, two cores together",
		Figure: speed("uniform", 2), Better: contest.Less,
	},
	{
		Title: "Allocations per decision on a known key", Short: "allocations", Figure: allocations,
		Digits: 1,
	},
	{
		Title: "Resident bytes per key beyond the key's own, after a collection", Short: "B/key",
		Figure: keyBytes, Better: contest.Less,
	},
	{
		Title: "The same while at work, with what the collector keeps in reserve", Figure: inUse,
		Better: contest.Less,
	},
	{
		Title: "The collector's share of two cores, %, while each decision comes with 256 bytes " +
			"of garbage", Short: "collector, %", Figure: collecting, Digits: 2,
	},
	{Title: "Its collections in that time", Figure: cycles},
	{Title: "Its longest pause then, µs", Short: "longest pause, µs", Figure: pause},
	{
		Title: "The longest part of a pause in which threads were still to stop, µs",
		Short: "of it stopping", Figure: stopping,
	},
	{Title: "CPU of one collection, ms", Short: "a collection, ms", Figure: cycle, Digits: 1},
}

// Aims are those that hold with a million keys.
var Aims = []contest.Aim{
	aim("in process, 10^6 Zipf keys, one core, CPU", work("zipf", 1), Messages, 6,
		"x-time-rate-in-a-sync.Map"),
	aim("… the best of the others", work("zipf", 1), Messages, 4, "x-time-rate-in-a-sync.Map",
		"sethvargo-go-limiter", "throttled-v2"),
	absolute("… by itself", work("zipf", 1), Messages, "1e6", 70, "ns"),
	absolute("… its allocations", allocations, Base, "1e6", 0.001, ""),
	absolute("resident bytes per key beyond the key's own, 10^6 keys", keyBytes, Base, "1e6", 56,
		"B"),
}

// GrowthAims are those that compare numbers of keys.
var GrowthAims = []contest.Aim{
	{
		Work:    "cost at 10^7 keys, of that at 10^3",
		Job:     contest.Job{Contestant: Messages, Point: "1e7"},
		Against: []contest.Job{{Contestant: Messages, Point: "1e3"}}, Figure: work("zipf", 1),
		Better: contest.Less, Want: 4,
	},
	absolute("one collector cycle at 10^7 keys, CPU", cycle, Base, "1e7", 5, "ms"),
}

// aim is that of so many times less than rivals.
func aim(what, figure, contestant string, want float64, rivals ...string) contest.Aim {
	a := absolute(what, figure, contestant, "1e6", want, "")
	a.Better, a.Saves = contest.More, true
	for _, r := range rivals {
		a.Against = append(a.Against, contest.Job{Contestant: r, Point: "1e6"})
	}
	return a
}

func absolute(what, figure, contestant, keys string, want float64, unit string) contest.Aim {
	return contest.Aim{
		Work: what, Job: contest.Job{Contestant: contestant, Point: keys},
		Figure: figure, Better: contest.Less, Want: want, Unit: unit,
	}
}

// Measure starts c and measures it. It should have a process to itself.
func Measure(c Contestant, p Plan) (map[string]float64, error) {
	if p.Keys < 1 || p.Time <= 0 {
		return nil, fmt.Errorf("%d keys and %v of time; at least 1 and above 0 are accepted",
			p.Keys, p.Time)
	}
	runtime.GOMAXPROCS(2)
	streams := map[string]*draws{"zipf": newDraws(p.Keys, true), "uniform": newDraws(p.Keys, false)}
	empty := resident(true)
	running, err := c.Start(p.Keys)
	if err != nil {
		return nil, err
	}
	defer running.Stop()

	figures := map[string]float64{}
	take, keyed := running.Worker(), 0
	for i := range p.Keys {
		key := newKey(uint64(i))
		keyed += len(key)
		if !take(key) {
			return nil, fmt.Errorf("key %d of %d is refused at once", i, p.Keys)
		}
	}
	if running.Keys != nil && running.Keys() != p.Keys {
		return nil, fmt.Errorf("it keeps %d of %d keys: what is measured would be something else",
			running.Keys(), p.Keys)
	}
	noteMemory := func(figure string, tidy bool) {
		// With fewer keys, pages and the process itself would be most of it.
		if now := resident(tidy); p.Keys >= 100_000 && c.Name != Nothing {
			figures[figure] = float64(now-empty-int64(keyed)) / float64(p.Keys)
		}
	}
	noteMemory(keyBytes, true)

	for dist, stream := range streams {
		for cores := 1; cores <= 2; cores++ {
			w := load{stream: stream, workers: cores}
			w.run(running, p.Time/4)
			got := w.run(running, p.Time)
			figures[speed(dist, cores)], figures[work(dist, cores)] = got.wall, got.cpu
			figures[allocations] = got.allocations
			figures[allowed] = got.allowed
		}
	}
	noteMemory(inUse, false)
	if p.Collector > 0 && c.Name != Nothing {
		measureCollector(running, streams["zipf"], p.Collector, figures)
	}
	return figures, nil
}

// load is workers that ask, each on a core of its own.
type load struct {
	stream  *draws
	workers int
	garbage int // bytes that come with each decision
}

// ran is what load has found, per decision. Where others use the same cores, the CPU that it took
// says more than the time: a process that waits for its turn takes none.
type ran struct{ wall, cpu, allocations, allowed float64 } // wall and cpu in ns

func (w load) run(running Running, d time.Duration) ran {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(w.workers))
	const burst = 1024 // decisions between two looks at the clock
	var asked, yes atomic.Int64
	var group sync.WaitGroup
	before, worked := objects(), cpuTime()
	began := time.Now()
	for id := range w.workers {
		take := inMessages(running)
		group.Go(func() {
			n, admitted := id*drawn/w.workers, 0
			start := n
			var request []byte
			var message [MessageSize]string
			// once at least, however busy the machine is
			for first := true; first || time.Since(began) < d; first = false {
				for range burst / MessageSize {
					for i := range message {
						if w.garbage > 0 {
							request = make([]byte, w.garbage)
						}
						message[i] = w.stream.key(n)
						n++
					}
					admitted += take(message[:])
				}
			}
			runtime.KeepAlive(request)
			asked.Add(int64(n - start))
			yes.Add(int64(admitted))
		})
	}
	group.Wait()
	took, n := time.Since(began), float64(asked.Load())
	return ran{
		wall: float64(took.Nanoseconds()) / n, cpu: float64((cpuTime() - worked).Nanoseconds()) / n,
		allocations: float64(objects()-before) / n, allowed: float64(yes.Load()) / n,
	}
}

// inMessages is how running decides on a message: at once if it can, else key by key.
func inMessages(running Running) TakeMany {
	if running.Reader != nil {
		return running.Reader()
	}
	take := running.Worker()
	return func(keys []string) (admitted int) {
		for _, key := range keys {
			if take(key) {
				admitted++
			}
		}
		return admitted
	}
}

// garbage is how many bytes come with each decision where the collector is measured, as a request
// that is decoded leaves some.
const garbage = 256

// measureCollector lets both cores decide and make garbage for a quarter of the time and until the
// collector has run twice, or time is up, and notes its work.
func measureCollector(
	running Running, stream *draws, most time.Duration, figures map[string]float64,
) {
	runtime.GC()
	before := readCollector()
	for began := time.Now(); time.Since(began) < most; {
		load{stream: stream, workers: 2, garbage: garbage}.run(running, min(most, time.Second))
		if time.Since(began) > most/4 && readCollector().cycles >= before.cycles+2 {
			break
		}
	}
	after := readCollector()
	figures[cycles], figures[collecting] = float64(after.cycles-before.cycles), 0
	if after.cycles > before.cycles { // the runtime counts a collection when it is over
		figures[collecting] = 100 * (after.cpu - before.cpu) / (after.allCPU - before.allCPU)
	}
	figures[pause] = 1e6 * longest(before.pauses, after.pauses)
	figures[stopping] = 1e6 * longest(before.stops, after.stops)

	before = readCollector()
	runtime.GC()
	figures[cycle] = 1e3 * (readCollector().cpu - before.cpu)
}

// collector is what the runtime has noted of it since the process began.
type collector struct {
	cpu, allCPU float64 // seconds, up to the last collection
	cycles      uint64
	// seconds in which the world stood still, or was being stopped
	pauses *metrics.Float64Histogram
	stops  *metrics.Float64Histogram // the second part of it
}

func readCollector() collector {
	s := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/sched/pauses/total/gc:seconds"},
		{Name: "/sched/pauses/stopping/gc:seconds"},
	}
	metrics.Read(s)
	return collector{
		s[0].Value.Float64(), s[1].Value.Float64(), s[2].Value.Uint64(), copied(s[3]),
		copied(s[4]),
	}
}

func copied(s metrics.Sample) *metrics.Float64Histogram {
	h := s.Value.Float64Histogram()
	return &metrics.Float64Histogram{Counts: append([]uint64(nil), h.Counts...), Buckets: h.Buckets}
}

// longest is the upper end of the highest bucket that has grown.
func longest(before, after *metrics.Float64Histogram) float64 {
	for i := len(after.Counts) - 1; i >= 0; i-- {
		if after.Counts[i] > before.Counts[i] {
			if end := after.Buckets[i+1]; !math.IsInf(end, 1) {
				return end
			}
			return after.Buckets[i]
		}
	}
	return 0
}

// cpuTime is how long this process has worked, on all cores.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// objects is how many have been allocated.
func objects() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// resident is how many bytes of the process are in memory; if tidy, after a collection that has
// given back what it could.
func resident(tidy bool) int64 {
	if tidy {
		debug.FreeOSMemory()
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}
