package lease

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

// naive is what a node knows of its leases, with the arithmetic of limiter.Lease: by key, what is
// in use, what is to be settled, and the message under way.
type naive map[string]*lent

type lent struct {
	limiter.Lease
	key    Key
	id     dedup.ID
	old    []Held
	asking bool
	rate   int64 // what was asked lately; 0: the key can be forgotten
	asked  int64
}

func nameOf(k Key) string { return k.Key + " " + k.Limit.Name }

func (l *lent) retire() {
	if l.id != (dedup.ID{}) {
		l.old = append(l.old, Held{l.id, l.Lent})
	}
	l.id, l.Lent = dedup.ID{}, limiter.Lent{}
}

// tick is what has to be said, in its order: whether for each key more is asked for.
func (n naive) tick(now limiter.Instant, changed func(Key) bool) (says []string) {
	all := slices.SortedFunc(func(yield func(*lent) bool) {
		for _, l := range n {
			if !yield(l) {
				return
			}
		}
	}, func(a, b *lent) int {
		return cmp.Or(strings.Compare(a.key.Key, b.key.Key),
			strings.Compare(a.key.Limit.Name, b.key.Limit.Name))
	})
	for _, l := range all {
		if l.asked == 0 || now >= l.Until || changed(l.key) {
			l.retire()
		}
		more := l.id != (dedup.ID{}) && l.Ends(now)
		if !l.asking && (more || len(l.old) > 0) {
			l.asking = true
			says = append(says, fmt.Sprint(nameOf(l.key), " ", more))
		}
		if !l.asking && l.asked == 0 && l.rate == 0 {
			delete(n, nameOf(l.key))
		}
		l.rate, l.asked = max(l.asked, l.rate/2), 0
		l.Lease.Tick()
	}
	return says
}

func (n naive) open() (sum int) {
	for _, l := range n {
		if l.id != (dedup.ID{}) || len(l.old) > 0 || l.asking {
			sum++
		}
	}
	return sum
}

// Promise: whatever is asked, granted, lost, denied and changed, units that were lent are spent
// once and no more; each lease, also one that may have been granted, is settled with what is left
// of it until some node has heard that; and one message for a key is under way at a time, in one
// order.
func TestLeasesAgainstNaive(t *testing.T) {
	keys := make([]Key, 5)
	for i, of := range []string{"1 a", "1 b", "2 a", "2 c", "1 d"} {
		limit, key, _ := strings.Cut(of, " ")
		l, err := limiter.New(limiter.Spec{
			Name: "limit " + limit, Algorithm: limiter.FixedWindow, Limit: 1000, Per: time.Hour,
			Consistency: limiter.Leased,
		})
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = Key{l, key, 7}
	}
	for seed := range uint64(100) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var ls Leases
		n := naive{}
		var under []*Ask
		now, ids := start, uint64(0)
		later := func() time.Duration {
			return pick(draw, []time.Duration{
				0, 0, 0, time.Millisecond, 20 * time.Millisecond, limiter.LeaseTTL - 1,
				limiter.LeaseTTL,
			})
		}
		few := func() int64 { return 1 + draw.Int64N(5) }
		for range 200 {
			now = now.Add(later())
			k := pick(draw, keys)
			l := n[nameOf(k)]
			switch what := draw.IntN(10); {
			case what < 4:
				if l == nil {
					l = &lent{key: k}
					n[nameOf(k)] = l
				}
				cost := few()
				var d, want limiter.Decision
				l.asked += cost
				decides, wants := l.Decide(now, cost, k.Limit.Capacity(), &want)
				decided, ask := ls.Spend(now, k, cost, &d)
				if decided != decides || d != want || (ask != nil) != (wants && !l.asking) {
					t.Fatalf("decided %t, %+v, a message %t; want %t, %+v, %t and not %t", decided,
						d, ask != nil, decides, want, wants, l.asking)
				}
				if ask != nil {
					l.asking, under = true, append(under, ask)
				}
			case what < 6 && len(under) > 0:
				i := draw.IntN(len(under))
				a := under[i]
				under = slices.Delete(under, i, i+1)
				l = n[nameOf(a.Key)]
				old, units := ls.Begin(a)
				if !slices.Equal(old, l.old) || units != l.Want() {
					t.Fatalf("%+v are settled and %d asked for; want %+v and %d", old, units, l.old,
						l.Want())
				}
				sent, unheard := now, []Held(nil)
				now = now.Add(later())
				if draw.IntN(2) == 0 {
					if unheard = old; len(old) > 0 && draw.IntN(4) == 0 {
						now = max(now, old[0].Until.Add(limiter.LeaseTTL)) // it is forgotten there
					}
				}
				var g *Grant
				if a.More {
					ids++
					g = &Grant{ID: dedup.ID{Origin: 1, Sequence: ids}}
					g.Unknown = draw.IntN(4) == 0
					g.Units = pick(draw, []int64{0, 1, 2, 20})
					g.Rest.Remaining = few()
				}
				l.done(sent, now, unheard, g)
				ls.Done(sent, now, a, unheard, g)
			case what == 6:
				sent := now.Add(-later())
				d := limiter.Decision{
					Allowed: (draw.IntN(2) == 0), Remaining: few(),
					RetryAfter: later(), ResetAfter: later(),
				}
				if draw.IntN(2) == 0 {
					d.Hold = limiter.HoldInTheWay
				}
				cost := few()
				if ls.Heard(sent, k, cost, &d); l != nil {
					l.Lease.Heard(sent, cost, &d)
				}
			case what == 7:
				if ls.FreeAgain(k); l != nil {
					l.Lease.FreeAgain()
				}
			default:
				changed := func(o Key) bool { return what == 8 && o == k }
				want := n.tick(now, changed)
				var says []string
				for _, a := range ls.Tick(now, changed) {
					says = append(says, fmt.Sprint(nameOf(a.Key), " ", a.More))
					under = append(under, a)
				}
				if !slices.Equal(says, want) {
					t.Fatalf("said %q, want %q", says, want)
				}
			}
			var inUse limiter.Lent
			if l = n[nameOf(k)]; l != nil {
				inUse = l.Lent
			}
			if ls.Lent(k) != inUse || ls.Open() != n.open() || ls.Len() != len(n) {
				t.Fatalf("%+v in use, %d open, %d keys; want %+v, %d, %d", ls.Lent(k), ls.Open(),
					ls.Len(), inUse, n.open(), len(n))
			}
		}
	}
}

// done takes in what became of a message.
func (l *lent) done(sent, now limiter.Instant, unheard []Held, g *Grant) {
	l.asking, l.old = false, nil
	for _, h := range unheard {
		if now.Add(-limiter.LeaseTTL) < h.Until { // its holder still remembers it
			l.old = append(l.old, h)
		}
	}
	switch {
	case g == nil:
	case g.Unknown:
		l.old = append(l.old, Held{g.ID, limiter.Lent{Until: sent.Add(limiter.LeaseTTL)}})
		l.NotGranted(sent)
	case g.Units == 0:
		l.NotGranted(sent)
		if l.Units == 0 {
			l.retire()
		}
	default:
		l.retire()
		l.id = g.ID
		l.Granted(sent, g.Units, &g.Rest)
	}
}

func pick[T any](draw *rand.Rand, from []T) T { return from[draw.IntN(len(from))] }
