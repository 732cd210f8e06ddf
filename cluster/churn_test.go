package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// start adds a node that the others do not know yet. It enters their cluster as soon as it knows
// one of them (show).
func (w *world) start(id string, boot uint64) *Node {
	w.t.Helper()
	n := w.create(id, boot)
	n.Membership().Agree(Trust{})
	n.Start()
	return n
}

// pass lets d go by.
func (w *world) pass(d time.Duration) { w.Wait(w.now.Add(d)) }

// show gives the view of ms to nodes, in this order, with a pause before each.
func (w *world) show(ms []Member, pause time.Duration, ids ...string) {
	for _, id := range ids {
		w.pass(pause)
		n := w.nodes[id]
		n.SetView(w.view(id, ms))
		if n.right.Agreed() == nil && n.right.on {
			w.elect(n, ms)
		}
	}
}

// elect has n found a cluster with those of ms, if there is none.
func (w *world) elect(n *Node, ms []Member) {
	electors := w.electors
	if electors == 0 {
		electors = MostMembers
	}
	var ids []string
	for _, m := range ms {
		if m.Role == RoleMember {
			ids = append(ids, m.ID)
		}
	}
	n.Membership().Elect(electors, ids, n.boot)
}

// holders counts for each partition how many nodes decide for it.
func (w *world) holders() (none, many int) {
	var counts [ring.Partitions]int
	for _, n := range w.nodes {
		if !n.right.Deciding() {
			continue
		}
		for p := range n.parts.held {
			if n.parts.held[p].Load() {
				counts[p]++
			}
		}
	}
	for _, c := range counts {
		switch {
		case c == 0:
			none++
		case c > 1:
			many++
		}
	}
	return none, many
}

// claimed counts the partitions that somebody began to hold because nobody did.
func (w *world) claimed() (n uint64) {
	for _, node := range w.nodes {
		n += node.Stats().Claimed.Load()
	}
	return n
}

func (w *world) wantOneHolderEach(when string) {
	w.t.Helper()
	if none, many := w.holders(); none != 0 || many != 0 {
		held := ""
		for id, n := range w.nodes {
			held += fmt.Sprint(" ", id, ":", n.parts.Held())
		}
		w.t.Errorf("%s: %d partitions are held by nobody, %d by several;%s", when, none, many, held)
	}
}

// spend takes two of five from each of many keys, through the nodes in turn.
func (w *world) spend(keys int, nodes ...string) {
	w.t.Helper()
	for i := range keys {
		d := w.check(nodes[i%len(nodes)], Item{Limit: "five", Key: fmt.Sprint("k", i), Cost: 2})[0]
		if !d.Allowed || d.Degraded || d.Remaining != 3 {
			w.t.Fatalf("key %d: %+v", i, d)
		}
	}
}

func (w *world) wantRemaining(when string, keys int, want int64, nodes ...string) {
	w.t.Helper()
	wrong := 0
	for i := range keys {
		d := w.check(nodes[i%len(nodes)],
			Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpPeek})[0]
		if d.Degraded || d.Remaining != want {
			if wrong++; wrong <= 3 {
				w.t.Errorf("%s: key %d at %s: %+v", when, i, nodes[i%len(nodes)], d)
			}
		}
	}
	if wrong > 0 {
		w.t.Errorf("%s: %d of %d keys are wrong", when, wrong, keys)
	}
}

func TestOneHolderFromTheBeginning(t *testing.T) {
	for _, k := range []int{1, 2, 3, 5} {
		newWorld(t, k, five).wantOneHolderEach(fmt.Sprintf("%d nodes", k))
	}
}

