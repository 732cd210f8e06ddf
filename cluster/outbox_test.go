package cluster

import (
	"slices"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// Promise: a node that leaves hands over what it holds, also to a node that is far away: an answer
// that takes longer than others is waited for.
func TestWhoIsFarAwayIsGivenTimeToAnswer(t *testing.T) {
	const way = moveTimeout * 5 / 2 // there and back
	w := newWorld(t, 2, five)
	const keys = 100
	w.spend(keys, "n1", "n2")
	w.pass(time.Second)
	most := w.now.Add(time.Minute)
	w.meet = func(c *Call, deliver func() *Answer) {
		m := c.Ask.Move
		if m == nil || m.ID != "n1" || m.Sequence == 0 {
			c.Answer = deliver()
			return
		}
		if w.now > most {
			t.Fatal("n1 says the same again and again")
		}
		answer, back := deliver(), w.now.Add(way)
		if w.Wait(min(back, c.Deadline)); back > c.Deadline {
			c.Err = errSilent
			return
		}
		c.Answer = answer
	}
	ms := w.members(2)
	ms[0].State = StateLeaving
	w.show(ms, 0, "n2", "n1")
	w.pass(20 * time.Second)
	if got := w.nodes["n1"].parts.Held(); got != 0 {
		t.Errorf("n1 has left, and %d partitions are not off its hands", got)
	}
	w.wantOneHolderEach("when n1 has left")
	w.wantRemaining("when n1 has left", keys, 3, "n2")
}

// Promise: nobody is denied for longer than the limit says. A state that has waited to be copied is
// as old as it is, also where a message before it was not answered for long.
func TestCopiesThatHaveWaitedAreAsOldAsTheyAre(t *testing.T) {
	w := newWorld(t, 2, five)
	key, before := w.key("n1", 0), w.key("n1", 1)
	w.pass(time.Second)
	heals := w.now.Add(3 * time.Second)
	var ends limiter.Instant // of key's window
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; w.now < heals && m != nil && m.Sequence != 0 {
			if ends == 0 {
				w.take("n1", "five", key)
				ends = w.now.Add(five.Per)
			}
			w.Wait(c.Deadline)
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	w.take("n1", "five", before)
	w.pass(6 * time.Second)
	w.kill("n1")
	w.meet = nil
	w.pass(time.Second)
	for range 5 {
		w.take("n2", "five", key)
	}
	d := w.take("n2", "five", key)
	if d.Allowed || d.Degraded || d.Owner != "n2" {
		t.Fatalf("n2 has not taken over: %+v", d)
	}
	if late := w.now.Add(d.ResetAfter) - ends; late != 0 {
		t.Errorf("the window ends %v late", time.Duration(late))
	}
}

// Promise: a node with late answers is waited for as briefly as others once they are quick.
func TestPatienceFollowsTheAnswers(t *testing.T) {
	var o outbox
	now := limiter.Instant(0)
	for i, step := range []struct {
		err   error
		takes time.Duration
		want  time.Duration
	}{
		{errSilent, 10 * time.Millisecond, moveTimeout}, // broken off, not late
		{errSilent, moveTimeout, 2 * moveTimeout},
		{errSilent, 2 * moveTimeout, 4 * moveTimeout},
		{errSilent, 4 * moveTimeout, moveTimeoutMax},
		{errSilent, moveTimeoutMax, moveTimeoutMax},
		{nil, moveTimeoutMax / 2, moveTimeoutMax},
		{nil, 10 * time.Millisecond, 4 * moveTimeout},
		{nil, 10 * time.Millisecond, 2 * moveTimeout},
		{nil, 10 * time.Millisecond, moveTimeout},
		{nil, 10 * time.Millisecond, moveTimeout},
	} {
		sent := now
		now = now.Add(step.takes)
		o.waited(sent, now, sent.Add(o.patience()), step.err)
		if got := o.patience(); got != step.want {
			t.Errorf("step %d: waits %v for the next answer, not %v", i, got, step.want)
		}
	}
}

// Promise: an heir that did not answer for a while, and gets copies again, keeps them, also of a
// partition without a key: else its takeover is marked. That its copies had ended, since another
// member got them meanwhile, comes too late to be said.
func TestWhatHasEndedAndBegunAgainIsKept(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n, p := w.nodes["n1"], ring.Partition(limiter.Hash(w.key("n1", 0)))
	r, pt := n.view.Load(), &n.parts.list[p]
	heir := pt.to
	other := r.peers[3-r.Self-r.Find(heir.id)]
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.To.ID == heir.id && c.Ask.Move != nil && c.Ask.Move.Sequence != 0 {
			w.Wait(c.Deadline)
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	n.parts.mu.Lock()
	n.pulse.wakeLocked()
	pt.former, pt.to, pt.copied = heir, other, copyWanted
	n.copier.keepers.dueLocked(pt)
	n.parts.mu.Unlock()
	w.pass(100 * time.Millisecond)
	if pt.copied != copyTaken || !slices.Contains(heir.out.ended, uint16(p)) {
		t.Fatal("the other member has no copy, or the heir is not to be told so")
	}
	n.parts.mu.Lock()
	n.copier.keepers.retargetPartLocked(r, p)
	n.parts.mu.Unlock()
	w.meet = nil
	w.pass(500 * time.Millisecond)
	if pt.to != heir || pt.copied != copyTaken {
		t.Fatal("the heir gets no copies again")
	}
	if got := w.nodes[heir.id].parts.list[p].copyOf; got != n.boot {
		t.Errorf("the heir has the copy of boot %d, want %d", got, n.boot)
	}
}

// Promise: owner crashes: copies go on whatever was on its way when all nodes stood still, also if
// that was for hours; and nothing is forgotten then.
func TestCopiesGoOnAfterHours(t *testing.T) {
	w := newWorld(t, 2, five)
	w.pass(time.Second)
	key := w.key("n1", 0)
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.Sequence != 0 {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	w.take("n1", "five", key)
	w.pass(200 * time.Millisecond)
	w.now, w.meet = w.now.Add(2*mostAge), nil
	w.pass(3 * time.Second)
	for range 2 {
		w.take("n1", "five", key)
	}
	w.pass(time.Second)
	for id, n := range w.nodes {
		if c := n.Copies(); c.Lag != 0 || c.Short != 0 {
			t.Errorf("%s has %d partitions with too few copies, and %v old changes", id, c.Short,
				c.Lag)
		}
	}
	w.kill("n1")
	w.pass(3 * time.Second)
	if d := w.take("n2", "five", key); d.Remaining != 2 || d.Degraded {
		t.Errorf("after the death of the owner: %+v", d)
	}
}
