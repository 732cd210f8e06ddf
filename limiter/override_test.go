package limiter_test

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

func mustOverride(t fataler, s limiter.Spec, overrides ...limiter.Override) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(s, overrides...)
	if err != nil {
		t.Fatalf("%+v: %v", overrides, err)
	}
	return l
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

var tenPerMinute = limiter.Spec{
	Name: "login", Algorithm: limiter.FixedWindow, Limit: 10,
	Per: time.Minute,
}

// TestPatterns: which keys a pattern means.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern  string
		yes, not []string
	}{
		{"alice", []string{"alice"}, []string{"", "alic", "alice2", "Alice"}},
		{
			"plan:pro/*",
			[]string{"plan:pro/", "plan:pro/a", "plan:pro/a/b"},
			[]string{"plan:pro", "plan:", "xplan:pro/a"},
		},
		{"*", []string{"a", "", "\xff\x00"}, nil},
		{"*:admin", []string{":admin", "x:admin", "a:b:admin"}, []string{"admin", "x:admin2"}},
		{
			"a*b*c",
			[]string{"abc", "axxbyyc", "abcbc", "abbc"},
			[]string{"ab", "acb", "abcd", "xabc"},
		},
		{"a**b", []string{"ab", "axb"}, []string{"a"}},
		// head and tail do not share bytes
		{"aa*aa", []string{"aaaa", "aaxaa"}, []string{"aa", "aaa"}},
		{`a\*b`, []string{"a*b"}, []string{"axb", "ab", `a\*b`}},
		{`a\\*`, []string{`a\`, `a\b`}, []string{"ab"}},
		{"a?[b]", []string{"a?[b]"}, []string{"axb"}}, // nothing else is special
		{"ключ-*", []string{"ключ-1"}, []string{"ключ"}},
		{
			"10.0.0.0/8",
			[]string{"10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"},
			[]string{"11.0.0.0", "10.0.0.0/8", "10.0.0.1:80", "010.0.0.1", "10.0.0", ""},
		},
		{"0.0.0.0/0", []string{"1.2.3.4", "::ffff:1.2.3.4"}, []string{"::1", "a"}},
		{
			"10.1.2.3",
			[]string{"10.1.2.3", "::ffff:10.1.2.3", "::ffff:a01:203"},
			[]string{"10.1.2.4"},
		},
		{
			"2001:db8::/32",
			[]string{"2001:db8::", "2001:0DB8:0::1", "2001:db8:ffff::%eth0"},
			[]string{"2001:db9::", "2001:db8::/32", "10.0.0.1"},
		},
		{"2001:db8::1", []string{"2001:db8:0:0::1", "2001:DB8::1"}, []string{"2001:db8::2"}},
		{"::/0", []string{"::", "2001:db8::1"}, []string{"10.0.0.1", "::ffff:10.0.0.1"}},
		{"10.0.*", []string{"10.0.0.1", "10.0.x"}, []string{"10.1.0.0"}},
	} {
		l := mustOverride(t, tenPerMinute, limiter.Override{Key: c.pattern, Limit: 99})
		for i, key := range append(c.yes, c.not...) {
			if got, want := l.For(key).Limit == 99, i < len(c.yes); got != want {
				t.Errorf("%q matches %q: %v", c.pattern, key, got)
			}
		}
	}
}

// TestOverridesRefuse: a bad override is refused with the field that is wrong and what it accepts.
func TestOverridesRefuse(t *testing.T) {
	gcra, log := tenPerMinute, tenPerMinute
	gcra.Algorithm, log.Algorithm = limiter.GCRA, limiter.SlidingLog
	five := func(key string) limiter.Override { return limiter.Override{Key: key, Limit: 5} }
	for _, c := range []struct {
		spec          limiter.Spec
		overrides     []limiter.Override
		field, reason string
	}{
		{tenPerMinute, []limiter.Override{five("")}, "overrides[0].key", "is empty"},
		{
			tenPerMinute,
			[]limiter.Override{five(strings.Repeat("x", 257))},
			"overrides[0].key",
			"1 to 256",
		},
		{tenPerMinute, []limiter.Override{five("a\xff")}, "overrides[0].key", "UTF-8"},
		{tenPerMinute, []limiter.Override{five("a\n")}, "overrides[0].key", "control"},
		{tenPerMinute, []limiter.Override{five(`a\b`)}, "overrides[0].key", "backslash"},
		{tenPerMinute, []limiter.Override{five(`a\`)}, "overrides[0].key", "backslash"},
		{tenPerMinute, []limiter.Override{five("10.0.0.0/33")}, "overrides[0].key", "0 to 32 bits"},
		{
			tenPerMinute,
			[]limiter.Override{five("2001:db8::/129")},
			"overrides[0].key",
			"0 to 128 bits",
		},
		{tenPerMinute, []limiter.Override{five("10.0.0.0/x")}, "overrides[0].key", "not a network"},
		{
			tenPerMinute,
			[]limiter.Override{five("10.0.0.1/8")},
			"overrides[0].key",
			"write 10.0.0.0/8",
		},
		{
			tenPerMinute,
			[]limiter.Override{five("::ffff:10.0.0.0/104")},
			"overrides[0].key",
			"write it as IPv4",
		},
		{tenPerMinute, []limiter.Override{{Key: "a"}}, "overrides[0].key", "is given nothing"},
		{
			tenPerMinute,
			[]limiter.Override{{Key: "a", Limit: 5, Unlimited: true}},
			"overrides[0].unlimited", "stands beside",
		},
		{
			tenPerMinute,
			[]limiter.Override{{Key: "a", Limit: -1}},
			"overrides[0].limit",
			"1 to 1099511627776",
		},
		{
			tenPerMinute,
			[]limiter.Override{five("b"), {Key: "a", Limit: limiter.MaxLimit + 1}},
			"overrides[1].limit", "1 to 1099511627776",
		},
		{
			tenPerMinute,
			[]limiter.Override{{Key: "a", Burst: 5}},
			"overrides[0].burst",
			"fixed_window has none",
		},
		{
			tenPerMinute,
			[]limiter.Override{{Key: "a", Refill: 5}},
			"overrides[0].refill",
			"fixed_window has none",
		},
		{
			gcra,
			[]limiter.Override{{Key: "a", Burst: -5}},
			"overrides[0].burst",
			"1 to 1099511627776",
		},
		{log, []limiter.Override{{Key: "a", Limit: 2049}}, "overrides[0].limit", "1 to 2048"},
		{
			tenPerMinute,
			[]limiter.Override{five("a"), five("b"), five("a")},
			"overrides[2].key",
			`overrides[0], "a", comes first`,
		},
		{
			tenPerMinute,
			[]limiter.Override{five("plan:*"), five("plan:pro/*")},
			"overrides[1].key",
			"never reached",
		},
		{
			tenPerMinute,
			[]limiter.Override{five("*"), five("10.0.0.0/8")},
			"overrides[1].key",
			"never reached",
		},
		{
			tenPerMinute,
			[]limiter.Override{five("10.0.0.0/8"), five("10.1.0.0/16")},
			"overrides[1].key", "never reached",
		},
		{
			tenPerMinute,
			[]limiter.Override{five("::1"), five("0:0::1")},
			"overrides[1].key",
			"never reached",
		},
		{tenPerMinute, make([]limiter.Override, limiter.MaxOverrides+1), "overrides", "0 to 256"},
	} {
		_, err := limiter.New(c.spec, c.overrides...)
		var spec *limiter.SpecError
		if !errors.As(err, &spec) || spec.Field != c.field ||
			!strings.Contains(spec.Reason, c.reason) {
			t.Errorf("%.80v: %v, want %s: … %s", c.overrides, err, c.field, c.reason)
		}
	}
	// What is narrower comes first, and then all is reached.
	mustOverride(t, tenPerMinute, five("10.1.0.0/16"), five("10.0.0.0/8"), five("plan:pro/*"),
		five("plan:*"), five("*"))
}

// TestOverrideWhole: what an override does not give, the limit gives; a default follows from what
// it gives.
func TestOverrideWhole(t *testing.T) {
	gcra := limiter.Spec{
		Name: "x", Algorithm: limiter.GCRA, Limit: 10, Per: time.Minute,
		MaxDebt: 3, OnError: limiter.ErrorDeny,
	}
	s := mustOverride(t, gcra, limiter.Override{Key: "a", Limit: 50}).For("a")
	if s.Limit != 50 || s.Burst != 50 || s.MaxDebt != 3 || s.OnError != limiter.ErrorDeny ||
		s.Override != "a" {
		t.Errorf("%+v", s.Spec)
	}
	gcra.Burst = 20
	l := mustOverride(t, gcra, limiter.Override{Key: "a", Limit: 50},
		limiter.Override{Key: "b", Burst: 1})
	if a, b := l.For("a"), l.For("b"); a.Limit != 50 || a.Burst != 20 || b.Limit != 10 ||
		b.Burst != 1 {
		t.Errorf("%+v, %+v", a.Spec, b.Spec)
	}
	if c := l.For("c"); c != l || c.Override != "" {
		t.Errorf("%+v", c.Spec)
	}
	tokens := limiter.Spec{
		Name: "x", Algorithm: limiter.TokenBucket, Limit: 10, Per: time.Minute,
		Anchor: limiter.FirstHit,
	}
	l = mustOverride(t, tokens, limiter.Override{Key: "a", Limit: 50},
		limiter.Override{Key: "b", Refill: 1})
	if a, b := l.For("a"), l.For("b"); a.Refill != 50 || b.Refill != 1 || b.Limit != 10 {
		t.Errorf("%+v, %+v", a.Spec, b.Spec)
	}
	if got, want := fmt.Sprint(l.Overrides()), "[{a  50 0 0 false} {b  0 0 1 false}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestUnlimited: such a key is always admitted and leaves nothing in the table, also beside others,
// of which each counts.
func TestUnlimited(t *testing.T) {
	forEveryKind(t, func(t *testing.T, spec limiter.Spec, _ *limiter.Limit) {
		l := mustOverride(t, spec, limiter.Override{Key: "boss", Unlimited: true})
		if d := l.For("boss").CountsFor(); d != 0 {
			t.Errorf("what is not counted counts for %v", d)
		}
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		boss, worker := l.For("boss"), l.For("worker")
		free := limiter.Decision{
			Allowed: true, Limit: limiter.MaxLimit,
			Remaining: limiter.MaxLimit, RetryAfter: limiter.Never,
		}
		for _, cost := range []int64{1, 1 << 40, 1 << 62, 0, -5} {
			if d := table.Take(start, boss, "boss", limiter.Hash("boss"), cost); d != free ||
				boss.Capacity() != free.Limit {
				t.Fatalf("cost %d: %+v", cost, d)
			}
		}
		if d := table.Peek(start, boss, "boss", limiter.Hash("boss"), 7); d != free {
			t.Errorf("peek: %+v", d)
		}
		if d := table.Reset(start, boss, "boss", limiter.Hash("boss")); d != free {
			t.Errorf("reset: %+v", d)
		}
		both := []limiter.Item{
			{
				Limit: boss, Key: "boss", Hash: limiter.Hash("boss"),
				Request: limiter.Request{Cost: 99},
			},
			{
				Limit: worker, Key: "worker", Hash: limiter.Hash("worker"),
				Request: limiter.Request{Cost: l.Capacity()},
			},
		}
		out := make([]limiter.Decision, 2)
		if !table.TakeAll(start, both, out) || out[0] != free || out[1].Remaining != 0 {
			t.Errorf("both: %+v", out)
		}
		if table.TakeAll(start, both, out) || out[0] != free || out[1].Allowed {
			t.Errorf("both again: %+v", out)
		}
		if s := table.Stats(); s.Keys != 1 || s.Limits != 1 {
			t.Errorf("%+v", s)
		}

		book := limiter.NewLedger(table, nil)
		r := limiter.HoldRequest{
			ID: limiter.HoldID{Origin: 1, Sequence: 1}, Limit: boss, Key: "boss",
			Hash: limiter.Hash("boss"), Units: 99, TTL: time.Second,
		}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		if !book.Open(start, []limiter.HoldRequest{r}, out[:1]) || out[0].Hold != limiter.HoldOpen {
			t.Errorf("a hold: %+v", out[0])
		}
		if d := book.Settle(start, r.ID, r.Hash, "", 50); !d.Allowed ||
			d.Hold != limiter.HoldSettled {
			t.Errorf("settled: %+v", d)
		}
	})
}

// TestOverrideChanges: a key gets, loses and changes overrides. At one instant no more is admitted
// than the largest limit that it has had; a change adds to what remains no more than it adds to the
// limit; and the same holds in a table so full that the key lives in the sketch, and after a
// handover to another table.
func TestOverrideChanges(t *testing.T) {
	forEveryAlgorithm(t, func(t *rapid.T, a limiter.Algorithm) {
		if a == limiter.TokenBucket {
			return // another limit is another bucket
		}
		spec := drawShapeOf(t, a)
		spec.Limit = rapid.Int64Range(1, 20).Draw(t, "rate")
		change := func() *limiter.Limit {
			var list []limiter.Override
			for _, p := range []string{"k", "k*", "*"}[rapid.IntRange(0, 3).Draw(t, "patterns"):] {
				o := limiter.Override{Key: p}
				n := rapid.Int64Range(1, 20).Draw(t, "limit")
				if isMeter(spec) {
					o.Burst = n
				} else {
					o.Limit = n
				}
				list = append(list, o)
			}
			return mustOverride(t, spec, list...).For("key")
		}
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
		if rapid.Bool().Draw(t, "full") {
			fill(table, spec)
		}
		hash := limiter.Hash("key")
		l, sum, most := change(), int64(0), int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			before := table.Peek(start, l, "key", hash, 0)
			l = change()
			after := table.Peek(start, l, "key", hash, 0)
			if after.Remaining > max(0, before.Remaining+after.Limit-before.Limit) {
				t.Fatalf("%+v became %+v", before, after)
			}
			cost := rapid.Int64Range(1, 8).Draw(t, "cost")
			most = max(most, l.Capacity())
			switch rapid.IntRange(0, 4).Draw(t, "way") {
			case 0:
				out := make([]limiter.Decision, 1)
				if table.TakeAll(start, []limiter.Item{{
					Limit: l, Key: "key", Hash: hash,
					Request: limiter.Request{Cost: cost},
				}}, out) {
					sum += cost
				}
			case 1:
				e := table.Entry(start, l, "key", hash)
				next := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
				next.Import(start, &e, true)
				other := table.Entry(start, change(), "key", hash)
				next.Import(start, &other, rapid.Bool().Draw(t, "replace"))
				table = next
			default:
				if table.Take(start, l, "key", hash, cost).Allowed {
					sum += cost
				}
			}
			if sum > most {
				t.Fatalf("%d admitted, the limit was %d at most", sum, most)
			}
		}
	})
}

// fill floods a table with keys that have consumed all they may.
func fill(table *limiter.Table, spec limiter.Spec) {
	spec.Limit, spec.Name = 3, "others"
	if spec.Burst > 3 {
		spec.Burst = 3
	}
	l, err := limiter.New(spec)
	for i := 0; err == nil && table.Stats().Overflowed < 100 && i < 20_000; i++ {
		key := fmt.Sprint("stranger ", i)
		table.Take(start, l, key, limiter.Hash(key), l.Capacity())
	}
}

// TestOverridesSideBySide: many keys with overrides of their own, and the limit without one, in
// every order: each key is decided by its own, as if there were nothing else; also what leaves the
// table belongs to the right one.
func TestOverridesSideBySide(t *testing.T) {
	forEveryKind(t, func(t *testing.T, spec limiter.Spec, _ *limiter.Limit) {
		if spec.Algorithm == limiter.StatedWindow || spec.Algorithm == limiter.StatedBucket {
			return // their limits come with each request
		}
		random := rand.New(rand.NewSource(1))
		var list []limiter.Override
		for i := range 40 {
			list = append(list, limiter.Override{Key: fmt.Sprint("key ", i), Limit: int64(6 + i*3)})
		}
		l := mustOverride(t, spec, list...)
		table, believed := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20}), naive{}
		copied := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
		table.Track()
		for round := range 600 {
			key := fmt.Sprint("key ", random.Intn(50))
			own := l.For(key)
			cost := int64(random.Intn(12) - 2)
			got := table.Take(start, own, key, limiter.Hash(key), cost)
			if want := believed.take(start, own.Spec, key, cost, true); got != want {
				t.Fatalf("round %d, %s, cost %d under %+v:\n got %+v\nwant %+v", round, key, cost,
					own.Spec, got, want)
			}
			if round%50 == 0 {
				table.Sweep(start, 500)
				table.Changed(start, func(_ uint64, e limiter.Entry) {
					copied.Import(start, &e, true)
				})
			}
		}
		table.Changed(start, func(_ uint64, e limiter.Entry) { copied.Import(start, &e, true) })
		for i := range 50 {
			key := fmt.Sprint("key ", i)
			own := l.For(key)
			want := table.Peek(start, own, key, limiter.Hash(key), 0)
			if want.Remaining == want.Limit {
				continue // it may have been forgotten before that was told
			}
			if got := copied.Peek(start, own, key, limiter.Hash(key), 0); got != want {
				t.Errorf("%s was copied as %+v, is %+v", key, got, want)
			}
		}
		table.Each(start, func(own *limiter.Limit, key string, _ []int64, d limiter.Decision) bool {
			if own.Override != l.For(key).Override || d.Limit != own.Capacity() {
				t.Errorf("%s belongs to %q, with %+v", key, own.Override, d)
			}
			return true
		})
	})
}

// TestRestarted: a decision says that a key begins anew as long as its counters under the limit's
// former algorithm or period would still count there, and only while it has none under the new one.
// Tables that know one limit each say what counts.
func TestRestarted(t *testing.T) {
	specs := []limiter.Spec{
		tenPerMinute,
		{Name: "login", Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Hour},
		{Name: "login", Algorithm: limiter.GCRA, Limit: 10, Per: time.Minute},
		{Name: "login", Algorithm: limiter.SlidingLog, Limit: 10, Per: time.Minute},
	}
	rapid.Check(t, func(t *rapid.T) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
		alone, kept := map[int]*limiter.Table{}, map[string]bool{}
		for i := range specs {
			alone[i] = limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
		}
		now := start
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now += limiter.Instant(rapid.SampledFrom([]time.Duration{
				0, time.Second, time.Minute,
				10 * time.Minute,
			}).Draw(t, "step"))
			i := rapid.IntRange(0, len(specs)-1).Draw(t, "limit")
			key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
			hash, cost := limiter.Hash(key), rapid.Int64Range(0, 12).Draw(t, "cost")
			l := mustNew(t, specs[i])
			if rapid.Bool().Draw(t, "overridden") {
				l = mustOverride(t, specs[i], limiter.Override{Key: "*", Limit: 10}).For(key)
			}
			want := alone[i].Take(now, l, key, hash, cost)
			for k := range specs {
				former := alone[k].Peek(now, mustNew(t, specs[k]), key, hash, 0)
				want.Restarted = want.Restarted || k != i && former.Remaining < former.Limit
			}
			if seen := fmt.Sprint(i, key); kept[seen] {
				want.Restarted = false
			} else if cost > 0 && want.Allowed {
				kept[seen] = true
			}
			var got limiter.Decision
			if rapid.Bool().Draw(t, "at once") {
				out := make([]limiter.Decision, 1)
				table.TakeAll(now, []limiter.Item{{
					Limit: l, Key: key, Hash: hash,
					Request: limiter.Request{Cost: cost},
				}}, out)
				got = out[0]
			} else {
				got = table.Take(now, l, key, hash, cost)
			}
			if got != want {
				t.Fatalf("cost %d of %s under %+v:\n got %+v\nwant %+v", cost, key, l.Spec, got,
					want)
			}
		}
	})
}

// TestManyNamesakes: limits of one name by the hundred, as clients send them that give none, are
// learned and forgotten as any others, and the latest few of them are remembered.
func TestManyNamesakes(t *testing.T) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	spec := tenPerMinute
	take := func(per time.Duration, now limiter.Instant) limiter.Decision {
		spec.Per = per
		return table.Take(now, mustNew(t, spec), "k", limiter.Hash("k"), 1)
	}
	now := start
	for i := range 6000 { // more than a table knows
		if i%100 == 0 {
			now += limiter.Instant(time.Hour)
			table.Sweep(now, 1<<20)
		}
		if d := take(time.Minute+time.Duration(i)*time.Millisecond, now); !d.Allowed ||
			d.Restarted != (i%100 != 0) {
			t.Fatalf("limit %d: %+v", i, d)
		}
	}
}

func FuzzOverride(f *testing.F) {
	for _, s := range []string{
		"plan:pro/*", "10.0.0.0/8", "2001:db8::/32", `a\*`, "*", "a*b*c", "::ffff:1.2.3.4",
		"1.2.3.4/33", "fe80::1%eth0",
	} {
		f.Add(s, s)
		f.Add(s, "10.1.2.3")
	}
	f.Fuzz(func(t *testing.T, pattern, key string) {
		l, err := limiter.New(tenPerMinute, limiter.Override{Key: pattern, Limit: 99})
		if err != nil {
			var spec *limiter.SpecError
			if !errors.As(err, &spec) || spec.Field != "overrides[0].key" {
				t.Fatalf("%q: %v", pattern, err)
			}
			return
		}
		matches := l.For(key).Limit == 99
		if !strings.ContainsAny(pattern, `\*/:.`) && matches != (pattern == key) {
			t.Errorf("%q without a star matches %q: %v", pattern, key, matches)
		}
		first := limiter.Override{Key: "x" + pattern, Limit: 99}
		all, err := limiter.New(tenPerMinute, first, limiter.Override{Key: pattern, Limit: 98},
			limiter.Override{Key: "*", Limit: 97})
		if err == nil {
			want := int64(97)
			if matches {
				want = 98
			}
			if one, err := limiter.New(tenPerMinute, first); err == nil &&
				one.For(key).Limit == 99 {
				want = 99
			}
			if got := all.For(key).Limit; got != want {
				t.Errorf("%q gets %d of three patterns, want %d", key, got, want)
			}
		}
	})
}

func BenchmarkFor(b *testing.B) {
	var list []limiter.Override
	for i := range 20 {
		list = append(list, limiter.Override{Key: fmt.Sprintf("plan:%d/*", i), Limit: 99})
	}
	for _, c := range []struct {
		name      string
		overrides []limiter.Override
	}{
		{"overrides=0", nil},
		{"overrides=1", list[:1]},
		{"overrides=20", list},
		{"network", []limiter.Override{{Key: "10.0.0.0/8", Limit: 99}}},
	} {
		l, err := limiter.New(tenPerMinute, c.overrides...)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				sink = l.For("192.168.17.30")
			}
		})
	}
}

var sink *limiter.Limit
