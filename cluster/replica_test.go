package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: a replicated limit never waits for a peer; what is admitted beyond it is what others
// have admitted and not said yet, is stated, and is paid back.
func TestReplicated(t *testing.T) {
	const n = 3
	for _, spec := range []limiter.Spec{
		{Name: "l", Algorithm: limiter.GCRA, Limit: 30, Per: 10 * time.Second},
		{
			Name: "l", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 30,
			Per: 10 * time.Second,
		},
		{Name: "l", Algorithm: limiter.SlidingLog, Limit: 30, Per: 10 * time.Second},
	} {
		t.Run(spec.Algorithm.String(), func(t *testing.T) {
			spec.Consistency = limiter.Replicated
			w := newWorld(t, n, spec)
			w.pass(time.Second)
			w.calls = 0
			// Slowly, so that every tick's news arrive before the next request: exactly the limit,
			// through all nodes.
			admitted := 0
			for i := range 60 {
				d := w.take(fmt.Sprintf("n%d", i%n+1), "l", "slow")
				if d.Source != SourceReplica || d.Degraded || d.Bound != (n-1)*30 {
					t.Fatalf("%+v", d)
				}
				if d.Allowed {
					admitted++
				}
				w.pass(2 * tickEvery / 5)
			}
			// of the bucket; the others admit no more
			supplied := 30 + int(60*2*tickEvery/5*30/spec.Per)
			if admitted < 30 || admitted > supplied+n {
				t.Errorf("slowly: %d admitted, want 30 to about %d", admitted, supplied)
			}

			// All at once: each node admits its limit, and says so by its bound; the debt is paid
			// before anybody is admitted.
			admitted = 0
			for i := range 200 {
				if w.take(fmt.Sprintf("n%d", i%n+1), "l", "fast").Allowed {
					admitted++
				}
			}
			if admitted != n*30 {
				t.Errorf("at once: %d admitted, want %d", admitted, n*30)
			}
			w.pass(3 * tickEvery)
			for i := range n {
				d := w.take(fmt.Sprintf("n%d", i+1), "l", "fast")
				if d.Allowed || d.Remaining != 0 {
					t.Errorf("n%d has not heard of the others: %+v", i+1, d)
				}
				if least := 20 * time.Second; spec.Algorithm == limiter.GCRA &&
					d.RetryAfter < least-time.Second {
					t.Errorf("n%d admits again in %v: the debt of %v is forgotten", i+1,
						d.RetryAfter, least)
				}
			}
			if w.calls != 0 {
				t.Errorf("%d checks went to a peer", w.calls)
			}

			w.check("n2", Item{Limit: "l", Key: "fast", Op: OpReset})
			w.pass(3 * tickEvery)
			for i := range n {
				if left := w.remaining(fmt.Sprintf("n%d", i+1), "l", "fast"); left != 30 {
					t.Errorf("n%d has %d left after a reset by n2", i+1, left)
				}
			}
		})
	}
}

// A node that is away for a while hears of all that was charged, once it is back, and once.
func TestReplicatedAfterSilence(t *testing.T) {
	spec := limiter.Spec{
		Name: "l", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 100, Per: time.Hour, Consistency: limiter.Replicated,
	}
	w := newWorld(t, 3, spec)
	w.pass(time.Second)
	twice := false
	w.meet = func(c *Call, deliver func() *Answer) {
		a := deliver()
		if twice = !twice; twice && c.Ask.Move != nil && len(c.Ask.Move.Charges) > 0 {
			c.Err = fmt.Errorf("the answer got lost")
			return
		}
		c.Answer = a
	}
	for range 40 {
		w.take("n1", "l", "k")
		w.pass(20 * time.Millisecond)
	}
	w.pass(time.Second)
	for _, id := range []string{"n1", "n2", "n3"} {
		if left := w.remaining(id, "l", "k"); left != 60 {
			t.Errorf("%s has %d left of 100, want 60", id, left)
		}
	}
}

// askReplicas asks nodes for a key of a replicated limit, and forgets as one limiter would.
type askReplicas struct {
	w     *world
	dice  *rand.Rand
	spent int64 // as one limiter has it
	taken int64 // in all, since spent was known
	back  int64 // likewise, as far as it was asked for
	id    uint64
}

