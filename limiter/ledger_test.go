package limiter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"penstock/limiter"
)

// desk is a table with a book, and beside it a table without one that is charged what is surely
// spent.
type desk struct {
	t      *testing.T
	now    limiter.Instant
	limit  *limiter.Limit
	table  *limiter.Table
	book   *limiter.Ledger
	shadow *limiter.Table
	held   map[limiter.HoldID]int64
	dice   *rand.Rand
	ids    uint64
}

const deskKey = "alice"

var deskHash = limiter.Hash(deskKey)

func newDesk(t *testing.T, spec limiter.Spec) *desk {
	d := &desk{
		t: t, now: start, limit: mustNew(t, spec), held: map[limiter.HoldID]int64{},
		dice: rand.New(rand.NewPCG(1, 2)),
	}
	d.table, d.book = newLedger(nil)
	d.shadow = limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	return d
}

func newLedger(open func(uint64) bool) (*limiter.Table, *limiter.Ledger) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	if open != nil {
		table.Guard(func(_ limiter.Instant, h uint64) bool { return open(h) },
			func(uint64) bool { return true })
	}
	table.Track()
	book := limiter.NewLedger(table, open)
	book.Track()
	return table, book
}

func (d *desk) openHold(units int64, ttl time.Duration) (limiter.HoldID, limiter.Decision) {
	d.ids++
	id := limiter.HoldID{Origin: 7, Sequence: d.ids}
	return id, d.openAs(id, units, ttl, "")
}

func (d *desk) openAs(
	id limiter.HoldID, units int64, ttl time.Duration, holder string,
) limiter.Decision {
	var out [1]limiter.Decision
	r := limiter.HoldRequest{
		ID: id, Limit: d.limit, Key: deskKey, Hash: deskHash, Units: units,
		TTL: ttl, Holder: holder,
	}
	if d.book.Open(d.now, []limiter.HoldRequest{r}, out[:]) {
		d.held[id] = units
	}
	return out[0]
}

func (d *desk) sum() (n int64) {
	for _, units := range d.held {
		n += units
	}
	return n
}

// spent charges the shadow, which has to admit it: a limiter without holds would have admitted the
// same.
func (d *desk) spent(units int64, what string) {
	d.t.Helper()
	if units == 0 || d.limit.Algorithm == limiter.Concurrency {
		return
	}
	if got := d.shadow.Take(d.now, d.limit, deskKey, deskHash, units); !got.Allowed {
		d.t.Fatalf("at %v: %s of %d: a limiter without holds would not have admitted it: %+v",
			d.now-start, what, units, got)
	}
}

// step does something by chance and holds it against the shadow.
func (d *desk) step() {
	capacity := d.limit.Capacity()
	amount := 1 + d.dice.Int64N(max(1, capacity/2))
	switch d.dice.IntN(8) {
	case 0, 1:
		d.openHold(amount, limiter.MinTTL+time.Duration(d.dice.Int64N(int64(2*d.limit.Per))))
	case 2, 3:
		if d.limit.Algorithm == limiter.Concurrency {
			break // a permit that is taken without a hold comes back by itself: see TestPermits
		}
		if got := d.table.Take(d.now, d.limit, deskKey, deskHash, amount); got.Allowed {
			d.spent(amount, "a take")
		}
	case 4, 5:
		for id, units := range d.held {
			used := d.dice.Int64N(units + 1)
			if got := d.book.Settle(
				d.now, id, deskHash, "", used,
			); got.Hold != limiter.HoldSettled {
				d.t.Fatalf("settled %d of %d: %+v", used, units, got)
			}
			delete(d.held, id)
			d.spent(used, "a settlement")
			break
		}
	case 6:
		d.now = d.now.Add(time.Duration(d.dice.Int64N(int64(d.limit.Per / 3))))
	default:
		before := d.book.On(d.limit, deskKey)
		d.book.Expire(d.now, nil)
		after := d.book.On(d.limit, deskKey)
		for _, h := range before {
			if !slices.ContainsFunc(after, func(x limiter.Hold) bool { return x.ID == h.ID }) {
				if h.Deadline > d.now {
					d.t.Fatalf("a hold ran out %v before its deadline", h.Deadline-d.now)
				}
				delete(d.held, h.ID)
				if d.limit.Unsettled == limiter.UnsettledCharge {
					d.spent(h.Units, "a hold that ran out")
				}
			}
		}
	}
	if n := d.sum(); n > capacity {
		d.t.Fatalf("%d units are held of %d", n, capacity)
	} else if n > 0 && d.limit.MinGap == 0 &&
		!d.shadow.Peek(d.now, d.limit, deskKey, deskHash, n).Allowed {
		d.t.Fatalf("%d units are held, and could not all be spent now", n)
	}
}

