package limiter

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestSettledAfterAChange: what was reserved is charged whole, whatever has become of its limit
// meanwhile, and whichever plan of the key was asked in between.
func TestSettledAfterAChange(t *testing.T) {
	for _, a := range []Algorithm{
		GCRA, FixedWindow, SlidingWindow, SlidingLog, LeakyBucket, SlidingCounter, StatedWindow,
		StatedBucket,
	} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { settleAfterAChange(t, a) })
		})
	}
}

func settleAfterAChange(t *rapid.T, a Algorithm) {
	const now = Instant(1_700_000_123_456_789_012)
	hash := Hash("k")
	units := func(from, to int64, of string) int64 { return rapid.Int64Range(from, to).Draw(t, of) }
	changed := func(of string) *Limit {
		s := Spec{Name: "l", Algorithm: a, Limit: units(1, 100, of), Per: time.Hour}
		if rapid.Bool().Draw(t, of+" is a plan") {
			s.Override, s.Planned = "plan "+of, true
		}
		if a == GCRA || a == LeakyBucket || a == StatedBucket {
			s.Burst = units(1, 100, of+" at once")
		}
		return mustBe(New(s))
	}
	before, after := changed("before"), changed("after")
	table := NewTable(TableConfig{Bytes: MinBytes})
	book, out := NewLedger(table, nil), make([]Decision, 1)
	table.Take(now, before, "k", hash, units(1, before.Capacity(), "taken"))
	held := units(1, before.Capacity(), "held")
	id := HoldID{1, 2}
	if !book.Open(now, []HoldRequest{{
		ID: id, Limit: before, Key: "k", Hash: hash, Units: held, TTL: time.Minute,
	}}, out) {
		return
	}
	table.Take(now, after, "k", hash, units(1, after.Capacity(), "taken later"))
	// what is left by a limit, beside nothing that is reserved
	left := func(l *Limit) int64 {
		s, x := table.shard(l, "k", hash)
		x.rule = table.rules.of(l)
		var d Decision
		w, _, _ := s.read(now, &x)
		l.debtor.decide(w, now, 0, &d)
		return d.Remaining
	}
	mostBefore, mostAfter := left(before), left(after)
	used := units(0, held, "used")
	d := book.Settle(now, id, hash, "", used)
	if whole := mostBefore >= used && left(before) == mostBefore-used ||
		mostAfter >= used && left(after) == mostAfter-used; d.Hold != HoldSettled || !whole {
		t.Fatalf("of %d units %d were left by the limit before and %d by the one after, and are "+
			"%d and %d", used, mostBefore, mostAfter, left(before), left(after))
	}
}

// TestStatedDayComesToAnotherClock: what was charged in a window of the calendar counts there until
// its end also after its key has come to a clock that differs by less than a second.
func TestStatedDayComesToAnotherClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := mustBe(New(Spec{
			Name: "l", Algorithm: StatedWindow, Limit: 10,
			Calendar: Calendar(rapid.IntRange(int(Minutes), int(Years)).Draw(t, "calendar")),
			TimeZone: rapid.SampledFrom([]string{"UTC", "Europe/Berlin"}).Draw(t, "time_zone"),
		}))
		offset := time.Duration(rapid.Int64Range(-int64(inStep)/2, int64(inStep)/2).Draw(t, "off"))
		begin, end := l.zone.window(l.Calendar, 1_700_000_123_456_789_012)
		now := Instant(rapid.OneOf(
			rapid.Int64Range(begin, begin+int64(time.Second)),
			rapid.Int64Range(begin, end-1), rapid.Int64Range(end-int64(time.Second), end-1),
		).Draw(t, "now"))
		w, d := make([]int64, l.words()), Decision{}
		l.decide(w, now, 7, &d)
		w, err := l.DecodeState(l.EncodeState(w, now), now.Add(offset))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []Instant{now.Add(offset), Instant(end - 1)} {
			if at >= Instant(end) { // the window is over by this clock
				continue
			}
			if l.decide(w, at, 0, &d); d.Remaining != 3 {
				t.Errorf("%d are left at %d", d.Remaining, at)
			}
		}
		if l.decide(w, Instant(end).Add(offset), 0, &d); offset >= 0 && d.Remaining != 10 {
			t.Errorf("%d are left at the end", d.Remaining)
		}
	})
}

// TestStatedDayComesFarAway: on a clock that is hours behind or ahead it is over no earlier than
// the window of the calendar there, or than where it comes from.
func TestStatedDayComesFarAway(t *testing.T) {
	l := mustBe(New(Spec{Name: "l", Algorithm: StatedWindow, Limit: 10, Calendar: Days}))
	begin, _ := l.zone.window(Days, 1_700_000_123_456_789_012)
	for now := Instant(begin); now < Instant(begin).Add(day); now = now.Add(time.Hour) {
		for off := -30 * time.Hour; off <= 30*time.Hour; off += 37 * time.Minute {
			w, d := make([]int64, l.words()), Decision{}
			l.decide(w, now, 7, &d)
			w, err := l.DecodeState(l.EncodeState(w, now), now.Add(off))
			if l.decide(w, now.Add(off), 0, &d); err != nil || d.Remaining != 3 {
				t.Errorf("%d are left at %v, %v off: %v", d.Remaining, now, off, err)
			}
		}
	}
}