// step takes or gives back at one of the nodes, sometimes twice under one ID.
func (a *askReplicas) step(nodes []string) {
	a.id++
	cost := 1 + a.dice.Int64N(20)
	if a.dice.IntN(2) == 0 {
		cost = -cost
	}
	node := nodes[a.dice.IntN(len(nodes))]
	if len(nodes) == 1 && a.dice.IntN(8) == 0 {
		a.w.check(node, Item{Limit: "l", Key: "k", Op: OpReset, ID: ID{Origin: 9, Sequence: a.id}})
		a.spent, a.taken, a.back = 0, 0, 0
		return
	}
	for range 1 + a.dice.IntN(2) {
		a.w.check(node, Item{Limit: "l", Key: "k", Cost: cost, ID: ID{Origin: 9, Sequence: a.id}})
	}
	a.spent = max(0, a.spent+cost)
	a.taken += max(0, cost)
	a.back += max(0, -cost)
	a.w.pass(time.Duration(a.dice.IntN(60)) * time.Millisecond)
}

// meet loses messages, and answers, and doubles them.
func (a *askReplicas) meet(c *Call, deliver func() *Answer) {
	switch a.dice.IntN(6) {
	case 0:
		c.Err = ErrUnsent
	case 1:
		deliver()
		c.Err = errSilent
	case 2:
		deliver()
		c.Answer = deliver()
	default:
		c.Answer = deliver()
	}
}

// Promise: whatever is taken and given back, in whatever order, once or said twice, and however
// messages are lost and doubled: what is asked of one node all others come to count as one limiter
// would; and what is asked of several nobody counts as less than what was taken without all that
// was to be given back, nor as more than what was taken.
func TestReplicatedRefunds(t *testing.T) {
	const much = 1 << 20
	spec := limiter.Spec{
		Name: "l", Algorithm: limiter.FixedWindow, Anchor: limiter.Epoch,
		Limit: much, Per: 100 * 24 * time.Hour, Consistency: limiter.Replicated,
	}
	nodes := []string{"n1", "n2", "n3"}
	for seed := range seeds(60) {
		a := &askReplicas{w: newWorld(t, 3, spec), dice: rand.New(rand.NewPCG(seed, 1))}
		for round := range 6 {
			asked := nodes
			if round%2 == 0 {
				asked = nodes[a.dice.IntN(3):][:1]
			}
			a.w.meet = a.meet
			for range 1 + a.dice.IntN(12) {
				a.step(asked)
			}
			a.w.meet = nil
			a.w.pass(2 * time.Second)
			for _, id := range nodes {
				got := much - a.w.remaining(id, "l", "k")
				if round%2 == 0 && got != a.spent {
					t.Fatalf("seed %d, round %d: %s counts %d, and one limiter, asked as %s was, "+
						"%d", seed, round, id, got, asked[0], a.spent)
				}
				if got < a.taken-a.back || got > a.taken {
					t.Fatalf("seed %d, round %d: %s counts %d where %d were taken, and %d given "+
						"back", seed, round, id, got, a.taken, a.back)
				}
			}
			a.w.check(nodes[a.dice.IntN(3)], Item{Limit: "l", Key: "k", Op: OpReset})
			a.w.pass(time.Second)
			a.spent, a.taken, a.back = 0, 0, 0
		}
	}
}

// Promise: what a replicated limit is charged among others, all or nothing, and what a refused
// request takes along, all nodes hear of.
func TestReplicatedAmongOthers(t *testing.T) {
	everywhere, once := five, five
	everywhere.Name, everywhere.Consistency = "everywhere", limiter.Replicated
	once.Name, once.Limit = "once", 1
	w := newWorld(t, 3, everywhere, once)
	key := w.key("n2", 0)
	for i, want := range []bool{true, false} { // the second is refused by the other limit
		r := Request{Atomic: true, Items: []Item{
			{Limit: "everywhere", Key: key, Cost: 2},
			{Limit: "once", Key: key, Cost: 1},
		}}
		out := make([]Decision, 2)
		if err := w.nodes["n1"].Check(&r, out); err != nil ||
			out[0].Allowed && out[1].Allowed != want {
			t.Fatalf("%d: %+v, %v", i, out, err)
		}
		w.pass(time.Second)
		for _, id := range []string{"n1", "n2", "n3"} {
			if left := w.remaining(id, "everywhere", key); left != 3 {
				t.Errorf("%d: %s has %d left, want 3", i, id, left)
			}
		}
	}
	if d := w.check("n3", Item{
		Limit: "everywhere", Key: key, Cost: 4,
		Terms: Terms{Drain: true},
	})[0]; d.Allowed || d.Drained != 3 {
		t.Fatalf("%+v", d)
	}
	w.pass(time.Second)
	if left := w.remaining("n1", "everywhere", key); left != 0 {
		t.Errorf("n1 has %d left after n3 was drained", left)
	}
}