// TestHoldsExceedNothing: takes, holds, settlements and expiries come in any order. A limiter
// without holds would have admitted at each moment what was spent, and would admit at once what is
// held.
func TestHoldsExceedNothing(t *testing.T) {
	forEveryKind(t, func(t *testing.T, spec limiter.Spec, _ *limiter.Limit) {
		if spec.ClientTime || spec.MinGap != 0 {
			t.Skip("no holds, or no settlement within the gap")
		}
		for _, unsettled := range []limiter.Unsettled{
			limiter.UnsettledCharge,
			limiter.UnsettledRelease,
		} {
			spec.Unsettled, spec.Per = unsettled, max(spec.Per, time.Second)
			d := newDesk(t, spec)
			for range 4000 {
				d.step()
			}
		}
	})
}

// TestHoldsMove: holds and entries are copied now and then, to a table that takes over at some
// moment: no hold is lost, none is settled in one and open in the other, and the sum of both admits
// no more than one would.
func TestHoldsMove(t *testing.T) {
	forEveryKind(t, func(t *testing.T, spec limiter.Spec, _ *limiter.Limit) {
		if spec.ClientTime || spec.MinGap != 0 {
			t.Skip("no holds, or no settlement within the gap")
		}
		spec.Per = max(spec.Per, time.Second)
		d := newDesk(t, spec)
		open := [2]bool{true, false}
		var tables [2]*limiter.Table
		var books [2]*limiter.Ledger
		for i := range tables {
			tables[i], books[i] = newLedger(func(uint64) bool { return open[i] })
		}
		holder := 0
		follow := func() {
			to := 1 - holder
			books[holder].Changed(func() {
				tables[holder].Changed(d.now, func(_ uint64, e limiter.Entry) {
					tables[to].Import(d.now, &e, true)
				})
			}, func(_ uint64, h limiter.Hold) {
				books[to].Import(d.now, &h)
				books[to].Import(d.now, &h) // twice is once
			})
		}
		for i := range 6000 {
			d.table, d.book = tables[holder], books[holder]
			d.step()
			if d.dice.IntN(5) == 0 {
				follow()
			}
			if i%50 == 49 {
				open[holder] = false
				if got := d.book.Settle(d.now, limiter.HoldID{}, deskHash, "", 1); !got.Closed {
					t.Fatalf("a closed book answers %+v", got)
				}
				follow()
				holder = 1 - holder
				open[holder] = true
				if got := len(books[holder].On(d.limit, deskKey)); got != len(d.held) {
					t.Fatalf("%d of %d open holds have moved", got, len(d.held))
				}
			}
		}
	})
}

var tokens = limiter.Spec{
	Name: "tokens", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
	Limit: 100, Per: time.Minute, MaxDebt: 50,
}

func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name      string
		used      int64
		remaining int64 // after 40 were held and settled; a debt shows as 0
	}{
		{"less", 10, 90},
		{"nothing", 0, 100},
		{"equal", 40, 60},
		{"more", 70, 30},
		{"more than there is", 120, 0},
		{"more than may be owed", 1000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, tokens)
			id, got := d.openHold(40, time.Minute)
			if !got.Allowed || got.Hold != limiter.HoldOpen || got.Remaining != 60 {
				t.Fatalf("held 40 of 100: %+v", got)
			}
			for range 2 { // the second time is the same as the first
				got = d.book.Settle(d.now, id, deskHash, "", c.used)
				if !got.Allowed || got.Hold != limiter.HoldSettled || got.Remaining != c.remaining {
					t.Fatalf("settled with %d: %+v; want remaining %d", c.used, got, c.remaining)
				}
			}
			if got := d.book.Settle(
				d.now, id, deskHash, "", c.used+1,
			); got.Hold != limiter.HoldOther {
				t.Errorf("settled with another amount: %+v", got)
			}
			if got := d.table.Peek(
				d.now, d.limit, deskKey, deskHash, 0,
			); got.Remaining != c.remaining {
				t.Errorf("remaining is %d at last, want %d", got.Remaining, c.remaining)
			}
		})
	}
}

func TestHoldsThatAreNone(t *testing.T) {
	d := newDesk(t, tokens)
	id, _ := d.openHold(40, time.Second)
	if got := d.openAs(
		limiter.HoldID{Origin: 9, Sequence: 9}, 30, time.Second, "a client",
	); got.Hold != limiter.HoldOpen {
		t.Fatalf("%+v", got)
	}
	for name, c := range map[string]struct {
		got  limiter.Decision
		want limiter.HoldState
	}{
		"unknown": {
			d.book.Settle(d.now, limiter.HoldID{Origin: 1}, deskHash, "", 1),
			limiter.HoldUnknown,
		},
		"of another key": {d.book.Settle(d.now, id, 1, "", 1), limiter.HoldUnknown},
		"of another holder": {d.book.Settle(d.now, limiter.HoldID{Origin: 9, Sequence: 9}, deskHash,
			"another", 1), limiter.HoldForeign},
		"id in use": {d.openAs(id, 3, time.Second, "another"), limiter.HoldOther},
		"too much": {
			d.openAs(limiter.HoldID{Origin: 1}, 31, time.Second, ""),
			limiter.HoldInTheWay,
		},
		"the same again": {d.openAs(id, 40, time.Second, ""), limiter.HoldOpen},
	} {
		if c.got.Hold != c.want {
			t.Errorf("%s: %+v, want %d", name, c.got, c.want)
		}
	}
	if got := d.table.Peek(d.now, d.limit, deskKey, deskHash, 0); got.Remaining != 30 {
		t.Errorf("remaining is %d, want 30: something was charged", got.Remaining)
	}
	d.now = d.now.Add(time.Second)
	if n := d.book.Expire(d.now, nil); n != 2 {
		t.Errorf("%d holds ran out, want 2", n)
	}
	if got := d.book.Settle(d.now, id, deskHash, "", 1); got.Hold != limiter.HoldRanOut ||
		got.Remaining != 30 {
		t.Errorf("settled after its deadline: %+v", got)
	}
	d.now = d.now.Add(2 * time.Minute)
	d.book.Expire(d.now, nil)
	if got := d.book.Settle(d.now, id, deskHash, "", 1); got.Hold != limiter.HoldUnknown ||
		d.book.Len() != 0 {
		t.Errorf("settled when it was forgotten: %+v; %d are remembered", got, d.book.Len())
	}
}

