package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/cluster/debts"
	"penstock/cluster/dedup"
	"penstock/limiter"
)

// hush has calls to a node go unanswered: its process is stopped. It returns a function that lets
// it go on.
func (w *world) hush(id string) (goOn func()) {
	quiet := true
	w.meet = func(c *Call, deliver func() *Answer) {
		if quiet && (c.To.ID == id || w.caller == id) {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	return func() { quiet = false }
}

// Promise: what shares admitted while an owner was silent is charged once to the node that decides
// afterwards, and so comes off what the limit still admits.
func TestWhatSharesAdmittedIsCharged(t *testing.T) {
	thirty := limiter.Spec{
		Name: "thirty", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 30, Per: time.Hour,
	}
	w := newWorld(t, 3, thirty)
	key := w.key("n2", 0)
	admitted := 0
	ask := func(node string) Decision {
		d := w.take(node, "thirty", key)
		if d.Allowed {
			admitted++
		}
		return d
	}
	for range 5 {
		ask("n1")
	}
	w.pass(time.Second)

	w.hush("n2")
	fallen := 0
	for range 8 {
		for _, node := range []string{"n1", "n3"} {
			if d := ask(node); d.Source == SourceFallback && d.Allowed {
				fallen++
			}
		}
	}
	if fallen == 0 {
		t.Fatal("nobody has fallen back: the test shows nothing")
	}
	w.pass(3 * time.Second) // its heir takes over, and hears what is owed
	for range 40 {
		if d := ask("n1"); d.Degraded {
			t.Fatalf("after the heir has taken over: %+v", d)
		}
	}
	if admitted != 30 {
		t.Errorf("%d of 30 are admitted in all, %d of them from shares", admitted, fallen)
	}
	for _, id := range []string{"n1", "n3"} {
		if s := w.nodes[id].Stats(); s.Settled.Load() == 0 || s.Forgiven.Load() != 0 ||
			w.nodes[id].debts.ledger.Len() != 0 {
			t.Errorf("%s: %d settled, %d forgiven, %d left", id, s.Settled.Load(),
				s.Forgiven.Load(), w.nodes[id].debts.ledger.Len())
		}
	}
}

// Promise: … but not a second time by a node that may have charged it already without an answer.
func TestWhatMayHaveBeenChargedIsNotOwed(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	deaf := true
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Answer = deliver(); deaf && len(c.Ask.Items) > 0 && c.To.ID == "n2" {
			c.Answer, c.Err = nil, errSilent // it is charged, and the answer lost
		}
	}
	if d := w.take("n1", "five", key); d.Source != SourceFallback || !d.Allowed {
		t.Fatalf("%+v", d)
	}
	deaf = false
	w.pass(5 * time.Second)
	if left := w.remaining("n2", "five", key); left != 4 {
		t.Errorf("%d of 5 are left after one take that was charged though its answer got lost",
			left)
	}
	if s := w.nodes["n1"].Stats(); s.Forgiven.Load() != 1 || s.Settled.Load() != 0 {
		t.Errorf("%d forgiven, %d settled", s.Forgiven.Load(), s.Settled.Load())
	}
}

// Promise: … whichever node was asked in vain after that one: the heir, if its answer gets lost as
// well, or the owner of the key, for which the heir is asked.
func TestWhatSeveralMayHaveChargedIsNotOwed(t *testing.T) {
	for _, byTheHeir := range []bool{false, true} {
		w, key := relayWorld(t)
		if !byTheHeir {
			w.nodes["n1"].view.Load().peers[1].Succeed() // it has not found out yet
		}
		relaying := false
		w.meet = func(c *Call, deliver func() *Answer) {
			if len(c.Ask.Items) > 0 && byTheHeir && c.To.ID == "n2" && !relaying {
				c.Err = ErrUnsent
				return
			}
			relaying = c.To.ID == "n3"
			deliver()
			relaying, c.Err = false, errSilent
		}
		if d := w.take("n1", "five", key); d.Source != SourceFallback || !d.Allowed {
			t.Fatalf("%t: %+v", byTheHeir, d)
		}
		w.meet = nil
		if w.pass(5 * time.Second); w.remaining("n2", "five", key) != 4 {
			t.Errorf("%t: %d of 5 are left after one take that was charged though its answer "+
				"got lost", byTheHeir, w.remaining("n2", "five", key))
		}
	}
}

// Promise: … nor by way of the heir, which reaches that one all the same: it has not taken over.
func TestWhatMayHaveBeenChargedIsNotOwedThroughTheHeir(t *testing.T) {
	w, key := relayWorld(t)
	w.nodes["n1"].view.Load().peers[1].Succeed() // it has not found out yet
	speakers, early := []string{"n1"}, true
	w.meet = func(c *Call, deliver func() *Answer) { // nothing passes from n2 to n1
		from := speakers[len(speakers)-1]
		if c.Ask.Move != nil {
			from = c.Ask.Move.ID
		}
		switch c.Err = errSilent; {
		case from == "n2" && c.To.ID == "n1":
			return
		case early && c.To.ID == "n3" && len(c.Ask.Items) > 0:
			c.Err = ErrUnsent
			return
		}
		speakers = append(speakers, c.To.ID)
		answer := deliver()
		speakers = speakers[:len(speakers)-1]
		if from != "n1" || c.To.ID != "n2" {
			c.Answer, c.Err = answer, nil
		}
	}
	if d := w.take("n1", "five", key); d.Source != SourceFallback || !d.Allowed {
		t.Fatalf("%+v", d)
	}
	early = false
	w.pass(10 * time.Second)
	if left := w.remaining("n2", "five", key); left != 4 {
		t.Errorf("%d of 5 are left after one take that was charged though its answer got lost",
			left)
	}
}

// Promise: a minority's shares are charged when the cut is healed.
func TestWhatAMinorityAdmittedIsCharged(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	heal := w.cutOff()
	if d := w.take("n1", "five", key); d.Source != SourceFallback || !d.Allowed ||
		!w.nodes["n1"].right.minority.Load() {
		t.Fatalf("%+v", d)
	}
	if w.pass(2 * time.Second); w.nodes["n1"].debts.ledger.Len() != 1 {
		t.Errorf("%d are owed during the cut", w.nodes["n1"].debts.ledger.Len())
	}
	heal()
	w.pass(5 * time.Second)
	if left := w.remaining("n3", "five", key); left != 4 {
		t.Errorf("%d of 5 are left after the minority has admitted one", left)
	}
}

// Promise: … nor if its client, which has heard nothing, has had it charged by way of another node,
// before this one answers or after that. What the limit has no room for it is charged as far as the
// limit reaches, and a repeat is refused.
func TestTakeThatIsRepeatedElsewhereIsChargedOnce(t *testing.T) {
	for _, row := range []struct {
		name   string
		before bool // it is repeated before the share answers
		there  int64
		left   int64 // in the end
		admits bool  // the repeat is let in
	}{
		{"first at the other node", true, 5, 4, true},
		{"first from the share", false, 5, 4, true},
		{"there is no room", false, 0, 0, false},
	} {
		w := newWorld(t, 3, five)
		key := w.key("n2", 0)
		for w.remaining("n2", "five", key) > row.there {
			w.take("n2", "five", key)
		}
		item := Item{Limit: "five", Key: key, Cost: 1, ID: ID{Origin: 9, Sequence: 9}}
		repeat := func() {
			if d := w.check("n3", item)[0]; d.Allowed != row.admits || d.Degraded {
				t.Errorf("%s: n3 answers %+v", row.name, d)
			}
		}
		if row.before {
			repeat()
		}
		w.meet = func(c *Call, _ func() *Answer) { c.Err = ErrUnsent }
		d := w.check("n1", item)[0]
		if w.meet = nil; d.Source != SourceFallback {
			t.Fatalf("%s: n1 answers %+v", row.name, d)
		}
		if w.pass(time.Second); !row.before {
			repeat()
		}
		if left := w.remaining("n2", "five", key); left != row.left || !d.Allowed {
			t.Errorf("%s: %d of 5 are left; want %d; the share has said %+v", row.name, left,
				row.left, d)
		}
	}
}

// Promise: … and so is each of the takes that stand or fall together, if they were repeated before
// they are reported.
func TestTakesThatAreRepeatedTogetherAreChargedOnce(t *testing.T) {
	// without an ID the second take is named by the first
	for _, second := range []ID{{Origin: 9, Sequence: 10}, {}} {
		testTakesThatAreRepeatedTogether(t, second)
	}
}

func testTakesThatAreRepeatedTogether(t *testing.T, second ID) {
	t.Helper()
	six := five
	six.Name, six.Limit = "six", 6
	w := newWorld(t, 3, five, six)
	key := w.key("n2", 0)
	items := []Item{
		{Limit: "five", Key: key, Cost: 1, ID: ID{Origin: 9, Sequence: 9}},
		{Limit: "six", Key: key, Cost: 1, ID: second},
	}
	if d, all := w.takeAll("n3", items...); !all || d[0].Degraded {
		t.Fatalf("n3 answers %+v", d)
	}
	w.meet = func(c *Call, _ func() *Answer) { c.Err = ErrUnsent }
	d, all := w.takeAll("n1", items...)
	if w.meet = nil; !all || d[0].Source != SourceFallback {
		t.Fatalf("n1 answers %+v", d)
	}
	w.pass(time.Second)
	for i, left := range []int64{4, 5} {
		if got := w.remaining("n2", items[i].Limit, key); got != left {
			t.Errorf("%d of %s are left; want %d", got, items[i].Limit, left)
		}
	}
}

// Promise: … and so is a take that is reported at once, because its key would feel a refusal.
func TestTakeThatIsReportedIsChargedOnce(t *testing.T) {
	counting := limiter.Spec{
		Name: "counting", Algorithm: limiter.FixedWindow, Limit: 9, Per: time.Hour,
		CountRejected: true,
	}
	w := newWorld(t, 3, counting)
	key := w.key("n2", 0)
	item := Item{Limit: "counting", Key: key, Cost: 1, ID: ID{Origin: 9, Sequence: 9}}
	if d := w.check("n3", item)[0]; !d.Allowed || d.Degraded {
		t.Fatalf("n3 answers %+v", d)
	}
	w.meet = func(c *Call, _ func() *Answer) { c.Err = ErrUnsent }
	d := w.check("n1", item)[0]
	if w.meet = nil; d.Source != SourceFallback || !d.Allowed {
		t.Fatalf("n1 answers %+v", d)
	}
	w.pass(time.Second)
	if left := w.remaining("n2", "counting", key); left != 8 {
		t.Errorf("%d of 9 are left; want 8", left)
	}
}

// Promise: … also if the yes of its holder is lost, and the key is handed over before the report.
func TestTakeOfAHolderThatLeftIsChargedOnce(t *testing.T) {
	counting := limiter.Spec{
		Name: "counting", Algorithm: limiter.FixedWindow, Limit: 9, Per: time.Hour,
		CountRejected: true,
	}
	for _, id := range []ID{{}, {Origin: 9, Sequence: 9}} {
		w := newWorld(t, 3, counting)
		w.pass(time.Second)
		ms := w.members(3)
		ms[1].State = StateLeaving
		key, lost := w.key("n2", 0), true
		w.meet = func(c *Call, deliver func() *Answer) {
			if !lost || w.caller != "n1" || len(c.Ask.Items) == 0 {
				c.Answer = deliver()
				return
			}
			if c.Err = ErrUnsent; c.To.ID == "n2" {
				deliver()
				w.nodes["n1"].SetView(w.view("n1", ms))
				c.Err = errors.New("lost on the way back")
			}
		}
		item := Item{Limit: "counting", Key: key, Cost: 1, ID: id}
		if d := w.check("n1", item)[0]; d.Source != SourceFallback || !d.Allowed {
			t.Fatalf("n1 answers %+v", d)
		}
		lost = false
		w.show(ms, 0, "n2", "n3")
		w.pass(time.Second)
		for _, n := range w.nodes {
			if !n.Holds(limiter.Hash(key)) {
				continue
			}
			if left := w.remaining(n.ID(), "counting", key); left != 8 || n.ID() == "n2" {
				t.Errorf("%s has %d of 9 left; want 8, and n2 to have left", n.ID(), left)
			}
		}
	}
}

// Promise: the holder is asked for a take that a share has admitted, and told by a report if it
// refuses. A take that would change its key although it is refused, or is not remembered by its
// own ID, is reported at once; and so is one that no holder remembers any more.
func TestWhichTakesAreAskedForAgain(t *testing.T) {
	take := ID{Origin: 9, Sequence: 9}
	limit := func(change func(*limiter.Spec)) limiter.Spec {
		s := limiter.Spec{
			Name: "drawn", Algorithm: limiter.FixedWindow, Limit: 9, Per: time.Hour,
		}
		change(&s)
		return s
	}
	for _, row := range []struct {
		name   string
		spec   limiter.Spec
		change func(*Request)
		silent time.Duration // so long the holder is not reached
		asked  string        // what it hears of the key in turn
	}{
		{"plain", limit(func(*limiter.Spec) {}), nil, 0, "take report"},
		{
			"late", limit(func(*limiter.Spec) {}), nil, dedup.Lasts + time.Second,
			"report",
		},
		{
			"a refused take counts", limit(func(s *limiter.Spec) { s.CountRejected = true }), nil,
			0, "report",
		},
		{
			"a refused take puts refills off", limit(func(s *limiter.Spec) {
				s.Algorithm, s.Anchor, s.Strict = limiter.TokenBucket, limiter.FirstHit, true
			}), nil, 0, "report",
		},
		{"its client reports it", limit(func(*limiter.Spec) {}), func(r *Request) {
			r.Items[0].Report = true
		}, 0, "report"},
		{"with another one", limit(func(*limiter.Spec) {}), func(r *Request) {
			r.Atomic, r.Items = true, append(r.Items, r.Items[0])
			r.Items[1].ID.Sequence++
		}, 0, "report report"},
	} {
		w := newWorld(t, 3, row.spec)
		key := w.key("n2", 0)
		for w.remaining("n2", "drawn", key) > 0 {
			w.take("n2", "drawn", key)
		}
		r := &Request{Items: []Item{{Limit: "drawn", Key: key, Cost: 1, ID: take}}}
		if row.change != nil {
			row.change(r)
		}
		var heard []string
		reached := false
		w.meet = func(c *Call, deliver func() *Answer) {
			c.Err = ErrUnsent
			if !reached {
				return
			}
			for _, it := range c.Ask.Items {
				switch {
				case it.Report && it.ID != take:
					heard = append(heard, "report")
				case !it.Report && it.ID == take:
					heard = append(heard, "take")
				}
			}
			c.Answer, c.Err = deliver(), nil
		}
		out := make([]Decision, len(r.Items))
		if err := w.nodes["n1"].Check(r, out); err != nil || !out[0].Allowed {
			t.Fatalf("%s: %v, %+v", row.name, err, out[0])
		}
		w.pass(row.silent)
		reached = true
		w.pass(2 * time.Second)
		if got := strings.Join(heard, " "); got != row.asked {
			t.Errorf("%s: the holder hears %q; want %q", row.name, got, row.asked)
		}
	}
}

var errSilent = errors.New("no answer")

// Promise: … nor if this node has charged it itself before: a repeat of a take is no second one.
func TestRepeatIsNotOwed(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	item := Item{Limit: "five", Key: key, Cost: 1, ID: ID{Origin: 9, Sequence: 9}}
	if d := w.check("n2", item)[0]; d.Remaining != 4 {
		t.Fatalf("%+v", d)
	}
	w.meet = func(c *Call, deliver func() *Answer) { c.Err = errSilent }
	w.nodes["n2"].right.minority.Store(true)
	w.nodes["n2"].Relinquish()
	if d := w.check("n2", item)[0]; d.Source != SourceFallback || !d.Allowed ||
		w.nodes["n2"].debts.ledger.Len() != 0 {
		t.Errorf("%+v, %d owed", d, w.nodes["n2"].debts.ledger.Len())
	}
}

// Promise: what is owed is charged, also what may have been charged by somebody else, when others
// of its owners take long to answer.
func TestASlowOwnerKeepsNoneFromBeingCharged(t *testing.T) {
	w := newWorld(t, 3, five)
	n1, slow, doubted := w.nodes["n1"], w.key("n2", 0), w.key("n2", 1)
	l := (*n1.limits.Load())["five"]
	for i, key := range []string{slow, doubted} {
		x := debts.Debt{
			Limit: l, Key: key, Hash: limiter.Hash(key), Cost: 1, At: w.now,
			Report: ID{Origin: reportOrigin, Sequence: uint64(i)},
		}
		if key == doubted {
			x.Doubt = x.Doubt.With(w.nodes["n3"].boot)
		}
		n1.debts.ledger.Owe(&x)
	}
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Items) > 0 && w.now >= c.Deadline {
			t.Errorf("n1 asks for %s after the deadline of that", c.Ask.Items[0].Key)
		}
		if c.Answer = deliver(); len(c.Ask.Items) > 0 && c.Ask.Items[0].Key == slow {
			w.pass(DefaultCallTimeout)
		}
	}
	n1.debts.chargeSome()
	w.meet = nil
	for _, key := range []string{slow, doubted} {
		if left := w.remaining("n2", "five", key); left != 4 {
			t.Errorf("%d of 5 are left of %s, of which a share has admitted one", left, key)
		}
	}
}

