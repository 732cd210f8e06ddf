package cluster

import (
	"penstock/limiter"
	"penstock/ring"
)

// A limit with synchronous replication is answered when the heir of its key has a copy of what was
// charged: then a crash of the holder forgets nothing that a client has heard of. The copy goes by
// itself, beside those of copy.go, and is merged whenever it comes, so neither has to wait for the
// other. Of two heirs both are waited for, as long as they can be reached, and one has to confirm.
//
// If no heir confirms, the answer is the limit's on_error: a denial, or a yes that says by
// how much it may be wrong, the limit itself, if the holder dies before its next tick.
//
// A lease waits for the heir under every limit. It is a part of the limit at once, so without that
// a crash would forget in one tick not what was asked for meanwhile, but all that was lent. A lease
// that is not confirmed is degraded, and not given: the node that asked for it settles it, since
// only that node knows whether a repeat was given it after all.

// confirmer waits for copies.
type confirmer struct {
	*self
	parts  *partitions
	copier *copier
	holder *holder
}

// Waits reports whether Deliver of a may wait: for an heir, for an owner that only an heir reaches,
// or for a member that only this node reaches.
func (a *Ask) Waits() bool {
	if a.Relay || a.For != 0 {
		return true
	}
	for i := range a.Items {
		if needsHeir(a.Items[i].Op, a.Items[i].Limit) {
			return true
		}
	}
	return false
}

// needsHeir reports whether a yes to op under l waits for a copy at the heir.
func needsHeir(op Op, l *limiter.Limit) bool { return op == OpLease || l.Sync && op != OpPeek }

// charged is one item that needs a copy before it is answered.
type charged struct {
	item flight // a copy: a pointer would have every item of every request live on the heap
	d    *limiter.Decision
	// where the doubt is said if there is no copy
	degraded *bool
	bound    *int64
}

// confirmOwn waits for the copies of what this node has decided itself, until the deadline of the
// request at most.
func (cf *confirmer) confirmOwn(deadline limiter.Instant, items []flight, out []Decision) {
	var list []charged
	for i := range items {
		if it, d := &items[i], &out[i]; needsHeir(it.Op, it.Limit) && d.Allowed &&
			d.Source == SourceOwner {
			list = append(list, charged{*it, &d.Decision, &d.Degraded, &d.Bound})
		}
	}
	cf.confirm(deadline, list)
}

// Confirm waits for the heirs of what DeliverInto has decided on a, as Ask.Waits says that it may,
// and writes into answer what they do not confirm; for the answers of owners that the
// asker does not reach; and for nodes that have to forget a denial, as Node.MustNotify says. Until
// it returns answer may not be sent.
func (n *Node) Confirm(a *Ask, answer *Answer) {
	var list []charged
	decider := decider{limits: *n.limits.Load()}
	for i := range a.Items {
		it, out := &a.Items[i], &answer.Items[i]
		if needsHeir(it.Op, it.Limit) && out.Decision.Allowed && out.Status == StatusDone &&
			out.Owner == "" { // else another node has decided
			list = append(list,
				charged{it.arrive(decider.of(it)), &out.Decision, &out.Degraded, &out.Bound})
		}
	}
	n.confirms.confirm(a.Deadline, list)
	if a.For != 0 && a.For != n.boot {
		n.contacts.pass(a, answer)
	}
	if a.Relay {
		n.forwarder.relay(n.view.Load(), a, answer)
	}
	if len(list) > 0 || a.Relay {
		n.right.markLateAnswer(a, answer)
	}
	if n.notices.watches.Len() > 0 {
		n.notices.tellOf(a.Deadline, givenBack(a, answer), a.From)
	}
}

func (cf *confirmer) confirm(deadline limiter.Instant, list []charged) {
	if len(list) == 0 {
		return
	}
	now := cf.clock.Now()
	calls, of := cf.copiesOf(now, callDeadline(now, deadline, moveTimeout), list)
	if len(calls) > 0 {
		cf.net.Call(calls)
	}
	confirmed := func(k int) bool {
		return k >= 0 && calls[k].Err == nil && calls[k].Answer.Move != nil &&
			calls[k].Answer.Move.Applied
	}
	for i, c := range list {
		switch {
		case of[i][0] == alone:
		case confirmed(of[i][0]), confirmed(of[i][1]):
		case c.item.Op == OpLease, c.item.Limit.OnError == limiter.ErrorDeny:
			*c.d = limiter.Decision{
				Limit: c.d.Limit, Remaining: c.d.Remaining,
				RetryAfter: fallbackRetry, ResetAfter: c.d.ResetAfter,
			}
			*c.degraded, *c.bound = true, 0
		default:
			*c.degraded, *c.bound = true, c.item.Limit.Capacity()
		}
	}
}