// TestHoldsOfBorrowedKeys: a key may lie in a buffer that is used again.
func TestHoldsOfBorrowedKeys(t *testing.T) {
	d := newDesk(t, tokens)
	buffer := []byte(deskKey)
	for i := range uint64(3) {
		var out [1]limiter.Decision
		copy(buffer, deskKey)
		r := limiter.HoldRequest{
			ID: limiter.HoldID{Origin: 1, Sequence: i}, Limit: d.limit,
			Hash: deskHash, Units: 30, TTL: time.Minute,
		}
		r.Key = unsafe.String(unsafe.SliceData(buffer), len(buffer))
		d.book.Open(d.now, []limiter.HoldRequest{r}, out[:])
		copy(buffer, "#####")
		if got := d.table.Peek(
			d.now, d.limit, deskKey, deskHash, 0,
		).Remaining; got != 100-30*int64(i+1) {
			t.Fatalf("hold %d: remaining is %d", i, got)
		}
	}
}

func TestExtend(t *testing.T) {
	d := newDesk(t, limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency, Limit: 2,
		Per: time.Second,
	})
	beating, _ := d.openHold(1, time.Second)
	d.openHold(1, time.Second) // its holder dies
	if got := d.table.Take(d.now, d.limit, deskKey, deskHash, 1); got.Allowed ||
		got.Hold != limiter.HoldInTheWay {
		t.Errorf("a third permit of two: %+v", got)
	}
	for range 10 {
		d.now = d.now.Add(900 * time.Millisecond)
		if got := d.book.Extend(
			d.now, beating, deskHash, "", time.Second,
		); got.Hold != limiter.HoldOpen {
			t.Fatalf("%+v", got)
		}
		d.book.Expire(d.now, nil)
	}
	if got := d.table.Peek(d.now, d.limit, deskKey, deskHash, 0); got.Remaining != 1 {
		t.Errorf("the dead one's permit is not back, or the living one's is: %+v", got)
	}
	d.book.Settle(d.now, beating, deskHash, "", 0)
	if got := d.table.Peek(d.now, d.limit, deskKey, deskHash, 0); got.Remaining != 2 {
		t.Errorf("a permit was released, and %+v", got)
	}
}

// Promise: the end of a hold is told with its charge. A list of the holds has no end that is still
// to be told with what has changed.
func TestEndsAreToldWithTheirCharges(t *testing.T) {
	_, book := newLedger(nil)
	l := mustNew(t, limiter.Spec{
		Name: "ten", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 10, Per: time.Minute,
	})
	id := limiter.HoldID{Origin: 1}
	book.Open(start, []limiter.HoldRequest{{
		ID: id, Limit: l, Key: deskKey, Hash: deskHash, Units: 3, TTL: time.Minute,
	}}, make([]limiter.Decision, 1))
	listed := func(want ...limiter.HoldState) {
		t.Helper()
		var got []limiter.HoldState
		book.Told(func(uint64) bool { return true },
			func(_ uint64, h limiter.Hold) { got = append(got, h.State) })
		if !slices.Equal(got, want) {
			t.Errorf("holds of states %v are listed, want %v", got, want)
		}
	}
	listed(limiter.HoldOpen)
	book.Changed(func() {}, func(uint64, limiter.Hold) {})
	book.Settle(start, id, deskHash, "", 2)
	listed()
	book.Changed(func() {}, func(uint64, limiter.Hold) {})
	listed(limiter.HoldSettled)
}

