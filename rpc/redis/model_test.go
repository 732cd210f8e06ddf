package redis

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/rpctest"
)

// moving is a clock that goes where the test says.
type moving struct {
	frozen
	now *limiter.Instant
}

func (m moving) Now() limiter.Instant { return *m.now }

// modelTalk is a connection to a node of its own, on a clock that the test moves.
type modelTalk struct {
	t    *rapid.T
	node *cluster.Node
	now  limiter.Instant
}

func newModelTalk(t *rapid.T) *modelTalk {
	m := &modelTalk{t: t, now: 1_700_000_000_123_456_789}
	hands := moving{now: &m.now}
	n, err := cluster.New(cluster.Config{
		ID: "alone", Boot: 1, Clock: hands, Network: hands,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20, Shards: 1}),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.SetView(loneView())
	m.node = n
	return m
}

func (m *modelTalk) ask(line string) string {
	conn := &chunks{in: []byte(rpctest.Command(strings.Fields(line)...))}
	newConnection(New(Config{Node: m.node}), conn, 1).serve()
	return conn.out.String()
}

// smyteModel is Smyte's rate limiter, statement by statement (RateLimitHandler.cpp), in numbers
// without an end: where its sums overflow, tokens stay at the most there can be.
type smyteModel struct{ buckets map[string]*smyteValue }

type smyteValue struct {
	amount, refilledAt *big.Int
	session            int64
}

type smyteArgs struct {
	key                           string
	max, refillTime, refill, take int64 // refillTime in ms
	at                            int64 // ms
	strict, sessions              bool
}

func (m *smyteModel) getAndReduce(a smyteArgs) (tokens, session int64) {
	number := func(n int64) *big.Int { return new(big.Int).SetInt64(n) }
	name := fmt.Sprint(a.key, a.max, a.refill, a.refillTime, a.sessions)
	session = a.at
	amount, refilledAt := number(a.max), number(a.at)
	if v := m.buckets[name]; v != nil {
		span := new(big.Int).Sub(number(a.at), v.refilledAt)
		if span.Sign() < 0 {
			span.SetInt64(0)
		}
		refills := span.Div(span, number(a.refillTime))
		refilledAt = new(big.Int).Add(v.refilledAt, new(big.Int).Mul(refills, number(a.refillTime)))
		if amount = new(big.Int).Add(new(big.Int).Mul(refills, number(a.refill)),
			v.amount); amount.Cmp(number(a.max)) > 0 {
			amount = number(a.max)
		}
		session = v.session
	}
	if a.take > 0 {
		left := new(big.Int).Sub(amount, number(a.take))
		if left.Sign() < 0 {
			left.SetInt64(0)
		}
		if (a.strict || a.sessions) && left.Sign() == 0 {
			refilledAt = number(a.at)
		}
		if amount.Cmp(number(a.take)) >= 0 {
			session = a.at
		}
		m.buckets[name] = &smyteValue{left, refilledAt, session}
	}
	return amount.Int64(), session
}

// smyteNumbers are tokens, small and large.
var smyteNumbers = rapid.OneOf(rapid.Int64Range(1, 4), rapid.Int64Range(1, 100), rapid.Int64Range(1,
	math.MaxInt64),
	rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 40, 1<<40 + 1}))

// smyteShape is what a bucket belongs to.
type smyteShape struct{ max, time, refill int64 }

func drawSmyteShape(t *rapid.T) smyteShape {
	s := smyteShape{
		rapid.OneOf(rapid.SampledFrom([]int64{2, 2, 3, math.MaxInt64}),
			smyteNumbers).Draw(t, "max"),
		rapid.OneOf(rapid.SampledFrom([]int64{10, 10, 7, math.MaxInt32}), rapid.Int64Range(1,
			math.MaxInt32)).Draw(t, "time"), 0,
	}
	if s.refill = s.max; rapid.IntRange(0, 3).Draw(t, "refill?") == 0 {
		s.refill = smyteNumbers.Draw(t, "refill")
	}
	return s
}

