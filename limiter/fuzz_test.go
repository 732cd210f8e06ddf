package limiter_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/limiter"
)

// input reads numbers from fuzzed bytes, with zeros after their end, or from a random source.
type input struct {
	data []byte
	rnd  *rand.Rand
}

func (in *input) number(bytes int) uint64 {
	if in.rnd != nil {
		return in.rnd.Uint64() >> (64 - 8*bytes)
	}
	var b [8]byte
	in.data = in.data[copy(b[:bytes], in.data):]
	return binary.LittleEndian.Uint64(b[:])
}

func (in *input) over() bool { return in.rnd == nil && len(in.data) == 0 }

// below is a number from 0 to n−1; one is true for one of n.
func (in *input) below(n int64) int64 { return int64(in.number(8) % uint64(n)) }
func (in *input) one(n byte) bool     { return byte(in.number(1))%n == 0 }

// amount is a number from 1 on, small or large.
func (in *input) amount() int64 {
	switch in.number(1) % 4 {
	case 0:
		return 1 + int64(in.number(1)%10)
	case 1:
		return 1 + int64(in.number(2)%1000)
	case 2:
		return 1 + in.below(limiter.MaxLimit)
	}
	return 3
}

// shape is what counters of an algorithm belong to.
func (in *input) shape(a limiter.Algorithm) limiter.Spec {
	s := limiter.Spec{Name: "fuzz", Algorithm: a}
	pers := []time.Duration{
		time.Second, time.Minute, time.Millisecond, limiter.MaxPer,
		7 * time.Millisecond,
	}
	if i := int(in.number(1)) % (len(pers) + 2); i < len(pers) {
		s.Per = pers[i]
	} else {
		s.Per = limiter.MinPer + time.Duration(in.below(int64(time.Hour)))
	}
	flags := in.number(1)
	switch s.Algorithm {
	case limiter.FixedWindow:
		s.Anchor = limiter.Anchor(flags & 1)
		if flags&3 == 2 {
			s.Calendar = limiter.Calendar(1 + flags>>2%6)
			s.TimeZone = []string{
				"UTC", "Europe/Berlin", "America/New_York",
				"Asia/Kathmandu",
			}[flags>>5%4]
			s.Per = s.Calendar.Per()
		}
	case limiter.TokenBucket:
		s.Anchor, s.ClientTime = limiter.Anchor(flags&1), flags&2 != 0
		s.Sessions = flags&5 == 5
		if s.ClientTime {
			s.Per = s.Per.Truncate(time.Millisecond)
		}
		s.Limit, s.Refill = in.amount(), in.amount()
		if s.ClientTime && flags&24 == 24 { // such buckets may be as large as an int64
			s.Limit = math.MaxInt64 >> (flags >> 5)
		}
		if _, err := limiter.New(s); err != nil {
			s.Refill = 0
		}
	case limiter.SlidingCounter, limiter.Concurrency:
		s.Buckets = []int{1, 2, 3, 5, 7, 60}[flags%6]
		if part := s.Per / time.Duration(s.Buckets); part < time.Millisecond ||
			part*time.Duration(s.Buckets) != s.Per {
			s.Buckets = 1
		}
	}
	return s
}

// params is what may change in place of a shape.
func (in *input) params(s limiter.Spec) limiter.Spec {
	if s.Algorithm != limiter.TokenBucket {
		s.Limit = in.amount()
	}
	if isMeter(s) && in.one(4) { // the debt stays as long as it is
		s.Per = limiter.MinPer + time.Duration(in.below(int64(time.Hour)))
	}
	try := func(change func(*limiter.Spec)) {
		changed := s
		if change(&changed); in.one(2) {
			if _, err := limiter.New(changed); err == nil {
				s = changed
			}
		}
	}
	if s.Algorithm == limiter.SlidingLog {
		s.Limit = min(s.Limit, 100)
	}
	other := in.amount()
	try(func(s *limiter.Spec) { s.Burst = other })
	try(func(s *limiter.Spec) { s.MaxDebt = other })
	try(func(s *limiter.Spec) { s.MinGap = s.Per / time.Duration(1+other%20) })
	try(func(s *limiter.Spec) { s.CountRejected = true })
	try(func(s *limiter.Spec) { s.Drain = true })
	try(func(s *limiter.Spec) { s.Strict = true })
	try(func(s *limiter.Spec) { s.Lenient = true })
	return s
}

// step is how far the clock goes, often to where something happens, sometimes back.
func (in *input) step(s limiter.Spec, now limiter.Instant) limiter.Instant {
	per := int64(s.Per)
	edge := per - int64(now)%per
	switch k := in.number(1); k % 16 {
	case 0, 1, 2:
		return 0
	case 3, 4, 5:
		return limiter.Instant(in.below(per/s.Limit + 2))
	case 6, 7:
		return limiter.Instant(in.below(per))
	case 8:
		return limiter.Instant(in.below(3 * per))
	case 9:
		return -limiter.Instant(in.below(2 * per))
	case 10:
		return limiter.Instant(in.below(40 * int64(time.Hour) * 24))
	}
	steps := []int64{per / s.Limit, per, per - 1, per + 1, edge, edge - 1, edge + 1, -1}
	return limiter.Instant(steps[in.number(1)%uint64(len(steps))])
}

