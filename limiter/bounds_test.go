package limiter

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Promise: what a limit, an exception, a request and a hold may say is bounded, and each bound is
// exact: both ends are accepted, and one less or one more is refused.
func TestBoundsAreExact(t *testing.T) {
	spec := func(a Algorithm, change func(s *Spec)) error {
		s := Spec{Name: "l", Algorithm: a, Limit: 6, Per: time.Minute}
		change(&s)
		_, err := New(s)
		return err
	}
	text := func(n int64) string { return strings.Repeat("x", int(n)) }
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 6, Per: time.Minute}))
	hold := func(change func(r *HoldRequest)) error {
		r := HoldRequest{
			ID: HoldID{Origin: 1, Sequence: 1}, Limit: l, Key: "k", Units: 1, TTL: MinTTL,
		}
		change(&r)
		return r.Check()
	}
	for name, row := range map[string]struct {
		least, most int64
		of          func(n int64) error
	}{
		"name": {1, MaxName, func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.Name = text(n) })
		}},
		"algorithm": {int64(GCRA), int64(Concurrency), func(n int64) error {
			return spec(Algorithm(n), func(*Spec) {})
		}},
		"limit": {1, MaxLimit, func(n int64) error {
			return spec(FixedWindow, func(s *Spec) { s.Limit = n })
		}},
		"limit of a log": {1, MaxLog, func(n int64) error {
			return spec(SlidingLog, func(s *Spec) { s.Limit = n })
		}},
		"per": {int64(MinPer), int64(MaxPer), func(n int64) error {
			return spec(FixedWindow, func(s *Spec) { s.Per = time.Duration(n) })
		}},
		"gap": {0, int64(time.Minute), func(n int64) error {
			return spec(SlidingLog, func(s *Spec) { s.MinGap = time.Duration(n) })
		}},
		"waiting": {0, MaxLimit, func(n int64) error {
			return spec(LeakyBucket, func(s *Spec) { s.Burst, s.Limit = n, MaxLimit })
		}},
		"burst": {0, MaxLimit, func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.Burst, s.Limit = n, MaxLimit })
		}},
		"refill": {0, MaxLimit, func(n int64) error {
			return spec(TokenBucket, func(s *Spec) { s.Refill, s.Limit = n, MaxLimit })
		}},
		"debt": {0, MaxLimit, func(n int64) error {
			return spec(FixedWindow, func(s *Spec) { s.MaxDebt = n })
		}},
		"debt of a log": {0, MaxLog, func(n int64) error {
			return spec(SlidingLog, func(s *Spec) { s.MaxDebt = n })
		}},
		"buckets": {0, MaxBuckets, func(n int64) error {
			return spec(SlidingCounter, func(s *Spec) {
				s.Buckets, s.Per = int(n), time.Duration(max(60, n))*time.Second
			})
		}},
		"length of buckets": {1, MaxBuckets, func(n int64) error {
			return spec(SlidingCounter, func(s *Spec) {
				s.Buckets, s.Per = int(n), max(1, time.Duration(n))*time.Millisecond
			})
		}},
		"anchor": {0, int64(FirstHit), func(n int64) error {
			return spec(FixedWindow, func(s *Spec) { s.Anchor = Anchor(n) })
		}},
		"calendar": {1, int64(Years), func(n int64) error {
			return spec(FixedWindow, func(s *Spec) { s.Calendar, s.Per = Calendar(n), 0 })
		}},
		"on_error": {0, int64(ErrorDeny), func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.OnError = OnError(n) })
		}},
		"consistency": {0, int64(Leased), func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.Consistency = Consistency(n) })
		}},
		"on_partition": {0, int64(PartitionOpen), func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.OnPartition = OnPartition(n) })
		}},
		"unsettled": {0, int64(UnsettledRelease), func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.Unsettled = Unsettled(n) })
		}},
		"on_deny": {0, int64(DenyDelay), func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.OnDeny = OnDeny(n) })
		}},
		"delay": {int64(MinDelay), int64(LongestDelay), func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.OnDeny, s.MaxDelay = DenyDelay, time.Duration(n) })
		}},
		"override": {0, MaxPattern, func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.Override = text(n) })
		}},
		"spread": {0, MaxSpread, func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.Answers.Spread = int(n) })
		}},
		"status": {400, 599, func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.Answers.Status = int(n) })
		}},
		"body": {0, MaxBody, func(n int64) error {
			return spec(GCRA, func(s *Spec) { s.Answers.Body = text(n) })
		}},
		"content_type": {3, MaxContentType, func(n int64) error {
			return spec(GCRA, func(s *Spec) {
				s.Answers.Body, s.Answers.ContentType = "b", "a/"+text(n-2)
			})
		}},
		"plan": {1, MaxPlan, func(n int64) error {
			_, err := New(l.Spec, Override{Plan: text(n), Limit: 1, Key: text(1 - min(n, 1))})
			if n == 0 && err == nil {
				err = fmt.Errorf("it is an override for a key")
			}
			return err
		}},
		"overrides": {0, MaxOverrides, func(n int64) error {
			var list []Override
			for i := range n {
				list = append(list, Override{Key: fmt.Sprint(i), Limit: 1})
			}
			_, err := New(l.Spec, list...)
			return err
		}},
		"ttl": {int64(MinTTL), int64(MaxTTL), func(n int64) error {
			return CheckTTL(time.Duration(n))
		}},
		"holder": {0, MaxHolder, func(n int64) error {
			return hold(func(r *HoldRequest) { r.Holder = text(n) })
		}},
		"units": {1, 6, func(n int64) error {
			return hold(func(r *HoldRequest) { r.Units = n })
		}},
		"wait": {0, int64(LongestDelay), func(n int64) error {
			return l.Accepts(&Request{Bounded: true, MaxDelay: time.Duration(n)})
		}},
	} {
		for _, n := range []int64{row.least - 1, row.least, row.most, row.most + 1} {
			if n < 0 && strings.Contains("name override body plan overrides holder", name) {
				continue // there is no such text
			}
			if err := row.of(n); (err == nil) != (row.least <= n && n <= row.most) {
				t.Errorf("%s: %d, where %d to %d may be: %v", name, n, row.least, row.most, err)
			}
		}
	}
}

