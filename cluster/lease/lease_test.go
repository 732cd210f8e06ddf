package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

const start = limiter.Instant(1_700_000_000_000_000_000)

func keyOf(t *testing.T, name string) Key {
	t.Helper()
	l, err := limiter.New(limiter.Spec{
		Name: "leased", Algorithm: limiter.FixedWindow, Limit: 1000, Per: time.Hour,
		Consistency: limiter.Leased,
	})
	if err != nil {
		t.Fatal(err)
	}
	return Key{Limit: l, Key: name, Hash: limiter.Hash(name)}
}

// wanted asks for k until a lease is wanted.
func wanted(t *testing.T, ls *Leases, k Key) *Ask {
	t.Helper()
	var d limiter.Decision
	for range 10 {
		if _, ask := ls.Spend(start, k, 1, &d); ask != nil {
			return ask
		}
	}
	t.Fatal("a key that is asked for often wants no lease")
	return nil
}

func never(Key) bool { return false }

// Promise: leased: what is granted is spent once and no more, one message for a key is under way at
// a time, and what is not needed any more is given back.
func TestLeaseFromWantedToReturned(t *testing.T) {
	var ls Leases
	k := keyOf(t, "alice")
	ask := wanted(t, &ls, k)
	var d limiter.Decision
	if _, second := ls.Spend(start, k, 1, &d); second != nil {
		t.Error("two messages at once for one key")
	}
	id := dedup.ID{Origin: 1, Sequence: 2}
	if old, want := ls.Begin(ask); len(old) != 0 || want < limiter.LeaseMin || !ask.More {
		t.Errorf("%d to settle, %d wanted, more: %t", len(old), want, ask.More)
	}
	ls.Done(start, start, ask, nil, &Grant{ID: id, Units: 20})
	var renewal *Ask
	for i := range 20 {
		decided, ask := ls.Spend(start, k, 1, &d)
		if !decided || !d.Allowed {
			t.Fatalf("unit %d of 20 is not spent", i)
		}
		if ask != nil && i < 15 || ask == nil && i == 15 {
			t.Errorf("after %d units: a renewal is wanted: %t", i+1, ask != nil)
		} else if ask != nil {
			renewal = ask
		}
	}
	ls.Begin(renewal)
	ls.Done(start, start, renewal, nil, &Grant{}) // too little remains for another one
	if decided, _ := ls.Spend(start, k, 1, &d); decided {
		t.Errorf("a unit that was not lent: %+v", d)
	}
	asks := ls.Tick(start.Add(time.Millisecond), never)
	if asks = append(asks, ls.Tick(start.Add(2*time.Millisecond), never)...); len(asks) != 1 {
		t.Fatalf("%d messages when the lease is spent, want 1", len(asks))
	}
	old, _ := ls.Begin(asks[0])
	if len(old) != 1 || old[0].ID != id || old[0].Size != 20 || old[0].Units != 0 ||
		ls.Open() != 1 {
		t.Errorf("to settle: %+v; %d open", old, ls.Open())
	}
	ls.Done(start, start, asks[0], nil, nil)
	for range 8 { // what was asked lately is halved by each tick
		ls.Tick(start.Add(time.Second), never)
	}
	if ls.Open() != 0 || ls.Len() != 0 {
		t.Errorf("%d leases and %d keys are left", ls.Open(), ls.Len())
	}
}

// Promise: a grant of which no node is sure is settled without being used; a settlement that was
// not heard is said again.
func TestUnknownGrantIsSettled(t *testing.T) {
	var ls Leases
	k := keyOf(t, "alice")
	ask := wanted(t, &ls, k)
	ls.Begin(ask)
	id := dedup.ID{Origin: 1, Sequence: 2}
	ls.Done(start, start, ask, nil, &Grant{ID: id, Unknown: true, Units: 20})
	var d limiter.Decision
	if decided, _ := ls.Spend(start, k, 1, &d); decided {
		t.Errorf("spent from a grant that may not exist: %+v", d)
	}
	for _, now := range []limiter.Instant{start, start.Add(limiter.LeaseTTL)} {
		asks := ls.Tick(now, never)
		if len(asks) != 1 {
			t.Fatalf("%d messages, want 1", len(asks))
		}
		old, _ := ls.Begin(asks[0])
		if len(old) != 1 || old[0].ID != id {
			t.Errorf("to settle: %+v", old)
		}
		ls.Done(now, now, asks[0], old, nil) // nobody has heard it
	}
	asks := ls.Tick(start.Add(3*limiter.LeaseTTL), never)
	old, _ := ls.Begin(asks[0])
	if ls.Done(start, start.Add(3*limiter.LeaseTTL), asks[0], old, nil); ls.Open() != 0 {
		t.Error("it is said again when its holder has forgotten it")
	}
}

