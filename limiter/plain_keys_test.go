package limiter

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// plainKeys is a table that has room for all, in plain words: a state for each identity of a limit
// and key. What a limit does with a state is not in question here.
type plainKeys struct {
	now      Instant
	states   map[plainKey][]int64
	reserved map[plainKey]int64
	asked    map[*Limit]bool
	touched  map[string]bool // keys of requests since the last time
}

type plainKey struct {
	identity uint64
	key      string
}

// state is a copy of the state of a key as l reads it, and whether it was ever charged.
func (p *plainKeys) state(l *Limit, key string) (w []int64, there bool) {
	w = make([]int64, l.words())
	own := p.states[plainKey{l.seed, key}]
	if len(own) == len(w) {
		copy(w, own)
	} else {
		l.refit(w, own)
	}
	return w, own != nil
}

// decide decides on a state, and reports whether what it has become is to be kept: a key that was
// never charged gets nothing back, unless it can have a credit, and no refusal is kept of it that
// takes nothing.
func (p *plainKeys) decide(l *Limit, w []int64, there bool, r Request, d *Decision) (keep bool) {
	if there || r.Cost < 0 && l.credits() {
		l.answer(w, p.now, &r, d)
		return r.Cost != 0
	}
	if r.Cost < 0 {
		r = Request{At: r.At, Timed: r.Timed}
	}
	l.answer(w, p.now, &r, d)
	counted := l.CountRejected && r.Cost <= l.Limit || l.Drain
	return r.Cost > 0 && (d.Allowed || d.Drained > 0 || counted)
}

// beside decides beside n reserved units, and reports whether they are in the way.
func (p *plainKeys) beside(l *Limit, w []int64, n int64, r Request) (d Decision, inTheWay bool) {
	if n == 0 || r.Cost <= 0 || r.Report {
		return d, false
	}
	with := r
	with.Cost, with.Drain = r.Cost+n, false
	if l.answer(slices.Clone(w), p.now, &with, &d); d.Allowed {
		return d, false
	}
	if d.Remaining, d.Hold = max(0, d.Remaining-n), HoldInTheWay; r.Cost <= l.Capacity() &&
		with.Cost > l.Capacity() {
		var alone Decision
		with.Cost = r.Cost
		l.answer(slices.Clone(w), p.now, &with, &alone)
		d.RetryAfter = max(alone.RetryAfter, min(l.Per, 100*time.Millisecond))
	}
	d.Drained = 0
	return d, true
}

// restarts reports whether the key counts under a namesake of l with another identity.
func (p *plainKeys) restarts(l *Limit, key string) bool {
	if l.isShare() {
		return false
	}
	for other := range p.asked {
		own, there := p.state(other, key)
		if other.Name == l.Name && other.seed != l.seed && there && !other.fresh(own, p.now) {
			return true
		}
	}
	return false
}

// ask decides on w, which becomes what is to be kept if the answer is to be written. What is
// reserved counts as if it were charged at last.
func (p *plainKeys) ask(it Item, w []int64, there, write bool) (d Decision, keep bool) {
	n := p.reserved[plainKey{it.Limit.seed, it.Key}]
	beside, inTheWay := p.beside(it.Limit, w, n, it.Request)
	if d = beside; !inTheWay {
		keep = p.decide(it.Limit, w, there, it.Request, &d)
		if d.Remaining = max(0, d.Remaining-n); d.Allowed {
			d.Delay = max(d.Delay, beside.Delay)
		}
	}
	if last, _ := p.state(it.Limit, it.Key); n > 0 {
		if keep && write {
			copy(last, w)
		}
		var charged Decision
		it.Limit.answer(last, p.now, &Request{Cost: n, Report: true}, &charged)
		d.ResetAfter = max(d.ResetAfter, charged.ResetAfter)
	}
	return d, keep
}

func (p *plainKeys) do(it Item, write bool) (d Decision) {
	w, there := p.state(it.Limit, it.Key)
	d, keep := p.ask(it, w, there, write)
	if d.Restarted = !there && d.Hold == HoldNone && p.restarts(it.Limit, it.Key); write {
		if keep {
			p.states[plainKey{it.Limit.seed, it.Key}] = w
		}
		p.touched[it.Key] = true
	}
	return d
}

// doAll decides on all items one after the other, and on none if one of them is refused.
func (p *plainKeys) doAll(items []Item) (out []Decision, all bool) {
	before := maps.Clone(p.states)
	all = true
	for _, it := range items {
		d := p.do(it, true)
		out, all = append(out, d), all && d.Allowed
	}
	if all {
		return out, true
	}
	p.states = before
	for i, it := range items {
		it.Request = Request{}
		left := p.do(it, false)
		out[i].Remaining, out[i].ResetAfter, out[i].Drained = left.Remaining, left.ResetAfter, 0
	}
	return out, false
}

