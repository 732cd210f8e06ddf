package ownership

import (
	"strings"
	"testing"
	"time"
)

// deletion takes a rule out, and shows what goes wrong: in a written interleaving of a world, which
// is tried at several instants where the moment matters, or by exploring a small setting.
type deletion struct {
	name   string
	rule   rule
	play   func(w *world, try int) (wrong string) // what is wrong besides w.wrong
	tries  int
	search *setting
}

const second = time.Second

// trioWorld is a, b and c, founded together.
func (w *world) trio(ids ...string) {
	w.lossy = true
	for _, id := range ids {
		w.start(id, ids...)
	}
	w.run(2 * second)
}

func (w *world) pairAndCut() {
	w.trio("a", "b")
	w.sever("a", "b", true)
	w.run(2 * second)
}

var cuts = tick | notice | cutLink

var deletions = []deletion{
	{name: "R1 lineage", rule: ruleLineage, search: &setting{
		begin: trio("ab", 1, 2), kinds: cuts,
		faults: 2,
	}},
	{name: "R1 concede", rule: ruleConcede, play: func(w *world, _ int) string {
		w.pairAndCut()
		clear(w.cut)
		w.run(3 * second)
		return w.agreed()
	}},
	{name: "R2 chain", rule: ruleChain, tries: 40, play: sleptThroughItsEviction},
	{name: "R3 one epoch", rule: ruleOneEpoch, play: func(w *world, _ int) string {
		w.trio("a", "b", "c")
		w.sever("a", "b c", true)
		w.run(2 * second)
		clear(w.cut)
		w.drop = func(_, to string, m Message) bool { _, is := m.(Decided); return is && to == "a" }
		w.run(second)
		return ""
	}},
	{name: "R3 learn", rule: ruleLearn, search: &setting{
		begin: fresh, kinds: tick | freeze | thaw,
		faults: 1,
	}},
	{name: "R3 margin", rule: ruleMargin, tries: 40, play: fastVoters},
	{name: "R4 canvass", rule: ruleCanvass, play: func(w *world, _ int) string {
		w.trio("a", "b", "c") // a does not hear b; c does, and so b stays
		w.cut[[2]string{"b", "a"}] = true
		w.run(3 * second)
		return same(w, "b", 2)
	}},
	{name: "R4 seal", rule: ruleSeal, play: acceptedAndStillAcknowledging},
	{name: "R4 quiet", rule: ruleQuiet, tries: 40, play: fastVoters},
	{name: "R4 finish", rule: ruleFinish, play: func(w *world, _ int) string {
		w.trio("a", "b", "c") // a has sealed the others, and loses power
		old := w.node("a").s.config
		next := &Configuration{
			Epoch: Epoch{old.Epoch.Lineage, old.Epoch.Number + 1}, Previous: old.Epoch,
			Members: old.Members[1:], Voters: []Boot{2, 3},
		}
		w.node("a").up = false
		for _, id := range []string{"b", "c"} {
			w.step(w.node(id), Received{1, Accept{16, next}})
		}
		w.run(3 * second)
		return w.agreed()
	}},
	{name: "R4 stopped", rule: ruleStopped, tries: 20, play: func(w *world, try int) string {
		// two voters stop for a second; what a has sent them lies in their queues
		w.trio("a", "b", "c")
		w.run(time.Duration(try) * 10 * time.Millisecond)
		w.freeze("b")
		w.freeze("c")
		w.run(second)
		w.node("b").frozen, w.node("c").frozen = false, false
		w.step(w.node("c"), Poll{})
		w.step(w.node("b"), Poll{})
		w.run(5 * time.Millisecond)
		w.run(second)
		return same(w, "a", 1)
	}},
	{
		name: "R5 late", rule: ruleLate,
		search: &setting{begin: asleep, kinds: tick | thaw | charge | answer, faults: 0},
	},
	{name: "R5 suspended", rule: ruleSuspended, search: &setting{
		begin: trio("ab", 1, 2),
		kinds: tick | hide | thaw, faults: 1,
	}},
	{name: "R5 drift", rule: ruleDrift, play: func(w *world, _ int) string {
		w.start("a", "a", "b", "c").rate = 850 // 15 % slow
		w.trio2("b", "c")
		w.sever("a", "b c", true)
		w.run(2 * second)
		return ""
	}},
	{name: "R6 both", rule: ruleBoth, search: &setting{
		begin: trio("ab", 1, 2),
		kinds: tick | filter, faults: 1,
	}},
	{name: "R6 door", rule: ruleDoor, search: &setting{
		begin: trio("ab", 1, 2),
		kinds: tick | notice | shut, faults: 1,
	}},
	{name: "R6 lines", rule: ruleLines, play: func(w *world, _ int) string {
		w.trio("a", "b", "c") // a filter resets a's lines at both ends, and then refuses
		a := w.node("a")
		w.sever("a", "b c", true)
		w.step(a, LineEnded{2})
		w.step(a, LineEnded{3})
		for _, id := range []string{"b", "c"} {
			w.step(w.node(id), LineEnded{1})
			w.step(w.node(id), AddressRefused{1})
		}
		w.run(second)
		return ""
	}},
	{name: "R7 ready", rule: ruleReady, play: func(w *world, _ int) string {
		w.start("a")
		w.run(second)
		w.start("b", "a", "b")
		w.run(40 * time.Millisecond)
		w.node("b").up = false // it has asked, and loses power
		w.run(3 * second)
		if w.node("a").s.Marked() || !w.node("a").s.Deciding(w.node("a").clock(w.now)) {
			return "a newcomer that never came up stops a"
		}
		return ""
	}},
	{name: "R7 mass", rule: ruleMass, play: func(w *world, _ int) string {
		w.trio("a", "b", "c", "d", "e") // a switch restarts
		w.sever("d e", "a b c", true)
		w.run(1500 * time.Millisecond)
		clear(w.cut)
		w.run(second)
		return same(w, "d", 4)
	}},
	{name: "R8 equal", rule: ruleEqual, play: func(w *world, _ int) string {
		w.doubles = true
		w.trio("a", "b", "c", "d")
		w.step(w.node("a"), Leave{})
		w.run(2 * second)
		w.start("a", "a", "b")
		w.run(2 * second)
		w.again(func(x sent) bool { _, gift := x.m.(Gift); return gift })
		w.run(second)
		return ""
	}},
	{name: "R8 all", rule: ruleAll, play: func(w *world, _ int) string {
		w.trio("a", "b", "c") // b holds 1; a newcomer in front of it asks a and c
		w.drop = func(from, to string, m Message) bool {
			_, is := m.(Claim)
			_, by := m.(Relayed)
			return (is || by) && (to == "b" || to == "a")
		}
		w.start("aa", "a", "b", "c")
		w.run(2 * second)
		return ""
	}},
	{name: "R9 copies", rule: ruleCopies, play: func(w *world, _ int) string {
		w.doubles = true
		w.trio("a", "b", "c")
		w.kill("b")
		w.run(second)
		kept := 0
		w.drop = func(_, _ string, m Message) bool {
			if k, is := m.(CopyKept); is && k.Epoch != w.node("a").s.config.Epoch {
				kept++
			}
			return false
		}
		w.again(func(x sent) bool { _, copy := x.m.(CopyOf); return copy && x.from == 2 })
		if kept > 0 {
			return "an heir that has claimed acknowledges a copy of an older epoch"
		}
		return ""
	}},
	{name: "R10 relay", rule: ruleRelay, play: func(w *world, _ int) string {
		w.trio("a", "b", "c", "d")
		w.sever("a", "c", true)
		w.kill("b")
		w.run(3 * second)
		return w.agreed()
	}},
	{name: "R10 step down", rule: ruleStepDown, play: func(w *world, _ int) string {
		w.trio("a", "b", "c", "d", "e")
		for _, id := range []string{"b", "c", "d"} {
			w.step(w.node(id), Unreached{1})
		}
		w.run(3 * second)
		if same(w, "a", 1) == "" {
			return "an owner stays that most members do not reach"
		}
		return ""
	}},
	{name: "R4 sure", rule: ruleSure, play: func(w *world, _ int) string {
		w.trio("a", "b", "c", "d", "e")
		w.sever("a", "b", true)
		w.sever("c", "d", true)
		w.run(2 * second)
		gone := w.node("e").s.me.Boot
		w.kill("e")
		w.run(100 * time.Millisecond)
		if w.node("a").s.config.Has(gone) {
			return "a process that is gone stays, for lines between others are cut"
		}
		return ""
	}},
	{name: "R4 fresh", rule: ruleFresh, play: func(w *world, _ int) string {
		w.trio("a", "b", "c", "d", "e")
		w.sever("e", "a b", true)
		w.run(700 * time.Millisecond) // a and b would let e go
		w.sever("e", "b", false)
		w.run(second)
		w.sever("e", "c", true)
		for range 200 {
			w.run(10 * time.Millisecond)
			for _, id := range []string{"a", "b", "c", "d"} {
				if n := w.node(id); !n.s.Deciding(n.clock(w.now)) {
					return id + " has no right, for two of five do not hear a third one"
				}
			}
		}
		return ""
	}},
	{name: "R10 both ways", rule: ruleBothWays, play: func(w *world, _ int) string {
		w.trio("a", "b", "c")
		w.cut[[2]string{"a", "b"}], w.cut[[2]string{"c", "a"}] = true, true
		w.run(600 * time.Millisecond)
		w.step(w.node("a"), Unreached{2})
		w.step(w.node("a"), Unreached{3})
		w.step(w.node("c"), Unreached{1})
		w.run(3 * second)
		if w.node("b").s.config.Has(1) {
			return "a member stays that hears no acknowledgement"
		}
		return ""
	}},
	{name: "R11 secede", rule: ruleSecede, play: func(w *world, _ int) string {
		w.trio("a", "b", "c", "d", "e")
		for _, id := range []string{"a", "b", "c"} {
			w.kill(id)
		}
		w.run(10 * time.Millisecond)
		w.sever("d", "e", true)
		w.run(3 * second)
		return ""
	}},
	{name: "R8 gift", rule: ruleGift, tries: 20, play: giftFromTheDead},
	{name: "R12 vote once", rule: ruleVoteOnce, play: func(w *world, _ int) string {
		// c hears two founders that do not hear each other, and not that the first has founded
		w.lossy = true
		w.sever("a d", "b e", true)
		w.drop = func(from, to string, m Message) bool {
			_, decided := m.(Decided)
			c := w.node("c")
			apart := c != nil && c.s.stage == StageJoined &&
				strings.Contains("ac ca dc cd", from+to)
			return decided && from+to == "ac" || apart
		}
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			w.start(id, "a", "b", "c", "d", "e")
		}
		w.run(5 * second)
		return ""
	}},
	{name: "R12 founded wins", rule: ruleFoundedWins, play: func(w *world, _ int) string {
		w.lossy = true
		w.start("a", "a", "b", "c")
		w.start("c", "a", "b", "c")
		w.run(2 * second)
		w.kill("c")
		w.run(second)
		w.start("b", "a", "b", "c")
		w.start("c", "a", "b", "c")
		w.run(2 * second)
		return ""
	}},
	{name: "R13 rival", rule: ruleRival, search: &setting{
		begin: trio("ab", 1, 2), kinds: cuts,
		faults: 2,
	}},
	{name: "R13 undecided", rule: ruleUndecided, tries: 120, play: func(w *world, try int) string {
		w.trio("a", "b")
		w.step(w.node("b"), Leave{})
		w.run(time.Duration(try) * time.Millisecond / 2)
		w.sever("a", "b", true)
		w.run(3 * second)
		return ""
	}},
	{name: "R13 half", rule: ruleHalf, tries: 80, play: halvesAndAThird},
	{name: "R13 grow", rule: ruleGrow, play: func(w *world, _ int) string {
		w.pairAndCut() // c joins b's half, b dies, and only then a hears of b again
		w.sever("a", "c", true)
		w.start("c", "b", "c")
		w.run(2 * second)
		w.kill("b")
		w.sever("a", "b", false)
		w.run(3 * second)
		return ""
	}},
	{name: "a name in use", rule: ruleName, play: func(w *world, _ int) string {
		w.trio("a", "b", "c")
		w.twin("b")
		w.run(2 * second)
		if w.node("b'").up {
			return "a second process of the name b is not refused"
		}
		return ""
	}},
}

