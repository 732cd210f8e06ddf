package cluster

import (
	"time"

	"penstock/limiter"
)

// Gossip may be seconds late, and a member speak that this node has not heard of: a newcomer, or a
// restarted one. It may hold something by now, so this node must neither overlook it nor believe
// whoever sends a message. So a sender that no View has named is called back at the address that it
// gives. If that very boot of that id answers there, and knows this node as a member, then it is an
// acquaintance: its claims are answered, and as long as it is heard this node takes nothing over
// that it may hold. Messages with made-up senders are answered by nobody.
//
// One stranger is called back at a time, with pauses, whatever comes, and few acquaintances are
// remembered.

const (
	acquaintEvery  = 20 * time.Millisecond // between two calls back
	mostAcquainted = 64
)

// acquaintance is a boot that no View has named, and that has answered.
type acquaintance struct {
	id    string
	heard limiter.Instant
}

// peerAddr is where others reach this node, as its View has it.
func (n *Node) peerAddr() string {
	if r := n.view.Load(); r != nil {
		return r.Me().PeerAddr
	}
	return ""
}

// acquaintedLocked reports whether m comes from an acquaintance. If not, its sender is called back,
// unless another one is.
func (n *Node) acquaintedLocked(now limiter.Instant, r *route, m *Move) bool {
	if a, known := n.acquainted[m.From]; known && a.id == m.ID && now < a.heard.Add(strangerLasts) {
		n.acquainted[m.From] = acquaintance{m.ID, now}
		return true
	}
	if r == nil || n.parts == nil || n.stopped || n.acquainting || m.ID == n.id || now < n.acquaintAt {
		return false
	}
	n.acquainting = true
	to := Member{ID: m.ID, Boot: m.From, PeerAddr: m.Addr}
	n.clock.AfterFunc(0, func() { n.callBack(to) })
	return false
}

// callBack asks a stranger at the address that it gives whether it is there, and knows this node.
func (n *Node) callBack(to Member) {
	deadline := n.clock.Now().Add(probeTimeout)
	sign := &Move{From: n.boot, To: to.Boot, ID: n.id, Addr: n.peerAddr(), CutOff: n.minority.Load()}
	calls := []Call{{To: to, Deadline: deadline, Once: true, Ask: &Ask{Hop: 1, Deadline: deadline, Move: sign}}}
	n.net.Call(calls)
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.Now()
	n.acquainting, n.acquaintAt = false, now.Add(acquaintEvery)
	if calls[0].Err != nil || calls[0].Answer.Move == nil || calls[0].Answer.Move.Up <= 0 {
		return
	}
	for boot, a := range n.acquainted {
		if now >= a.heard.Add(strangerLasts) {
			delete(n.acquainted, boot)
		}
	}
	if len(n.acquainted) < mostAcquainted {
		n.acquainted[to.Boot] = acquaintance{to.ID, now}
		n.strangers[to.Boot] = now // it may hold something
	}
}