// Promise: a deadline is only postponed, by the deciding node; the hold expires at the new one, and
// copies are told.
func TestExtendPutsOff(t *testing.T) {
	open := true
	table, book := newLedger(func(uint64) bool { return open })
	l := mustNew(t, limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency, Limit: 2,
		Per: time.Second,
	})
	id := limiter.HoldID{Origin: 1}
	book.Restore(start, &limiter.Hold{
		ID: id, Limit: l, Key: deskKey, Units: 1,
		Deadline: start.Add(time.Second), State: limiter.HoldOpen,
	})
	deadline := func() time.Duration {
		h, _ := book.Get(id)
		return time.Duration(h.Deadline - start)
	}
	told := func() (n int) {
		book.Changed(func() {}, func(uint64, limiter.Hold) { n++ })
		return n
	}
	told()
	open = false
	if d := book.Extend(start, id, deskHash, "", time.Minute); !d.Closed ||
		deadline() != time.Second || told() != 0 {
		t.Errorf("put off to %v by who does not decide: %+v", deadline(), d)
	}
	open = true
	if d := book.Extend(start, id, deskHash, "",
		500*time.Millisecond); d.Hold != limiter.HoldOpen || deadline() != time.Second {
		t.Errorf("brought nearer, to %v: %+v", deadline(), d)
	}
	book.Extend(start, id, deskHash, "", 1500*time.Millisecond)
	if d := book.Extend(start, id, deskHash, "", 2*time.Second); d.Hold != limiter.HoldOpen ||
		deadline() != 2*time.Second || told() != 1 {
		t.Errorf("put off to %v: %+v", deadline(), d)
	}
	book.Unrestore() // its holder lives: it is more than what a file says
	if n := book.Expire(start.Add(time.Second), nil); n != 0 ||
		table.Peek(start, l, deskKey, deskHash, 0).Remaining != 1 {
		t.Error("it ran out at its first deadline")
	}
	if n := book.Expire(start.Add(2*time.Second), nil); n != 1 || told() != 1 ||
		table.Peek(start, l, deskKey, deskHash, 0).Remaining != 2 {
		t.Errorf("%d ran out at the second", n)
	}
}

// Promise: a permit charges nothing, even if its holder asks for it.
func TestPermitsChargeNothing(t *testing.T) {
	d := newDesk(t, limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency, Limit: 2,
		Per: time.Second,
	})
	id, _ := d.openHold(1, time.Second)
	if got := d.book.Settle(d.now, id, deskHash, "", 1); got.Hold != limiter.HoldSettled ||
		got.Remaining != 2 {
		t.Errorf("%+v", got)
	}
}

// Promise: a copy runs out soon after its deadline, if by then it is decided on here.
func TestCopiesRunOut(t *testing.T) {
	open := false
	table, book := newLedger(func(uint64) bool { return open })
	l := mustNew(t, tokens)
	book.Import(start, &limiter.Hold{
		ID: limiter.HoldID{Origin: 1}, Limit: l, Key: deskKey,
		Units: 40, Deadline: start.Add(time.Second), State: limiter.HoldOpen,
	})
	if n := book.Expire(start.Add(time.Second), nil); n != 0 {
		t.Errorf("%d ran out where others decide", n)
	}
	open = true
	if n := book.Expire(start.Add(1100*time.Millisecond), nil); n != 1 {
		t.Errorf("%d ran out 100 ms after the deadline", n)
	}
	if got := table.Peek(
		start.Add(1100*time.Millisecond), l, deskKey, deskHash, 0,
	).Remaining; got != 60 {
		t.Errorf("remaining is %d", got)
	}
}

// Promise: what is remembered of holds that have ended is bounded.
func TestRememberedIsBounded(t *testing.T) {
	d := newDesk(t, tokens)
	for range 70_000 {
		id, _ := d.openHold(1, time.Minute)
		d.book.Settle(d.now, id, deskHash, "", 0)
	}
	d.book.Expire(d.now, nil)
	if n := d.book.Len(); n > 1<<16 {
		t.Errorf("%d are remembered", n)
	}
}

// Promise: copies that are no longer kept do not count against new holds, and reserve nothing.
func TestDroppedCopiesDoNotCount(t *testing.T) {
	d := newDesk(t, limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency, Limit: 1 << 20,
		Per: time.Second,
	})
	for i := range uint64(limiter.MaxHoldsOfHolder) {
		d.book.Import(d.now, &limiter.Hold{
			ID: limiter.HoldID{Origin: 1, Sequence: i}, Limit: d.limit, Key: deskKey, Units: 1,
			Deadline: d.now.Add(time.Minute), State: limiter.HoldOpen,
		})
	}
	if _, got := d.openHold(1, time.Minute); got.Hold != limiter.HoldsOfHolder {
		t.Errorf("one more than there may be: %+v", got)
	}
	d.book.Expire(d.now, func(uint64) bool { return false })
	if _, got := d.openHold(1, time.Minute); got.Hold != limiter.HoldOpen ||
		got.Remaining != 1<<20-1 || d.book.Len() != 1 {
		t.Errorf("after %d were dropped: %+v", limiter.MaxHoldsOfHolder, got)
	}
}

