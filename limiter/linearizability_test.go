package limiter

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// All goroutines use a table at once, and its promise is that this cannot be seen. There is an
// order of all requests, in which none comes before one that had been answered when it was made. A
// single caller that makes them in that order gets the same answers, to the nanosecond. porcupine
// searches for that order.
//
// The sequential limiter that it compares with is the algorithm itself, a function of (state, now,
// request) that other tests hold against a naive one. The instant is a part of the request: callers
// read the clock before they ask, and overtake each other on the way.

// asked is a request, and answered what came back.
type asked struct {
	what  string // do, peek, all, reset, sweep
	now   Instant
	items []Item // one, for all two, for sweep none
}

type answered struct {
	all       bool
	decisions []Decision
}

func (a asked) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %v", a.what, time.Duration(a.now-firstAsked))
	for _, it := range a.items {
		fmt.Fprintf(&b, " %v(%s, %+v)", it.Limit.Algorithm, it.Key, it.Request)
	}
	return b.String()
}

const firstAsked = Instant(1_700_000_123_456_789_012)

// asker is what of a Table is asked.
type asker interface {
	Do(now Instant, l *Limit, key string, hash uint64, r Request) Decision
	Peek(now Instant, l *Limit, key string, hash uint64, cost int64) Decision
	TakeAll(now Instant, items []Item, out []Decision) bool
	Reset(now Instant, l *Limit, key string, hash uint64) Decision
	Sweep(now Instant, n int) int
}

func (a asked) of(t asker) (out answered) {
	out.decisions = make([]Decision, len(a.items))
	for i, it := range a.items {
		switch a.what {
		case "do":
			out.decisions[i] = t.Do(a.now, it.Limit, it.Key, it.Hash, it.Request)
		case "peek":
			out.decisions[i] = t.Peek(a.now, it.Limit, it.Key, it.Hash, it.Cost)
		case "reset":
			out.decisions[i] = t.Reset(a.now, it.Limit, it.Key, it.Hash)
		}
	}
	switch a.what {
	case "all":
		out.all = t.TakeAll(a.now, a.items, out.decisions)
	case "sweep":
		// one slot, or what follows the last one of a shard: one lock, so it has one place in the
		// order
		t.Sweep(a.now, 1)
	}
	return out
}

// states are those of all keys, by name. They never change: a step makes new ones.
type states map[string][]int64

func (s states) with(key string, w []int64) states {
	next := states{key: w}
	for k, other := range s {
		if k != key {
			next[k] = other
		}
	}
	return next
}

func (s states) equal(other states) bool {
	for key := range s {
		if !slices.Equal(s[key], other[key]) {
			return false
		}
	}
	return len(s) == len(other)
}

// take decides on one request by the algorithm alone.
func (s states) take(now Instant, it Item) (Decision, states) {
	w := slices.Clone(s[it.Key])
	if len(w) != it.Limit.words() {
		w = make([]int64, it.Limit.words())
		it.Limit.refit(w, s[it.Key])
	}
	var d Decision
	it.Limit.answer(w, now, &it.Request, &d)
	return d, s.with(it.Key, w)
}

// after are the states that may follow, none if the answer is not right.
func (s states) after(a asked, got answered, limits map[string]*Limit) []states {
	switch a.what {
	case "reset":
		s = s.with(a.items[0].Key, nil)
		if d, _ := s.take(
			a.now, Item{Limit: a.items[0].Limit, Key: a.items[0].Key},
		); d != got.decisions[0] {
			return nil
		}
		return []states{s}
	case "sweep":
		return s.swept(a.now, limits)
	}
	next, all, want := s, true, make([]Decision, len(a.items))
	for i, it := range a.items {
		want[i], next = next.take(a.now, it)
		all = all && want[i].Allowed
	}
	if a.what == "all" && !all {
		s.left(a, want)
	}
	switch {
	case !slices.Equal(want, got.decisions), a.what == "all" && all != got.all:
		return nil
	case a.what == "peek" || a.what == "all" && !all:
		return []states{s}
	}
	return []states{next}
}

// left makes the decisions on items that were refused together say what remains in s.
func (s states) left(a asked, want []Decision) {
	for i, it := range a.items {
		it.Request = Request{}
		d, _ := s.take(a.now, it)
		want[i].Remaining, want[i].ResetAfter, want[i].Drained = d.Remaining, d.ResetAfter, 0
	}
}

