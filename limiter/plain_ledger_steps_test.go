package limiter

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// same compares what is said of a hold.
func (p *ledgerPair) same(what string, got, want Decision) {
	p.t.Helper()
	got = Decision{
		Allowed: got.Allowed && want.Allowed, Remaining: got.Remaining, Hold: got.Hold,
		Closed: got.Closed,
	}
	if got != want {
		p.t.Fatalf("%s: %+v, want %+v", what, got, want)
	}
}

// some draws a key, an id and a holder, of a few.
func (p *ledgerPair) some() (key string, id HoldID, holder string) {
	for id.Origin == 0 || p.plain.gone[id] { // no id comes again
		id = HoldID{Origin: 1 + p.draw.Uint64N(2), Sequence: p.draw.Uint64N(20)}
	}
	return oneOf(p.draw, "a", "b"), id, oneOf(p.draw, "", "x", "y")
}

func (p *ledgerPair) open() {
	var requests []HoldRequest
	for range 1 + p.draw.IntN(3) {
		key, id, holder := p.some()
		taken := func(r HoldRequest) bool { return r.ID == id }
		if slices.ContainsFunc(requests, taken) {
			continue
		}
		r := HoldRequest{
			ID: id, Limit: oneOf(p.draw, p.limits...), Key: key, Hash: Hash(key), Holder: holder,
			Units: 1 + p.draw.Int64N(6), TTL: time.Duration(1+p.draw.IntN(9)) * 100 *
				time.Millisecond,
			Client: p.draw.Uint64N(3), Charge: p.draw.IntN(2) == 0,
		}
		if h := p.plain.holds[id]; h != nil && p.draw.IntN(2) == 0 { // the same once more
			r.Limit, r.Key, r.Hash, r.Holder = h.Limit, h.Key, Hash(h.Key), h.Holder
		}
		requests = append(requests, r)
	}
	got := make([]Decision, len(requests))
	opened := p.book.Open(p.plain.now, requests, got)
	want, shouldOpen := p.plain.open(requests)
	if opened != shouldOpen {
		p.t.Fatalf("%+v: opened %t, %+v, want %+v", requests, opened, got, want)
	}
	for i := range got {
		if want[i].Allowed != got[i].Allowed {
			p.t.Fatalf("%+v: %+v, want %+v", requests[i], got[i], want[i])
		}
		p.same(fmt.Sprintf("open %+v", requests[i]), got[i], want[i])
	}
}

func (p *ledgerPair) settleOrExtend() {
	key, id, holder := p.some()
	if h := p.plain.holds[id]; h != nil && p.draw.IntN(4) > 0 {
		key = h.Key
		if p.draw.IntN(3) > 0 {
			holder = h.Holder
		}
	}
	if p.draw.IntN(3) == 0 {
		ttl := time.Duration(p.draw.IntN(9)) * 100 * time.Millisecond
		p.same("extend", p.book.Extend(p.plain.now, id, Hash(key), holder, ttl),
			p.plain.extend(id, Hash(key), holder, ttl))
		return
	}
	used := p.draw.Int64N(8)
	p.same("settle", p.book.Settle(p.plain.now, id, Hash(key), holder, used),
		p.plain.settle(id, Hash(key), holder, used))
}

// move has a hold come from elsewhere or from a file, a partition go or come, or time pass.
func (p *ledgerPair) move() {
	key, id, holder := p.some()
	switch p.draw.IntN(6) {
	case 0, 1:
		h := &Hold{
			ID: id, Limit: oneOf(p.draw, p.limits...), Key: key, Holder: holder,
			Client: p.draw.Uint64N(3),
			Units:  oneOf[int64](p.draw, 0, 1, 2, 3, -1, MaxLimit+1), Charge: p.draw.IntN(2) == 0,
			Deadline: p.plain.now.Add(time.Duration(p.draw.IntN(9)) * 100 * time.Millisecond),
			State: oneOf(p.draw, HoldOpen, HoldOpen, HoldSettled, HoldRanOut, HoldNone,
				HoldUnknown),
			Used: p.draw.Int64N(4),
		}
		if own := p.plain.holds[id]; own != nil {
			h.Limit = own.Limit
		}
		copied, stored := *h, p.draw.IntN(2) == 0
		want := p.plain.merge(&copied, stored)
		if !stored {
			p.book.Import(p.plain.now, h)
		} else if got := p.book.Restore(p.plain.now, h); got != want {
			p.t.Fatalf("restored %+v: %t", h, got)
		}
	case 2:
		p.book.Unrestore()
		p.plain.unrestore()
	case 3:
		of := oneOf(p.draw, p.plain.away, p.plain.away, p.plain.shut)
		of[Hash(key)] = p.draw.IntN(2) == 0
	default:
		p.plain.now = p.plain.now.Add(time.Duration(oneOf(p.draw, 1, 1, 2, 3, 600)) * 100 *
			time.Millisecond)
		var kept func(uint64) bool
		if p.draw.IntN(6) == 0 {
			kept = func(hash uint64) bool { return hash != Hash(key) }
		}
		dropped := len(p.plain.holds)
		if got, want := p.book.Expire(p.plain.now, kept), p.plain.expire(kept); got != want {
			p.t.Fatalf("%d ran out, want %d", got, want)
		}
		if dropped -= len(p.plain.holds); kept == nil {
			dropped = 0
		}
		if n := len(p.book.due); n > 2*(len(p.plain.holds)+dropped) {
			p.t.Fatalf("%d deadlines of %d holds are kept", n, len(p.plain.holds))
		}
	}
}

