package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/cluster/lease"
	"penstock/limiter"
	"penstock/ring"
)

var leased = limiter.Spec{
	Name: "leased", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
	Limit: 10_000, Per: time.Hour, Consistency: limiter.Leased,
}

// sources counts the sources of decisions.
type sources map[Source]int

// Promise: leased: decided locally, 0 extra; what is not spent comes back.
func TestLeaseDecidesLocally(t *testing.T) {
	w := newWorld(t, 3, leased)
	key := w.key("n3", 0)
	by, admitted := sources{}, 0
	for i := range 4000 {
		d := w.take([]string{"n1", "n2"}[i%2], "leased", key)
		if by[d.Source]++; d.Allowed {
			admitted++
		}
		if d.Owner != "n3" || d.Degraded || d.Remaining > 10_000-int64(admitted)/2 {
			t.Fatalf("after %d: %+v", admitted, d)
		}
		w.pass(50 * time.Microsecond)
	}
	if admitted != 4000 || by[SourceLease] < 3800 || by[SourceLease]+by[SourceForwarded] != 4000 {
		t.Errorf("admitted %d of 4000; by source %v; want 95 %% from leases", admitted, by)
	}
	if w.calls > 300 {
		t.Errorf("%d calls for 4000 decisions", w.calls)
	}
	w.pass(3 * limiter.LeaseTTL)
	if got := w.remaining("n3", "leased", key); got != 6000 {
		t.Errorf("remaining is %d when all leases are back, want 6000", got)
	}
	if n := len(w.nodes["n3"].holder.book.On(w.nodes["n3"].Limits()["leased"], key)); n != 0 {
		t.Errorf("%d leases are open", n)
	}
	for _, id := range []string{"n1", "n2"} {
		if k := w.nodes[id].local.leases.Len(); k != 0 {
			w.pass(5 * time.Second)
			if k := w.nodes[id].local.leases.Len(); k != 0 {
				t.Errorf("%s remembers %d keys that nobody asks for", id, k)
			}
		}
	}
}