// swept are the states after a sweep, which removes none, some or all of the keys that are as good
// as never seen.
func (s states) swept(now Instant, limits map[string]*Limit) []states {
	possible := []states{s}
	for key, w := range s {
		if len(w) == limits[key].words() && limits[key].fresh(w, now) {
			for _, p := range slices.Clone(possible) {
				possible = append(possible, p.with(key, nil))
			}
		}
	}
	return possible
}

// linearizable says whether there is such an order of the history.
func linearizable(history []porcupine.Operation, limits map[string]*Limit) porcupine.CheckResult {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{states{}} },
		Step: func(state, input, output any) (next []any) {
			for _, s := range state.(states).after(input.(asked), output.(answered), limits) {
				next = append(next, s)
			}
			return next
		},
		Equal: func(a, b any) bool { return a.(states).equal(b.(states)) },
	}
	return porcupine.CheckOperationsTimeout(model.ToModel(), history, time.Minute)
}

// contest lets goroutines ask t at once, and returns their answers, with times by a clock that only
// counts.
func contest(t asker, seed uint64, draw func(*rand.Rand, Instant) asked) []porcupine.Operation {
	const askers, questions = 4, 25
	var stamp, clock atomic.Int64
	var begin, end sync.WaitGroup
	begin.Add(1)
	histories := make([][]porcupine.Operation, askers)
	for id := range askers {
		rnd := rand.New(rand.NewPCG(seed, uint64(id)))
		end.Go(func() {
			begin.Wait()
			for range questions {
				a := draw(rnd, firstAsked+Instant(clock.Add(rnd.Int64N(3e9))))
				op := porcupine.Operation{ClientId: id, Input: a, Call: stamp.Add(1)}
				if rnd.IntN(4) == 0 {
					runtime.Gosched() // let others overtake, also where there is one processor only
				}
				op.Output = a.of(t)
				if rnd.IntN(4) == 0 {
					runtime.Gosched()
				}
				op.Return = stamp.Add(1)
				histories[id] = append(histories[id], op)
			}
		})
	}
	begin.Done()
	end.Wait()
	return slices.Concat(histories...)
}

// contested are two keys, in two shards of a table that has two, each under a limit of its own; and
// what is asked about them.
func contested(l *Limit) (limits map[string]*Limit, draw func(*rand.Rand, Instant) asked) {
	other := mustBe(New(Spec{Name: "other", Algorithm: FixedWindow, Limit: 12, Per: time.Minute}))
	limits = map[string]*Limit{"a": l, "b": other}
	if Hash("a")>>63 == Hash("b")>>63 {
		panic("these keys lie in one shard; take others")
	}
	item := func(rnd *rand.Rand, key string) Item {
		l := limits[key]
		r := Request{Cost: []int64{1, 1, 1, 2, 3, -1, -2, 0, l.Capacity() + 1}[rnd.IntN(9)]}
		with := r
		switch rnd.IntN(8) {
		case 0:
			with.Report = true
		case 1:
			with.Drain = true
		case 2:
			with.Strict = true
		}
		if l.Accepts(&with) == nil {
			r = with
		}
		return Item{l, key, Hash(key), r}
	}
	return limits, func(rnd *rand.Rand, now Instant) asked {
		now -= []Instant{0, 0, 0, 1, 5e9, 70e9}[rnd.IntN(6)]
		one := []Item{item(rnd, "a")}
		switch n := rnd.IntN(20); {
		case n < 9:
			return asked{"do", now, one}
		case n < 12:
			one[0].Request = Request{Cost: one[0].Cost} // there is no more to ask
			return asked{"peek", now, one}
		case n < 17:
			both := []Item{item(rnd, "a"), item(rnd, "ab"[n%2:][:1])}
			rnd.Shuffle(2, func(i, j int) { both[i], both[j] = both[j], both[i] })
			return asked{"all", now, both}
		case n < 18:
			return asked{"reset", now, one}
		default:
			return asked{"sweep", now, nil}
		}
	}
}