// Promise: of two copies of a hold the later is kept, in either order; an invalid one is refused.
func TestImportKeepsTheLater(t *testing.T) {
	l, second := mustNew(t, tokens), start.Add(time.Second)
	id := limiter.HoldID{Origin: 1}
	good := limiter.Hold{
		ID: id, Limit: l, Key: deskKey, Units: 40, Deadline: second,
		State: limiter.HoldOpen,
	}
	var table *limiter.Table
	var book *limiter.Ledger
	begin := func() { table, book = newLedger(nil) }
	left := func() int64 { return table.Peek(start, l, deskKey, deskHash, 0).Remaining }
	get := func() limiter.Hold {
		h, _ := book.Get(id)
		return h
	}

	begin()
	for what, change := range map[string]func(h *limiter.Hold){
		"no state":       func(h *limiter.Hold) { h.State = limiter.HoldNone },
		"unknown":        func(h *limiter.Hold) { h.State = limiter.HoldUnknown },
		"below 0":        func(h *limiter.Hold) { h.Units = -1 },
		"above MaxLimit": func(h *limiter.Hold) { h.Units = limiter.MaxLimit + 1 },
	} {
		h := good
		if change(&h); book.Restore(start, &h) || book.Len() != 0 || left() != 100 {
			t.Errorf("%s: it was taken", what)
		}
	}

	earlier, later, ended, foreign := good, good, good, good
	earlier.Deadline, later.Deadline = second-1, second+1
	ended.State, ended.Used = limiter.HoldSettled, 7
	foreign.Key, foreign.State = "bob", limiter.HoldSettled
	for _, h := range []*limiter.Hold{&good, &earlier, &foreign, &later, &good} {
		book.Import(start, h)
	}
	if h := get(); h.Deadline != second+1 || h.State != limiter.HoldOpen || left() != 60 {
		t.Errorf("open until %v, %d remain: %+v", time.Duration(h.Deadline-start), left(), h)
	}
	// A hold that was open here is charged here with its use, also if it has ended elsewhere.
	for first, remain := range map[*limiter.Hold]int64{&good: 93, &ended: 100} {
		begin()
		book.Import(start, first)
		book.Import(start, &ended)
		book.Import(start, &later)
		if h := get(); h.State != limiter.HoldSettled || h.Used != 7 || h.Units != 0 ||
			left() != remain {
			t.Errorf("it has ended, %d remain: %+v", left(), h)
		}
		book.Unrestore() // that is about open ones
		if got := book.Settle(start, id, deskHash, "", 7); got.Hold != limiter.HoldSettled {
			t.Errorf("settled once more: %+v", got)
		}
		book.Expire(start.Add(limiter.HoldRemembered-1), nil)
		if book.Len() != 1 {
			t.Error("forgotten too early")
		}
		if book.Expire(start.Add(limiter.HoldRemembered), nil); book.Len() != 0 {
			t.Error("never forgotten")
		}
	}
	begin()
	book.Restore(start, &ended)
	book.Unrestore()
	if got := book.Settle(start, id, deskHash, "", 8); got.Hold != limiter.HoldOther {
		t.Errorf("a file has said that it was settled with 7: %+v", got)
	}
}