// Promise: memory is bounded, and a changed limit's leases are given back.
func TestBoundsAndChanges(t *testing.T) {
	var ls Leases
	k := keyOf(t, "alice")
	ask := wanted(t, &ls, k)
	ls.Begin(ask)
	ls.Done(start, start, ask, nil, &Grant{ID: dedup.ID{Origin: 1, Sequence: 2}, Units: 20})
	var d limiter.Decision
	for i := range most + 10 {
		ls.Spend(start, Key{k.Limit, fmt.Sprint(i), limiter.Hash(fmt.Sprint(i))}, 1, &d)
	}
	if ls.Len() != most {
		t.Errorf("%d keys are counted, want %d", ls.Len(), most)
	}
	if asks := ls.Tick(start, func(Key) bool { return true }); len(asks) != 1 ||
		ls.Lent(k).Units != 0 {
		t.Errorf("%d messages, %d units in use after a change", len(asks), ls.Lent(k).Units)
	}
}

// Promise: what is given back is seen by the next take, also by one that a holder of leases would
// deny because others had units set aside a moment ago.
func TestRefundEndsADenial(t *testing.T) {
	var ls Leases
	k := keyOf(t, "alice")
	var d limiter.Decision
	ls.Spend(start, k, 3, &d)
	denied := limiter.Decision{Hold: limiter.HoldInTheWay, RetryAfter: time.Second}
	ls.Heard(start, k, 3, &denied)
	if decided, _ := ls.Spend(start, k, 3, &d); !decided || d.Allowed {
		t.Fatalf("the denial is not remembered: decided %t, %+v", decided, d)
	}
	if decided, _ := ls.Spend(start, k, 2, &d); decided {
		t.Errorf("less than was denied is not asked for: %+v", d)
	}
	ls.FreeAgain(k)
	if decided, _ := ls.Spend(start, k, 3, &d); decided {
		t.Errorf("denied from memory after a refund: %+v", d)
	}
	ls.FreeAgain(keyOf(t, "nobody has asked for"))
}

// Promise: a lease that is not renewed is spent to its end, and then given back at once.
func TestNothingGranted(t *testing.T) {
	var ls Leases
	k := keyOf(t, "alice")
	var d limiter.Decision
	ask := wanted(t, &ls, k)
	ls.Begin(ask)
	ls.Done(start, start, ask, nil, &Grant{ID: dedup.ID{Origin: 1, Sequence: 2}, Units: 20})
	_, ask = ls.Spend(start, k, 16, &d)
	ls.Begin(ask)
	ls.Done(start, start, ask, nil, &Grant{})
	if ls.Tick(start, never); ls.Lent(k).Units != 4 || ls.Len() != 1 {
		t.Fatalf("%d units of %d keys are left, want 4 of 1", ls.Lent(k).Units, ls.Len())
	}
	ls.Spend(start, k, 3, &d)
	_, ask = ls.Spend(start.Add(30*time.Millisecond), k, 1, &d)
	ls.Begin(ask)
	ls.Done(start, start, ask, nil, &Grant{})
	if ls.Lent(k).Size != 0 || ls.Open() != 1 {
		t.Errorf("%+v is in use, %d to be given back", ls.Lent(k), ls.Open())
	}
	if asks := ls.Tick(start.Add(31*time.Millisecond), never); len(asks) != 1 {
		t.Errorf("%d messages, want 1", len(asks))
	}
}

// Promise: what is said in a tick is said in one order, by key and then by limit, so that a world
// of the simulator is always the same.
func TestOneOrder(t *testing.T) {
	var ls Leases
	var want []string
	for i := range 8 {
		for _, name := range []string{"a", "b", "c"} {
			k := keyOf(t, fmt.Sprint(7-i))
			l := *k.Limit
			l.Name = name
			k.Limit, k.Hash = &l, 5
			ask := wanted(t, &ls, k)
			ls.Begin(ask)
			id := dedup.ID{Origin: 1, Sequence: uint64(len(want) + 1)}
			ls.Done(start, start, ask, nil, &Grant{ID: id, Units: 20})
			want = append(want, k.Key+" "+name)
		}
	}
	slices.Sort(want)
	var got []string
	for _, a := range ls.Tick(start, func(Key) bool { return true }) {
		got = append(got, a.Key.Key+" "+a.Key.Limit.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("said of %q", got)
	}
}