// Places in calls of an item that is in none: no other node could keep a copy, or the one that
// should is not reached.
const (
	alone      = -1
	unreceived = -2
)

// copiesOf prepares calls to the heirs, until a deadline, and says for each item in which of them
// its copies travel: one for each heir, or more where a peer would not read so much in one message.
func (cf *confirmer) copiesOf(
	now, deadline limiter.Instant, list []charged,
) (calls []Call, of [][2]int) {
	of = make([][2]int, len(list))
	cf.parts.mu.Lock()
	defer cf.parts.mu.Unlock()
	var copied [ring.Partitions]bool
	var heirs []*peer // of the calls
	type last struct{ call, size int }
	lastOf := make(map[*peer]last)
	for i := range list {
		part := cf.partition(list[i].item.hash)
		copied[part] = true
		pt := &cf.parts.list[part]
		for k, p := range [2]*peer{pt.to, pt.second.to} {
			if p == nil {
				of[i][k] = alone
				continue
			}
			if p.Open(now) {
				of[i][k] = unreceived
				continue
			}
			at, known := lastOf[p]
			if !known || at.size >= copyBytes {
				at = last{call: len(calls)}
				calls = append(calls, cf.copyCall(deadline, p))
				heirs = append(heirs, p)
			}
			of[i][k] = at.call
			at.size += cf.holder.addCopy(now, calls[at.call].Ask.Move, &list[i].item)
			lastOf[p] = at
		}
	}
	cf.copier.collectBackLocked(now)
	for k, p := range heirs {
		m := calls[k].Ask.Move
		back, decisions := cf.copier.unheardLocked(now, p, &copied)
		cf.copier.addEndsLocked(now, p, &copied, m)
		if m.Taken = append(m.Taken, back...); decisions > takenAtOnce ||
			len(m.Holds) > holdsBeside {
			// More than travels well at once: the copies in order bring it, and nothing is
			// confirmed.
			m.Entries, m.Holds, m.Taken = nil, nil, nil
		}
	}
	return calls, of
}

// holdsBeside is how many holds travel beside the copies in order at most: those of the items of
// one request, and as many that have ended since the heir last heard.
const holdsBeside = 2 * MaxItems

// addEndsLocked adds to copies for p the ends of holds of which their entries have the charges. p
// has not heard of them: they wait in its outbox, or for the next tick. If p decided next without
// them, it would charge these holds again when they run out.
func (cp *copier) addEndsLocked(
	now limiter.Instant, p *peer, copied *[ring.Partitions]bool, m *Move,
) {
	var entries map[counter]*limiter.Entry // made for the first end: mostly there is none
	end := func(h limiter.Hold) (entry *limiter.Entry) {
		if h.State == limiter.HoldOpen {
			return nil
		}
		if entries == nil {
			entries = entriesOf(m)
		}
		if entry = entries[counter{h.Limit.Name, h.Key}]; entry != nil {
			m.Holds = append(m.Holds, HoldCopy{h, 0})
		}
		return entry
	}
	o := cp.keepers.outboxLocked(p)
	if o.last != nil {
		for _, h := range o.last.Holds {
			end(h.Hold)
		}
	}
	for _, h := range o.settled {
		end(h)
	}
	wanted := func(hash uint64) bool { return copied[cp.partition(hash)] }
	cp.holder.book.UntoldEnds(func() {}, wanted, func(hash uint64, h limiter.Hold) {
		if e := end(h); e != nil { // it may have ended after the entry was read
			*e = cp.holder.table.Entry(now, e.Limit, e.Key, hash)
		}
	})
}

// counter names what is counted: a key may be asked for under several limits.
type counter struct{ limit, key string }

func entriesOf(m *Move) map[counter]*limiter.Entry {
	entries := make(map[counter]*limiter.Entry, len(m.Entries))
	for i := range m.Entries {
		e := &m.Entries[i]
		entries[counter{e.Limit.Name, e.Key}] = e
	}
	return entries
}

// copyCall is a call that brings copies to p beside those in order.
func (cf *confirmer) copyCall(deadline limiter.Instant, p *peer) Call {
	m := &Move{
		From: cf.boot, To: p.boot, ID: cf.id, Term: cf.parts.term, Secret: cf.view.Load().Secret,
		Copying: Copying{Pass: cf.parts.passes + 1},
	}
	return Call{
		To: *p.member.Load(), Deadline: deadline,
		Ask: &Ask{Hop: 1, Deadline: deadline, Move: m},
	}
}