// Promise: a share of percents is read as it is written, and no other text is one.
func TestSpreadIsReadAsWritten(t *testing.T) {
	for n := range MaxSpread + 1 {
		if got, err := ParseSpread(fmt.Sprintf("%d%%", n)); err != nil || got != n {
			t.Errorf("%d%% is read as %d, %v", n, got, err)
		}
	}
	for _, text := range []string{
		"", "%", "5", "-1%", "+5%", "05%", "101%", "5%%", "5 %", "0x5%", "99999999999999999999%",
	} {
		if n, err := ParseSpread(text); err == nil {
			t.Errorf("%q is read as %d", text, n)
		}
	}
}

// Promise: a word for a period is a window of a calendar where it can only be one, or where a time
// zone is given; else it is a length.
func TestWordsForPeriods(t *testing.T) {
	for _, row := range []struct {
		spec Spec
		text string
		want Calendar
		per  time.Duration // 0: the text is refused
	}{
		{Spec{Algorithm: FixedWindow}, "month", Months, Months.Per()},
		{Spec{Algorithm: FixedWindow}, "week", Weeks, Weeks.Per()},
		{Spec{Algorithm: FixedWindow}, "day", 0, 24 * time.Hour},
		{Spec{Algorithm: FixedWindow, TimeZone: "UTC"}, "day", Days, Days.Per()},
		{Spec{Algorithm: FixedWindow, Anchor: FirstHit}, "month", 0, 0},
		{Spec{Algorithm: FixedWindow, Anchor: FirstHit}, "week", 0, 7 * 24 * time.Hour},
		{Spec{Algorithm: GCRA}, "month", 0, 0},
		{Spec{Algorithm: GCRA, TimeZone: "UTC"}, "day", 0, 24 * time.Hour},
		{Spec{Algorithm: FixedWindow, Calendar: Days}, "3h", 0, 3 * time.Hour},
	} {
		s := row.spec
		err := s.ReadPer(row.text)
		if (err == nil) != (row.per > 0) || s.Calendar != row.want || s.Per != row.per {
			t.Errorf("%q of %+v: calendar %v, %v, %v", row.text, row.spec, s.Calendar, s.Per, err)
		}
	}
}