// drawSmyte is a command about one of some buckets, and what it says.
func drawSmyte(t *rapid.T, shapes []smyteShape) (string, smyteArgs) {
	s := rapid.SampledFrom(shapes).Draw(t, "shape")
	a := smyteArgs{key: rapid.SampledFrom([]string{"s", "t"}).Draw(t, "key"), take: 1}
	verb := rapid.SampledFrom([]string{"REDUCE", "REDUCE", "GET", "SESSIONIZE"}).Draw(t, "verb")
	unit, prefix := int64(1000), ""
	if rapid.Bool().Draw(t, "ms") {
		unit, prefix = 1, "P"
	}
	a.max, a.refillTime, a.refill = s.max, s.time*unit, s.refill
	line := fmt.Sprintf("RL.%s%s %s %d %d", prefix, verb, a.key, a.max, s.time)
	if a.refill != a.max {
		line += fmt.Sprintf(" REFILL %d", a.refill)
	}
	at := rapid.OneOf(rapid.Int64Range(0, 60), rapid.Int64Range(0, 60), rapid.Int64Range(0, 1<<40),
		rapid.Int64Range(0, math.MaxInt64/1000), rapid.Just(int64(math.MaxInt64/1000))).Draw(t,
		"at")
	a.at = at * unit
	line += fmt.Sprintf(" AT %d", at)
	if a.strict = rapid.Bool().Draw(t, "strict"); a.strict {
		line += " STRICT"
	}
	a.sessions = verb == "SESSIONIZE"
	if verb == "GET" {
		a.take = 0
	} else if rapid.Bool().Draw(t, "take?") {
		a.take = rapid.OneOf(rapid.Int64Range(0, 4), smyteNumbers).Draw(t, "take")
		line += fmt.Sprintf(" TAKE %d", a.take)
	}
	return line, a
}

// Promise: RL.* answers as Smyte's limiter, whatever the numbers, also when the clients' time goes
// back.
func TestRedisEqualsSmyte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, model := newModelTalk(t), &smyteModel{map[string]*smyteValue{}}
		shapes := []smyteShape{drawSmyteShape(t), drawSmyteShape(t)}
		var said []string
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			line, a := drawSmyte(t, shapes)
			tokens, session := model.getAndReduce(a)
			want := fmt.Sprintf(":%d\r\n", tokens)
			if a.sessions {
				want = fmt.Sprintf("*2\r\n:%d\r\n:%d\r\n", tokens, session)
			}
			said = append(said, line)
			if got := m.ask(line); got != want {
				t.Fatalf("%q, want %q, after\n%s", got, want, strings.Join(said, "\n"))
			}
		}
	})
}

// cellModel is redis-cell, statement by statement (cell/mod.rs and lib.rs), for numbers that do not
// overflow there.
type cellModel struct{ arrivals map[string]int64 }

func (m *cellModel) throttle(now int64, key string, maxBurst, count, period,
	quantity int64,
) string {
	seconds := func(ns int64) int64 {
		s := int64(float64(ns/1e9) + float64(ns%1e9)/1e9)
		if ns%1e9/1e6 > 0 {
			s++
		}
		return s
	}
	emission := int64(float64(period*1e9) / float64(count))
	if emission == 0 {
		return "-Cell error: Store error: Zero rates are not supported\r\n"
	}
	dvt, increment := emission*(maxBurst+1), emission*quantity
	tat, there := m.arrivals[key]
	if !there || tat <= now { // a key that has run out is gone
		tat = now
	}
	arrival := max(now, tat) + increment
	diff, limited, ttl, retry := now-(arrival-dvt), 0, int64(0), int64(-1e9)
	if diff < 0 {
		if limited, ttl = 1, tat-now; increment <= dvt {
			retry = -diff
		}
	} else {
		ttl = arrival - now
		if m.arrivals[key] = arrival; ttl <= 0 { // the key has run out
			delete(m.arrivals, key)
		}
	}
	remaining := int64(0)
	if next := dvt - ttl; next > -emission {
		remaining = int64(float64(next/1000) / float64(emission/1000))
	}
	return fmt.Sprintf("*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", limited, maxBurst+1, remaining,
		seconds(retry), seconds(ttl))
}