// Promise: a decision says which node took it, also when it is repeated: this node from a lease, or
// the former holder of the key, which has told of it.
func TestRepeatsSayWhoDecided(t *testing.T) {
	w := newWorld(t, 3, leased)
	key := w.key("n3", 0)
	for range 10 { // until there is a lease
		w.take("n1", "leased", key)
		w.pass(time.Millisecond)
	}
	item := Item{Limit: "leased", Key: key, Cost: 1, ID: ID{Origin: 9, Sequence: 1}}
	for range 2 {
		if d := w.check("n1", item)[0]; d.Source != SourceLease || !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	item.ID.Sequence++
	first := w.check("n3", item)[0]
	told := Memory{
		ID: item.ID, Partition: uint16(ring.Partition(limiter.Hash(key))),
		Decisions: []limiter.Decision{first.Decision},
	}
	w.nodes["n1"].holder.recent.Learn(w.now, []Memory{told})
	if d := w.check("n1", item)[0]; d.Source != SourceForwarded || d.Owner != "n3" ||
		d.Decision != first.Decision {
		t.Errorf("%+v, where n3 has said %+v", d, first)
	}
	// The same while the gift is under way: n1 takes itself for the owner already.
	var keys []string
	for i := range 100 {
		keys = append(keys, w.key("n3", i))
	}
	members := w.members(3)
	members[2].State = StateLeaving
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && len(m.Gift) > 0 {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	w.show(members, 0, "n3")
	w.pass(50 * time.Millisecond)
	for _, key := range keys {
		if !w.nodes["n1"].View().Owns(limiter.Hash(key)) {
			continue
		}
		item.Key = key
		item.ID.Sequence++
		first := w.check("n3", item)[0]
		told := Memory{
			ID: item.ID, Partition: uint16(ring.Partition(limiter.Hash(key))),
			Decisions: []limiter.Decision{first.Decision},
		}
		w.nodes["n1"].holder.recent.Learn(w.now, []Memory{told})
		if d := w.check("n1", item)[0]; d.Source != SourceForwarded || d.Owner != "n3" {
			t.Errorf("%+v, where n3 has said %+v", d, first)
		}
		// And when n1 holds the key, but has no right to decide for the moment.
		w.meet = nil
		w.pass(2 * time.Second)
		item.ID.Sequence++
		told.ID = item.ID
		w.nodes["n1"].holder.recent.Learn(w.now, []Memory{told})
		w.nodes["n1"].right.until.Store(0)
		if d := w.check("n1", item)[0]; d.Source != SourceForwarded || d.Owner != "n3" {
			t.Errorf("n1, which holds the key: %+v, where n3 has said %+v", d, first)
		}
		return
	}
	t.Error("no key goes to n1")
}

// Promise: all of the limit can be used, and not a unit more; then no is said locally.
func TestLeasesTaper(t *testing.T) {
	spec := leased
	spec.Limit = 1000
	w := newWorld(t, 3, spec)
	key := w.key("n3", 0)
	admitted, denied := 0, sources{}
	for range 20_000 {
		for _, id := range []string{"n1", "n2", "n3"} {
			if d := w.take(id, "leased", key); d.Allowed {
				admitted++
			} else {
				denied[d.Source]++
			}
		}
		w.pass(50 * time.Microsecond)
	}
	if admitted != 1000 {
		t.Errorf("admitted %d of 1000", admitted)
	}
	if local := denied[SourceDenied] +
		denied[SourceOwner]; local < 99*(local+denied[SourceForwarded])/100 {
		t.Errorf("denied by source: %v; want 99 %% locally", denied)
	}
	if d := w.check("n1", Item{Limit: "leased", Key: key, Cost: -10})[0]; !d.Allowed {
		t.Fatalf("%+v", d)
	}
	if d := w.take("n1", "leased", key); !d.Allowed {
		t.Errorf("a refund through this node, and %+v", d)
	}
}

// Promise: crashed holders cost what they had; nobody spends a lease after its deadline.
func TestLeaseOfTheDeadRunsOut(t *testing.T) {
	w := newWorld(t, 3, leased)
	key := w.key("n3", 0)
	for range 20 {
		w.take("n1", "leased", key)
	}
	w.settle()
	n1 := w.nodes["n1"]
	l := n1.local.leases.Lent(n1.leased(key))
	if l.Units == 0 {
		t.Fatal("there is no lease")
	}
	spent := l.Size - l.Units
	w.nodes["n1"].Stop()
	there := w.nodes["n3"].holder.book.On(w.nodes["n3"].Limits()["leased"], key)
	if len(there) != 1 || there[0].Deadline < l.Until || there[0].Holder != "n1" ||
		there[0].Units != l.Size {
		t.Errorf("the holder counts on %d units until %d; the owner has %+v", l.Size, l.Until,
			there)
	}
	var d limiter.Decision
	if last, _ := n1.local.leases.Spend(l.Until-1, n1.leased(key), 1, &d); !last {
		t.Error("not spent before its deadline")
	}
	if late, _ := n1.local.leases.Spend(l.Until, n1.leased(key), 1, &d); late {
		t.Errorf("spent after its deadline: %+v", d)
	}
	w.meet = func(c *Call, deliver func() *Answer) { // n1 says nothing of its lease any more
		if len(c.Ask.Items) > 0 && c.Ask.Items[0].Op.holds() {
			c.Err = errors.New("silence")
			return
		}
		c.Answer = deliver()
	}
	w.pass(2 * limiter.LeaseTTL)
	got := 10_000 - w.remaining("n3", "leased", key)
	if most := 20 - spent + l.Size + 1; got > most || got < 20 {
		t.Errorf("%d are charged; 20 were admitted, and %d of a lease of %d were not spent", got,
			l.Units, l.Size)
	}
}

// Promise: what is lent is known to the heir before it is spent, so a crash in the same tick adds
// nothing; and what the heir does not confirm is not lent.
func TestLeaseIsKnownToHeir(t *testing.T) {
	w := newWorld(t, 3, leased)
	w.pass(time.Second)
	key := w.key("n3", 0)
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Ask.Move != nil && len(c.Ask.Move.Entries) > 0 {
			c.Err = errors.New("silence")
			return
		}
		c.Answer = deliver()
	}
	for range 20 {
		w.take("n1", "leased", key)
	}
	w.settle()
	if l := w.nodes["n1"].local.leases.Lent(w.nodes["n1"].leased(key)); l.Units != 0 {
		t.Errorf("%d units are lent, and no heir knows of them", l.Units)
	}
	w.pass(limiter.LeaseTTL / 2) // n1 says that it does not use it
	if n := len(w.nodes["n3"].holder.book.On(w.nodes["n3"].Limits()["leased"], key)); n != 0 {
		t.Errorf("%d leases are open that nobody has", n)
	}

	w.meet = nil
	w.pass(time.Second)
	for i := 1; ; i++ { // n1 is not the heir, so it goes on with its lease
		key = w.key("n3", i)
		view := w.nodes["n1"].view.Load()
		if view.heir(ring.Partition(limiter.Hash(key))) != view.Self {
			break
		}
	}
	for range 20 {
		w.take("n1", "leased", key)
	}
	w.settle()
	n1 := w.nodes["n1"]
	unspent := n1.local.leases.Lent(n1.leased(key)).Units
	if unspent == 0 {
		t.Fatal("there is no lease")
	}
	w.kill("n3") // with no tick in between
	if got := w.remaining("n2", "leased", key); got > 10_000-unspent {
		t.Errorf("after the crash %d remain at the heir, and of 10000 %d are lent", got, unspent)
	}
	if d := w.take("n1", "leased", key); d.Source != SourceLease {
		t.Errorf("what is lent is not spent: %+v", d)
	}
}

// leased is key under the limit of that name.
func (n *Node) leased(key string) lease.Key {
	return lease.Key{Limit: n.Limits()["leased"], Key: key, Hash: limiter.Hash(key)}
}

// Promise: leased: 0 extra, whatever is lost, doubled or moved meanwhile, while no node dies. At
// the end all is back.
func TestLeasesAddUp(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{
		limiter.FixedWindow, limiter.GCRA,
		limiter.SlidingLog, limiter.TokenBucket,
	} {
		for seed := range few(3) {
			spec := leased
			spec.Algorithm, spec.Limit = algorithm, 2000
			if algorithm == limiter.GCRA || algorithm == limiter.SlidingLog {
				spec.Anchor = limiter.Epoch
			}
			t.Run(fmt.Sprint(algorithm, seed), func(t *testing.T) { leasesAddUp(t, spec, seed) })
		}
	}
}

// few is n, or 1 where tests have to be short.
func few(n uint64) uint64 {
	if testing.Short() {
		return 1
	}
	return n
}

func leasesAddUp(t *testing.T, spec limiter.Spec, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 9))
	w := newWorld(t, 3, spec)
	w.meet = func(c *Call, deliver func() *Answer) {
		c.Answer = deliver()
		if len(c.Ask.Items) == 0 {
			return
		}
		if dice.IntN(10) == 0 {
			c.Answer = deliver()
		}
		if dice.IntN(10) == 0 {
			c.Answer, c.Err = nil, errors.New("the answer got lost")
		}
	}
	key := w.key("n3", 0)
	ids, members := []string{"n1", "n2", "n3"}, 3
	var admitted int64
	by := sources{}
	for i := range 6000 {
		node, cost := ids[dice.IntN(len(ids))], 1+dice.Int64N(3)
		d := w.check(node, Item{Limit: "leased", Key: key, Cost: cost})[0]
		if by[d.Source]++; d.Allowed && d.Source != SourceFallback {
			admitted += cost
		}
		if dice.IntN(20) == 0 {
			w.pass(time.Duration(dice.IntN(20)) * time.Millisecond)
		}
		if i%1000 == 999 { // n3 leaves the ring, or comes back: the key has another owner
			members = 5 - members
			ms := w.members(3)
			if members == 2 {
				ms[2].State = StateLeaving
			}
			w.show(ms, 0, "n1", "n2", "n3")
		}
	}
	allowed := spec.Limit
	if spec.Algorithm == limiter.GCRA { // it refills: at 2000 an hour, hardly
		allowed += 2000 * int64(w.now-1_700_000_000_000_000_000) / int64(time.Hour)
	}
	if admitted > allowed {
		t.Errorf("admitted %d of %d", admitted, allowed)
	}
	if admitted < spec.Limit*97/100 || by[SourceLease] == 0 || by[SourceDenied] == 0 {
		t.Errorf("admitted %d of %d; by source %v", admitted, spec.Limit, by)
	}
}