func TestHoldRequestRefuses(t *testing.T) {
	good := limiter.HoldRequest{Limit: mustNew(t, tokens), Key: deskKey, Units: 1, TTL: time.Minute}
	replicated := tokens
	replicated.Consistency = limiter.Replicated
	for field, change := range map[string]func(r *limiter.HoldRequest){
		"ttl_ms: is 0;":        func(r *limiter.HoldRequest) { r.TTL = 0 },
		"ttl_ms: is 630720000": func(r *limiter.HoldRequest) { r.TTL = 20 * 365 * 24 * time.Hour },
		"cost: is 101;":        func(r *limiter.HoldRequest) { r.Units = 101 },
		"cost: is -1;":         func(r *limiter.HoldRequest) { r.Units = -1 },
		"holder: has 129": func(r *limiter.HoldRequest) {
			r.Holder = strings.Repeat("h", 129)
		},
		"limit: \"tokens\"": func(r *limiter.HoldRequest) { r.Limit = mustNew(t, replicated) },
	} {
		r := good
		change(&r)
		var spec *limiter.SpecError
		if err := r.Check(); !errors.As(err, &spec) || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}

// TestHoldsAreBounded: a client that opens a million holds gets so many, then a clear denial, and
// other clients still get theirs.
func TestHoldsAreBounded(t *testing.T) {
	spec := tokens
	spec.Limit, spec.MaxDebt = 1<<30, 0
	d := newDesk(t, spec)
	most := map[string]int{}
	for i := range 5 * limiter.MaxHoldsOfHolder {
		d.ids++
		holder := fmt.Sprint("client ", i%5)
		switch got := d.openAs(limiter.HoldID{Origin: 7, Sequence: d.ids}, 1, time.Minute,
			holder); got.Hold {
		case limiter.HoldOpen:
			most[holder]++
		case limiter.HoldsOfHolder, limiter.HoldsOfLimit:
		default:
			t.Fatalf("%+v", got)
		}
	}
	if got := d.book.Len(); got != limiter.MaxHoldsOfLimit {
		t.Errorf("%d holds are open, want %d", got, limiter.MaxHoldsOfLimit)
	}
	greedy := newDesk(t, spec)
	for range limiter.MaxHoldsOfHolder {
		greedy.openHold(1, time.Minute)
	}
	if _, got := greedy.openHold(1, time.Minute); got.Hold != limiter.HoldsOfHolder || got.Allowed {
		t.Errorf("one holder has %d holds and gets another: %+v", limiter.MaxHoldsOfHolder, got)
	}
	if got := greedy.openAs(
		limiter.HoldID{Origin: 8}, 1, time.Minute, "another",
	); got.Hold != limiter.HoldOpen {
		t.Errorf("another holder: %+v", got)
	}
	greedy.now = greedy.now.Add(time.Minute)
	greedy.book.Expire(greedy.now, nil)
	if got := greedy.table.Peek(
		greedy.now, greedy.limit, deskKey, deskHash, 0,
	); got.Remaining != spec.Limit-limiter.MaxHoldsOfHolder-1 {
		t.Errorf("all ran out, and %+v", got)
	}
}

// TestAllHoldsAreBounded: a client that brings ever new limits or holders is denied at last, and
// ended holds make room.
func TestAllHoldsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a quarter of a million holds")
	}
	d := newDesk(t, tokens)
	limits := make([]*limiter.Limit, 2+limiter.MaxHolds/limiter.MaxHoldsOfLimit)
	for i := range limits {
		limits[i] = mustNew(t, limiter.Spec{
			Name: fmt.Sprint("inline ", i), Algorithm: limiter.GCRA,
			Limit: 1 << 30, Per: time.Hour,
		})
	}
	opened, refused := 0, map[limiter.HoldState]int{}
	open := func(i int) limiter.HoldState {
		d.limit, d.ids = limits[i/limiter.MaxHoldsOfLimit], d.ids+1
		return d.openAs(limiter.HoldID{Origin: 7, Sequence: d.ids}, 1, time.Minute,
			fmt.Sprint(i%9)).Hold
	}
	for i := range limiter.MaxHolds + 1000 {
		if state := open(i); state == limiter.HoldOpen {
			opened++
		} else {
			refused[state]++
		}
	}
	if opened != limiter.MaxHolds || refused[limiter.HoldsOfNode] != 1000 {
		t.Errorf("%d are open, and refused are %v", opened, refused)
	}
	d.now = d.now.Add(time.Minute)
	if n := d.book.Expire(d.now, nil); n != limiter.MaxHolds {
		t.Errorf("%d ran out", n)
	}
	if state := open(0); state != limiter.HoldOpen {
		t.Errorf("when all have run out the next one gets %d", state)
	}
}

// TestHoldAll: holds on several limits are opened together or not at all.
func TestHoldAll(t *testing.T) {
	table, book := newLedger(nil)
	minute, requests := mustNew(t, tokens), mustNew(t,
		limiter.Spec{Name: "requests", Algorithm: limiter.GCRA, Limit: 2, Per: time.Minute})
	quiet := mustNew(t, limiter.Spec{
		Name: "quiet", Algorithm: limiter.GCRA, Limit: 1,
		Per: time.Minute, DryRun: true,
	})
	ask := func(i uint64) ([]limiter.Decision, bool) {
		out := make([]limiter.Decision, 3)
		all := []limiter.HoldRequest{
			{
				ID: limiter.HoldID{Origin: 1, Sequence: i}, Limit: minute, Key: deskKey,
				Hash: deskHash, Units: 30, TTL: time.Minute,
			},
			{
				ID: limiter.HoldID{Origin: 2, Sequence: i}, Limit: requests, Key: deskKey,
				Hash: deskHash, Units: 1, TTL: time.Minute,
			},
			{
				ID: limiter.HoldID{Origin: 3, Sequence: i}, Limit: quiet, Key: deskKey,
				Hash: deskHash, Units: 1, TTL: time.Minute,
			},
		}
		return out, book.Open(start, all, out)
	}
	for i := range uint64(2) {
		if out, ok := ask(i); !ok || out[0].Remaining != 70-30*int64(i) ||
			out[2].Allowed != (i == 0) {
			t.Fatalf("%d: %+v", i, out)
		}
	}
	if out, ok := ask(2); ok || !out[0].Allowed || out[1].Allowed {
		t.Errorf("the third: %+v", out)
	}
	if got := table.Peek(start, minute, deskKey, deskHash, 0).Remaining; got != 40 {
		t.Errorf("a refused request holds something: remaining is %d, want 40", got)
	}
	if got := book.Settle(
		start, limiter.HoldID{Origin: 3, Sequence: 1}, deskHash, "", 1,
	); got.Hold != limiter.HoldSettled {
		t.Errorf("of a limit that never denies: %+v", got)
	}
}

