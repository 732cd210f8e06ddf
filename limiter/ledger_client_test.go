package limiter

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// clientsLedger is a ledger of one key, and three limits of it without an end.
func clientsLedger(t testing.TB) (*Ledger, [3]*Limit) {
	var limits [3]*Limit
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

// Promise: a client that invents a holder for each hold gets half of a limit's room, and half of
// the book's by several limits. Others get theirs of the same limits, and a hold that has ended
// makes room.
func TestHoldsOfAClientAreBounded(t *testing.T) {
	b, limits := clientsLedger(t)
	now, id := Instant(0), uint64(0)
	greedy := func(l *Limit) HoldState {
		id++
		return b.opens(now, l, id, 7, fmt.Sprint("holder ", id))
	}
	for _, l := range limits[:2] {
		for i := range MaxHoldsOfLimit/2 + 1000 {
			want := HoldOpen
			if i >= MaxHoldsOfLimit/2 {
				want = HoldsOfClient
			}
			if state := greedy(l); state != want {
				t.Fatalf("the %dth hold: %d", i, state)
			}
		}
	}
	for i, client := range []uint64{8, 0} { // another client, and a node
		if state := b.opens(now, limits[0], 1<<40+uint64(i), client, "other"); state != HoldOpen {
			t.Errorf("client %d beside the greedy one: %d", client, state)
		}
	}
	b.most.all = 3*MaxHoldsOfLimit - 1 // of which the greedy one has a third and the next
	for i := range MaxHoldsOfLimit/2 - 2 {
		if state := greedy(limits[2]); state != HoldOpen {
			t.Fatalf("the %dth hold of the third limit: %d", i, state)
		}
	}
	if state := greedy(limits[2]); state != HoldsOfClient {
		t.Errorf("with half of the book: %d", state)
	}
	for sequence := uint64(1); sequence <= 3; sequence++ {
		b.Settle(now, HoldID{Origin: 1, Sequence: sequence}, Hash("k"), "", 0)
	}
	if first, second := greedy(limits[2]), greedy(limits[0]); first != HoldOpen ||
		second != HoldOpen {
		t.Errorf("after some have ended: %d and %d", first, second)
	}
	now = now.Add(time.Minute)
	b.Expire(now, nil)
	if state := greedy(limits[2]); state != HoldOpen {
		t.Errorf("when all have run out: %d", state)
	}
}

// Promise: however many clients want all holds of a limit, or of a book, a client without any gets
// one. The first may have half, and each next one half of what is left then.
func TestHoldsAreLeftForAnotherClient(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, limits := clientsLedger(nil)
		const most = 256
		several := rapid.Bool().Draw(t, "several limits")
		if b.most.limit = most; several {
			b.most.all = most
		}
		clients := rapid.IntRange(1, 6).Draw(t, "clients")
		id, open := uint64(0), make([][]uint64, clients)
		ask := func(c int) bool {
			id++
			l := limits[0]
			if several {
				l = limits[id%3]
			}
			state := b.opens(0, l, id, 1+uint64(c), fmt.Sprint("holder ", id))
			if state == HoldOpen {
				open[c] = append(open[c], id)
			} else if state != HoldsOfClient {
				t.Fatalf("client %d with %d holds: %d", c, len(open[c]), state)
			}
			return state == HoldOpen
		}
		end := func(c int) {
			b.Settle(0, HoldID{Origin: 1, Sequence: open[c][0]}, Hash("k"), "", 0)
			open[c] = open[c][1:]
		}
		modest := func(when string) {
			if !ask(clients - 1) {
				t.Fatalf("%s the last of %d is refused its first hold: %v", when, clients, open)
			}
			end(clients - 1)
		}
		for c := range clients - 1 { // one after the other takes what it gets
			for ask(c) {
			}
			if want := most >> (c + 1); len(open[c]) != want {
				t.Fatalf("client %d has %d holds, not %d", c, len(open[c]), want)
			}
		}
		modest("at first")
		for round := range most { // then all want more whenever some have ended
			for range rapid.IntRange(0, 8).Draw(t, "ended") {
				if c := rapid.IntRange(0, clients-1).Draw(t, "of"); len(open[c]) > 0 {
					end(c)
				}
			}
			if round == most-1 {
				break
			}
			for c := range clients - 1 {
				ask(c)
			}
			modest("later")
		}
	})
}

// Promise: clients that want all holds of a limit have the same share in the end, and as much is
// left for others, in whatever order they have come.
func TestGreedyClientsHaveTheSameHolds(t *testing.T) {
	for clients := 1; clients <= 6; clients++ {
		b, limits := clientsLedger(t)
		const most = 512
		b.most.limit = most
		id, open := uint64(0), make([][]uint64, clients)
		for range 4 * most {
			for c := range clients {
				for id++; b.opens(0, limits[0], id, 1+uint64(c), "") == HoldOpen; id++ {
					open[c] = append(open[c], id)
				}
				b.Settle(0, HoldID{Origin: 1, Sequence: open[c][0]}, Hash("k"), "", 0)
				open[c] = open[c][1:]
			}
		}
		left := most
		for c := range clients {
			left -= len(open[c])
		}
		for c := range clients {
			if share := most / (clients + 1); len(open[c]) < share-clients-1 ||
				len(open[c]) > share+clients+1 || left < share {
				t.Errorf("client %d of %d has %d holds, and %d are left", c, clients, len(open[c]),
					left)
			}
		}
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
			n[holders{limit: h.Limit.Name, client: h.Client}]++
		}
	}
	return n
}