// Promise: a node that joins changes no count, whatever order the news comes in.
func TestJoinMovesEveryCount(t *testing.T) {
	for _, order := range [][]string{
		{"n1", "n2", "n3", "n4"},
		{"n4", "n3", "n2", "n1"},
		{"n2", "n4", "n1", "n3"},
	} {
		for _, pause := range []time.Duration{0, 300 * time.Millisecond} {
			w := newWorld(t, 3, five)
			const keys = 3000
			w.spend(keys, "n1", "n2", "n3")
			w.start("n4", 4)
			w.show(w.members(4), pause, order...)
			w.wantRemaining("while it joins", 300, 3, order...)
			w.pass(2 * time.Second)
			w.wantOneHolderEach("after the join")
			w.wantRemaining("after the join", keys, 3, order...)
			if held := w.nodes["n4"].parts.Held(); held < 800 ||
				w.nodes["n4"].Stats().Claimed.Load() != 0 {
				t.Errorf("the new node holds %d partitions, of which it has %d from nobody", held,
					w.nodes["n4"].Stats().Claimed.Load())
			}
		}
	}
}

// Promise: no request is failed by a join, however often a key was asked for lately, and none is
// charged twice: what is remembered of it moves with it, in messages that a peer reads.
func TestHotKeyMoves(t *testing.T) {
	w := newWorld(t, 3,
		limiter.Spec{Name: "hot", Algorithm: limiter.FixedWindow, Limit: 1 << 30, Per: time.Hour})
	w.pass(time.Second)
	v := w.view("n4", w.members(4))
	key, owner := "", ""
	for i := 0; owner == ""; i++ { // one that n4 will own
		if k := fmt.Sprint("hot", i); v.Members[v.Owner(limiter.Hash(k))].ID == "n4" {
			key, owner = k, v.Members[w.view("n1", w.members(3)).Owner(limiter.Hash(k))].ID
		}
	}
	const takes = 3*takenAtOnce + 100
	charge := func(node string, sequence uint64) Decision {
		return w.check(node,
			Item{Limit: "hot", Key: key, Cost: 1, ID: ID{Origin: 77, Sequence: sequence}})[0]
	}
	first := make([]Decision, takes)
	for i := range first {
		first[i] = charge(owner, uint64(i))
	}
	largest := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Ask.Move != nil {
			largest = max(largest, len(c.Ask.Move.Taken))
		}
		c.Answer = deliver()
	}
	w.start("n4", 4)
	w.show(w.members(4), 0, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	if !w.nodes["n4"].holder.Holds(limiter.Hash(key)) || largest > takenAtOnce || largest == 0 {
		t.Fatalf("n4 holds the key: %t; the largest message brought %d memories",
			w.nodes["n4"].holder.Holds(limiter.Hash(key)), largest)
	}
	for i := range first {
		if d := charge("n1", uint64(i)); d.Remaining != first[i].Remaining || !d.Allowed {
			t.Fatalf("take %d was answered %+v, and after the move %+v", i, first[i], d)
		}
	}
	// two seconds after the takes, for a node that remembers a little long
	w.pass(900 * time.Millisecond)
	w.pass(300 * time.Millisecond)
	if d := charge("n1", 0); d.Remaining == first[0].Remaining {
		t.Errorf("remembered for more than two seconds: %+v", d)
	}
}

// Promise: a node that leaves takes no count along.
func TestLeaveHandsEverythingOver(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 3000
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	before := w.claimed()
	ms := w.members(3)
	ms[1].State = StateLeaving
	w.show(ms, 50*time.Millisecond, "n3", "n2", "n1")
	w.pass(time.Second)
	if held := w.nodes["n2"].parts.Held(); held != 0 {
		t.Errorf("the node that leaves holds %d partitions a second later", held)
	}
	w.wantOneHolderEach("after the leave")
	w.wantRemaining("before it is gone", keys, 3, "n1", "n2", "n3")
	if n := w.claimed(); n != before {
		t.Errorf("%d partitions were taken from nobody", n-before)
	}
	delete(w.nodes, "n2")
	w.show([]Member{ms[0], ms[2]}, 0, "n1", "n3")
	w.pass(time.Second)
	w.wantRemaining("after it is gone", keys, 3, "n1", "n3")
}