// Promise: a candidate has no parent, whatever its Spec says; the limit that it becomes has that of
// the one before.
func TestCandidateHasNoParent(t *testing.T) {
	s := Spec{Name: "l", Algorithm: GCRA, Limit: 6, Per: time.Minute, Parent: "org"}
	l, err := mustBe(New(s)).WithCandidate(s)
	if err != nil || l.Parent != "org" || l.Candidate().Parent != "" {
		t.Errorf("%+v, %v", l.Candidate(), err)
	}
	if p, err := l.Promoted(); err != nil || p.Parent != "org" {
		t.Errorf("%+v, %v", p, err)
	}
}

// Promise: of two limits each can be the other's candidate, unless one counts permits.
func TestWhoIsACandidate(t *testing.T) {
	for i, s := range shapes {
		for j, c := range shapes {
			s.Name, c.Name = fmt.Sprint(i), fmt.Sprint(j)
			permits := s.Algorithm == Concurrency || c.Algorithm == Concurrency
			if _, err := mustBe(New(s)).WithCandidate(c); permits != isAbout(err, "algorithm") {
				t.Errorf("%v beside %v: %v", c.Algorithm, s.Algorithm, err)
			}
		}
	}
}

// isAbout reports whether err is about a field of a Spec.
func isAbout(err error, field string) bool {
	var wrong *SpecError
	return errors.As(err, &wrong) && wrong.Field == field
}