// Promise: CL.THROTTLE answers as redis-cell: a key has one arrival time, whatever burst, count and
// period come with it.
func TestRedisEqualsCell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, model := newModelTalk(t), &cellModel{map[string]int64{}}
		var said []string
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			m.now += limiter.Instant(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 10e9),
				rapid.Int64Range(0, 1e9)).Draw(t, "later"))
			burst := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 1e6)).Draw(t, "burst")
			count := rapid.OneOf(rapid.Int64Range(1, 60), rapid.Int64Range(1,
				5000)).Draw(t, "count")
			period := rapid.OneOf(rapid.Int64Range(1, 10),
				rapid.SampledFrom([]int64{60, 3600, 86400, 400 * 86400})).Draw(t, "period")
			if period > 366*86400 { // less than one in 366 days is refused
				count++
			}
			quantity := rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(0, 10),
				rapid.Int64Range(0, 1e6)).Draw(t, "quantity")
			if rate, err := readCellRate(0, count, period); err == nil {
				// what takes over 73 years to refill is refused
				burst = min(burst, int64(limiter.MaxFill/rate.interval)-1)
				quantity = min(quantity, math.MaxInt64/4/int64(rate.interval))
			}
			key := rapid.SampledFrom([]string{"c", "d"}).Draw(t, "key")
			line := fmt.Sprintf("CL.THROTTLE %s %d %d %d %d", key, burst, count, period, quantity)
			said = append(said, strconv.FormatInt(int64(m.now), 10)+" "+line)
			if got, want := m.ask(line), model.throttle(int64(m.now), key, burst, count, period,
				quantity); got != want {
				t.Fatalf("%q, want %q, after\n%s", got, want, strings.Join(said, "\n"))
			}
		}
	})
}

// The figures of a report from outside, as the origins answer them.
func TestRedisAfterAChange(t *testing.T) {
	_, address := redisAt(t, rpctest.Joined(t, 1)[0], Config{})
	c := rpctest.TalkTo(t, address)
	for _, row := range []struct{ line, want string }{
		{"RL.REDUCE s 2 10 AT 100 STRICT TAKE 2", ":2\r\n"},
		{"RL.REDUCE s 2 10 AT 50 STRICT", ":0\r\n"},
		{"RL.REDUCE s 2 10 AT 60", ":2\r\n"},
		{"RL.REDUCE k 2 2147483647 AT 0", ":2\r\n"},
		{"RL.REDUCE k 9223372036854775807 60 AT 0", ":9223372036854775807\r\n"},
		{"RL.GET k 9223372036854775807 60 AT 0", ":9223372036854775806\r\n"},
		{"CL.THROTTLE pc 9 10 10 10", "*5\r\n:0\r\n:10\r\n:0\r\n:-1\r\n:10\r\n"},
		{"CL.THROTTLE pc 2 1 1", "*5\r\n:1\r\n:3\r\n:0\r\n:8\r\n:10\r\n"},
	} {
		c.Says(row.line, row.want)
	}
}

// A unit takes from a nanosecond to a year; more in one period than there are nanoseconds, and less
// than one a year, is refused.
func TestRedisCellBounds(t *testing.T) {
	for _, row := range []struct {
		burst, count, period int64
		want                 time.Duration // of a unit
	}{
		{15, 30, 60, 2 * time.Second},
		{0, 3, 1, 333333333},
		{0, 1_000_000_000, 1, 1},
		{0, 1_000_000_001, 1, 0},
		{15, 2_000_000_000_000, 3600, 1},
		{3, 1, 366 * 86400, limiter.MaxPer},
		{3, 1, 366*86400 + 1, 0},
		{3, 24, 24 * 366 * 86400, limiter.MaxPer},
		{1<<40 - 1, 1, 3600, 0},
	} {
		rate, err := readCellRate(row.burst, row.count, row.period)
		if err != nil {
			if row.want != 0 {
				t.Errorf("%+v: %v", row, err)
			}
			continue
		}
		of := rate.limit()
		l, err := limiter.New(limiter.Spec{
			Name: limiter.ThrottleName, Algorithm: limiter.GCRA, Limit: of.count,
			Burst: of.more, Per: of.per,
		})
		if err != nil || rate.interval != row.want || l.Per != row.want*time.Duration(l.Limit) ||
			l.Burst != row.burst+1 {
			t.Errorf("%+v: %+v makes %+v, %v", row, rate, of, err)
		}
	}
}
