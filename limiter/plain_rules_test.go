package limiter

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// plainRules are the limits that a table knows, the latest last.
type plainRules struct {
	known []*rule
	free  []uint32
	lists map[string][]*rule // families by identity, and namesakes by name
}

func (p *plainRules) find(l *Limit) *rule {
	for _, r := range p.known {
		if has := r.limit.Load(); has.Identity() == l.Identity() && has.Override == l.Override {
			return r
		}
	}
	return nil
}

func identityOf(l *Limit) string { return fmt.Sprint("identity ", l.Identity()) }

// join puts a rule before the others of a list that are still known, without those that it drops.
func (p *plainRules) join(list string, r *rule, drops func(*rule) bool, most int) {
	all := []*rule{r}
	for _, other := range p.lists[list] {
		if slices.Contains(p.known, other) && !drops(other) {
			all = append(all, other)
		}
	}
	p.lists[list] = all[:min(most, len(all))]
}

func (p *plainRules) learned(r *rule) {
	l := r.limit.Load()
	p.join(identityOf(l), r, func(*rule) bool { return false }, 1000)
	if !l.isShare() {
		p.join(l.Name, r, func(other *rule) bool {
			return other.limit.Load().Identity() == l.Identity()
		}, 5)
	}
	p.known = append(p.known, r)
}

// reclaim forgets what has no entries and is not shut, and gives the numbers back in their order.
func (p *plainRules) reclaim() {
	slices.SortFunc(p.known, func(a, b *rule) int { return int(a.id) - int(b.id) })
	kept := []*rule{}
	for _, r := range p.known {
		if r.live.Load() == 0 && r.shut.Load() == 0 {
			p.free = append(p.free, r.id)
		} else {
			kept = append(kept, r)
		}
	}
	p.known = kept
}

// has reports whether a rule in a list is still known.
func (p *plainRules) has(match func(l *Limit) bool) bool {
	return slices.ContainsFunc(p.known, func(r *rule) bool { return match(r.limit.Load()) })
}

func drawnRule(draw *rand.Rand) *Limit {
	s := Spec{
		Name: oneOf(draw, "a", "a", "b"), Algorithm: oneOf(draw, GCRA, FixedWindow), Limit: 5,
		Per:      time.Duration(1+draw.IntN(9)) * time.Second,
		Override: oneOf(draw, "", "x*", "y*"), Inline: draw.IntN(3) == 0,
	}
	l := mustBe(New(s))
	if draw.IntN(5) == 0 {
		return l.Share(2)
	}
	return l
}

// Promise: a limit has one rule for each identity and override, with the number that was given back
// last or the next one; a family is all of one identity, the latest first, and namesakes the latest
// five identities of a name; a rule without entries is forgotten, unless it is shut.
func TestRulesInPlainWords(t *testing.T) {
	for seed := range uint64(200) {
		draw := rand.New(rand.NewPCG(seed, 1))
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		rs, p := &table.rules, &plainRules{lists: map[string][]*rule{}}
		for range 120 {
			l := drawnRule(draw)
			if draw.IntN(20) == 0 {
				rs.mu.Lock()
				rs.reclaimLocked(rs.index.Load(), table.shards)
				rs.mu.Unlock()
				p.reclaim()
				continue
			}
			want, number := p.find(l), uint32(len(p.known)+1)
			if rs.index.Load().find(l) != want {
				t.Fatalf("seed %d: %+v is found: %t", seed, l.Spec, want == nil)
			}
			r := rs.learn(l, table.shards)
			if n := len(p.free); want == nil && n > 0 {
				number, p.free = p.free[n-1], p.free[:n-1]
			}
			switch {
			case want != nil && r == want:
			case want != nil || r.id != number || rs.index.Load().byID(number) != r:
				t.Fatalf("seed %d: %+v has rule %d, want %d", seed, l.Spec, r.id, number)
			default:
				p.learned(r)
				r.live.Store(draw.Int64N(2))
				r.shut.Store(oneOf[int64](draw, 0, 0, 0, 7))
			}
			p.compare(t, rs, l)
		}
	}
}

