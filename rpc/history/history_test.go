package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Promise: a series keeps five minutes by the second and an hour by ten seconds, in a fixed memory,
// and says where the node was not there to count.
func TestSeries(t *testing.T) {
	s := NewSeries()
	const began = 1_000_000_000
	for i := range int64(4000) {
		if i >= 3990 && i < 3995 {
			continue // the node was stopped
		}
		s.Record(began+i, Counts{Allowed: uint64(i + 1), Denied: uint64(2 * (i + 1))})
	}
	fine, rough := s.Read(0, false), s.Read(0, true)
	if len(fine.Rows) != FineSlots || fine.From != began+4000-FineSlots || fine.Step != 1 {
		t.Errorf("fine: %d rows from %d", len(fine.Rows), fine.From-began)
	}
	if len(rough.Rows) != roughSlots || rough.Step != 10 {
		t.Errorf("rough: %d rows", len(rough.Rows))
	}
	if got := fine.Rows[0]; got == nil || got[Allowed] != 1 || got[Denied] != 2 {
		t.Errorf("a second has %v", got)
	}
	if got := fine.Rows[FineSlots-8]; got != nil {
		t.Errorf("a second without the node has %v", got)
	}
	if got := fine.Rows[FineSlots-5]; got == nil || got[Allowed] != 6 {
		t.Errorf("the second after it has %v", got)
	}
	if got := rough.Rows[100]; got == nil || got[Allowed] != 10 {
		t.Errorf("ten seconds have %v", got)
	}
	if got := s.Read(began+3997, false); len(got.Rows) != 3 || got.From != began+3997 {
		t.Errorf("from a time on: %d rows from %d", len(got.Rows), got.From-began)
	}
	other := NewSeries()
	other.Take(fine, -7)
	if again := other.Read(0, false); again.From != fine.From-7 || *again.Rows[0] != *fine.Rows[0] {
		t.Errorf("at another node: from %d, %v", again.From-began, again.Rows[0])
	}
}

// Promise: the sketch never counts too few checks of a key, and is never wrong by more than it
// says, for one node and for several together.
func TestHeavy(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 1, 200_000)
	nodes := []*heavy{newHeavy(), newHeavy(), newHeavy()}
	truth, total := map[string]int64{}, int64(0)
	for i := range 60_000 {
		key := fmt.Sprint("key-", zipf.Uint64())
		truth[key]++
		total++
		nodes[i%len(nodes)].add("limit", key, i%5 == 0, 1)
	}
	var lists []HeavyList
	for _, n := range nodes {
		l := n.list()
		if len(l.Keys) != heavyPlaces || l.Unseen > n.total/heavyPlaces {
			t.Errorf("%d keys, %d unseen of %d checks", len(l.Keys), l.Unseen, n.total)
		}
		lists = append(lists, l)
	}
	whole := Sum(lists...)
	listed := map[string]bool{}
	for _, k := range whole.Keys {
		listed[k.Key] = true
		if real := truth[k.Key]; k.Checks < real || k.Checks-k.Over > real || k.Denied > real {
			t.Errorf("%s: %d checks, over by %d at most; it had %d", k.Key, k.Checks, k.Over, real)
		}
	}
	for key, real := range truth {
		if !listed[key] && real > whole.Unseen {
			t.Errorf("%s is not listed and had %d checks, above %d", key, real, whole.Unseen)
		}
	}
	if whole.Total != total || whole.Unseen > total/heavyPlaces {
		t.Errorf("%d checks in all, %d unseen; there were %d", whole.Total, whole.Unseen, total)
	}
	if cut := whole.Of("limit", 3); len(cut.Keys) != 3 || cut.Unseen < whole.Keys[3].Checks {
		t.Errorf("cut off: %+v", cut)
	}
}

// Promise: a burst makes no more work than a dozen times that of a busy second, steady load no more
// than that of one, and all is looked at again when there is little.
func TestSampling(t *testing.T) {
	var busy sampling
	second := func(n int) (answers, checks int) {
		for i := range n {
			if hash := limiter.Hash(fmt.Sprint("key-", i)); busy.takesKey(hash) {
				answers++
				busy.tookAnswer()
			}
			if busy.takesCheck(limiter.Instant(i*1000), 7) {
				checks++
				busy.tookCheck()
			}
		}
		busy.adjust()
		return answers, checks
	}
	if a, c := second(1_000_000); a > 12*mostAnswers || c > 12*mostCounted {
		t.Errorf("the first second of a burst looks at %d answers and %d checks", a, c)
	}
	for range 3 {
		a, c := second(1_000_000)
		if a > 2*mostAnswers || c > 2*mostCounted || a < mostAnswers/8 || c < mostCounted/8 {
			t.Errorf("a second under load looks at %d answers and %d checks", a, c)
		}
	}
	for range mostLevel {
		second(0)
	}
	if a, c := second(100); a != 100 || c != 100 {
		t.Errorf("of 100 after a pause %d answers and %d checks are looked at", a, c)
	}
	var s sampling
	s.levels.Store(5 | 5<<8)
	keys, checks := 0, 0
	for i := range 32_000 {
		if s.takesKey(limiter.Hash(fmt.Sprint("key-", i))) {
			keys++
		}
		if s.takesCheck(limiter.Instant(i*1000), limiter.Hash("one key")) {
			checks++
		}
	}
	if keys < 800 || keys > 1200 || checks < 800 || checks > 1200 {
		t.Errorf("of 32,000, 1 in 32: %d keys, %d checks", keys, checks)
	}
}