// Promise: a node that leaves takes no count along: it is stopped soon, so it gives way to checks
// less than others that copy. So does one that has a copy which a claimer waits for.
func TestWhoLeavesHurries(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n := w.nodes["n2"]
	to := n.copier.keepers.outboxes[0]
	rest := func() time.Duration {
		w.freeze("n2") // else its ticks come while it rests
		defer w.thaw("n2")
		since := w.now
		w.now = w.now.Add(time.Millisecond)
		n.copier.giveWay(to, since)
		return time.Duration(w.now-since) - time.Millisecond
	}
	to.out.needed = false
	if d := rest(); d != 6*time.Millisecond {
		t.Errorf("after a millisecond's work a member rests %v", d)
	}
	to.out.needed = true
	if d := rest(); d != 3*time.Millisecond {
		t.Errorf("and when no other has a copy %v", d)
	}
	to.out.lends = true
	if d := rest(); d != time.Millisecond {
		t.Errorf("and when a claimer waits %v", d)
	}
	to.out.lends, to.out.needed = false, false
	ms := w.members(3)
	n3 := n.view.Load().peers[n.view.Load().Find("n3")]
	n3.leaves.Store(true)
	if d := rest(); d != time.Millisecond {
		t.Errorf("and when another member leaves %v", d)
	}
	n3.leaves.Store(false)
	ms[1].State = StateLeaving
	w.show(ms, 0, "n2")
	w.pass(30 * time.Millisecond)
	if d := rest(); d != time.Millisecond {
		t.Errorf("and when it leaves %v", d)
	}
}

// Promise: when an owner dies its heirs go on from their copies, which lack what came after the
// last tick, at most.
func TestHeirsGoOn(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 3000
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second) // copies
	w.kill("n2")
	w.wantRemaining("right after the crash", keys, 3, "n1", "n3")
	w.pass(time.Second)
	w.wantOneHolderEach("after the crash")
	ms := w.members(3)
	w.show([]Member{ms[0], ms[2]}, 100*time.Millisecond, "n3", "n1")
	w.pass(time.Second)
	w.wantOneHolderEach("after the news of it")
	w.wantRemaining("after the news of it", keys, 3, "n1", "n3")

	ms[1].Boot = 12
	w.meet = nil
	w.start("n2", 12)
	w.show(ms, 100*time.Millisecond, "n2", "n3", "n1")
	w.pass(2 * time.Second)
	w.wantOneHolderEach("after the restart")
	w.wantRemaining("after the restart", keys, 3, "n1", "n2", "n3")
}

// kill ends a node: its machine says that nobody listens.
func (w *world) kill(id string) {
	w.nodes[id].Stop()
	delete(w.nodes, id)
	w.meet = func(c *Call, deliver func() *Answer) {
		if n := w.nodes[c.To.ID]; n == nil || n.Boot() != c.To.Boot {
			c.Err = fmt.Errorf("%w, %w", ErrUnsent, ErrGone)
			return
		}
		c.Answer = deliver()
	}
}

// Promise: a node that was stopped decides nothing before it has its right again, and by then
// others may hold what it held.
func TestWhoWasStoppedIsFenced(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.take("n2", "five", key)
	w.pass(time.Second)
	stopped := w.nodes["n2"]
	w.freeze("n2")
	w.pass(silence)
	if d := w.take("n1", "five", key); d.Degraded || d.Owner == "n2" || d.Remaining != 3 {
		t.Errorf("the heir of a silent node: %+v", d)
	}
	l := w.nodes["n1"].Limits()["five"]
	a := stopped.Deliver(&Ask{
		Hop: 1, Deadline: w.now.Add(time.Second),
		Items: []AskItem{{Limit: l, Key: key, Cost: 1}},
	})
	if a.Items[0].Status != StatusNotOwner {
		t.Errorf("a node that was stopped for %v decides: %+v", silence, a.Items[0])
	}
	w.thaw("n2")
	w.pass(2 * time.Second)
	w.wantOneHolderEach("after it went on")
	if d := w.take("n3", "five", key); d.Degraded || d.Owner != "n2" || d.Remaining != 2 {
		t.Errorf("after it went on: %+v", d)
	}
}