func (p *plainKeys) merge(l *Limit, key string, other []int64) {
	w, _ := p.state(l, key)
	if l.merge(w, slices.Clone(other), p.now); !l.fresh(w, p.now) {
		p.states[plainKey{l.seed, key}] = w
	}
}

// pair is a table that is compared with the same in plain words, and what is drawn for both.
type pair struct {
	t      *testing.T
	draw   *rand.Rand
	table  *Table
	limits []*Limit
}

func newPair(t *testing.T, seed uint64) pair {
	return pair{t: t, draw: rand.New(rand.NewPCG(seed, 1))}
}

// keysPair is a pair with a copy of the table at another node.
type keysPair struct {
	pair
	plain *plainKeys
	copy  *Table
}

func newKeysPair(t *testing.T, seed uint64) *keysPair {
	p := &keysPair{pair: newPair(t, seed)}
	p.plain = &plainKeys{
		now: Instant(1e18), states: map[plainKey][]int64{}, reserved: map[plainKey]int64{},
		asked: map[*Limit]bool{}, touched: map[string]bool{},
	}
	c := TableConfig{Bytes: 1 << 20, Shards: 1 + p.draw.IntN(2), Seed: p.draw.Uint64N(2)}
	p.table, p.copy = NewTable(c), NewTable(TableConfig{Bytes: 1 << 20})
	p.table.Track()
	for _, s := range []Spec{
		{Name: "rate", Algorithm: GCRA, Limit: 7},
		{Name: "rate", Algorithm: GCRA, Limit: 6, Burst: 9},
		{Name: "rate", Algorithm: GCRA, Limit: 3, Override: "a*"},
		{Name: "rate", Algorithm: FixedWindow, Limit: 6, CountRejected: true},
		{Name: "window", Algorithm: FixedWindow, Limit: 6, Drain: true},
		{Name: "window", Algorithm: FixedWindow, Limit: 4, Override: "b*"},
		{Name: "log", Algorithm: SlidingLog, Limit: 3},
		{Name: "log", Algorithm: SlidingLog, Limit: 9, Override: "a*"},
		{Name: "parts", Algorithm: SlidingCounter, Limit: 6, Buckets: 4, MaxDebt: 4},
		{Name: "wait", Algorithm: TokenBucket, Limit: 4, OnDeny: DenyDelay, MaxDelay: 2e9},
		{Name: "stated", Algorithm: StatedWindow, Limit: 6},
		{Name: "spread", Algorithm: GCRA, Limit: 6, Consistency: Replicated},
	} {
		s.Per = time.Second
		p.limits = append(p.limits, mustBe(New(s)))
	}
	p.limits = append(p.limits, p.limits[1].Share(2))
	return p
}

func (p *keysPair) item() Item {
	key := fmt.Sprint(oneOf(p.draw, "a", "b", "a key that is too long for a slot of 64 bytes "),
		p.draw.IntN(12))
	it := Item{Limit: oneOf(p.draw, p.limits...), Key: key, Hash: Hash(key)}
	p.plain.asked[it.Limit] = true
	it.Request = Request{
		Cost: p.draw.Int64N(10) - 2, Report: p.draw.IntN(9) == 0, Drain: p.draw.IntN(9) == 0,
	}
	return it
}

// same compares decisions. A state that is as good as never seen may be forgotten or not.
func (p *keysPair) same(it Item, got, want Decision) {
	p.t.Helper()
	if w, there := p.plain.state(it.Limit, it.Key); there && it.Limit.fresh(w, p.plain.now) {
		want.Restarted = got.Restarted
	}
	if got != want {
		p.t.Fatalf("%+v of %+v:\n%+v, want\n%+v", it.Request, it.Limit.Spec, got, want)
	}
}