// Promise: no more is admitted than the limit says. A refund of a request that takes from another
// owner as well is reported; if it was sent and not answered, no other node is told of it once the
// owner has died, for it has come there with a copy.
func TestRefundThatMayHaveBeenGivenIsNotReportedAgain(t *testing.T) {
	for _, lost := range []bool{true, false} {
		w := newWorld(t, 3, five)
		back := w.key("n3", 0)
		for range 4 {
			w.take("n3", "five", back)
		}
		w.pass(time.Second)
		reports := 0
		w.meet = func(c *Call, deliver func() *Answer) {
			if w.nodes[c.To.ID] == nil {
				c.Err = fmt.Errorf("%w, %w", ErrUnsent, ErrGone)
				return
			}
			report := len(c.Ask.Items) > 0 && c.Ask.Items[0].Report && c.Ask.Items[0].Cost < 0
			if reports > 0 && lost && w.caller == "n1" && c.To.ID == "n3" {
				c.Err = errSilent
				return
			}
			c.Answer = deliver()
			if report {
				if reports++; lost {
					c.Answer, c.Err = nil, errors.New("lost on the way back")
				}
			}
		}
		out := make([]Decision, 2)
		r := Request{Atomic: true, Items: []Item{
			{Limit: "five", Key: w.key("n2", 0), Cost: 1}, {Limit: "five", Key: back, Cost: -2},
		}}
		if err := w.nodes["n1"].Check(&r, out); err != nil || !out[0].Allowed {
			t.Fatalf("%v, %+v", err, out)
		}
		w.pass(300 * time.Millisecond)
		w.die("n3", w.members(3))
		w.pass(3 * time.Second)
		for _, n := range w.nodes {
			if n.View().Owns(limiter.Hash(back)) {
				if left := w.remaining(n.ID(), "five", back); left != 3 || reports != 1 {
					t.Errorf("lost %t: %d of five are left after %d reports; want 3 after one",
						lost, left, reports)
				}
			}
		}
	}
}

