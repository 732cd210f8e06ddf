package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

var tenAnHour = limiter.Spec{Name: "ten", Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Hour}

// know gives nodes the limit ten with overrides.
func (w *world) know(overrides []limiter.Override, nodes ...string) {
	w.t.Helper()
	l, err := limiter.New(tenAnHour, overrides...)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, id := range nodes {
		w.nodes[id].SetLimits(Limits{"ten": l})
	}
}

// TestOverrides: whichever node is asked, a key is decided by its override, on one count, also by
// an owner that has no limit of that name. While nodes hear of a change one after the other, the
// owner's limit of that name decides for all of them.
func TestOverrides(t *testing.T) {
	w := newWorld(t, 3, tenAnHour)
	key := w.key("n2", 0)
	w.know([]limiter.Override{{Key: key, Limit: 12}}, "n1", "n3")
	w.nodes["n2"].SetLimits(Limits{})
	for i, node := range []string{"n1", "n3", "n1", "n3"} {
		if d := w.take(node, "ten", key); !d.Allowed || d.Limit != 12 ||
			d.Remaining != int64(11-i) || d.Owner != "n2" || d.Rule.Override != key {
			t.Errorf("%s: %+v", node, d)
		}
	}
	w.know(nil, "n2")
	for i, node := range []string{"n1", "n2", "n3", "n1", "n2", "n3", "n1"} {
		if d := w.take(node, "ten", key); d.Allowed != (i < 6) || d.Limit != 10 {
			t.Errorf("take %d, by %s: %+v; the owner has the limit as it is", i+4, node, d)
		}
	}
	w.know([]limiter.Override{{Key: key, Limit: 11}}, "n2")
	if d := w.take("n3", "ten", key); !d.Allowed || d.Remaining != 0 {
		t.Errorf("the owner has a limit of 11: %+v", d)
	}
	if d := w.take("n1", "ten", key); d.Allowed || d.Limit != 11 {
		t.Errorf("the 12th: %+v", d)
	}
	w.know([]limiter.Override{{Key: key, Limit: 12}}, "n2")
	if d := w.take("n1", "ten", key); !d.Allowed || d.Remaining != 0 || d.Limit != 12 {
		t.Errorf("all have a limit of 12: %+v", d)
	}
	if d := w.take("n1", "ten", w.key("n2", 1)); d.Limit != 10 || d.Rule.Override != "" {
		t.Errorf("another key: %+v", d)
	}
	if d := w.check("n1", Item{Limit: "ten", Key: key, Op: OpReset})[0]; d.Remaining != 12 {
		t.Errorf("reset: %+v", d)
	}
}

// TestOneLimitWhereFilesDiffer: of nodes with different limits of one name, the owner of a key
// decides by its own, whichever is asked; so the cluster has one limit for each key.
func TestOneLimitWhereFilesDiffer(t *testing.T) {
	five, ten, gcra := tenAnHour, tenAnHour, tenAnHour
	five.Limit, gcra.Algorithm, gcra.Limit = 5, limiter.GCRA, 7
	ten.Algorithm, ten.Anchor = limiter.TokenBucket, limiter.FirstHit
	w := newWorld(t, 3, tenAnHour)
	for id, s := range map[string]limiter.Spec{"n1": five, "n2": ten, "n3": gcra} {
		l, err := limiter.New(s)
		if err != nil {
			t.Fatal(err)
		}
		w.nodes[id].SetLimits(Limits{"ten": l})
	}
	for owner, want := range map[string]int{"n1": 5, "n2": 10, "n3": 7} {
		key, admitted := w.key(owner, 0), 0
		for i := range 30 {
			if d := w.take([]string{"n1", "n2", "n3"}[i%3], "ten", key); d.Allowed {
				admitted++
			}
		}
		if admitted != want {
			t.Errorf("%d admitted of a key of %s, whose limit is %d", admitted, owner, want)
		}
	}
	terms := Item{Limit: "ten", Key: w.key("n3", 1), Cost: 1, Terms: Terms{Strict: true}}
	if d := w.check("n2", terms)[0]; d.Limit != 10 {
		t.Errorf("the owner's gcra has no strict, so the asker's limit decides on that: %+v", d)
	}
}

