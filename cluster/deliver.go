package cluster

import (
	"penstock/limiter"
)

// Deliver is the peer's door: it answers an Ask from memory and never waits. The keys of a may be borrowed
// from the frame that carried it, nothing keeps them after Deliver returns; its limits may be kept.
func (n *Node) Deliver(a *Ask) *Answer {
	now := n.clock.Now()
	view := n.view.Load()
	answer := &Answer{Items: make([]AnswerItem, len(a.Items))}
	n.stats.Delivered.Add(uint64(len(a.Items)))
	items := make([]Item, len(a.Items))
	for i := range a.Items {
		it := &a.Items[i]
		items[i] = Item{Key: it.Key, Cost: it.Cost, Op: it.Op, ID: it.ID, limit: it.Limit, hash: limiter.Hash(it.Key)}
	}
	status := n.accept(now, view, a)
	if view != nil {
		answer.RingHash = view.RingHash()
	}
	if status == StatusDone && a.Atomic {
		n.answerAll(now, view, items, answer)
		return answer
	}
	for i := range items {
		out := &answer.Items[i]
		switch {
		case status != StatusDone:
			out.Status = status
		case !view.Owns(items[i].hash):
			n.disown(view, items[i].hash, out)
		default:
			out.Decision = n.decide(now, &items[i])
		}
	}
	return answer
}

// accept says whether a can be served at all.
func (n *Node) accept(now limiter.Instant, view *route, a *Ask) Status {
	switch {
	case view == nil:
		return StatusNotOwner
	case a.Hop > maxHop:
		n.stats.Loops.Add(1)
		return StatusRefused
	case now >= a.Deadline:
		n.stats.Expired.Add(uint64(len(a.Items)))
		return StatusExpired
	}
	return StatusDone
}

// disown answers NotOwner, with the owner that this node believes in.
func (n *Node) disown(view *route, hash uint64, out *AnswerItem) {
	n.stats.Disowned.Add(1)
	out.Status = StatusNotOwner
	if o := view.Owner(hash); o >= 0 {
		out.Owner = view.Members[o].ID
	}
}

func (n *Node) answerAll(now limiter.Instant, view *route, items []Item, answer *Answer) {
	for i := range items {
		if view.Owns(items[i].hash) {
			continue
		}
		for k := range items {
			n.disown(view, items[i].hash, &answer.Items[k])
		}
		return
	}
	decisions := make([]limiter.Decision, len(items))
	n.decideAll(now, items, decisions)
	for i := range decisions {
		answer.Items[i].Decision = decisions[i]
	}
}
