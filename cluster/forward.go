package cluster

import (
	"errors"
	"fmt"
	"time"

	"penstock/limiter"
)

// DefaultCallTimeout is how long one call to a peer may take, unless the request's deadline comes first. A dead
// process is noticed at once (its connections break); this is for the peer that hangs.
const DefaultCallTimeout = 500 * time.Millisecond

// maxHop is how often an Ask may be sent: to the owner, and once more after NotOwner or a lost call.
const maxHop = 2

// repeatWithin is how long after its beginning a check may send for the second time. A node that was stopped in the
// middle must not: its owner remembers a take for recentWindow and would charge it again. The other half is for the
// way there.
const repeatWithin = recentWindow / 2

// forward has the items away decided by their owners: one call per owner, all at once, and a second round for those
// that were not executed or may be repeated under their ID. What is left after that falls back. (It is the longest
// function here because it is the story of a forwarded check; the facts it uses are the small functions below.)
func (n *Node) forward(now limiter.Instant, view *route, r *Request, away []int, out []Decision) {
	began := now
	targets := make([]int, len(r.Items)) // item → index in view.Members, or -1
	for _, i := range away {
		it := &r.Items[i]
		targets[i] = view.Owner(it.hash)
		if it.Op != OpPeek && it.ID == (ID{}) {
			it.ID = n.nextID()
		}
	}
	for hop := uint8(1); hop <= maxHop && len(away) > 0; hop++ {
		if hop > 1 {
			if now = n.clock.Now(); now > began.Add(repeatWithin) {
				break
			}
			n.stats.Retried.Add(uint64(len(away)))
		}
		calls, sent, held := n.address(now, view, r, away, targets, hop)
		if len(calls) > 0 {
			n.stats.Forwarded.Add(uint64(len(away) - len(held)))
			n.net.Call(calls)
			now = n.clock.Now()
		}
		away = held
		for c := range calls {
			away = append(away, n.receive(now, view, r, &calls[c], sent[c], targets, out)...)
		}
		if fresh := n.view.Load(); fresh != view {
			away = n.reroute(now, fresh, r, away, targets, out)
			view = fresh
		}
	}
	for _, i := range away {
		owner := ""
		if t := view.Owner(r.Items[i].hash); t >= 0 {
			owner = view.Members[t].ID
		}
		out[i] = n.fallback(now, view, &r.Items[i], owner)
	}
}

// address groups items into one call per target. Items without a target, or whose target's breaker is open, are
// held back.
func (n *Node) address(now limiter.Instant, view *route, r *Request, away, targets []int, hop uint8) (calls []Call, sent [][]int, held []int) {
	deadline := callDeadline(now, r.Deadline, n.callTimeout)
	callOf := make(map[int]int, 4) // target → index in calls, or -1: its breaker is open
	for _, i := range away {
		t := targets[i]
		if t < 0 || t == view.Self || now >= deadline {
			held = append(held, i)
			continue
		}
		c, known := callOf[t]
		if !known {
			c = -1
			if view.peers[t].pass(now) {
				c = len(calls)
				calls = append(calls, Call{
					To:       view.Members[t],
					Ask:      &Ask{RingHash: view.RingHash(), Hop: hop, Atomic: r.Atomic && len(r.Items) > 1, Deadline: deadline},
					Deadline: deadline,
				})
				sent = append(sent, nil)
			}
			callOf[t] = c
		}
		if c < 0 {
			held = append(held, i)
			continue
		}
		it := &r.Items[i]
		calls[c].Ask.Items = append(calls[c].Ask.Items, AskItem{Limit: it.limit, Key: it.Key, Cost: it.Cost, Op: it.Op, ID: it.ID})
		sent[c] = append(sent[c], i)
	}
	return calls, sent, held
}

// callDeadline bounds one call: the timeout, or seven eighths of what the request has left; the rest is for the way
// back, so that the client hears a fallback instead of nothing.
func callDeadline(now, request limiter.Instant, timeout time.Duration) limiter.Instant {
	left := time.Duration(request - now)
	return now.Add(min(timeout, left-left/8))
}

// receive files the answers of one call and returns the items to try again, with their new targets. A call that got
// lost on its way is repeated: its takes carry IDs, so an owner that did act on them answers the same again.
func (n *Node) receive(now limiter.Instant, view *route, r *Request, c *Call, items, targets []int, out []Decision) (again []int) {
	peer := view.peers[targets[items[0]]]
	if c.Err == nil && len(c.Answer.Items) != len(items) {
		c.Err = fmt.Errorf("cluster: %s answered %d of %d items", c.To.ID, len(c.Answer.Items), len(items))
	}
	if c.Err != nil {
		peer.fail(now)
		if errors.Is(c.Err, ErrUnsent) {
			n.stats.Unsent.Add(1)
		} else {
			n.stats.Lost.Add(1)
		}
		return items
	}
	peer.succeed()
	for k, i := range items {
		switch a := &c.Answer.Items[k]; a.Status {
		case StatusDone:
			out[i] = Decision{Decision: a.Decision, Owner: c.To.ID, Source: SourceForwarded}
		case StatusNotOwner:
			n.stats.NotOwner.Add(1)
			targets[i] = view.Find(a.Owner)
			again = append(again, i)
		default:
			targets[i] = -1
			again = append(again, i)
		}
	}
	return again
}

// reroute aims the items again at a newer View. What turns out to be this node's own is decided here. An item whose
// call got lost may have been charged by its old owner; charging the new one as well is right, because the new
// owner's count is the one that decides from now on.
func (n *Node) reroute(now limiter.Instant, fresh *route, r *Request, away, targets []int, out []Decision) (left []int) {
	for _, i := range away {
		it := &r.Items[i]
		if fresh.Owns(it.hash) {
			out[i] = Decision{Decision: n.decide(now, it), Owner: n.id, Source: SourceOwner}
			continue
		}
		targets[i] = fresh.Owner(it.hash)
		left = append(left, i)
	}
	return left
}
