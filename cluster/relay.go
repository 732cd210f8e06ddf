package cluster

import (
	"errors"

	"penstock/limiter"
)

// If an owner does not answer a member's calls, the member asks the heir, and says so (Ask.Relay);
// if it is the heir itself, it asks another member. That one may reach the owner where the asker
// cannot: then it sends the items on and passes the answers back. The node that gets them decides
// or refuses, and does not send them on again. If the owner does not answer the heir either, the
// heir says NotOwner as ever, until it has taken over.

// relay answers a, of which this node holds nothing, by the owners of its items. It reports false
// if it cannot reach them.
func (fw *forwarder) relay(
	now limiter.Instant, view *route, a *Ask, items []flight, answer *Answer,
) bool {
	calls, of, reached := fw.relayCalls(now, view, a, items)
	if !reached {
		return false
	}
	fw.stats.Relayed.Add(uint64(len(items)))
	fw.net.Call(calls)
	after := fw.clock.Now()
	for c := range calls {
		fw.contacts.note(now, after, view.peers[view.Find(calls[c].To.ID)], &calls[c])
	}
	next := make([]int, len(calls))
	for i := range items {
		c, k, out := &calls[of[i]], next[of[i]], &answer.Items[i]
		next[of[i]]++
		switch {
		case c.Err == nil && len(c.Answer.Items) == len(c.Ask.Items):
			switch *out = c.Answer.Items[k]; out.Status {
			case StatusDone:
				out.Owner = c.To.ID
			case StatusNotOwner: // it may name this node
				fw.disown(after, view, items[i].hash, out)
			}
		case errors.Is(c.Err, ErrUnsent):
			fw.disown(after, view, items[i].hash, out)
		default:
			*out = AnswerItem{Status: StatusLost, Owner: c.To.ID}
		}
		if after >= a.Deadline {
			*out = AnswerItem{Status: StatusExpired}
		}
	}
	return true
}

// relayCalls are calls to the owners of items, and of says which item is in which. It reports false
// if one of the owners is this node, is gone or is not reached, or if they are several and the
// items stand or fall together.
func (fw *forwarder) relayCalls(
	now limiter.Instant, view *route, a *Ask, items []flight,
) (calls []Call, of []int, reached bool) {
	deadline := callDeadline(now, a.Deadline, fw.callTimeout)
	of = make([]int, len(items))
	callOf := make(map[int]int)
	for i := range items {
		o := view.Owner(items[i].hash)
		if fw.holder.decides(now, items[i].hash) || o < 0 || o == view.Self ||
			view.peers[o].gone() {
			return nil, nil, false
		}
		c, known := callOf[o]
		if !known {
			if !view.peers[o].pass(now) {
				return nil, nil, false
			}
			c, callOf[o] = len(calls), len(calls)
			calls = append(calls, Call{
				To: view.Members[o], Deadline: deadline,
				Ask: &Ask{
					RingHash: view.RingHash(), Hop: a.Hop + 1, Atomic: a.Atomic,
					Deadline: deadline,
				},
			})
		}
		of[i] = c
		calls[c].Ask.Items = append(calls[c].Ask.Items, a.Items[i])
	}
	return calls, of, !a.Atomic || len(calls) == 1
}
