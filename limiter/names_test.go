package limiter_test

import (
	"strings"
	"testing"
	"time"

	"penstock/limiter"
)

// TestAlgorithmNames: each algorithm is found by the name that it has, no other name is one, and a
// number without an algorithm can be printed.
func TestAlgorithmNames(t *testing.T) {
	var listed []string
	for a := limiter.Algorithm(1); !strings.HasPrefix(a.String(), "algorithm("); a++ {
		if found, known := limiter.AlgorithmNamed(a.String()); !known || found != a {
			t.Errorf("%v is found as %v, %v", a, found, known)
		}
		listed = append(listed, a.String())
	}
	if got := limiter.AlgorithmNames(); got != strings.Join(listed, ", ") ||
		len(listed) < len(algorithms) {
		t.Errorf("the list is %q, the algorithms are %q", got, listed)
	}
	for _, name := range []string{"", "GCRA", "gcra ", "algorithm(0)", "token"} {
		if a, known := limiter.AlgorithmNamed(name); known || a != 0 {
			t.Errorf("%q is taken for %v", name, a)
		}
	}
	if s := limiter.Algorithm(99).String(); s != "algorithm(99)" {
		t.Errorf("algorithm 99 is called %q", s)
	}
}

// TestDefaultAnchor: a limit without an anchor gets one that its algorithm accepts; a bucket keeps
// the phase of its first request, and all else is aligned to the epoch.
func TestDefaultAnchor(t *testing.T) {
	for _, a := range algorithms {
		l := mustNew(t, limiter.Spec{
			Name: "anchored", Algorithm: a, Limit: 5, Per: time.Minute,
			Anchor: limiter.DefaultAnchor(a),
		})
		if atFirst := l.Anchor == limiter.FirstHit; atFirst != (a == limiter.TokenBucket) {
			t.Errorf("%v: anchor %v", a, l.Anchor)
		}
	}
}

// TestNeverDenies: a refusal is hidden by dry_run, and by on_deny: shadow.
func TestNeverDenies(t *testing.T) {
	for _, test := range []struct {
		s    limiter.Spec
		want bool
	}{
		{limiter.Spec{}, false},
		{limiter.Spec{DryRun: true}, true},
		{limiter.Spec{OnDeny: limiter.DenyShadow}, true},
	} {
		test.s.Name, test.s.Algorithm, test.s.Limit, test.s.Per = "hidden", limiter.GCRA, 1,
			time.Minute
		if got := mustNew(t, test.s).NeverDenies(); got != test.want {
			t.Errorf("%+v: %v", test.s, got)
		}
	}
}

// TestShareOfTheLargest: a bucket that takes as long to refill as is accepted has shares too.
// Rounding a share down slows the refill more than it cuts the burst, so a share may be less than a
// part, but it is a limit like others.
func TestShareOfTheLargest(t *testing.T) {
	// units that refill in MaxFill at 3 per MaxPer
	const most = int64(3 * limiter.MaxFill / limiter.MaxPer)
	for _, s := range []limiter.Spec{
		{Algorithm: limiter.GCRA, Burst: most},
		{Algorithm: limiter.GCRA, Burst: 3, MaxDebt: most - 3},
		{Algorithm: limiter.LeakyBucket, Burst: most - 1},
		{Algorithm: limiter.TokenBucket, Limit: most / 3 * 3, Refill: 3},
		{Algorithm: limiter.StatedBucket, Burst: most},
	} {
		s.Name, s.Per = "largest", limiter.MaxPer
		if s.Limit == 0 {
			s.Limit = 3
		}
		l := mustNew(t, s)
		for _, n := range []int{-1, 0, 1, 2, 3, 100} {
			part := l.Share(n).Spec
			part.Name = "part"
			again, err := limiter.New(part)
			if err != nil {
				t.Errorf("%+v, a %dth: %v", s, n, err)
				continue
			}
			if whole := l.Capacity(); again.Capacity() > max(3, whole/int64(max(1, n))) {
				t.Errorf("%+v: a %dth of %d is %d", s, n, whole, again.Capacity())
			}
		}
	}
}
