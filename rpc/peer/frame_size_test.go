package peer

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/cluster"
	"penstock/limiter"
)

// frameSize is how many bytes a frame has with these asks.
func frameSize(tag uint64, left int64, asks ...*cluster.Ask) int {
	var w frameWriter
	w.reset()
	for _, a := range asks {
		w.add(tag, a, left)
	}
	return len(w.buf)
}

// Promise: what waits for a peer is bounded in bytes, so no ask weighs less than what is written of
// it, whatever it has.
func TestNothingWeighsLessThanItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := []*limiter.Limit{drawLimit(t), drawLimit(t), drawLimit(t)}
		tag, left := rapid.Uint64().Draw(t, "tag"), rapid.Int64().Draw(t, "left")
		asks, weight := []*cluster.Ask(nil), 0
		for range rapid.IntRange(1, 4).Draw(t, "asks") {
			a := drawAsk(t, limits)
			if size := frameSize(tag, left, a); weigh(a) < size {
				t.Fatalf("%+v weighs %d and is written in %d bytes", a, weigh(a), size)
			}
			asks, weight = append(asks, a), weight+weigh(a)
		}
		if size := frameSize(tag, left, asks...); weight < size {
			t.Fatalf("%d asks weigh %d and are written in %d bytes", len(asks), weight, size)
		}
	})
}

// The same holds for each field of an ask and of a move alone, long lists included, and no weight
// is far above what is written.
func TestEveryFieldIsWeighed(t *testing.T) {
	const many = 250
	rapid.Check(t, func(t *rapid.T) {
		limits := []*limiter.Limit{drawLimit(t)}
		check := func(name string, a *cluster.Ask) {
			size, weight := frameSize(math.MaxUint64, math.MaxInt64, a), weigh(a)
			if weight < size {
				t.Fatalf("%s: weighs %d and is written in %d bytes", name, weight, size)
			}
			if slack := 16 + 7*many; weight > size+slack {
				// no limit has index 0 when it is weighed, and the length of an item may need a
				// byte more for that
				t.Fatalf("%s: weighs %d, and %d bytes are written", name, weight, size)
			}
		}
		eachField(drawAsk(t, limits), many, check)
		eachField(drawMove(t, limits), many, func(name string, m *cluster.Move) {
			check("Move."+name, &cluster.Ask{Move: m})
		})
	})
}

// eachField calls fn with each field of x alone; lists are repeated until they have so many.
func eachField[T any](x *T, many int, fn func(name string, one *T)) {
	all := reflect.ValueOf(x).Elem()
	for i := range all.NumField() {
		one := new(T)
		f := reflect.ValueOf(one).Elem().Field(i)
		f.Set(all.Field(i))
		if f.Kind() == reflect.Slice && f.Len() > 0 {
			for f.Len() < many {
				f.Set(reflect.AppendSlice(f, f))
			}
			f.SetLen(many)
		}
		fn(all.Type().Field(i).Name, one)
	}
}

// 250 holds of the longest keys and holders take a third of a frame: they were weighed as 129
// bytes.
func TestHoldsAreWeighed(t *testing.T) {
	l, err := limiter.New(limiter.Spec{
		Name: "l", Algorithm: limiter.Concurrency, Limit: 9, Per: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := cluster.HoldCopy{Left: time.Minute}
	h.Limit, h.Key, h.Holder = l, strings.Repeat("k", cluster.MaxKey), strings.Repeat("h",
		limiter.MaxHolder)
	m := &cluster.Move{}
	for range 250 {
		m.Holds = append(m.Holds, h)
	}
	a := &cluster.Ask{Move: m}
	if size, weight := frameSize(1, 1, a), weigh(a); size < 250*cluster.MaxKey || weight < size {
		t.Errorf("weigh %d and are written in %d bytes", weight, size)
	}
}
