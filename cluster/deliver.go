package cluster

import (
	"slices"

	"penstock/limiter"
)

// Deliver is the peer's door: it answers an Ask from memory. It waits only where Ask.Waits says
// that it may. The keys of a may be borrowed from the frame that carried it, nothing keeps them
// after Deliver returns; its limits may be kept.
func (n *Node) Deliver(a *Ask) *Answer {
	answer := newAnswer(len(a.Items))
	n.DeliverInto(a, answer)
	n.Confirm(a, answer)
	return answer
}

// DeliverInto is Deliver with the memory of an Answer that was used before. And it leaves the
// waits, for heirs and for owners that it asks for another member, to Confirm.
func (n *Node) DeliverInto(a *Ask, answer *Answer) {
	now := n.clock.Now()
	if n.pulse.idle.Load() && a.rouses() {
		n.pulse.wakeFor()
	}
	view := n.view.Load()
	*answer = Answer{
		Items:  slices.Grow(answer.Items[:0], len(a.Items))[:len(a.Items)],
		Owners: answer.Owners[:0], under: n.right.tenure(now), asked: answer.asked,
	}
	clear(answer.Items)
	if n.contacts.admits(now, view, a) {
		if a.Words != nil {
			answer.Words = n.agreed.hearWords(a.Words, a.Words.From)
		}
		if a.Move != nil {
			answer.Move = n.intake.hear(now, view, a.Move)
		}
	}
	n.local.denials.Forget(now, a.Forget...)
	n.stats.Delivered.Add(uint64(len(a.Items)))
	var one [1]flight // most asks have one, which then needs no memory of its own
	items := one[:0]
	if len(a.Items) > 1 {
		answer.asked = slices.Grow(answer.asked[:0], len(a.Items))
		items = answer.asked
	}
	decider := decider{limits: *n.limits.Load()}
	for i := range a.Items {
		it := &a.Items[i]
		items = append(items, it.arrive(decider.of(it)))
		n.holder.table.Expect(items[i].Limit, items[i].Key, items[i].hash)
	}
	status := n.accept(now, view, a)
	if view != nil {
		answer.RingHash, answer.CutOff = view.RingHash(), n.right.minority.Load()
		answer.Leaving = view.Me().State == StateLeaving
		if a.RingHash != 0 && a.RingHash != answer.RingHash {
			answer.Secret = view.Secret
		}
	}
	if status == StatusDone && a.Atomic && len(items) > 0 {
		n.forwarder.answerAll(now, view, items, answer)
	} else {
		n.answerEach(now, view, status, a, items, answer)
	}
	n.right.markLateAnswer(a, answer)
	answer.introduce(view)
}

// rouses reports whether a has more to say than words, which say themselves whether anything is to
// be done, or a sign of life.
func (a *Ask) rouses() bool {
	m := a.Move
	return len(a.Items)+len(a.Forget) > 0 || m != nil && (m.Sequence != 0 || m.ForMembers() ||
		len(m.Charges) > 0)
}

// answerEach answers items that do not stand or fall together, or all with a status.
func (n *Node) answerEach(
	now limiter.Instant, view *route, status Status, a *Ask, items []flight, answer *Answer,
) {
	for i := range items {
		out := &answer.Items[i]
		switch {
		case status != StatusDone:
			out.Status = status
		case !n.holder.decides(now, items[i].hash):
			n.forwarder.disown(now, view, items[i].hash, out)
		default:
			told := a.Items[i].Tell && sameLimit(items[i].Limit, a.Items[i].Limit) &&
				n.notices.promise(now, a.From, &items[i])
			var d Decision
			if n.forwarder.decideHere(now, &items[i], &d) {
				out.Decision, out.Degraded, out.Bound = d.Decision, d.Degraded, d.Bound
			} else { // it has just been given away
				n.forwarder.disown(now, view, items[i].hash, out)
			}
			out.Told = told && promised(&items[i], out)
		}
	}
}

// arrive makes it a flight of the node that decides, by a limit.
func (it *AskItem) arrive(l *limiter.Limit) flight {
	f := flight{AskItem: *it, hash: limiter.Hash(it.Key), delivered: true}
	f.Limit = l
	return f
}

// newAnswer has room for n items; for one in a single piece of memory.
func newAnswer(n int) *Answer {
	if n != 1 {
		return &Answer{Items: make([]AnswerItem, n)}
	}
	lone := new(struct {
		Answer
		items [1]AnswerItem
	})
	lone.Items = lone.items[:]
	return &lone.Answer
}

// introduce adds the members that a names as owners.
func (a *Answer) introduce(view *route) {
	for i := range a.Items {
		it := &a.Items[i]
		if it.Status != StatusNotOwner || it.Owner == "" ||
			slices.ContainsFunc(a.Owners, func(m Member) bool { return m.ID == it.Owner }) {
			continue
		}
		if k := view.Find(it.Owner); k >= 0 {
			m := &view.Members[k]
			a.Owners = append(a.Owners,
				Member{ID: m.ID, Boot: m.Boot, PeerAddr: m.PeerAddr, Features: m.Features})
		}
	}
}

// accept says whether a can be served at all.
func (s *self) accept(now limiter.Instant, view *route, a *Ask) Status {
	switch {
	case view == nil:
		return StatusNotOwner
	case a.Hop > maxHop:
		s.stats.Loops.Add(1)
		return StatusRefused
	case a.Atomic && !a.together():
		return StatusRefused
	case now >= a.Deadline:
		s.stats.Expired.Add(uint64(len(a.Items)))
		return StatusExpired
	}
	return StatusDone
}

// together reports whether the items may stand or fall with each other. No release asks for others;
// decided like takes, an extension of a negative cost would give units back.
func (a *Ask) together() bool {
	return !slices.ContainsFunc(a.Items,
		func(it AskItem) bool { return !it.Op.together(a.Items[0].Op) })
}

// disown answers NotOwner, with the node that this one believes in. If it is asked as the heir, it
// looks whether the owner is gone.
func (fw *forwarder) disown(now limiter.Instant, view *route, hash uint64, out *AnswerItem) {
	fw.stats.Disowned.Add(1)
	*out = AnswerItem{Status: StatusNotOwner, Owner: fw.parts.whereabouts(view, hash)}
	if o := view.Owner(hash); o >= 0 && o != view.Self && view.Me().Role == RoleMember &&
		view.heir(view.Partition(hash)) == view.Self {
		fw.contacts.suspect(now, view.peers[o])
	}
}

func (fw *forwarder) answerAll(now limiter.Instant, view *route, items []flight, answer *Answer) {
	decisions := make([]limiter.Decision, len(items))
	if fw.holder.decideAll(now, items, decisions) {
		for i := range decisions {
			d := Decision{Decision: decisions[i]}
			fw.holder.sign(now, &items[i], &d)
			out := &answer.Items[i]
			out.Decision, out.Degraded, out.Bound = d.Decision, d.Degraded, d.Bound
		}
		return
	}
	first := fw.holder.decides(now, items[0].hash)
	for i := range items {
		out := &answer.Items[i]
		if fw.disown(now, view, items[0].hash, out); first {
			out.Owner = fw.id // of the first key, and not of all
		}
	}
}