// TestUnlimitedAsksNobody: such a key is admitted where it is asked for, alone and beside others,
// and nothing is counted.
func TestUnlimitedAsksNobody(t *testing.T) {
	w := newWorld(t, 3, tenAnHour)
	boss, worker := w.key("n2", 0), w.key("n2", 1)
	w.know([]limiter.Override{{Key: boss, Unlimited: true}}, "n1", "n2", "n3")
	for _, node := range []string{"n1", "n2", "n3"} {
		calls := w.calls
		d := w.check(node, Item{Limit: "ten", Key: boss, Cost: 1 << 50})[0]
		if !d.Allowed || d.Limit != limiter.MaxLimit || d.Degraded || w.calls != calls {
			t.Errorf("%s: %+v after %d calls", node, d, w.calls-calls)
		}
	}
	both := []Item{{Limit: "ten", Key: boss, Cost: 99}, {Limit: "ten", Key: worker, Cost: 10}}
	for _, want := range []bool{true, false} {
		out := make([]Decision, 2)
		if err := w.nodes["n1"].Check(&Request{Items: both, Atomic: true}, out); err != nil ||
			!out[0].Allowed || out[1].Allowed != want {
			t.Errorf("%+v, %v", out, err)
		}
	}
	if s := w.nodes["n2"].Table().Stats(); s.Keys != 1 {
		t.Errorf("the owner has %d keys", s.Keys)
	}
}

// TestUnlimitedAfterALimit: the keys of a pattern were counted, and become unlimited: all nodes
// admit them, and what they had consumed is what counts when the limit is back.
func TestUnlimitedAfterALimit(t *testing.T) {
	w := newWorld(t, 3, tenAnHour)
	nodes := []string{"n1", "n2", "n3"}
	limited := []limiter.Override{{Key: "key-*", Limit: 12}}
	w.know(limited, nodes...)
	for _, owner := range nodes { // so each node has counted under the pattern
		w.take(owner, "ten", w.key(owner, 0))
	}
	w.know([]limiter.Override{{Key: "key-*", Unlimited: true}}, nodes...)
	key := w.key("n2", 0)
	for _, node := range nodes {
		d := w.check(node, Item{Limit: "ten", Key: key, Cost: 50})[0]
		if !d.Allowed || d.Limit != limiter.MaxLimit {
			t.Errorf("%s, while it is unlimited: %+v", node, d)
		}
	}
	w.know(limited, nodes...)
	if d := w.take("n1", "ten", key); !d.Allowed || d.Remaining != 10 {
		t.Errorf("the second within the limit: %+v", d)
	}
}

// TestOverrideSurvivesItsOwner: the copy that an heir keeps is under the override too, and so is
// what it decides.
func TestOverrideSurvivesItsOwner(t *testing.T) {
	w := newWorld(t, 3, tenAnHour)
	key := w.key("n2", 0)
	w.know([]limiter.Override{{Key: key, Limit: 100}}, "n1", "n2", "n3")
	for range 60 {
		w.take("n1", "ten", key)
	}
	w.Wait(w.now.Add(time.Second))
	delete(w.nodes, "n2")
	for _, id := range []string{"n1", "n3"} {
		w.nodes[id].SetView(w.view(id, []Member{w.members(3)[0], w.members(3)[2]}))
	}
	w.meet = func(c *Call, deliver func() *Answer) {
		if w.nodes[c.To.ID] == nil {
			c.Err = ErrGone
			return
		}
		c.Answer = deliver()
	}
	w.Wait(w.now.Add(5 * time.Second))
	if d := w.take("n1", "ten", key); d.Limit != 100 || d.Remaining != 39 {
		t.Errorf("after its owner has crashed: %+v", d)
	}
}

// TestRestartedIsSaid: where a limit has become another, the owner says so, and the node that was
// asked passes it on.
func TestRestartedIsSaid(t *testing.T) {
	w := newWorld(t, 3, tenAnHour)
	key := w.key("n2", 0)
	w.take("n1", "ten", key)
	changed := tenAnHour
	changed.Algorithm = limiter.GCRA
	l, err := limiter.New(changed)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		n.SetLimits(Limits{"ten": l})
	}
	if d := w.check("n3", Item{Limit: "ten", Key: key, Cost: 1, Op: OpPeek})[0]; !d.Restarted {
		t.Errorf("peek: %+v", d)
	}
	if d := w.take("n3", "ten", key); !d.Restarted || d.Remaining != 9 {
		t.Errorf("the first: %+v", d)
	}
	if d := w.take("n1", "ten", key); d.Restarted {
		t.Errorf("the second: %+v", d)
	}
	if d := w.take("n1", "ten", w.key("n2", 1)); d.Restarted {
		t.Errorf("a key that was never seen: %+v", d)
	}
}
