package debts

import (
	"slices"
	"testing"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

const second = limiter.Instant(time.Second)

func debt(l *limiter.Limit, cost int64, at limiter.Instant) Debt {
	return Debt{
		Limit: l, Key: "k", Cost: cost, Report: dedup.ID{Origin: 1, Sequence: uint64(cost)},
		At: at,
	}
}

func costs(list []Debt) (c []int64) {
	for i := range list {
		c = append(c, list[i].Cost)
	}
	return c
}

// Promise: debts are drawn oldest first; those that were given back come after all others, so that
// what no holder answers for keeps nothing waiting that another one would charge.
func TestOldestFirst(t *testing.T) {
	var l Ledger
	for i := int64(1); i <= 3; i++ {
		d := debt(nil, i, 0)
		if !l.Owe(&d) {
			t.Fatalf("no room for debt %d", i)
		}
	}
	batch := l.Oldest(2)
	if c := costs(batch); len(c) != 2 || c[0] != 1 || c[1] != 2 {
		t.Fatalf("drawn: %v", c)
	}
	d := debt(nil, 4, 0)
	l.Owe(&d)
	if !l.Return(batch) {
		t.Error("nothing else is owed, although 3 and 4 are")
	}
	if c := costs(l.Oldest(9)); !slices.Equal(c, []int64{3, 4, 1, 2}) {
		t.Errorf("drawn in the end: %v", c)
	}
}

// Promise: of two callers one charges, and none if nothing is owed.
func TestOneCharges(t *testing.T) {
	var l Ledger
	if l.Begin() {
		t.Error("nothing is owed, and it is charged")
	}
	d := debt(nil, 1, 0)
	l.Owe(&d)
	if !l.Begin() || l.Begin() {
		t.Error("not one of two callers charges")
	}
	if l.End(); !l.Begin() {
		t.Error("nobody charges after the first caller is done")
	}
}

// Promise: a ledger that is full takes no more, and says so.
func TestFull(t *testing.T) {
	var l Ledger
	d := debt(nil, 1, 0)
	for range most {
		l.Owe(&d)
	}
	if l.Owe(&d) || l.Promise(dedup.ID{Origin: 1}, &d, "", second) || l.Promises() != 0 {
		t.Error("a full ledger takes a debt")
	}
}

// Promise: a reservation is settled once, by its holder, in time; what is owed follows from that.
func TestAPromise(t *testing.T) {
	charge, release := new(limiter.Limit), new(limiter.Limit)
	release.Unsettled = limiter.UnsettledRelease
	permits := &limiter.Limit{Spec: limiter.Spec{Algorithm: limiter.Concurrency}}
	settle := func(used int64) *Change { return &Change{Holder: "me", Settle: true, Used: used} }
	for _, c := range []struct {
		name  string
		limit *limiter.Limit
		now   limiter.Instant
		asks  []*Change
		state limiter.HoldState
		used  int64
		known bool
	}{
		{"open", charge, 0, []*Change{{TTL: 0}}, limiter.HoldOpen, 5, false},
		{"extended", charge, second, []*Change{{TTL: time.Second}}, limiter.HoldRanOut, 5, true},
		{"settled", charge, 0, []*Change{settle(2)}, limiter.HoldSettled, 2, true},
		{"settled twice", charge, 0, []*Change{settle(2), settle(2)}, limiter.HoldSettled, 2, true},
		{
			"settled otherwise", charge, 0,
			[]*Change{settle(2), settle(3)},
			limiter.HoldOther, 2,
			true,
		},
		{
			"another's", charge, 0,
			[]*Change{{Holder: "you", Settle: true}},
			limiter.HoldForeign, 5,
			false,
		},
		{"too late", charge, second, []*Change{settle(2)}, limiter.HoldRanOut, 5, true},
		{"too late, released", release, second, []*Change{settle(2)}, limiter.HoldRanOut, 0, true},
		{"permits", permits, 0, []*Change{settle(2)}, limiter.HoldSettled, 0, true},
	} {
		var l Ledger
		d, id := debt(c.limit, 5, 0), dedup.ID{Origin: 7}
		first, again := l.Promise(id, &d, "me", second), l.Promise(id, &d, "me", second)
		if !first || !again || l.Len() != 1 {
			t.Fatalf("%s: a reservation that is opened twice is %d debts", c.name, l.Len())
		}
		var state limiter.HoldState
		for _, a := range c.asks {
			a.ID = id
			state, _ = l.Keep(c.now, a)
		}
		d = l.Oldest(1)[0]
		used, known := l.Spent(c.now, &d)
		if !d.Promised() || state != c.state || used != c.used || known != c.known {
			t.Errorf("%s: %v, %d used, known %t; want %v, %d, %t", c.name, state, used, known,
				c.state, c.used, c.known)
		}
		if take := d.AsTake(used); take.Promised() || take.Cost != used {
			t.Errorf("%s: as a take: %+v", c.name, take)
		}
		if l.Forget(&d); l.Promises() != 0 {
			t.Errorf("%s: forgotten, and still there", c.name)
		}
		if _, known := l.Keep(0, &Change{ID: id}); known {
			t.Errorf("%s: forgotten, and still known", c.name)
		}
	}
}

// Promise: an extension puts the deadline off, and never brings it forward.
func TestExtend(t *testing.T) {
	var l Ledger
	d, id := debt(new(limiter.Limit), 5, 0), dedup.ID{Origin: 7}
	l.Promise(id, &d, "me", second)
	l.Keep(0, &Change{ID: id, TTL: time.Minute})
	l.Keep(0, &Change{ID: id, TTL: time.Second})
	d = l.Oldest(1)[0]
	if holder, deadline := l.Terms(&d); holder != "me" || deadline != 60*second {
		t.Errorf("%q until %v", holder, deadline)
	}
}

// Promise: a node knows how much it has not said yet.
func TestPending(t *testing.T) {
	var l Ledger
	d := debt(nil, 1, 0)
	l.Owe(&d)
	l.SettlementBegins()
	if l.Pending() != 2 {
		t.Errorf("%d pending of a debt and a list of settlements", l.Pending())
	}
	l.SettlementEnds()
	if l.Oldest(1); l.Pending() != 0 {
		t.Errorf("%d pending of nothing", l.Pending())
	}
}

// Promise: a doubt names each boot once.
func TestDoubt(t *testing.T) {
	var none *Doubt
	d := none.With(1).With(2)
	if none.Of(1) || !d.Of(1) || !d.Of(2) || d.Of(3) || d.With(1) != d {
		t.Errorf("%+v", d)
	}
}