// trio2 starts those that join one that is started already.
func (w *world) trio2(ids ...string) {
	w.lossy = true
	for _, id := range ids {
		w.start(id, "a", "b", "c")
	}
	w.run(2 * second)
}

// same reports whether a node still has the boot that it had.
func same(w *world, id string, b Boot) string {
	if n := w.node(id); n.s.me.Boot != b || !n.s.config.Has(b) || !n.s.Deciding(n.clock(w.now)) {
		return id + " was evicted though most voters hear it"
	}
	return ""
}

// sleptThroughItsEviction: c is cut off and evicted; an old Join of it is doubled, so that it is a
// member again as soon as it is heard. It must not go on with what it held two epochs ago.
func sleptThroughItsEviction(w *world, try int) string {
	w.doubles = true
	w.trio("a", "b", "c", "d")
	w.kill("c")
	w.run(second)
	w.start("c", "a", "b", "d")
	w.run(second)
	boot := w.node("c").s.me.Boot
	w.sever("c", "a b d", true)
	w.drop = func(_, to string, m Message) bool { // what evicted c is lost once more
		d, is := m.(Decided)
		return is && to == "c" && !d.Config.Has(boot)
	}
	w.run(2*second + time.Duration(try)*5*time.Millisecond)
	clear(w.cut)
	w.again(func(x sent) bool { _, join := x.m.(Join); return join && x.from == boot })
	w.run(second)
	return ""
}

