package limiter

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// clientsLedger is a ledger of one key, and two limits of it without an end.
func clientsLedger(t testing.TB) (*Ledger, [2]*Limit) {
	var limits [2]*Limit
	for i := range limits {
		l, err := New(Spec{
			Name: fmt.Sprint("permits ", i), Algorithm: Concurrency, Limit: 1 << 30, Per: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		limits[i] = l
	}
	return NewLedger(NewTable(TableConfig{Bytes: 1 << 20}), nil), limits
}

// opens asks for a hold of a client on the key "k".
func (b *Ledger) opens(now Instant, l *Limit, id, client uint64, holder string) HoldState {
	var out [1]Decision
	b.Open(now, []HoldRequest{{
		ID: HoldID{Origin: 1, Sequence: id}, Limit: l, Key: "k", Hash: Hash("k"), Units: 1,
		TTL: time.Minute, Holder: holder, Client: client,
	}}, out[:])
	return out[0].Hold
}

// Promise: a client that invents a holder for each hold, and uses several limits, has no more than
// its bound. Others get theirs of the same limits, and a hold that has ended makes room.
func TestHoldsOfAClientAreBounded(t *testing.T) {
	b, limits := clientsLedger(t)
	now, id, open, refused := Instant(0), uint64(0), 0, 0
	greedy := func() HoldState {
		id++
		return b.opens(now, limits[id%2], id, 7, fmt.Sprint("holder ", id))
	}
	for range MaxHoldsOfClient + 1000 {
		switch state := greedy(); state {
		case HoldOpen:
			open++
		case HoldsOfClient:
			refused++
		default:
			t.Fatalf("the %dth hold: %d", id, state)
		}
	}
	if open != MaxHoldsOfClient || refused != 1000 {
		t.Errorf("%d are open, and %d were refused", open, refused)
	}
	for i, client := range []uint64{8, 0} { // another client, and a node
		if state := b.opens(now, limits[0], 1<<40+uint64(i), client, "other"); state != HoldOpen {
			t.Errorf("client %d beside the greedy one: %d", client, state)
		}
	}
	b.Settle(now, HoldID{Origin: 1, Sequence: 1}, Hash("k"), "", 0)
	if first, second := greedy(), greedy(); first != HoldOpen || second != HoldsOfClient {
		t.Errorf("after one has ended: %d, then %d", first, second)
	}
	now = now.Add(time.Minute)
	b.Expire(now, nil)
	if state := greedy(); state != HoldOpen {
		t.Errorf("when all have run out: %d", state)
	}
}

// Promise: however holds are opened, settled, put off, copied, dropped and run out, what counts for
// a client, a holder, a limit and all together is what is open.
func TestHoldsAreCountedAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, limits := clientsLedger(nil)
		now := Instant(0)
		draw := func(most uint64, what string) uint64 {
			return rapid.Uint64Range(0, most).Draw(t, what)
		}
		pick := func() HoldID { return HoldID{Origin: 1, Sequence: draw(20, "id")} }
		t.Repeat(map[string]func(*rapid.T){
			"open": func(*rapid.T) {
				b.opens(now, limits[draw(1, "limit")], draw(20, "id"), draw(3, "client"),
					fmt.Sprint(draw(2, "holder")))
			},
			"settle": func(*rapid.T) { b.Settle(now, pick(), Hash("k"), "", 0) },
			"extend": func(*rapid.T) { b.Extend(now, pick(), Hash("k"), "", time.Hour) },
			"import": func(*rapid.T) {
				b.Import(now, &Hold{
					ID: pick(), Limit: limits[draw(1, "limit")], Key: "k", Units: 1,
					Holder: fmt.Sprint(draw(2, "holder")), Client: draw(3, "client"),
					Deadline: now.Add(time.Minute), State: HoldState(1 + draw(2, "state")),
				})
			},
			"restore": func(*rapid.T) {
				b.Restore(now, &Hold{
					ID: pick(), Limit: limits[0], Key: "k", Units: 1, Client: draw(3, "client"),
					Deadline: now.Add(time.Minute), State: HoldOpen,
				})
			},
			"unrestore": func(*rapid.T) { b.Unrestore() },
			"wait": func(*rapid.T) {
				now = now.Add(time.Duration(draw(90, "seconds")) * time.Second)
				b.Expire(now, nil)
			},
			"drop": func(*rapid.T) {
				kept := draw(3, "kept") > 0
				b.Expire(now, func(uint64) bool { return kept })
			},
			"": func(t *rapid.T) {
				if want := b.recount(); !maps.Equal(b.count, want) {
					t.Fatalf("counted are %v, and open are %v", b.count, want)
				}
			},
		})
	})
}

// recount counts the open holds anew.
func (b *Ledger) recount() map[holders]int {
	n := map[holders]int{}
	for _, h := range b.holds {
		if h.State != HoldOpen {
			continue
		}
		n[holders{}]++
		n[holders{limit: h.Limit.Name}]++
		n[holders{limit: h.Limit.Name, holder: h.Holder, one: true}]++
		if h.Client != 0 {
			n[holders{client: h.Client}]++
		}
	}
	return n
}