// Promise: leased: no window admits more than the limit, also while leases that began in one end in
// the next; and nearly all of it is used.
func TestLeasesOverWindows(t *testing.T) {
	for seed := range few(4) {
		dice := rand.New(rand.NewPCG(seed, 3))
		spec := leased
		spec.Anchor, spec.Per, spec.Limit = limiter.Epoch, time.Second, 3000
		w := newWorld(t, 3, spec)
		key := w.key("n3", 0)
		w.pass(time.Second)
		w.meet = func(c *Call, deliver func() *Answer) { // meanwhile others ask, and timers fire
			w.pass(time.Duration(dice.IntN(500)) * time.Microsecond)
			c.Answer = deliver()
			w.pass(time.Duration(dice.IntN(500)) * time.Microsecond)
		}
		admitted := map[int64]int64{}
		began := w.now
		for range 50_000 {
			now := int64(w.now) / int64(time.Second)
			d := w.check([]string{"n1", "n2", "n3"}[dice.IntN(3)],
				Item{Limit: "leased", Key: key, Cost: 1})[0]
			if d.Allowed && now == int64(w.now)/int64(time.Second) {
				admitted[now]++
			}
			w.pass(time.Duration(dice.IntN(200)) * time.Microsecond)
		}
		total := int64(0)
		for window, n := range admitted {
			if total += n; n > spec.Limit {
				t.Errorf("seed %d: window %d admitted %d of %d", seed, window, n, spec.Limit)
			}
		}
		if most := spec.Limit * int64(w.now-began) / int64(time.Second); total < most*97/100 {
			t.Errorf("seed %d: %d were used of %d", seed, total, most)
		}
	}
}

// Promise: a marked answer is marked again. What a share has let in of a leased limit is no lease's
// when it is repeated.
func TestRepeatOfAShareIsNoLease(t *testing.T) {
	leased := limiter.Spec{
		Name: "leased", Algorithm: limiter.FixedWindow, Limit: 100, Per: time.Hour,
		Consistency: limiter.Leased,
	}
	w := newWorld(t, 3, leased)
	key := w.key("n2", 0)
	w.meet = func(c *Call, _ func() *Answer) { c.Err = errSilent }
	item := Item{Limit: "leased", Key: key, Cost: 1, ID: ID{Origin: 9, Sequence: 9}}
	for _, try := range []string{"first", "repeated"} {
		d := w.check("n1", item)[0]
		if !d.Allowed || d.Source != SourceFallback || !d.Degraded || d.Bound < 100 {
			t.Errorf("%s: %+v; want a marked answer of a share", try, d)
		}
	}
}
