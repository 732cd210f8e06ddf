package charges

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"penstock/limiter"
)

// counters is a node that has what was charged, by key. No key has less than nothing.
type counters map[chargeKey]int64

func (c counters) hear(list []Charge) {
	for _, x := range list {
		k := chargeKey{x.Limit, x.Key}
		if x.Reset {
			c[k] = 0
		}
		c[k] = max(0, c[k]+x.Units)
	}
}

// Promise: a node that hears what others have charged stands where it would stand had it been told
// each charge at once, and it is told no more than that: of each key that was charged, in the order
// of first charges, what was given back and then what was taken.
func TestToldAgainstOneByOne(t *testing.T) {
	limits := []*limiter.Limit{new(limiter.Limit), new(limiter.Limit)}
	for seed := range uint64(100) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var u Untold
		atOnce, told := counters{}, counters{}
		charged := counters{} // what is not told, since a reset
		var order []chargeKey
		for range 200 {
			k := chargeKey{
				pick(draw, limits),
				pick(draw, []string{"a", "b"}),
			}
			what := draw.IntN(10)
			if what > 0 && !slices.Contains(order, k) {
				order = append(order, k)
			}
			switch what {
			case 0:
				list := u.Tell()
				for i, x := range list {
					before := i > 0 && list[i-1].Limit == x.Limit && list[i-1].Key == x.Key
					if x.Units == 0 && !x.Reset || before && list[i-1].Units >= 0 {
						t.Fatalf("told %+v: that is more than need be", list)
					}
				}
				sums := counters{}
				for _, x := range list {
					sums[chargeKey{x.Limit, x.Key}] += x.Units
				}
				if fmt.Sprint(sums.some()) != fmt.Sprint(charged.some()) {
					t.Fatalf("told %+v, charged %v", list, charged)
				}
				charged = counters{}
				at := func(x Charge) int { return slices.Index(order, chargeKey{x.Limit, x.Key}) }
				if !slices.IsSortedFunc(list, func(x, y Charge) int { return at(x) - at(y) }) {
					t.Fatalf("told %+v, charged first in the order %v", list, order)
				}
				order = nil
				if told.hear(list); fmt.Sprint(told.some()) != fmt.Sprint(atOnce.some()) {
					t.Fatalf("told %+v: counted %v, at once %v", list, told, atOnce)
				}
			case 1:
				u.Reset(k.limit, k.key)
				charged[k] = 0
				atOnce.hear([]Charge{{Limit: k.limit, Key: k.key, Reset: true}})
			default:
				units := draw.Int64N(13) - 6
				u.Add(k.limit, k.key, units)
				charged[k] += units
				atOnce.hear([]Charge{{Limit: k.limit, Key: k.key, Units: units}})
			}
		}
	}
}

// some are the counters that are not 0.
func (c counters) some() counters {
	some := counters{}
	for k, n := range c {
		if n != 0 {
			some[k] = n
		}
	}
	return some
}

// Promise: units that no limit can have, as a peer may send them, never turn into their contrary.
func TestUntoldOfHugeNumbers(t *testing.T) {
	l := new(limiter.Limit)
	for _, units := range []int64{
		math.MaxInt64, limiter.MaxLimit, -limiter.MaxLimit, math.MinInt64,
	} {
		var u Untold
		for range 3 {
			u.Add(l, "k", units)
		}
		list := u.Tell()
		if len(list) != 1 || list[0].Units > 0 != (units > 0) ||
			max(list[0].Units, -list[0].Units) < limiter.MaxLimit {
			t.Errorf("three times %d: told %+v", units, list)
		}
	}
}

func pick[T any](draw *rand.Rand, from []T) T { return from[draw.IntN(len(from))] }
