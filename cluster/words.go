package cluster

import (
	"errors"
	"slices"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Words are what one boot says to another about ownership.
type Words struct {
	From, To ownership.Boot // To 0: any boot that listens at that address
	ID, Addr string         // of From: its id, and its peer address
	Process  uint64         // boot of the node that From belongs to (SameProcess)
	Said     []ownership.Message
}

// livesBits are the bits of a boot that say which life of a process it is: an evicted process goes
// on as another boot.
const livesBits = 16

// SameProcess reports whether b is one of the lives of a process.
func SameProcess(b ownership.Boot, process uint64) bool {
	return (uint64(b)^process)<<livesBits == 0
}

// Forged is the reason why these words cannot come from the node with an id and a boot, which is
// at the other end of a line; empty: they can. A node speaks for itself. An agent by its
// certificate asks, and is never a member.
func (w *Words) Forged(id string, boot uint64, agent bool) string {
	if w.ID != id || w.Process != boot || !SameProcess(w.From, boot) {
		return "it names another sender than the node that has opened the stream"
	}
	for _, m := range w.Said {
		if agent && !agentSays(m) {
			return "it says what members say, and the certificate of its sender is an agent's"
		}
		if !w.mine(m) {
			return "it says in another node's name what only that node can say: " + m.String()
		}
	}
	return ""
}

// mine reports whether the sender may say m.
func (w *Words) mine(m ownership.Message) bool {
	switch m := m.(type) {
	case ownership.Hello:
		return w.me(m.Member, m.Former)
	case ownership.Join:
		return w.me(m.Member, m.Former)
	}
	return true
}

// me reports whether a member is the sender, and former a boot of the same process.
func (w *Words) me(m ownership.Member, former ownership.Boot) bool {
	return m.ID == w.ID && m.Boot == w.From && (former == 0 || SameProcess(former, w.Process))
}

func agentSays(m ownership.Message) bool {
	switch m := m.(type) {
	case ownership.Hello:
		return m.Config == nil && !m.Deciding
	case ownership.Behind:
		return true
	}
	return false
}

const (
	agreeEvery   = 25 * time.Millisecond
	wordsTimeout = 500 * time.Millisecond
	// heirAnswers is how long an heir may leave copies unanswered until another member gets them.
	heirAnswers = 500 * time.Millisecond
)

// send brings messages to their boots, each boot by a call of its own: one that does not answer
// keeps no other waiting.
func (a *agreement) send(sends []ownership.Send) {
	for len(sends) > 0 {
		to, addr := sends[0].To, sends[0].Addr
		var said []ownership.Message
		sends = slices.DeleteFunc(sends, func(s ownership.Send) bool {
			if s.To == to && s.Addr == addr {
				said = append(said, s.Message)
				return true
			}
			return false
		})
		if m, known := a.seatOf(to, addr); known {
			a.clock.AfterFunc(0, func() { a.say(m, to, said) })
		}
	}
}

// seatOf is where a boot, or the node of an id, is to be reached.
func (a *agreement) seatOf(to ownership.Boot, id string) (m Member, known bool) {
	if to != 0 {
		a.mu.Lock()
		s, heard := a.seats[to]
		config := a.state.Config()
		a.mu.Unlock()
		switch {
		case heard:
			m = Member{ID: s.id, Boot: s.process, PeerAddr: s.addr}
			return m, true
		case config == nil:
			return m, false
		}
		x, _ := config.Member(to)
		id = x.ID
	}
	r := a.view.Load()
	if r == nil || id == "" {
		return m, false
	}
	if i := r.Find(id); i >= 0 {
		m = r.Members[i]
		return m, to == 0 || SameProcess(to, m.Boot)
	}
	return Member{ID: id}, to == 0
}

// say has one boot hear something, and takes in what it answers.
func (a *agreement) say(m Member, to ownership.Boot, said []ownership.Message) {
	sent := a.clock.Now()
	a.mu.Lock()
	from := a.state.Boot()
	a.mu.Unlock()
	deadline := sent.Add(wordsTimeout)
	words := &Words{From: from, To: to, ID: a.id, Addr: a.peerAddr(), Process: a.boot, Said: said}
	ask := &Ask{Hop: 1, Deadline: deadline, Words: words}
	calls := []Call{{To: m, Ask: ask, Deadline: deadline, Once: m.Boot == 0}}
	a.contacts.Call(calls)
	if to != 0 && !calls[0].Passed {
		a.noteWords(sent, &calls[0])
	}
	if calls[0].Err == nil && calls[0].Answer.Words != nil {
		a.hearWords(calls[0].Answer.Words, 0)
	}
}

// noteWords has the peer's record learn from a call. A rival of which gossip says nothing any more
// has none.
func (a *agreement) noteWords(sent limiter.Instant, c *Call) {
	r := a.view.Load()
	if r == nil {
		return
	}
	i := r.Find(c.To.ID)
	switch {
	case i >= 0 && r.peers[i].boot == c.To.Boot:
		a.contacts.note(sent, a.clock.Now(), r.peers[i], c)
		if c.Err == nil {
			r.peers[i].spoke.Store(int64(sent))
		}
	case errors.Is(c.Err, ErrGone):
		a.isGone(c.To.ID, c.To.Boot)
	}
}

// hearWords takes in what a boot says, and returns what asker, which waits for it, is answered.
func (a *agreement) hearWords(w *Words, asker ownership.Boot) *Words {
	if !a.on {
		return nil
	}
	a.mu.Lock()
	me := a.state.Boot()
	_, heard := a.seats[w.From]
	if w.To == me || w.To == 0 {
		a.seats[w.From] = seat{w.ID, w.Addr, w.Process}
	}
	config := a.state.Config()
	a.mu.Unlock()
	if !heard && config != nil && config.Has(w.From) { // its address may not have been known before
		a.followers.agreedAnew(a.clock.Now())
	}
	if w.To != me && w.To != 0 || w.From == me {
		return nil
	}
	events := make([]ownership.Event, len(w.Said))
	for i, m := range w.Said {
		events[i] = ownership.Received{From: w.From, Message: m}
		a.lookAtEvicted(m)
	}
	if said := a.agree(asker, events...); len(said) > 0 {
		return &Words{
			From: me, To: w.From, ID: a.id, Addr: a.peerAddr(), Process: a.boot,
			Said: said,
		}
	}
	return nil
}

// lookAtEvicted asks for signs of life of those that another member would evict, does not reach, or
// goes on without: to consent a node has to see for itself that they are gone.
func (a *agreement) lookAtEvicted(m ownership.Message) {
	r, on := a.view.Load(), a.roll.Load()
	if r == nil || !on.joined() {
		return
	}
	var out func(ownership.Boot) bool
	switch m := m.(type) {
	case ownership.Canvass:
		out = func(b ownership.Boot) bool { return !m.Value.Has(b) }
	case ownership.Secede:
		out = on.config.Votes
	case ownership.Renew:
		if len(m.Unreached) == 0 {
			return
		}
		out = func(b ownership.Boot) bool { return slices.Contains(m.Unreached, b) }
	default:
		return
	}
	now := a.clock.Now()
	for _, x := range on.config.Members {
		if i := r.Find(x.ID); out(x.Boot) && x.Boot != on.boot && i >= 0 &&
			SameProcess(x.Boot, r.Members[i].Boot) {
			a.contacts.suspect(now, r.peers[i])
		}
	}
}