// silence is long enough for one member that is silent to be evicted, and for its heirs to hold
// what it held.
const silence = 1500 * time.Millisecond

// Promise: a node that is cut off from most of the others stops before one of them takes over, and
// answers by on_partition.
func TestMinority(t *testing.T) {
	spec := func(name string, p limiter.OnPartition) limiter.Spec {
		s := five
		s.Name, s.OnPartition, s.Limit = name, p, 9
		return s
	}
	w := newWorld(t, 3, spec("share", limiter.PartitionProportional),
		spec("deny", limiter.PartitionDeny), spec("open", limiter.PartitionOpen))
	key := w.key("n1", 0)
	w.take("n2", "share", key)
	w.pass(time.Second)
	began := w.now
	w.hearing(func(from, to string) bool { return (from == "n1") == (to == "n1") })
	for !w.nodes["n1"].right.minority.Load() {
		w.pass(10 * time.Millisecond)
		if w.now > began.Add(time.Second) {
			t.Fatal("a node without any contact goes on deciding")
		}
	}
	for _, c := range []struct {
		limit   string
		allowed int
		bound   int64
	}{{"share", 3, 9}, {"deny", 0, 0}, {"open", 9, 27}} {
		allowed := 0
		for range 20 {
			d := w.take("n1", c.limit, key)
			if d.Allowed {
				allowed++
			}
			if !d.Degraded || d.Source != SourceFallback || d.Bound != c.bound {
				t.Fatalf("%s: %+v", c.limit, d)
			}
		}
		if allowed != c.allowed {
			t.Errorf("on_partition of %s: admitted %d of 20, want %d", c.limit, allowed, c.allowed)
		}
	}
	w.pass(2 * time.Second)
	ms := w.members(3)
	w.show(ms[1:], 0, "n2", "n3")
	w.show(ms[:1], 0, "n1")
	w.pass(time.Second)
	if w.nodes["n1"].right.Deciding() {
		t.Error("one of three, alone in its view, decides")
	}
	if d := w.take("n2", "share", key); d.Degraded || d.Remaining != 7 {
		t.Errorf("on the side of the majority: %+v", d)
	}
	w.meet = nil
	w.show(ms, 100*time.Millisecond, "n1", "n2", "n3")
	w.pass(2 * time.Second)
	w.wantOneHolderEach("after the heal")
	if d := w.take("n1", "share", key); d.Degraded || d.Owner != "n1" || d.Remaining != 3 {
		t.Errorf("after the heal, with what the minority has admitted: %+v", d)
	}
}

// Promise: one node decides. A node that hears all others, and is heard by none of them, stops as
// well, before one of them takes over.
func TestWhoIsHeardByNobodyStops(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	w.meet = func(c *Call, deliver func() *Answer) {
		switch {
		case w.caller == "n1":
			c.Err = errSilent // it does not arrive
		case c.To.ID == "n1":
			deliver()
			c.Err = errSilent // the answer does not
		default:
			c.Answer = deliver()
		}
	}
	for range 50 {
		w.pass(100 * time.Millisecond)
		if _, many := w.holders(); many > 0 {
			t.Fatalf("%d partitions have two holders", many)
		}
	}
	if w.nodes["n1"].right.Deciding() {
		t.Error("n1 decides")
	}
	w.meet = nil
	w.pass(2 * time.Second)
	w.wantOneHolderEach("when all is well")
}