func (p *keysPair) step() {
	it, now := p.item(), p.plain.now
	id := plainKey{it.Limit.seed, it.Key}
	switch p.draw.IntN(16) {
	case 0:
		r := Request{Cost: it.Cost}
		it.Request = r
		p.same(it, p.table.PeekRequest(now, it.Limit, it.Key, it.Hash, r), p.plain.do(it, false))
	case 1:
		clear(p.plain.states[id])
		p.plain.touched[it.Key] = true
		it.Request = Request{}
		p.same(it, p.table.Reset(now, it.Limit, it.Key, it.Hash), p.plain.do(it, false))
	case 2, 3:
		p.takeAll()
	case 4:
		w := make([]int64, it.Limit.words())
		var d Decision
		it.Limit.answer(w, now, &Request{Cost: 1 + p.draw.Int64N(3)}, &d)
		p.plain.merge(it.Limit, it.Key, w)
		p.plain.touched[it.Key] = true // its entry may have been another rule's
		for _, table := range []*Table{p.table, p.copy} {
			if p.draw.IntN(2) == 0 {
				table.Merge(now, it.Limit, it.Key, it.Hash, w)
				continue
			}
			e := Entry{Limit: it.Limit, Key: it.Key, State: it.Limit.EncodeState(w, now)}
			if !table.Import(now, &e, false) {
				p.t.Fatalf("%+v is broken", e)
			}
		}
	case 5:
		units := p.draw.Int64N(5) - min(2, p.plain.reserved[id])
		p.table.adjustReserved(it.Limit, it.Key, it.Hash, units)
		p.plain.reserved[id] += units
	case 6:
		p.table.Sweep(now, p.draw.IntN(60))
	case 7, 8, 9:
		p.plain.now = now.Add(time.Duration(p.draw.IntN(400)) * time.Millisecond)
	default:
		before, there := p.plain.state(it.Limit, it.Key)
		fresh := !there || it.Limit.fresh(before, now)
		want := p.plain.do(it, true)
		got := p.table.Do(now, it.Limit, it.Key, it.Hash, it.Request)
		if there && fresh {
			want.Restarted = got.Restarted
		}
		p.same(it, got, want)
		s, x := p.table.shard(it.Limit, it.Key, it.Hash)
		if x.rule = p.table.rules.of(it.Limit); it.Cost == 0 || got.Hold != HoldNone {
			return
		}
		if i := s.find(&x); i >= 0 && s.entries.slots[i].rule() != x.rule.id {
			p.t.Fatalf("%s is not an entry of the limit that was asked: %+v", it.Key, it.Limit.Spec)
		}
	}
}

func (p *keysPair) takeAll() {
	items := []Item{p.item(), p.item(), p.item()}[:1+p.draw.IntN(3)]
	if len(items) > 1 && p.draw.IntN(3) == 0 {
		items[1].Limit, items[1].Key, items[1].Hash = items[0].Limit, items[0].Key, items[0].Hash
	}
	if last := len(items) - 1; p.draw.IntN(3) == 0 { // of one state, that both limits read
		for _, it := range []*Item{&items[0], &items[last]} {
			it.Limit, it.Key, it.Hash = oneOf(p.draw, p.limits[6:8]...), items[0].Key, items[0].Hash
			p.plain.asked[it.Limit] = true
		}
	}
	want, all := p.plain.doAll(items)
	got := make([]Decision, len(items))
	if p.table.TakeAll(p.plain.now, items, got) != all {
		p.t.Fatalf("%+v: %+v, want %+v", items, got, want)
	}
	for i := range items {
		got[i].Restarted, want[i].Restarted = false, false
		p.same(items[i], got[i], want[i])
	}
}

// tell has the copy hear what has changed, of each key once and of no others, and compares both.
func (p *keysPair) tell() {
	told := map[string]bool{}
	p.table.Changed(p.plain.now, func(hash uint64, e Entry) {
		name := fmt.Sprint(e.Limit.Name, e.Limit.seed, e.Key)
		if told[name] || !p.plain.touched[e.Key] || hash != Hash(e.Key) || e.Limit.isLocal() {
			p.t.Fatalf("%s of %+v is told", e.Key, e.Limit.Spec)
		}
		told[name] = true
		p.copy.Import(p.plain.now, &e, true)
	})
	keys := slices.Collect(maps.Keys(p.plain.touched))
	clear(p.plain.touched)
	for _, l := range p.limits {
		for _, key := range keys {
			w, _ := p.plain.state(l, key)
			want := l.EncodeState(w, p.plain.now)
			tables := []*Table{p.table, p.copy}
			// a log that had other lengths at both has forgotten other instants
			if l.isLocal() || l.Algorithm == SlidingLog {
				tables = tables[:1]
			}
			for i, table := range tables {
				got := table.Entry(p.plain.now, l, key, Hash(key))
				own, err := l.DecodeState(got.State, p.plain.now)
				state := l.EncodeState(own, p.plain.now)
				if err != nil || !slices.Equal(state, want) {
					p.t.Fatalf("table %d has %v of %s under %+v, want %v", i, state, key,
						l.Spec, want)
				}
			}
		}
	}
}

// Promise: a table with room for all answers as plainKeys does, and a copy that hears what has
// changed has the same states.
func TestTableInPlainWords(t *testing.T) {
	for seed := range uint64(60) {
		p := newKeysPair(t, seed)
		for i := range 600 {
			if p.step(); p.draw.IntN(6) == 0 {
				p.tell()
			}
			if i%60 == 0 {
				p.table.check(t)
			}
		}
	}
}