func (p *plainRules) compare(t *testing.T, rs *rules, l *Limit) {
	t.Helper()
	brought := 0
	for _, r := range p.known {
		if of := r.limit.Load(); of.Inline {
			brought++
		}
	}
	if rs.count != len(p.known) || rs.brought != brought ||
		rs.leftLocked(configured) != maxRules-len(p.known) ||
		rs.leftLocked(inline) != min(maxRules-len(p.known), MaxInline-brought) {
		t.Fatalf("%d rules, %d of them inline; want %d and %d", rs.count, rs.brought, len(p.known),
			brought)
	}
	r := rs.index.Load().find(l)
	if got := *r.family.rules.Load(); !slices.Equal(got, p.lists[identityOf(l)]) {
		t.Fatalf("%d of a family, want %d", len(got), len(p.lists[identityOf(l)]))
	}
	if l.isShare() != (r.namesakes == nil) ||
		r.namesakes != nil && !slices.Equal(*r.namesakes.rules.Load(), p.lists[l.Name]) {
		t.Fatalf("the namesakes of %+v are others", l.Spec)
	}
	for _, other := range []string{"a", "b", "c"} {
		s := mustBe(New(Spec{
			Name: other, Algorithm: FixedWindow, Limit: 5, Per: time.Second, Override: "z*",
		}))
		related := rs.related(s)
		named := p.has(func(l *Limit) bool { return l.Name == other })
		family := p.has(func(l *Limit) bool { return l.Identity() == s.Identity() })
		if (related != nil) != (named || family) || related != nil &&
			(len(*related.family.rules.Load()) > 0) != family {
			t.Fatalf("%q is related: %t, want %t and %t", other, related != nil, named, family)
		}
	}
}

// Promise: newcomers of a rule are refused until the latest of all states for which there was no
// room is over, at any time; from then on the rule is open again.
func TestShutRulesInPlainWords(t *testing.T) {
	meter := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: 5 * time.Second}))
	window := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 5, Per: 5 * time.Second}))
	for seed := range uint64(5000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		l := oneOf(draw, meter, window)
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		r := table.rules.learn(l, table.shards)
		x := &target{rule: r, limit: l, key: "k"}
		now := oneOf[Instant](draw, -20e9, -2e9, 0, 1e18)
		var until Instant
		ever := false
		for range 12 {
			now = now.Add(time.Duration(draw.IntN(4)) * time.Second)
			if draw.IntN(3) == 0 {
				w, units := make([]int64, l.words()), 1+draw.Int64N(5)
				var d Decision
				l.decide(w, now, units, &d)
				r.shutFor(now, l, w)
				end := now.Add(time.Duration(units) * time.Second)
				if l == window {
					end = now.Add(time.Second) // windows end at multiples of 5 s
					for end%5e9 != 0 {
						end = end.Add(time.Second)
					}
				}
				if !ever || end > until {
					until, ever = end, true
				}
			}
			if until == 0 { // 0 says that it is open
				until = 1
			}
			if got := x.shut(now); got != (ever && now < until) {
				t.Fatalf("seed %d: at %d until %d: shut %t", seed, now, until, got)
			}
			if draw.IntN(3) == 0 {
				table.rules.index.Load().reopen(now)
				if ever = ever && until > now; (r.shut.Load() != 0) != ever {
					t.Fatalf("seed %d: at %d until %d: open %t", seed, now, until, ever)
				}
			}
		}
	}
}

// Promise: how often one span of time goes into another is rounded down, to the unit.
func TestSpansInPlainWords(t *testing.T) {
	wide := func(s span) *big.Int {
		n := new(big.Int).SetUint64(s.ns)
		return n.Lsh(n, 64).Add(n, new(big.Int).SetUint64(s.fraction))
	}
	for seed := range uint64(60000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		word := func() uint64 {
			return oneOf(draw, 0, 1, 2, 3, draw.Uint64N(9), draw.Uint64()>>draw.IntN(64), 1<<63,
				^uint64(0))
		}
		e := span{oneOf(draw, 0, 1, 1, 2, draw.Uint64()>>draw.IntN(64)), word()}
		n, rest := draw.Uint64()>>(1+draw.IntN(63)), word()
		if wide(e).Sign() == 0 {
			continue
		}
		a := wide(e) // about n of them
		a.Mul(a, new(big.Int).SetUint64(n)).Add(a, new(big.Int).SetUint64(rest))
		if a.BitLen() > 127 {
			continue
		}
		lower := new(big.Int).And(a, new(big.Int).SetUint64(^uint64(0)))
		s := span{new(big.Int).Rsh(a, 64).Uint64(), lower.Uint64()}
		want := new(big.Int).Quo(wide(s), wide(e))
		if want.BitLen() > 62 {
			continue
		}
		if got := s.over(e); want.Cmp(big.NewInt(got)) != 0 {
			t.Fatalf("seed %d: %+v has %d of %+v, want %v", seed, s, got, e, want)
		}
	}
}