// fastVoters: the clock of a is slow and those of the others are fast, all within what is assumed.
func fastVoters(w *world, try int) string {
	w.trio("a", "b", "c")
	for _, n := range w.nodes {
		rate := int64(1018)
		if n.id == "a" {
			rate = 982
		}
		n.offset, n.rate = n.clock(w.now)-w.now*Instant(rate)/1000, rate
	}
	w.run(2*second + time.Duration(try)*5*time.Millisecond)
	w.sever("a", "b c", true)
	w.run(second)
	return ""
}

// acceptedAndStillAcknowledging: b has a's eviction accepted by c, and does not hear so; c hears a
// again before b decides.
func acceptedAndStillAcknowledging(w *world, _ int) string {
	w.trio("a", "b", "c")
	w.sever("a", "b c", true)
	deaf := true
	w.drop = func(from, to string, m Message) bool {
		_, accepted := m.(Accepted)
		_, decided := m.(Decided)
		return accepted && to == "b" && deaf || decided && to == "a" || accepted && from == "b"
	}
	for range 100 {
		if w.run(10 * time.Millisecond); w.node("c").s.voter.accepted != 0 {
			break
		}
	}
	w.sever("a", "c", false)
	w.node("a").s.renewed = never // a happens to renew now
	w.run(30 * time.Millisecond)
	deaf = false
	w.run(second)
	return ""
}