// Promise: the same request again gets the same answer, and an id stands for one hold.
func TestOpenAgain(t *testing.T) {
	open := true
	table, book := newLedger(func(uint64) bool { return open })
	minute, other := mustNew(t, tokens), tokens
	other.Name = "others"
	quiet := mustNew(t, limiter.Spec{
		Name: "quiet", Algorithm: limiter.GCRA, Limit: 1,
		Per: time.Minute, DryRun: true,
	})
	one := limiter.HoldRequest{
		ID: limiter.HoldID{Origin: 1}, Limit: minute, Key: deskKey,
		Hash: deskHash, Units: 30, TTL: time.Minute,
	}
	ask := func(requests ...limiter.HoldRequest) ([]limiter.Decision, bool) {
		out := make([]limiter.Decision, len(requests))
		return out, book.Open(start, requests, out)
	}
	watched := func(i uint64) limiter.HoldRequest {
		r := one
		r.ID, r.Limit, r.Units = limiter.HoldID{Origin: 2, Sequence: i}, quiet, 1
		return r
	}
	for range 2 {
		if out, ok := ask(one, watched(0)); !ok || !out[0].Allowed || !out[1].Allowed ||
			out[0].Hold != limiter.HoldOpen || out[0].Remaining != 70 {
			t.Fatalf("%+v, %t", out, ok)
		}
		if out, ok := ask(watched(1)); !ok || out[0].Allowed || out[0].Hold != limiter.HoldOpen {
			t.Fatalf("refused, and nobody is told: %+v, %t", out, ok)
		}
	}
	if h, _ := book.Get(watched(1).ID); h.Units != 0 {
		t.Errorf("%d units of a limit that would have refused are reserved", h.Units)
	}
	for name, change := range map[string]func(r *limiter.HoldRequest){
		"another limit": func(r *limiter.HoldRequest) { r.Limit = mustNew(t, other) },
		"another key": func(r *limiter.HoldRequest) {
			r.Key, r.Hash = "bob", limiter.Hash("bob")
		},
		"another holder": func(r *limiter.HoldRequest) { r.Holder = "bob" },
	} {
		r := one
		change(&r)
		if out, ok := ask(r); ok || out[0].Hold != limiter.HoldOther {
			t.Errorf("the same id for %s: %+v, %t", name, out, ok)
		}
	}
	fresh := one
	fresh.ID = limiter.HoldID{Origin: 3}
	if out, ok := ask(fresh, one); ok || out[0].Hold != limiter.HoldNone ||
		out[0].RetryAfter <= 0 || out[1].Hold != limiter.HoldOther {
		t.Errorf("one that is open and one that is not: %+v, %t", out, ok)
	}
	if _, found := book.Get(fresh.ID); found ||
		table.Peek(start, minute, deskKey, deskHash, 0).Remaining != 70 {
		t.Error("a refused request holds something")
	}
	open = false
	if out, ok := ask(one, watched(0)); ok || !out[0].Closed {
		t.Errorf("when somebody else decides: %+v, %t", out, ok)
	}
}

// Promise: an unsettled hold is charged as its limit says, unless its request says that it is
// charged.
func TestWhatRunsOutIsCharged(t *testing.T) {
	spec := tokens
	spec.Per = 24 * time.Hour
	for _, c := range []struct {
		unsettled limiter.Unsettled
		charge    bool
		remaining int64
	}{
		{limiter.UnsettledCharge, false, 60},
		{limiter.UnsettledRelease, false, 100},
		{limiter.UnsettledRelease, true, 60},
	} {
		spec.Unsettled = c.unsettled
		l := mustNew(t, spec)
		table, book := newLedger(nil)
		r := limiter.HoldRequest{
			ID: limiter.HoldID{Origin: 1}, Limit: l, Key: deskKey,
			Hash: deskHash, Units: 40, TTL: time.Second, Charge: c.charge,
		}
		if !book.Open(start, []limiter.HoldRequest{r}, make([]limiter.Decision, 1)) {
			t.Fatal("not opened")
		}
		late := start.Add(time.Second)
		if n := book.Expire(late-1, nil); n != 0 {
			t.Errorf("%d ran out too early", n)
		}
		if n := book.Expire(late, nil); n != 1 {
			t.Errorf("%d ran out in time", n)
		}
		if got := table.Peek(late, l, deskKey, deskHash, 0).Remaining; got != c.remaining {
			t.Errorf("%+v: remaining is %d", c, got)
		}
	}
}