// Promise: a request that is retried is charged once. The client of a node that is stopped between
// its question and the yes of its share repeats the take at another node, before or after it goes
// on: the holder is asked for the take, and not told to charge it once more.
func TestTakeOfOneThatWasStoppedIsChargedOnce(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	key, id := w.key("n2", 0), ID{Origin: 7, Sequence: 1}
	item := Item{Limit: "five", Key: key, Cost: 1, ID: id}
	stopped := false
	w.meet = func(c *Call, deliver func() *Answer) {
		if w.caller != "n1" || len(c.Ask.Items) == 0 || stopped {
			c.Answer = deliver()
			return
		}
		stopped = true
		w.freeze("n1")
		w.pass(3 * time.Second)
		w.thaw("n1")
		c.Err = ErrUnsent
	}
	if d := w.check("n1", item)[0]; !d.Allowed || d.Source != SourceFallback {
		t.Fatalf("n1, which was stopped: %+v", d)
	}
	if d := w.check("n2", item)[0]; !d.Allowed || d.Degraded || d.Remaining != 4 {
		t.Fatalf("the repeat at the holder: %+v", d)
	}
	w.pass(5 * time.Second)
	if got := w.remaining("n2", "five", key); got != 4 || w.nodes["n1"].debts.ledger.Len() != 0 {
		t.Errorf("%d are left of 5 after one take", got)
	}
}
