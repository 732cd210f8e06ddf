package ownership

import (
	"strings"
	"testing"
	"time"
)

// Promise: a boot that has promised to follow the child of another one takes what its epoch has
// decided from that one alone. The last four of eight begin a child. What the dead ones have
// decided before reaches the three that have promised to follow: there they are most of the voters,
// and would go on beside the child, until both lineages meet and one gives way.
func TestPromiseToFollowIsKept(t *testing.T) {
	w := newWorld(1, 3)
	ids := []string{"z", "a", "b", "c", "e", "f", "g", "h"}
	for _, id := range ids {
		w.start(id, ids...)
	}
	w.run(2 * second)
	e, followers := w.node("e"), []*node{w.node("f"), w.node("g"), w.node("h")}
	before, first := e.s.config.Epoch, w.node("z").s.me.Boot
	w.drop = func(_, _ string, m Message) bool {
		d, decided := m.(Decided)
		return decided && d.Config.Previous == before && d.Config.Epoch.Lineage == before.Lineage
	}
	for _, id := range []string{"a", "b", "c"} {
		w.kill(id)
	}
	for i := 0; e.s.config.Epoch == before && i < 100; i++ {
		w.run(time.Millisecond)
	}
	delayed := e.s.config
	w.kill("e")
	for _, n := range followers {
		for i := 0; n.s.fork.kind != forkFollows && i < 100; i++ {
			w.run(time.Millisecond / 4)
		}
	}
	for _, n := range followers {
		if n.s.fork.kind != forkFollows || delayed.Previous != n.s.config.Epoch {
			t.Fatalf("%s is in %v, and its child is %+v; e decided %v", n.id, n.s.config,
				n.s.fork, delayed)
		}
		w.step(n, Received{e.s.me.Boot, Decided{delayed}})
	}
	w.run(5 * second)
	if w.wrong != "" {
		t.Error(w.wrong)
	}
	if missing := w.agreed(); missing != "" {
		t.Error(missing)
	}
	if z := w.node("z").s.me.Boot; z != first {
		t.Errorf("z is boot %d, not %d: its child has given way", z, first)
	}
	if t.Failed() {
		w.status()
		t.Log(strings.Join(w.log, "\n"))
	}
}

// Promise: a member that wishes to leave does so, also if a renewal from before comes behind one
// that says so. Its members would make it an owner again, when it has given its right up.
func TestOvertakenRenewalTakesNoWishBack(t *testing.T) {
	w := newWorld(1, 3)
	w.trio("a", "b", "c")
	a, b := w.node("a"), w.node("b")
	overtaken := Renew{Epoch: b.s.config.Epoch, Sent: Instant(w.now)}
	w.run(50 * time.Millisecond)
	w.step(b, Leave{})
	for i := 0; !a.s.entry(b.s.me.Boot).leaving && i < 200; i++ {
		w.run(time.Millisecond / 4)
	}
	if !a.s.entry(b.s.me.Boot).leaving || a.s.config.Epoch != overtaken.Epoch {
		t.Fatalf("a has not heard that b leaves, or is in %v already", a.s.config)
	}
	w.step(a, Received{b.s.me.Boot, overtaken})
	if e := a.s.entry(b.s.me.Boot); !e.leaving || e.stays {
		t.Error("a believes that b stays")
	}
}