// Promise: with replication: sync a crash forgets nothing that a client has heard of; if the heir
// cannot confirm, the answer says so.
func TestSyncReplication(t *testing.T) {
	spec := func(name string, e limiter.OnError) limiter.Spec {
		s := five
		s.Name, s.OnError, s.Sync = name, e, true
		return s
	}
	w := newWorld(t, 3, spec("five", limiter.ErrorLocal), spec("deny", limiter.ErrorDeny))
	w.pass(time.Second)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3")
	w.kill("n2") // with no tick in between
	w.wantRemaining("after the crash", keys, 3, "n1", "n3")

	silent := w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Ask.Move != nil && len(c.Ask.Move.Entries) > 0 {
			c.Err = fmt.Errorf("silence")
			return
		}
		silent(c, deliver)
	}
	key := w.key("n1", 0)
	for _, c := range []struct {
		limit   string
		allowed bool
		bound   int64
	}{{"five", true, 5}, {"deny", false, 0}} {
		for _, entry := range []string{"n1", "n3"} {
			if d := w.take(entry, c.limit, key); d.Allowed != c.allowed || !d.Degraded ||
				d.Bound != c.bound {
				t.Errorf("%s at %s, unconfirmed: %+v", c.limit, entry, d)
			}
		}
	}
}

// Promise: with replication: sync a request that is repeated after the crash of the node that has
// answered it is charged once, alone and with others.
func TestSyncRepeatAfterACrash(t *testing.T) {
	other := five
	other.Name, other.Sync = "other", true
	sync := five
	sync.Sync = true
	for _, atomic := range []bool{false, true} {
		w := newWorld(t, 3, sync, other)
		w.pass(time.Second)
		key := w.key("n2", 0)
		ask := func(node string) []Decision {
			r := &Request{Atomic: atomic, Items: []Item{{Limit: "five", Key: key, Cost: 1}}}
			if atomic {
				r.Items = append(r.Items, Item{Limit: "other", Key: key, Cost: 2})
			}
			for i := range r.Items {
				r.Items[i].ID = ID{Origin: 77, Sequence: uint64(i + 1)}
			}
			out := make([]Decision, len(r.Items))
			if err := w.nodes[node].Check(r, out); err != nil {
				t.Fatal(err)
			}
			return out
		}
		before := ask("n2")
		w.kill("n2") // with no tick in between
		w.pass(time.Second)
		for _, node := range []string{"n1", "n3", "n1"} {
			for i, d := range ask(node) {
				if was := before[i].Decision; d.Decision != was {
					t.Errorf("atomic: %t: repeated at %s: %+v, was %+v", atomic, node, d.Decision,
						was)
				}
			}
		}
		if left := w.remaining("n1", "five", key); left != 4 {
			t.Errorf("atomic: %t: %d left of 5, one unit was taken", atomic, left)
		}
	}
}

// Promise: counters that come to the holder from another one, which holds the key too, or from a
// disk, the next holder knows as well, though its copy was made before that.
func TestWhatIsLentToAHolderIsCopied(t *testing.T) {
	for _, disk := range []bool{false, true} {
		w := newWorld(t, 3, five)
		n1, key := w.nodes["n1"], w.key("n1", 0)
		w.take("n1", "five", key)
		w.pass(time.Second) // its heir has a copy
		l, hash, view := (*n1.limits.Load())["five"], limiter.Hash(key), n1.view.Load()
		partition := ring.Partition(hash)
		heir := view.Members[view.heir(partition)].ID
		lender := w.nodes[map[string]string{"n2": "n3", "n3": "n2"}[heir]]
		knows := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
		for range 3 {
			knows.Take(w.now, l, key, hash, 1)
		}
		m := &Move{
			From: lender.boot, To: n1.boot, ID: lender.id,
			Copying: Copying{
				Lent:    []uint16{uint16(partition)},
				Entries: []limiter.Entry{knows.Entry(w.now, l, key, hash)},
			},
		}
		if !disk {
			lender.copier.moves++
			m.Sequence, m.Begin, m.Term = lender.copier.moves, m.Lent, n1.parts.term
		}
		n1.Deliver(&Ask{Hop: 1, Deadline: w.now.Add(time.Second), Move: m})
		if left := w.remaining("n1", "five", key); left != 2 {
			t.Fatalf("n1 has %d of 5 left", left)
		}
		w.pass(time.Second)
		w.kill("n1")
		w.pass(3 * time.Second)
		if left := w.remaining(heir, "five", key); left != 2 {
			t.Errorf("from a disk: %t: %s has taken over, and has %d of 5 left", disk, heir, left)
		}
	}
}
