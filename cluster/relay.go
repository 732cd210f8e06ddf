package cluster

import (
	"errors"

	"penstock/limiter"
)

// If an owner does not answer a member's calls, the member asks the heir, and says so (Ask.Relay);
// if it is the heir itself, it asks another member. That one may reach the owner where the asker
// cannot: then it sends the items on and passes the answers back. The node that gets them decides
// or refuses, and does not send them on again. If the owner does not answer the heir either, the
// heir says NotOwner as ever, until it has taken over; so it does if it stood still, since the
// asker may have asked others meanwhile (stillness.go).

// relay has the owners that this node reaches answer the items of a that it does not hold itself.
// The others stay as they are: nobody has decided them.
func (fw *forwarder) relay(view *route, a *Ask, answer *Answer) {
	now := fw.clock.Now()
	if view == nil || fw.still.mayBeOld(now) {
		return
	}
	calls, of := fw.relayCalls(now, view, a, answer)
	if len(calls) == 0 {
		return
	}
	fw.net.Call(calls)
	after := fw.clock.Now()
	for c := range calls {
		fw.stats.Relayed.Add(uint64(len(of[c])))
		fw.contacts.note(now, after, view.peers[view.Find(calls[c].To.ID)], &calls[c])
		for k, i := range of[c] {
			out := &answer.Items[i]
			if fw.relayed(after, view, &calls[c], k, out); after >= a.Deadline {
				*out = AnswerItem{Status: StatusExpired}
			}
		}
	}
	answer.introduce(view)
}

// relayed is the answer to the k-th item of a call.
func (fw *forwarder) relayed(now limiter.Instant, view *route, c *Call, k int, out *AnswerItem) {
	hash := limiter.Hash(c.Ask.Items[k].Key)
	switch {
	case c.Err == nil && len(c.Answer.Items) == len(c.Ask.Items):
		switch *out = c.Answer.Items[k]; out.Status {
		case StatusDone:
			out.Owner = c.To.ID
		case StatusNotOwner: // it may name this node
			fw.disown(now, view, hash, out)
		}
	case errors.Is(c.Err, ErrUnsent):
		fw.disown(now, view, hash, out)
	default:
		*out = AnswerItem{Status: StatusLost, Owner: c.To.ID}
	}
}

// relayCalls are calls to the owners of items that nobody has decided, and the items of each: of
// those that stand or fall together all or none.
func (fw *forwarder) relayCalls(
	now limiter.Instant, view *route, a *Ask, answer *Answer,
) (calls []Call, of [][]int) {
	deadline := callDeadline(now, a.Deadline, fw.callTimeout)
	callOf := make(map[int]int)
	for i := range a.Items {
		o := view.Owner(limiter.Hash(a.Items[i].Key))
		if answer.Items[i].Status != StatusNotOwner || o < 0 || o == view.Self ||
			view.peers[o].gone() {
			continue
		}
		c, known := callOf[o]
		if !known {
			if !view.peers[o].Pass(now) {
				continue
			}
			c, callOf[o] = len(calls), len(calls)
			of = append(of, nil)
			calls = append(calls, Call{
				To: view.Members[o], Deadline: deadline,
				Ask: &Ask{
					RingHash: view.RingHash(), Hop: a.Hop + 1, Atomic: a.Atomic,
					Deadline: deadline, Trace: a.Trace,
				},
			})
		}
		of[c] = append(of[c], i)
		calls[c].Ask.Items = append(calls[c].Ask.Items, a.Items[i])
	}
	if a.Atomic && len(calls) > 0 && len(of[0]) < len(a.Items) {
		return nil, nil
	}
	return calls, of
}