// request is any request, mostly a plain one.
func (in *input) request(s limiter.Spec, now limiter.Instant) (r limiter.Request) {
	c := capacity(s)
	switch in.number(1) % 8 {
	case 0:
		r.Cost = int64(in.number(8))
	case 1:
		r.Cost = in.below(2*min(c, 1<<40)+1) - c
	case 2:
		r.Cost = 1 + in.below(c)
	case 3:
		r.Cost = []int64{0, c, c + 1, -c, math.MaxInt64, math.MinInt64}[in.number(1)%6]
	case 4:
		r.Cost = int64(in.number(1)%8) - 3
	default:
		r.Cost = 1
	}
	if flags := in.number(1); flags&128 != 0 {
		r.Report, r.Drain, r.Strict, r.Timed = flags&3 == 3, flags&12 == 12, flags&16 != 0,
			flags&32 != 0
	}
	if r.Timed {
		r.At = (now + limiter.Instant(in.below(int64(2*s.Per))) - limiter.Instant(s.Per)).Millis()
	}
	return r
}

// walk asks steps times, and compares with the naive limiter: every decision, and the waits of one
// in every.
func (in *input) walk(t interface {
	Helper()
	Fatalf(string, ...any)
	Fatal(...any)
}, a limiter.Algorithm, steps, every int,
) {
	t.Helper()
	shape := in.shape(a)
	spec := in.params(shape)
	l := mustNew(t, spec)
	table, believed := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 18, Shards: 1}), naive{}
	now := start
	for i := 0; i < steps && !in.over(); i++ {
		if in.one(32) {
			spec = in.params(shape)
			l = mustNew(t, spec)
		}
		now += in.step(spec, now)
		now = min(max(now, 0), 1<<61)
		key, r := drawnKeys[in.number(1)%3], in.request(spec, now)
		if i%every == 0 {
			compare(t, table, believed, now, l, spec, key, r, in.one(4))
			continue
		}
		got := table.Do(now, l, key, limiter.Hash(key), r)
		want, _ := believed.decide(now, spec, key, r, true)
		want.RetryAfter, want.ResetAfter = got.RetryAfter, got.ResetAfter
		if got != want {
			t.Fatalf("step %d: %+v at %d under %+v:\n got %+v\nwant %+v", i, r, now, spec, got,
				want)
		}
	}
}

var (
	// Eight thousand are a million requests for each algorithm.
	walks     = flag.Int("walks", 300, "walks of TestLongWalks with each algorithm, of 130 steps")
	walksFrom = flag.Uint64("walks.from", 0, "seed of the first of them; the next has the next")
)

// TestLongWalks is TestTakeEqualsNaive with many more requests: walks with every algorithm, of
// requests of all kinds under limits that change, on a clock that jumps. The waits of one in 47 are
// found by trying.
func TestLongWalks(t *testing.T) {
	const length = 130
	n := *walks
	if testing.Short() { // the race detector multiplies the time, and has nothing to find here
		n = min(n, 50)
	}
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			for seed := *walksFrom; seed < *walksFrom+uint64(n); seed++ {
				in := &input{rnd: rand.New(rand.NewPCG(seed, 0))}
				in.walk(&seeded{t, seed}, a, length, 47)
			}
			t.Logf("%d requests", n*length)
		})
	}
}

// seeded is a test that says in its failures which walk they are of.
type seeded struct {
	*testing.T
	seed uint64
}

func (t *seeded) Fatalf(format string, args ...any) {
	t.Helper()
	t.T.Fatalf("walk -walks.from=%d: "+format, append([]any{t.seed}, args...)...)
}

// FuzzNew: no Spec panics, and what is accepted decides sanely.
func FuzzNew(f *testing.F) {
	f.Add("login", byte(1), int64(10), int64(time.Minute), int64(0), byte(0), false)
	f.Add("", byte(9), int64(-1), int64(1), int64(1)<<62, byte(3), true)
	f.Fuzz(func(t *testing.T, name string, algorithm byte, limit, per, burst int64, anchor byte,
		count bool,
	) {
		l, err := limiter.New(limiter.Spec{
			Name: name, Algorithm: limiter.Algorithm(algorithm), Limit: limit,
			Per: time.Duration(per), Burst: burst,
			Anchor: limiter.Anchor(anchor), CountRejected: count,
		})
		if err != nil {
			if bad := new(limiter.SpecError); l != nil || !errors.As(err, &bad) ||
				bad.Field == "" || bad.Reason == "" {
				t.Fatalf("%v, %v", l, err)
			}
			return
		}
		for _, l := range []*limiter.Limit{l, l.Share(3)} {
			table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
			all := table.Take(start, l, "k", 1, l.Capacity())
			if !all.Allowed || all.Remaining != 0 || all.Limit != l.Capacity() ||
				all.ResetAfter < 0 {
				t.Fatalf("%+v: the whole capacity: %+v", l.Spec, all)
			}
			one := table.Take(start, l, "k", 1, 1)
			if one.Allowed || one.RetryAfter <= 0 || one.RetryAfter > 2*l.Per+1 {
				t.Fatalf("%+v: one more: %+v", l.Spec, one)
			}
		}
	})
}

// FuzzTake: any requests, clocks and changes of a limit, under any algorithm, are answered as by
// the naive limiter.
func FuzzTake(f *testing.F) {
	for i := range len(algorithms) {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		data := []byte{byte(i)}
		for range 200 {
			data = append(data, byte(rnd.Uint32()))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &input{data: data}
		in.walk(t, algorithms[in.number(1)%uint64(len(algorithms))], 64, 1)
	})
}