// Promise: bounded memory. What agents have charged is remembered to be charged once, and not for
// ever: they come and go.
func TestAgentsThatAreGoneAreForgotten(t *testing.T) {
	w := newWorld(t, 2, five)
	ms := append(w.members(2), Member{ID: "agent", Boot: 99, Role: RoleAgent, State: StateActive})
	w.show(ms, 0, "n1", "n2")
	n := w.nodes["n1"]
	charge := &Move{From: 99, To: 1, ID: "agent", Charges: []Charge{
		{Limit: n.Limits()["five"], Key: "alice", Units: 1},
	}}
	charge.Sequence = 1
	n.intake.hear(w.now, n.view.Load(), charge)
	forgets := func(after time.Duration) bool {
		n.parts.mu.Lock()
		defer n.parts.mu.Unlock()
		n.intake.forgetFormerLocked(w.now.Add(after))
		return n.intake.inbox[99] == nil
	}
	if forgets(2 * formerLasts) {
		t.Error("an agent that is there is forgotten: what it says again is charged again")
	}
	w.show(ms[:2], 0, "n1", "n2")
	if forgets(formerLasts - 1) {
		t.Error("an agent that gossip may have lost for a moment is forgotten")
	}
	if !forgets(formerLasts) {
		t.Error("an agent that is gone is remembered")
	}
	if _, left := n.intake.inbox[2]; !left {
		t.Error("a member that is there is forgotten")
	}
}

// Promise: joins, leaves and restarts lose no count. What was charged to a replicated limit is
// known to nodes that come, members and agents, so a restart of all, one after the other, forgets
// nothing.
func TestReplicatedOutlivesRestarts(t *testing.T) {
	for _, spec := range []limiter.Spec{
		{Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 30},
		{Algorithm: limiter.GCRA, Limit: 30},
		{Algorithm: limiter.SlidingLog, Limit: 30},
	} {
		t.Run(spec.Algorithm.String(), func(t *testing.T) {
			spec.Name, spec.Per, spec.Consistency = "l", 100*time.Hour, limiter.Replicated
			w := newWorld(t, 3, spec)
			w.pass(time.Second)
			const keys = 40
			for i := range keys {
				w.check(fmt.Sprintf("n%d", i%3+1),
					Item{Limit: "l", Key: fmt.Sprint("k", i), Cost: 20})
			}
			w.pass(time.Second)
			ms := w.members(3)
			for i, id := range []string{"n1", "n2", "n3"} {
				w.kill(id)
				ms[i].Boot += 10
				w.start(id, ms[i].Boot)
				w.show(ms, 100*time.Millisecond, "n1", "n2", "n3")
				w.pass(3 * time.Second)
			}
			ms = append(ms, Member{ID: "a", Boot: 77, Role: RoleAgent, State: StateActive})
			w.start("a", 77)
			w.show(ms, 0, "n1", "n2", "n3", "a")
			w.pass(time.Second)
			for _, id := range []string{"n1", "n2", "n3", "a"} {
				wrong := 0
				for i := range keys {
					if w.remaining(id, "l", fmt.Sprint("k", i)) != 10 {
						wrong++
					}
				}
				if wrong > 0 {
					t.Errorf("%s does not know of what was charged to %d of %d keys", id, wrong,
						keys)
				}
			}
		})
	}
}

// Promise: what an open hold was settled for is charged, also if its limit has become a replicated
// one since, and whichever node is asked.
func TestHoldOutlivesItsLimitsConsistency(t *testing.T) {
	spec := limiter.Spec{
		Name: "five", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Hour,
	}
	w := newWorld(t, 3, spec)
	var items []Item
	for i := range 10 {
		settle, d := w.reserve("n1", "five", w.key("n2", i), 4, time.Minute)
		if !d.Allowed {
			t.Fatalf("%+v", d)
		}
		items = append(items, settle)
	}
	spec.Consistency = limiter.Replicated
	l, err := limiter.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		n.SetLimits(Limits{"five": l})
	}
	for i, it := range items {
		node := []string{"n1", "n2", "n3"}[i%3]
		if d := w.settleHold(node, it, 1); d.Hold != limiter.HoldSettled {
			t.Errorf("settled at %s: %+v", node, d)
		}
		if left := w.remaining("n2", "five", it.Key); left != 4 {
			t.Errorf("%d of 5 are left at the owner, after 1 of 4 was used", left)
		}
		it.Hold = &HoldTerms{ID: ID{Origin: 77, Sequence: uint64(i)}}
		if d := w.settleHold(node, it, 1); d.Hold != limiter.HoldUnknown {
			t.Errorf("a hold that nobody knows is settled at %s: %+v", node, d)
		}
	}
}