// Promise: a list has the holds that are asked for, those that run out first in front, and says how
// many there are.
func TestBookLists(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	elsewhere := limiter.Hash("away")
	book := limiter.NewLedger(table, func(hash uint64) bool { return hash != elsewhere })
	l, err := limiter.New(limiter.Spec{
		Name: "l", Algorithm: limiter.Concurrency, Limit: 1000,
		Per: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		key := "here"
		r := limiter.HoldRequest{
			ID: limiter.HoldID{Origin: 1, Sequence: uint64(i)}, Limit: l, Key: key,
			Hash: limiter.Hash(key), Units: 1,
			TTL:    time.Second + time.Duration((i*77)%300)*time.Millisecond,
			Holder: fmt.Sprint(i % 3),
		}
		if !book.Open(0, []limiter.HoldRequest{r}, make([]limiter.Decision, 1)) {
			t.Fatal(i)
		}
	}
	book.Import(0, &limiter.Hold{
		ID: limiter.HoldID{Origin: 2}, Limit: l, Key: "away", Units: 1,
		Deadline: 1, State: limiter.HoldOpen,
	})
	list, there := book.List(limiter.HoldFilter{Limit: "l"}, 10)
	if there != 300 || len(list) != 10 {
		t.Fatalf("%d of %d", len(list), there)
	}
	for i, h := range list {
		if want := limiter.Instant(
			time.Second + time.Duration(i)*time.Millisecond,
		); h.Deadline != want {
			t.Errorf("the %dth runs out at %v, want %v", i, h.Deadline, want)
		}
	}
	for _, c := range []struct {
		f    limiter.HoldFilter
		want int
	}{
		{limiter.HoldFilter{}, 300},
		{limiter.HoldFilter{Holder: "2"}, 100},
		{limiter.HoldFilter{Key: "away"}, 0},
		{limiter.HoldFilter{Limit: "m"}, 0},
	} {
		if _, there := book.List(c.f, 1); there != c.want {
			t.Errorf("%+v: %d, want %d", c.f, there, c.want)
		}
	}
}

// TestResetBesideAHold: units that are reserved count as spent in ResetAfter as they do in
// Remaining. A client that asks beside a hold hears what its holder has heard.
func TestResetBesideAHold(t *testing.T) {
	for _, spec := range []limiter.Spec{
		{Algorithm: limiter.GCRA, Limit: 10, Per: time.Hour},
		{Algorithm: limiter.TokenBucket, Anchor: limiter.FirstHit, Limit: 10, Per: time.Hour},
		{Algorithm: limiter.SlidingWindow, Limit: 10, Per: time.Hour},
		{Algorithm: limiter.SlidingLog, Limit: 10, Per: time.Hour},
		{Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 10, Per: time.Hour},
	} {
		spec.Name = spec.Algorithm.String()
		table, book := newLedger(nil)
		l := mustNew(t, spec)
		hold := limiter.HoldRequest{
			ID: limiter.HoldID{Origin: 1, Sequence: 1}, Units: 6, TTL: time.Minute,
			Limit: l, Key: deskKey, Hash: deskHash,
		}
		out := make([]limiter.Decision, 1)
		if !book.Open(start, []limiter.HoldRequest{hold}, out) || out[0].ResetAfter <= 0 {
			t.Fatalf("%s: %+v", spec.Name, out)
		}
		want := out[0].ResetAfter
		if d := table.Peek(start, l, deskKey, deskHash, 0); d.ResetAfter != want {
			t.Errorf("%s: a look beside it says %v, want %v", spec.Name, d.ResetAfter, want)
		}
		if d := table.Take(start, l, deskKey, deskHash, 5); d.Allowed || d.ResetAfter != want {
			t.Errorf("%s: a refusal beside it says %v, want %v", spec.Name, d.ResetAfter, want)
		}
		items := []limiter.Item{{
			Limit: l, Key: deskKey, Hash: deskHash, Request: limiter.Request{Cost: 5},
		}}
		if table.TakeAll(start, items, out) || out[0].ResetAfter != want {
			t.Errorf("%s: a refusal of all says %v, want %v", spec.Name, out[0].ResetAfter, want)
		}
		if d := table.Take(start, l, deskKey, deskHash, 4); !d.Allowed || d.ResetAfter < want ||
			d.Remaining != 0 {
			t.Errorf("%s: a take beside it: %+v, want %v at least", spec.Name, d, want)
		}
	}
}

// TestRefusedReservationSaysWhatIsLeft: of holds that are opened together, or not, each refused
// request shows what remains now: nothing was reserved, and nothing that counts refusals has
// counted.
func TestRefusedReservationSaysWhatIsLeft(t *testing.T) {
	table, book := newLedger(nil)
	spec := limiter.Spec{Name: "few", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Hour}
	refuses := mustNew(t, spec)
	spec = limiter.Spec{Name: "log", Algorithm: limiter.SlidingLog, Limit: 9, Per: time.Hour}
	spec.CountRejected = true
	fits := mustNew(t, spec)
	table.Take(start, fits, deskKey, deskHash, 1)
	book.Open(start, []limiter.HoldRequest{{
		ID: limiter.HoldID{Origin: 2}, Limit: fits, Key: deskKey, Hash: deskHash,
		Units: 2, TTL: time.Hour,
	}}, make([]limiter.Decision, 1))
	requests := make([]limiter.HoldRequest, 4)
	for i, units := range []int64{1, 3, 4, 6} {
		requests[i] = limiter.HoldRequest{
			ID: limiter.HoldID{Origin: 1, Sequence: uint64(i)}, Units: units, TTL: time.Minute,
			Limit: fits, Key: deskKey, Hash: deskHash,
		}
	}
	requests[3].Limit = refuses
	out := make([]limiter.Decision, len(requests))
	if book.Open(start, requests, out) {
		t.Fatalf("opened: %+v", out)
	}
	for i := range out {
		left := table.Peek(start, requests[i].Limit, deskKey, deskHash, 0)
		left.Allowed, left.RetryAfter, left.Hold = i < 2, out[i].RetryAfter, out[i].Hold
		if out[i] != left {
			t.Errorf("request %d: %+v, want %+v", i, out[i], left)
		}
	}
}