// fresh is one voter that has just made all three vote: the new ones have acknowledged nothing yet.
func fresh(p *Params) *model {
	m := trio("abc", 1)(tickParams(0))
	m.p = p
	for i := range m.nodes {
		m.nodes[i].s.p = p
		next := &Configuration{
			Epoch:    Epoch{Founded(9), m.nodes[i].s.config.Epoch.Number + 1},
			Previous: m.nodes[i].s.config.Epoch,
			Members:  m.nodes[i].s.config.Members, Voters: []Boot{1, 2, 3},
		}
		m.nodes[i].s.entry(1).renewed = never
		m.nodes[i].s.enters(m.now, next)
	}
	return m
}

// asleep is a machine that stopped between the door and the lock, was cut off, and is replaced.
func asleep(p *Params) *model {
	m := trio("abc", 1, 2, 3)(p)
	m.faults = 9
	for _, v := range []move{{read, 0, 0}, {cutLink, 0, 1}, {cutLink, 0, 2}, {freeze, 0, 0}} {
		m.do(v)
	}
	return m
}

// halvesAndAThird: a pair parts while c joins, which hears both. Only one half goes on, unless c
// was no member yet, and when they meet all is well.
func halvesAndAThird(w *world, try int) string {
	w.lossy = true
	w.start("a")
	w.run(second)
	w.start("b", "a", "b")
	w.run(second)
	w.start("c", "a", "b", "c")
	w.run(time.Duration(try) * 2 * time.Millisecond)
	w.sever("a", "b", true)
	decides := func(id string) bool { n := w.node(id); return n.s.Deciding(n.clock(w.now)) }
	for range 60 {
		w.run(50 * time.Millisecond)
		if decides("a") && decides("b") && w.node("c").s.stage == StageJoined &&
			w.node("a").s.config.Epoch.Lineage != w.node("b").s.config.Epoch.Lineage {
			return "both halves of the pair go on, though c hears both"
		}
	}
	if !decides("a") && !decides("b") && w.node("a").s.voter.accepted == 0 {
		return "neither half of the pair goes on"
	}
	clear(w.cut)
	w.run(3 * second)
	return w.agreed()
}

// giftFromTheDead: b and c admit a while d cannot be heard, give it a partition, and are killed. d
// goes on at once, for its right is valid: a newcomer that it has never answered must not decide.
func giftFromTheDead(w *world, try int) string {
	w.trio("b", "c", "d")
	w.sever("d", "a b c", true)
	w.start("a", "b", "c", "d")
	w.run(20*time.Millisecond + time.Duration(try)*10*time.Millisecond)
	// so it does not see that they are gone, and goes on while its right lasts
	w.sever("a", "b c", true)
	w.kill("b")
	w.kill("c")
	w.sever("d", "b c", false)
	w.run(second)
	return ""
}

// TestDeletions takes out one rule at a time. With the rule nothing is wrong; without it something
// is.
func TestDeletions(t *testing.T) {
	for _, d := range deletions {
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			if why, _ := d.try(0); why != "" {
				t.Errorf("with all rules: %s", why)
			}
			why, story := d.try(d.rule)
			if why == "" {
				t.Fatalf("without the rule nothing is wrong")
			}
			t.Logf("without the rule: %s\n%s", why, story)
		})
	}
}

func (d *deletion) try(without rule) (why, story string) {
	if d.search != nil {
		s := *d.search
		s.without, s.name, s.epochs = without, d.name, max(s.epochs, 3)
		e := newExplorer(s)
		way, why := e.run(20000)
		if way == nil {
			return "", ""
		}
		return why, e.tell(way, why)
	}
	for try := range max(1, d.tries) {
		w := newWorld(1, 3, without)
		why := d.play(w, try)
		if w.wrong != "" {
			why = w.wrong
		}
		if why != "" {
			return why, strings.Join(w.log[max(0, len(w.log)-25):], "\n")
		}
	}
	return "", ""
}
