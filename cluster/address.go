package cluster

import (
	"sync"
	"time"

	"penstock/limiter"
)

// address groups items into one call per target; sent are the items of each. Items without a
// target, or with a target that has its breaker open, are held back. A call of one item lies in
// lone, to be given back.
func (fw *forwarder) address(
	now limiter.Instant, view *route, r *batch, away, targets []int, hop uint8,
) (calls []Call, sent [][]int, held []int, lone *loneCall) {
	deadline := callDeadline(now, r.deadline, fw.callTimeout)
	if now >= deadline {
		return nil, nil, away, nil
	}
	var few [16]target
	s := sorted{of: few[:], most: len(view.Members) + len(view.strangers)}
	if s.most > len(few) && len(away) > len(few) {
		s.of = make([]target, s.most)
	}
	var fewer [16]int
	going, held, all := s.sort(now, view, r, away, targets, fewer[:0])
	if all == 0 {
		return nil, nil, held, nil
	}
	var asks []Ask
	var items []AskItem
	var indexes []int
	if all == 1 {
		lone = loneCalls.Get().(*loneCall)
		calls, sent = lone.calls[:], lone.sent[:]
		asks, items, indexes = lone.asks[:], lone.items[:], lone.indexes[:]
	} else {
		k := len(going)
		calls, sent, asks = make([]Call, k), make([][]int, k), make([]Ask, k)
		items, indexes = make([]AskItem, all), make([]int, all)
	}
	for c, t := range going {
		k := s.about(t).items
		asks[c] = Ask{
			RingHash: view.RingHash(), Hop: hop, Atomic: r.atomic && len(r.items) > 1,
			Deadline: deadline, Items: items[:0:k], Trace: r.trace,
		}
		calls[c] = Call{To: *view.member(t), Ask: &asks[c], Deadline: deadline}
		sent[c], items, indexes = indexes[:0:k], items[k:], indexes[k:]
	}
	fw.fill(now, view, r, &s, away, targets, asks, sent)
	return calls, sent, held, lone
}

// fill puts the items that can be sent into the asks of their calls, and notes them in sent.
func (fw *forwarder) fill(
	now limiter.Instant, view *route, r *batch, s *sorted, away, targets []int, asks []Ask,
	sent [][]int,
) {
	for _, i := range away {
		t := targets[i]
		if t < 0 || s.about(t).open {
			continue
		}
		it, c := &r.items[i], s.about(t).call
		if o := view.Owner(it.hash); !r.cautious && o != t && o >= 0 && o != view.Self {
			asks[c].Relay = asks[c].Relay || view.peers[o].gone() || view.peers[o].Open(now)
		}
		if it.Tell || it.givesBack() {
			asks[c].From = fw.boot
		}
		asks[c].Items = append(asks[c].Items, it.AskItem)
		sent[c] = append(sent[c], i)
	}
}

// sorted is the items of one send by target.
type sorted struct {
	of   []target // by target, if there is room for all; else as they come up
	most int      // targets that there could be
}

// sort looks which items can be sent. going are the targets of the calls, held the items that are
// not sent, and all is how many are.
func (s *sorted) sort(
	now limiter.Instant, view *route, r *batch, away, targets, none []int,
) (going, held []int, all int) {
	going = none
	for _, i := range away {
		t := targets[i]
		if t >= 0 && view.bars(t, r, &r.items[i]) {
			t, targets[i] = nobody, nobody
		}
		if t < 0 {
			held = append(held, i)
			continue
		}
		to := s.about(t)
		if !to.known {
			to.known = true
			if to.open = !view.peers[t].Pass(now); !to.open {
				to.call = len(going)
				going = append(going, t)
			}
		}
		if to.open {
			held = append(held, i)
			continue
		}
		to.items++
		all++
	}
	return going, held, all
}

// target is what address knows of one.
type target struct {
	member      int  // which it is
	known, open bool // open: the breaker is
	call, items int  // which call it gets, and of how many items
}

// about is what is known of t.
func (s *sorted) about(t int) *target {
	if s.most <= len(s.of) {
		return &s.of[t]
	}
	k := 0
	for s.of[k].known && s.of[k].member != t {
		k++
	}
	s.of[k].member = t
	return &s.of[k]
}

// bars reports whether it must not be sent to a target: a cautious request is not sent to a node
// that may have acted on it already.
func (r *route) bars(target int, q *batch, it *flight) bool {
	return q.cautious && it.doubt.Of(r.peers[target].boot)
}

// loneCall is all that one item takes on its way, in one piece of memory, which is used again: most
// requests have one.
type loneCall struct {
	calls   [1]Call
	asks    [1]Ask
	items   [1]AskItem
	sent    [1][]int
	indexes [1]int
}

var loneCalls = sync.Pool{New: func() any { return new(loneCall) }}

// callDeadline bounds one call: the timeout, or seven eighths of what the request has left; the
// rest is for the way back, so that the client hears a fallback instead of nothing.
func callDeadline(now, request limiter.Instant, timeout time.Duration) limiter.Instant {
	left := time.Duration(request - now)
	return now.Add(min(timeout, left-left/8))
}