// contestedSpec is a limit of the algorithm with a state that changes often in a contest: some
// requests are refused, and within a minute it admits again.
func contestedSpec(a Algorithm) Spec {
	s := Spec{Name: "contested", Algorithm: a, Limit: 7, Per: 20 * time.Second, MaxDebt: 5}
	switch a {
	case LeakyBucket:
		s.Burst = 4
	case SlidingLog:
		s.MinGap, s.CountRejected = time.Second, true
	case TokenBucket:
		s.Refill, s.Anchor, s.Strict, s.Drain = 3, FirstHit, true, true
	case SlidingCounter:
		s.Buckets, s.CountRejected = 5, true
	case StatedWindow, StatedBucket:
		s.MaxDebt = 0
	case Concurrency:
		s.MaxDebt, s.Buckets = 0, 5
	}
	return s
}

func everyAlgorithm(t *testing.T, f func(*testing.T, Algorithm)) {
	for a := range algorithmNames {
		if a != 0 {
			t.Run(Algorithm(a).String(), func(t *testing.T) { f(t, Algorithm(a)) })
		}
	}
}

// TestLinearizable: many goroutines ask about one key at once, alone and together with another key,
// with peeks, refunds, resets and sweeps. Their answers are those that one caller could have got.
func TestLinearizable(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 40
	}
	everyAlgorithm(t, func(t *testing.T, a Algorithm) {
		limits, draw := contested(mustBe(New(contestedSpec(a))))
		atOnce := 0
		for seed := range uint64(rounds) {
			history := contest(NewTable(TableConfig{Bytes: 1, Shards: 2}), seed, draw)
			atOnce += overlaps(history)
			if verdict := linearizable(history, limits); verdict != porcupine.Ok {
				t.Fatalf("round %d: %v; no order of these answers is right:\n%s", seed, verdict,
					transcript(history))
			}
		}
		if atOnce == 0 {
			t.Error("nobody asked while another did: the test shows nothing")
		}
		t.Logf("%d histories, %d requests made before the one before was answered", rounds, atOnce)
	})
}

// hasty reads, decides, and then writes, as a limiter does that keeps its counts in a store without
// scripts.
type hasty struct{ *Table }

func (h hasty) Do(now Instant, l *Limit, key string, hash uint64, r Request) Decision {
	d := h.Peek(now, l, key, hash, r.Cost)
	runtime.Gosched()
	h.Table.Do(now, l, key, hash, r)
	return d
}

// piecemeal takes one item after the other, and gives back what it took if one is refused.
type piecemeal struct{ *Table }

func (p piecemeal) TakeAll(now Instant, items []Item, out []Decision) bool {
	for i, it := range items {
		out[i] = p.Do(now, it.Limit, it.Key, it.Hash, it.Request)
		runtime.Gosched()
	}
	if !slices.ContainsFunc(out, func(d Decision) bool { return !d.Allowed }) {
		return true
	}
	for i, it := range items {
		if out[i].Allowed {
			p.Take(now, it.Limit, it.Key, it.Hash, -it.Cost)
		}
	}
	return false
}

// TestLinearizableCanFail: the same contest convicts limiters that do what they do in two steps.
func TestLinearizableCanFail(t *testing.T) {
	for name, plant := range map[string]func(*Table) asker{
		"read, then write":    func(t *Table) asker { return hasty{t} },
		"one after the other": func(t *Table) asker { return piecemeal{t} },
	} {
		t.Run(name, func(t *testing.T) {
			limits, draw := contested(mustBe(New(contestedSpec(GCRA))))
			for seed := range uint64(100) {
				history := contest(plant(NewTable(TableConfig{Bytes: 1})), seed, draw)
				if linearizable(history, limits) == porcupine.Illegal {
					return
				}
			}
			t.Error("not noticed in 100 histories")
		})
	}
}

// overlaps counts the requests that were made before another one, made earlier, was answered.
func overlaps(history []porcupine.Operation) (n int) {
	ordered := inOrder(history)
	last := int64(0)
	for _, op := range ordered {
		if op.Call < last {
			n++
		}
		last = max(last, op.Return)
	}
	return n
}

func inOrder(history []porcupine.Operation) []porcupine.Operation {
	return slices.SortedFunc(slices.Values(history), func(a, b porcupine.Operation) int {
		return cmp.Compare(a.Call, b.Call)
	})
}

func transcript(history []porcupine.Operation) string {
	var b strings.Builder
	for _, op := range inOrder(history) {
		fmt.Fprintf(&b, "%4d–%-4d %d: %v: %+v\n", op.Call, op.Return, op.ClientId, op.Input,
			op.Output)
	}
	return b.String()
}