// TestPromotedOverrides: an override of a candidate has the same defaults before and after its
// candidate takes the limit's place.
func TestPromotedOverrides(t *testing.T) {
	for _, s := range []Spec{
		{Algorithm: GCRA, Limit: 5, Per: time.Minute},
		{Algorithm: TokenBucket, Limit: 5, Per: time.Minute},
		{Algorithm: GCRA, Limit: 5, Burst: 7, Per: time.Minute},
	} {
		l := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 9, Per: time.Minute}))
		l = mustBe(l.WithCandidate(s, Override{Key: "vip", Limit: 100}))
		tried, promoted := l.Candidate().For("vip"), mustBe(l.Promoted()).For("vip")
		if promoted.Name != "l" || promoted.Limit != tried.Limit ||
			promoted.Burst != tried.Burst || promoted.Refill != tried.Refill {
			t.Errorf("the candidate was %+v, and became %+v", tried.Spec, promoted.Spec)
		}
	}
}

// TestRefundUnderAnotherLimit: of a window that drains a refund gives back what it says, also if
// more is counted than the limit, which was lowered or has a debt.
func TestRefundUnderAnotherLimit(t *testing.T) {
	const now = Instant(1_700_000_123_456_789_012)
	window := func(limit, debt int64) *Limit {
		return mustBe(New(Spec{
			Name: "l", Algorithm: FixedWindow, Limit: limit, Per: time.Hour, Drain: true,
			MaxDebt: debt,
		}))
	}
	high, low := window(100, 0), window(10, 20)
	for name, charge := range map[string]func(w []int64, d *Decision){
		"lowered": func(w []int64, d *Decision) { high.decide(w, now, 25, d) },
		"a debt":  func(w []int64, d *Decision) { low.report(w, now, 25, d) },
	} {
		w, d := make([]int64, low.words()), Decision{}
		charge(w, &d)
		if low.decide(w, now, -5, &d); d.Remaining != 0 {
			t.Errorf("%s: %d of 10 are left where 20 are counted", name, d.Remaining)
		}
		if low.decide(w, now, -13, &d); d.Remaining != 3 {
			t.Errorf("%s: %d of 10 are left where 7 are counted", name, d.Remaining)
		}
	}
}

// TestUnlimitedBesideALongPeriod: clients' clocks may count longer than windows do, and keys of
// such a limit may be unlimited.
func TestUnlimitedBesideALongPeriod(t *testing.T) {
	_, err := New(Spec{
		Name: "l", Algorithm: TokenBucket, ClientTime: true, Limit: 1, Per: MaxClientPer,
	}, Override{Key: "vip", Unlimited: true})
	if err != nil {
		t.Error(err)
	}
}

// TestUnlimitedMeanwhile: while an override makes a key unlimited, nothing is counted, also where
// the key was counted under that override before; and holds from before are charged.
func TestUnlimitedMeanwhile(t *testing.T) {
	const now = Instant(1_700_000_123_456_789_012)
	hash := Hash("vip")
	s := Spec{Name: "l", Algorithm: FixedWindow, Limit: 5, Per: time.Hour}
	counted := mustBe(New(s, Override{Key: "vip", Limit: 100})).For("vip")
	not := mustBe(New(s, Override{Key: "vip", Unlimited: true})).For("vip")
	table := NewTable(TableConfig{Bytes: MinBytes})
	book, out := NewLedger(table, nil), make([]Decision, 1)
	left := func(want int64) {
		t.Helper()
		if d := table.Peek(now, counted, "vip", hash, 0); d.Remaining != want {
			t.Errorf("%d are left, want %d", d.Remaining, want)
		}
	}
	hold := func(id uint64, l *Limit) HoldRequest {
		return HoldRequest{
			ID: HoldID{1, id}, Limit: l, Key: "vip", Hash: hash, Units: 20, TTL: time.Minute,
		}
	}
	table.Take(now, counted, "vip", hash, 1)
	book.Open(now, []HoldRequest{hold(1, counted)}, out)
	left(79)
	for _, cost := range []int64{1000, -50} {
		if d := table.Take(now, not, "vip", hash, cost); d != without(not) {
			t.Errorf("a cost of %d: %+v", cost, d)
		}
	}
	book.Open(now, []HoldRequest{hold(2, not)}, out)
	left(79)
	book.Settle(now, HoldID{1, 2}, hash, "", 7)
	left(79)
	book.Settle(now, HoldID{1, 1}, hash, "", 7)
	left(92)
}

// TestLoweredDebtTravels: what callers were promised or owe before max_delay or max_debt was
// lowered is kept by a state that comes to another node, as it is by one that stays.
func TestLoweredDebtTravels(t *testing.T) {
	const now = Instant(1_700_000_123_456_789_012)
	bucket := func(change func(s *Spec)) *Limit {
		s := Spec{Name: "l", Algorithm: TokenBucket, Limit: 10, Per: time.Second, MaxDebt: 100}
		change(&s)
		return mustBe(New(s))
	}
	delays := func(longest time.Duration) *Limit {
		return bucket(func(s *Spec) { s.OnDeny, s.MaxDelay = DenyDelay, longest })
	}
	for name, limits := range map[string][2]*Limit{
		"max_delay": {delays(time.Minute), delays(time.Second)},
		"max_debt":  {bucket(func(*Spec) {}), bucket(func(s *Spec) { s.MaxDebt = 0 })},
		"client_time": {
			bucket(func(s *Spec) { s.ClientTime = true }),
			bucket(func(s *Spec) { s.ClientTime, s.MaxDebt = true, 0 }),
		},
	} {
		w, stays, comes := make([]int64, limits[0].words()), Decision{}, Decision{}
		for range 20 {
			limits[0].answer(w, now, &Request{Cost: 10, Report: name != "max_delay"}, &stays)
		}
		there, err := limits[1].DecodeState(limits[1].EncodeState(w, now), now)
		limits[1].decide(w, now, 0, &stays)
		limits[1].decide(there, now, 0, &comes)
		if err != nil || stays.ResetAfter <= 5*time.Second || comes != stays {
			t.Errorf("%s: %+v where it stays, %+v where it comes, %v", name, stays, comes, err)
		}
	}
}
