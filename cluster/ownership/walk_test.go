package ownership

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	walks    = flag.Int("ownership.walks", 60, "random walks to take")
	walkFrom = flag.Uint64("ownership.walk", 1, "seed of the first walk")
)

// seeds is how many a test takes that draws n: a fifth of them with -short. The race
// detector multiplies the time, and has nothing to find where all is one goroutine's.
func seeds(n int) uint64 {
	if testing.Short() {
		n = (n + 4) / 5
	}
	return uint64(n)
}

// TestWalks takes seeded walks through a small network with all faults at once. While faults go on
// nobody may decide beside another one unmarked; when they end, all must agree.
func TestWalks(t *testing.T) {
	events, recovered, refounded := 0, 0, 0
	for seed := *walkFrom; seed < *walkFrom+seeds(*walks); seed++ {
		w := walk(seed)
		events += w.events
		recovered += w.recovered
		if w.refounded {
			refounded++
			continue
		}
		if w.wrong == "" {
			continue
		}
		tail := w.log[max(0, len(w.log)-60):]
		for _, l := range tail {
			fmt.Println(l)
		}
		t.Fatalf("walk %d: %s\ngo test ./cluster/ownership -run TestWalks -ownership.walk=%d "+
			"-ownership.walks=1", seed, w.wrong, seed)
	}
	t.Logf("%d walks, %d events, %d with a recovery, %d left when majorities restarted in a cut",
		*walks, events, recovered, refounded)
}

// walk plays one seed.
func walk(seed uint64, without ...rule) *world {
	w := newWorld(seed, 3, without...)
	w.sleeps = seed%2 == 0
	w.begin()
	for range 6 + w.random.IntN(14) {
		if w.fault(); w.wrong != "" || w.refounded {
			return w
		}
		w.run(time.Duration(w.random.IntN(2500)) * time.Millisecond)
	}
	w.calm()
	return w
}

// begin starts 3 to 7 nodes, together or one after the other.
func (w *world) begin() {
	w.skewed = true
	var ids []string
	for i := range 3 + w.random.IntN(5) {
		ids = append(ids, string(rune('a'+i)))
	}
	together := w.random.IntN(2) == 0
	for i, id := range ids {
		switch {
		case together:
			w.start(id, ids...)
		case i == 0:
			w.start(id)
		default:
			w.start(id, "a", id)
			w.run(time.Duration(w.random.IntN(1500)) * time.Millisecond)
		}
	}
	w.run(2 * time.Second)
}

// some is a random node.
func (w *world) some() *node { return w.nodes[w.random.IntN(len(w.nodes))] }

// fault does one thing to the world, or mends one.
func (w *world) fault() {
	n, o := w.some(), w.some()
	w.lossy = true
	switch w.random.IntN(16) {
	case 0, 1:
		if n.up {
			w.kill(n.id)
		}
	case 2, 3:
		if !n.up {
			w.restart(n)
		}
	case 4:
		if n.up && !n.frozen {
			w.freeze(n.id)
		}
	case 5, 6:
		w.thaw(n.id)
	case 7:
		w.sever(n.id, o.id, true)
		w.say("%s | %s", n.id, o.id)
	case 8:
		w.cut[[2]string{n.id, o.id}] = true
		w.say("%s -x-> %s", n.id, o.id)
	case 9:
		w.divide()
	case 10, 11:
		clear(w.cut)
		w.say("healed")
	case 12:
		if n.up && !n.frozen {
			w.say("%s leaves", n.id)
			w.step(n, Leave{})
		}
	case 13:
		w.loss, w.double = w.random.IntN(2)*w.random.IntN(20), w.random.IntN(2)*w.random.IntN(20)
	case 14:
		if n.up && o.up && n != o {
			w.say("%s: a filter refuses for %s", n.id, o.id)
			w.step(n, AddressRefused{o.s.me.Boot})
		}
	case 15:
		if len(w.nodes) < 9 {
			id := string(rune('a' + len(w.nodes)))
			w.start(id, "a", "b", "c", id)
		}
	}
}

// divide cuts the nodes into two groups.
func (w *world) divide() {
	var a, b string
	for _, n := range w.nodes {
		if w.random.IntN(2) == 0 {
			a += n.id + " "
		} else {
			b += n.id + " "
		}
	}
	w.sever(a, b, true)
	w.say("%s| %s", a, b)
}

// restart starts a node again, which looks for all others.
func (w *world) restart(n *node) {
	var ids []string
	for _, o := range w.nodes {
		ids = append(ids, o.id)
	}
	w.say("%s is started", n.id)
	w.start(n.id, ids...)
}

// calm ends all faults. Where a majority was lost an operator says so, when waiting does not help.
func (w *world) calm() {
	clear(w.cut)
	w.loss, w.double = 0, 0
	w.say("calm")
	for _, n := range w.nodes {
		w.thaw(n.id)
		if !n.up {
			w.restart(n)
		}
	}
	for range 4 {
		for range 12 {
			if w.run(time.Second); w.wrong != "" || w.agreed() == "" {
				return
			}
		}
		w.operate()
	}
	w.wrong = "not agreed: " + w.agreed()
}

// operate is a recovery, on a survivor of the newest configuration, if nobody decides.
func (w *world) operate() {
	var best *node
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		if n.s.Deciding(n.clock(w.now)) {
			return
		}
		if best == nil || n.s.stage > best.s.stage ||
			n.s.stage == StageJoined && n.s.config.Epoch.Number > best.s.config.Epoch.Number {
			best = n
		}
	}
	if best != nil {
		w.recovered = 1
		w.say("recover on %s", best.id)
		w.step(best, Recover{})
	}
}

// TestCalmWalks takes walks in which nodes come, leave and are restarted one by one and nothing
// else happens: no charge is lost, and nobody ever has to mark anything.
func TestCalmWalks(t *testing.T) {
	for seed := *walkFrom; seed < *walkFrom+seeds(*walks)/3; seed++ {
		w := newWorld(seed, 3)
		w.sleeps = seed%2 == 0
		w.begin()
		for range 8 {
			n := w.some()
			switch {
			case !n.up:
				w.restart(n)
			case w.living() > 1:
				w.say("%s leaves", n.id)
				w.step(n, Leave{})
			}
			w.run(time.Duration(300+w.random.IntN(1500)) * time.Millisecond)
			if marked := slices.ContainsFunc(w.nodes, func(n *node) bool {
				return n.up && n.s.Marked()
			}); marked {
				w.wrong = cmp.Or(w.wrong, "marked")
			}
		}
		w.run(3 * time.Second)
		if w.wrong = cmp.Or(w.wrong, w.agreed()); w.wrong != "" {
			t.Fatalf("walk %d: %s\n%s", seed, w.wrong, strings.Join(w.log, "\n"))
		}
	}
}

// living is how many nodes are up and do not leave.
func (w *world) living() (n int) {
	for _, o := range w.nodes {
		if o.up && !o.s.leaving {
			n++
		}
	}
	return n
}
