package hold

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/door"
)

// Promise: a client that asks about a hold hears that its keeper was not reached, unless the node
// that has promised it knows.
func TestHoldsWithoutWhoKeepsThem(t *testing.T) {
	alone := cluster.Decision{Source: cluster.SourceFallback, Degraded: true}
	for state, want := range map[limiter.HoldState]error{
		limiter.HoldNone: errUnreached, limiter.HoldSettled: nil,
		limiter.HoldRanOut: holdFaults[limiter.HoldRanOut],
	} {
		alone.Hold = state
		if err := Refusal(cluster.OpSettle, &alone); err != want {
			t.Errorf("hold %d: %v", state, err)
		}
	}
	alone.Hold = limiter.HoldNone
	if err := Refusal(cluster.OpReserve, &alone); err != nil {
		t.Errorf("a reservation of an older owner's key: %v", err)
	}
}

// Promise: the id of a hold is what it was made of, and nothing else is an id.
func FuzzHoldToken(f *testing.F) {
	l, err := limiter.New(limiter.Spec{
		Name: "tokens", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 1000, Per: time.Hour, MaxDebt: 500,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(Token(&cluster.Item{Limit: "tokens", Key: "k"}, cluster.ID{Origin: 1, Sequence: 2}))
	f.Add(Token(&cluster.Item{Inline: l, Key: "\x00\xff"}, cluster.ID{Origin: 1, Sequence: 2}))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		var inlines door.Inlines
		it, err := readToken(token, &inlines)
		if err != nil {
			if f := door.Explain(err); f.Status != 400 || f.Field != "id" {
				t.Fatalf("%q: %v", token, err)
			}
			return
		}
		it.ID = it.Hold.ID
		again, err := readToken(Token(&it, it.ID), &inlines)
		if err != nil || again.Key != it.Key || again.Limit != it.Limit ||
			!sameLimit(again.Inline, it.Inline) || *again.Hold != *it.Hold {
			t.Fatalf("%q became %+v, %v; was %+v", token, again, err, it)
		}
	})
}

// sameLimit compares values: an id may say less than all of its limit, and the one that is made of
// that limit says all.
func sameLimit(a, b *limiter.Limit) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Spec == b.Spec && a.Identity() == b.Identity()
}