func (p *ledgerPair) take() {
	key, _, _ := p.some()
	l, cost := p.limits[p.draw.IntN(3)], 1+p.draw.Int64N(4)
	got := p.table.Take(p.plain.now, l, key, Hash(key), cost)
	want := p.plain.peek(l, key)
	if want.Allowed = !want.Closed && cost <= p.plain.left(l, key); want.Allowed {
		p.plain.spent[l.Name+key] += cost
		want.Remaining = p.plain.left(l, key)
	} else if !want.Closed && p.plain.has(l, key) > 0 {
		want.Hold = HoldInTheWay
	}
	p.same("take", got, want)
}

// compare compares all that can be seen of both.
func (p *ledgerPair) compare() {
	p.t.Helper()
	same := func(what string, got, want []string) {
		p.t.Helper()
		if !slices.Equal(got, want) {
			p.t.Fatalf("%s:\n%q, want\n%q", what, got, want)
		}
	}
	var got []string
	p.book.Each(func(uint64) bool { return true }, func(hash uint64, h Hold) {
		if got = append(got, seen(&h)); hash != Hash(h.Key) {
			p.t.Fatalf("the hash of %+v is %d", h, hash)
		}
	})
	everything := func(*plainHold) bool { return true }
	decided := func(h *plainHold) bool { return h.State == HoldOpen && !p.plain.away[Hash(h.Key)] }
	var open []string
	p.book.EachOpen(func(h *Hold) { open = append(open, seen(h)) })
	slices.Sort(open)
	want := p.plain.list(decided, byID)
	slices.Sort(want)
	same("each that is open", open, want)
	same("each", got, p.plain.list(everything, byID))
	if p.book.Len() != len(p.plain.holds) {
		p.t.Fatalf("%d holds, want %d", p.book.Len(), len(p.plain.holds))
	}
	key, id, holder := p.some()
	l := oneOf(p.draw, p.limits...)
	got = nil
	for _, h := range p.book.On(l, key) {
		got = append(got, seen(&h))
	}
	on := func(h *plainHold) bool {
		return h.State == HoldOpen && h.Key == key && h.Limit == l
	}
	same("on a key", got, p.plain.list(on, byDeadline))
	f := HoldFilter{oneOf(p.draw, "", l.Name), oneOf(p.draw, "", key), holder}
	want = p.plain.list(func(h *plainHold) bool {
		return decided(h) && (f.Limit == "" || f.Limit == h.Limit.Name) &&
			(f.Key == "" || f.Key == h.Key) && (f.Holder == "" || f.Holder == h.Holder)
	}, byDeadline)
	most := p.draw.IntN(5)
	list, there := p.book.List(f, most)
	got = nil
	for _, h := range list {
		got = append(got, seen(&h))
	}
	if same("listed", got, want[:min(most, len(want))]); there != len(want) {
		p.t.Fatalf("%d are there, want %d", there, len(want))
	}
	if h, found := p.book.Get(id); found != (p.plain.holds[id] != nil) ||
		found && seen(&h) != seen(&p.plain.holds[id].Hold) {
		p.t.Fatalf("got %+v, %t", h, found)
	}
	p.same("peek", p.table.Peek(p.plain.now, l, key, Hash(key), 0), p.plain.peek(l, key))
}

// told compares the holds that are told since the last time.
func (p *ledgerPair) told() {
	var got, want []string
	p.book.Changed(func() {}, func(_ uint64, h Hold) { got = append(got, seen(&h)) })
	for _, h := range p.plain.told {
		want = append(want, seen(&h.Hold))
	}
	slices.Sort(got)
	slices.Sort(want)
	if p.plain.told = nil; !slices.Equal(got, want) {
		p.t.Fatalf("told:\n%q, want\n%q", got, want)
	}
}

// Promise: a ledger does as plainBook says, whatever comes in which order; its count of changes
// tells whether anything that it shows has changed.
func TestLedgerInPlainWords(t *testing.T) {
	for seed := range uint64(150) {
		p := newLedgerPair(t, seed)
		for range 60 {
			shown, changes := p.shown(), p.book.Changes()
			switch p.draw.IntN(8) {
			case 0, 1, 2:
				p.open()
			case 3, 4:
				p.settleOrExtend()
			case 5, 6:
				p.move()
			default:
				p.take()
			}
			if changed := p.shown() != shown; changed != (p.book.Changes() != changes) {
				t.Fatalf("seed %d: changed: %t, but %d changes became %d", seed, changed, changes,
					p.book.Changes())
			}
			if p.compare(); p.draw.IntN(8) == 0 {
				p.told()
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

func (p *ledgerPair) shown() string {
	return fmt.Sprint(p.plain.list(func(*plainHold) bool { return true }, byID))
}
