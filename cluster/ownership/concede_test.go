package ownership

import (
	"testing"
	"time"
)

// Promise: of two lineages that meet the loser alone gives way. A member of the winner that has
// just given its right up, since it leaves, was stopped or has lost its lines, does not give way as
// well: then both would be lost. Once it has had no right for Mass it does, for then the loser may
// be the only one that decides.
func TestWinnerDoesNotGiveWay(t *testing.T) {
	loser := &Configuration{
		Epoch: Epoch{Founded(9), 7}, Members: []Member{{ID: "z", Boot: 9}}, Voters: []Boot{9},
	}
	for _, x := range []struct {
		name   string
		giveUp func(w *world, b *node)
	}{
		{"all leave, and it has nothing any more", func(w *world, b *node) {
			for _, n := range w.nodes {
				w.step(n, Leave{})
			}
			for i := 0; !b.s.right.ended && i < 500; i++ {
				w.run(time.Millisecond)
			}
		}},
		{"it was stopped", func(w *world, b *node) { w.step(b, Suspended{}) }},
		{"its lines have ended", func(w *world, b *node) {
			w.step(b, LineEnded{1})
			w.step(b, LineEnded{3})
		}},
	} {
		w := newWorld(1, 3)
		w.trio("a", "b", "c")
		b := w.node("b")
		x.giveUp(w, b)
		now := b.clock(w.now)
		if b.s.stage != StageJoined || b.s.Deciding(now) {
			t.Fatalf("%s: b is %v, and decides: %v", x.name, b.s.stage, b.s.Deciding(now))
		}
		gaveUp := b.s.right.had
		for _, at := range []Instant{now, gaveUp.Add(b.s.p.Mass) - 1, gaveUp.Add(b.s.p.Mass)} {
			s := b.s.clone()
			s.Step(at, Received{9, Hello{Member: loser.Members[0], Config: loser, Deciding: true}})
			late := at >= gaveUp.Add(s.p.Mass)
			if conceded := s.Ending() == Conceded; conceded != late {
				t.Errorf("%s, %v ago: it has given way: %v", x.name, at.Since(gaveUp), conceded)
			}
		}
	}
}

// Promise: the halves of a pair meet, and one of them goes on, whenever the winner is stopped
// meanwhile.
func TestWinnerOfAPairIsStopped(t *testing.T) {
	for after := time.Duration(0); after < 250*time.Millisecond; after += time.Millisecond {
		w := newWorld(1, 3)
		for _, id := range []string{"a", "b"} {
			w.start(id, "a", "b")
		}
		w.run(2 * second)
		w.sever("a", "b", true)
		w.run(2 * second)
		w.sever("a", "b", false)
		w.run(after)
		a := w.node("a")
		boot := a.s.me.Boot
		w.step(a, Suspended{})
		w.run(2 * second)
		if a.s.me.Boot != boot {
			t.Errorf("a was stopped %v after the cut, and has given way", after)
		}
		if missing := w.agreed(); missing != "" {
			t.Errorf("a was stopped %v after the cut: %s", after, missing)
		}
		if w.wrong != "" {
			t.Fatal(w.wrong)
		}
	}
}