func limitOf(t *testing.T, s limiter.Spec) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// crash is a key of n1 that n2 takes over: n1 has answered until what remains is last, and n2
// begins with first.
func crash(l *limiter.Limit, last, first int64, gap, reset time.Duration) Failure {
	a := &answers{}
	const at = int64(1_000_000_000_000)
	for i := range int64(10) { // 33 a second
		a.add(answer{
			at: at - (10-i)*30e6, hash: 7, limit: l, owner: "n1", cost: 1, allowed: true,
			source: cluster.SourceForwarded, remaining: last + 9 - i, resetAfter: int64(reset),
		})
	}
	a.add(answer{
		at: at + 1, hash: 7, limit: l, owner: "n1", cost: 1, source: cluster.SourceFallback,
	})
	a.add(answer{
		at: at - 30e6 + int64(gap), hash: 7, limit: l, owner: "n2", cost: 1, allowed: true,
		source: cluster.SourceForwarded, remaining: first - 1, resetAfter: int64(reset),
	})
	return a.measure("n1", at)
}

// Promise: what an heir has forgotten is measured from what the last answer of the old owner and
// the first one of the new one say remains, and never called more than it is.
func TestFailure(t *testing.T) {
	window := limiter.Spec{
		Name: "w", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 40, Per: 10 * time.Second,
	}
	rate := limiter.Spec{Name: "r", Algorithm: limiter.GCRA, Limit: 10, Per: time.Second, Burst: 40}
	sync := window
	sync.Sync = true
	log := limiter.Spec{Name: "l", Algorithm: limiter.SlidingLog, Limit: 40, Per: 10 * time.Second}
	for _, x := range []struct {
		name                 string
		spec                 limiter.Spec
		last, first          int64
		gap, reset           time.Duration
		keys, untold, broken int
		extra, promised      int64
	}{
		{"nothing is lost", window, 20, 20, 60e6, time.Second, 1, 0, 0, 0, 1},
		{"one unit is lost", window, 20, 21, 60e6, time.Second, 1, 0, 0, 1, 1},
		{"more than is promised", window, 20, 23, 60e6, time.Second, 1, 0, 1, 3, 1},
		{"others have asked meanwhile", window, 20, 17, 60e6, time.Second, 1, 0, 0, 0, 1},
		{"the window has ended", window, 0, 40, 60e6, 10 * time.Millisecond, 0, 1, 0, 0, 0},
		{"what comes back is not a loss", rate, 5, 7, 100e6, time.Second, 1, 0, 0, 0, 1},
		{"what is more than that is", rate, 5, 10, 100e6, time.Second, 1, 0, 1, 3, 1},
		{"a synchronous copy loses nothing", sync, 20, 21, 60e6, time.Second, 1, 0, 1, 1, 0},
		{"a log cannot be compared", log, 20, 30, 60e6, time.Second, 0, 0, 0, 0, 0},
	} {
		seen := crash(limitOf(t, x.spec), x.last, x.first, x.gap, x.reset)
		v := Judge([]Failure{seen})
		if v.Keys != x.keys || v.Untold != x.untold || v.Extra != x.extra || v.Worst != x.extra ||
			v.Broken != x.broken || v.Promised != x.promised {
			t.Errorf("%s: %+v", x.name, v)
		}
		if x.keys > 0 && seen.Handed[0].Units != 10 {
			t.Errorf("%s: %d units within a second, want 10", x.name, seen.Handed[0].Units)
		}
		if x.keys > 0 && (v.Between != 1 || v.LongestMs != x.gap.Milliseconds()) {
			t.Errorf("%s: %d answers between, %d ms", x.name, v.Between, v.LongestMs)
		}
	}
	// What is let through beyond a limit is not charged, so nothing of it can be forgotten.
	a, l := &answers{}, limitOf(t, window)
	for i, owner := range []string{"n1", "n1", "n2"} {
		a.add(answer{
			at: int64(i) * 30e6, hash: 7, limit: l, owner: owner, cost: 1, allowed: true,
			beyond: true, source: cluster.SourceForwarded, resetAfter: int64(time.Second),
		})
	}
	if v := Judge([]Failure{a.measure("n1", 100e6)}); v.Keys != 1 || v.Extra+v.Promised != 0 {
		t.Errorf("beyond the limit: %+v", v)
	}
	// A node that saw a later answer of the old owner knows better.
	early := crash(limitOf(t, window), 22, 20, 60e6, time.Second)
	early.Handed[0].LastAt -= 1e9
	late := crash(limitOf(t, window), 18, 20, 60e6, time.Second)
	if v := Judge([]Failure{early, late}); v.Extra != 2 || v.Nodes != 2 {
		t.Errorf("two nodes: %+v", v)
	}
}