// Promise: the head of a pattern is what all texts begin with that it matches, and the whole of
// them if it has no star.
func TestHeadOfAPattern(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab*]{0,4}`).Draw(t, "pattern")
		p, err := ParsePattern(text)
		if err != nil {
			return
		}
		literal, _, stars := strings.Cut(text, "*")
		if head, whole := p.Head(); head != literal || whole == stars {
			t.Fatalf("the head of %q is %q, whole %t", text, head, whole)
		}
	})
	network, err := ParsePattern("10.0.0.0/8")
	if head, whole := network.Head(); err != nil || head != "" || whole {
		t.Errorf("a network has the head %q, whole %t", head, whole)
	}
}

// Promise: counters of limits that differ in windows, refills or clocks are apart, also if a hash
// says otherwise.
func TestWhatCountersBelongTo(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, SlidingCounter, FixedWindow, GCRA} {
		same := Spec{Algorithm: a, Limit: 5, Per: time.Minute}
		for name, change := range map[string]func(s *Spec){
			"":            func(*Spec) {},
			"buckets":     func(s *Spec) { s.Buckets = 2 },
			"refill":      func(s *Spec) { s.Refill = 2 },
			"client_time": func(s *Spec) { s.ClientTime = true },
			"sessions":    func(s *Spec) { s.Sessions = true },
			"limit":       func(s *Spec) { s.Limit = 6 },
			"per":         func(s *Spec) { s.Per = time.Hour },
			"nameless":    func(s *Spec) { s.Nameless = true },
			"calendar":    func(s *Spec) { s.Calendar = Days },
			"time_zone":   func(s *Spec) { s.TimeZone = "UTC" },
			"burst":       func(s *Spec) { s.Burst = 9 },
		} {
			s := same
			change(&s)
			want := true // as far as windows and buckets say
			switch name {
			case "", "burst":
			case "limit":
				want = a != TokenBucket
			case "per":
				want = a == GCRA
			case "nameless":
				want = a != GCRA
			default:
				want = false
			}
			if got := s.sameWindows(&same) && s.sameBucket(&same); got != want {
				t.Errorf("%v with another %q: one counter: %t, want %t", a, name, got, want)
			}
		}
	}
}

// Promise: an instant out of range is the nearest one in range, for all that a table does.
func TestInstantsOutOfRange(t *testing.T) {
	const far = Instant(math.MaxInt64)
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 6, Per: MaxPer}))
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	table.Take(far, l, "k", 1, 6)
	if n := table.Sweep(far, 1<<20); n != 0 {
		t.Errorf("%d entries are gone with all of their units used", n)
	}
	table.Each(far, func(_ *Limit, _ string, _ []int64, d Decision) bool {
		if d.Remaining != 0 {
			t.Errorf("%d are left of 6 that are used", d.Remaining)
		}
		return true
	})
}

// The same for windows that come from elsewhere.
func TestWindowsOutOfRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		per := rapid.Int64Range(int64(MinPer), int64(MaxPer)).Draw(t, "per")
		now := rapid.Int64Range(int64(earliest), int64(latest)).Draw(t, "now")
		after := rapid.Int64Range(int64(latest), math.MaxInt64).Draw(t, "after")
		before := rapid.Int64Range(math.MinInt64, int64(earliest)).Draw(t, "before")
		for name, land := range map[string]func(t, now, per int64) int64{
			"window": landWindow, "part": landPart,
		} {
			if got, want := land(after, now, per), land(int64(latest), now, per); got != want {
				t.Fatalf("a %s of %d begins at %d, and of the latest instant at %d", name, after,
					got, want)
			}
			if got, want := land(before, now, per), land(int64(earliest), now, per); got != want {
				t.Fatalf("a %s of %d begins at %d, and of the earliest at %d", name, before, got,
					want)
			}
		}
	})
}

// Promise: a stated bucket that is full again at instant 0 is not full before.
func TestStatedBucketAroundZero(t *testing.T) {
	l := mustBe(New(Spec{Name: "l", Algorithm: StatedBucket, Limit: 6, Per: 6 * time.Second}))
	w := make([]int64, l.words())
	var d Decision
	l.decide(w, -Instant(3*time.Second), 3, &d)
	if l.decide(w, -Instant(time.Second), 0, &d); d.Remaining != 5 {
		t.Errorf("%d are left of 6 a second before the bucket is full, want 5", d.Remaining)
	}
}

// Promise: a limit says the same as another if all that they say is the same.
func TestLimitsThatSayTheSame(t *testing.T) {
	spec := Spec{Name: "l", Algorithm: GCRA, Limit: 6, Per: time.Minute}
	other := spec
	other.Limit = 7
	with := func(l *Limit, candidate Spec) *Limit { return mustBe(l.WithCandidate(candidate)) }
	all := []*Limit{
		nil, mustBe(New(spec)), mustBe(New(other)),
		mustBe(New(spec, Override{Key: "a", Limit: 1})),
		mustBe(New(spec, Override{Key: "a", Limit: 2})),
		with(mustBe(New(spec)), spec), with(mustBe(New(spec)), other),
	}
	for i, l := range all {
		for k, o := range all {
			if k > 0 && k < 5 { // another pointer
				o = mustBe(New(o.given, o.Overrides()...))
			}
			if got := l.SameAs(o); got != (i == k) {
				t.Errorf("limit %d says the same as limit %d: %t", i, k, got)
			}
		}
	}
}

// Promise: a log that comes in disorder counts as one in order.
func TestLogInDisorder(t *testing.T) {
	l := (*slidingLogLimit)(mustBe(New(Spec{
		Name: "l", Algorithm: SlidingLog, Limit: 5, Per: time.Minute,
	})))
	const now = Instant(1e18)
	settled := func(order ...int64) string {
		w := make([]int64, 6)
		w[0] = int64(len(order))
		for i, k := range order {
			w[1+i] = int64(now) - k
		}
		l.settle(w, now)
		return fmt.Sprint(w)
	}
	want := settled(4, 3, 2, 1)
	for _, got := range []string{settled(1, 2, 3, 4), settled(4, 2, 3, 1), settled(3, 4, 1, 2)} {
		if got != want {
			t.Errorf("it is %s, and in order %s", got, want)
		}
	}
}

// Promise: a request of nothing is admitted, whatever was used under a larger limit.
func TestNothingIsAlwaysAdmitted(t *testing.T) {
	const now = Instant(1e18)
	for _, a := range []Algorithm{StatedWindow, StatedBucket} {
		large := mustBe(New(Spec{Name: "l", Algorithm: a, Limit: 9, Per: time.Minute}))
		small := mustBe(New(Spec{Name: "l", Algorithm: a, Limit: 3, Per: time.Minute}))
		w := make([]int64, large.words())
		var d Decision
		large.answer(w, now, &Request{Cost: 9}, &d)
		if small.answer(w, now, &Request{}, &d); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%v: nothing is answered with %+v", a, d)
		}
	}
}

// Promise: a ledger shows the holds on wanted keys alone, in the order of their ids.
func TestWantedHolds(t *testing.T) {
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 100, Per: time.Minute}))
	b := NewLedger(NewTable(TableConfig{Bytes: 1}), nil)
	var ids []HoldID
	for _, id := range []HoldID{{2, 1}, {1, 7}, {1, 3}, {3, 1}} {
		key := fmt.Sprint("key-", id.Origin)
		h := &Hold{
			ID: id, Limit: l, Key: key, Units: 1, State: HoldOpen, Deadline: Instant(1e18) + 1e9,
		}
		b.Import(1e18, h)
	}
	b.Each(func(hash uint64) bool { return hash != Hash("key-3") },
		func(hash uint64, h Hold) { ids = append(ids, h.ID) })
	if want := fmt.Sprint([]HoldID{{1, 3}, {1, 7}, {2, 1}}); fmt.Sprint(ids) != want {
		t.Errorf("the holds are %v, want %s", ids, want)
	}
}

// Promise: each slot of a table, the first one too, holds its key, and is swept when its turn
// comes.
func TestEverySlotIsUsed(t *testing.T) {
	const now = Instant(1e18)
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 6, Per: time.Minute}))
	table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 1})
	st := &table.shards[0].entries
	var keys []string
	for i := 0; len(keys) < 1000 || st.slots[0].head == 0; i++ {
		key := fmt.Sprint("key-", i)
		if len(keys) >= 1000 && st.home(mixOf(Hash(key), l)) > 0 {
			continue // only keys of the first slot are wanting
		}
		keys = append(keys, key)
		table.Take(now, l, key, Hash(key), 1)
	}
	for times := range int64(2) {
		for _, key := range keys {
			if d := table.Take(now, l, key, Hash(key), 1); d.Remaining != 4-times {
				t.Fatalf("take %d of %s leaves %d of 6", times+2, key, d.Remaining)
			}
		}
	}
	for range 2 * st.capacity {
		table.Sweep(now.Add(time.Hour), 1)
	}
	if s := table.Stats(); s.Keys != 0 {
		t.Errorf("%d keys are there, slot by slot", s.Keys)
	}
}

// Promise: a table tells the keys of many limits apart, and has one rule for each.
func TestManyLimitsAreFound(t *testing.T) {
	const now = Instant(1e18)
	table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 1})
	var limits []*Limit
	for i := range 500 {
		limits = append(limits, mustBe(New(Spec{
			Name: fmt.Sprint("l", i), Algorithm: GCRA, Limit: 1000, Per: time.Minute,
		})))
		table.Take(now, limits[i], "k", Hash("k"), int64(i+1))
	}
	for i, l := range limits {
		table.Take(now, mustBe(New(l.given)), "k", Hash("k"), int64(-i))
	}
	for i, l := range limits {
		if d := table.Peek(now, l, "k", Hash("k"), 0); d.Remaining != 999 {
			t.Errorf("limit %d: %d are left of 1000", i, d.Remaining)
		}
	}
	rules := 0
	for range table.rules.index.Load().all {
		rules++
	}
	if rules != len(limits) {
		t.Errorf("there are %d rules of %d limits", rules, len(limits))
	}
}
