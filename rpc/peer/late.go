package peer

import (
	"slices"
	"sync/atomic"

	"penstock/cluster"
	"penstock/cluster/ownership"
)

// Answers that wait, for an heir or for an owner that only this node reaches, have a goroutine each
// and keep their ask. So there are bounds on their number and on the bytes of their asks, per
// stream and in all streams of the door. More relays than that are not relayed, and the asker falls
// back at once; more of the others are refused unread, and the asker asks again.
const (
	relaysAtOnce = 512 // for each stream
	relayBytes   = 4 << 20
	lateAtOnce   = 8192
	lateBytes    = 32 << 20
	// lateInAll is how many times what one stream may have waiting all streams may.
	lateInAll = 4
)

const errTooMuchWaits = "too many asks of this peer wait for others already"

// lateBudget is what waits.
type lateBudget struct{ number, bytes atomic.Int64 }

func (b *lateBudget) add(number, bytes int) (int64, int64) {
	return b.number.Add(int64(number)), b.bytes.Add(int64(bytes))
}

// enter reports whether one more ask may wait, of so many bytes and within such bounds for its
// stream; then it has been counted.
func (e *exchange) enter(weight int, number, bytes int64) bool {
	n, b := e.late.add(1, weight)
	all, allBytes := e.door.late.add(1, weight)
	if n <= number && b <= bytes && all <= number*lateInAll && allBytes <= bytes*lateInAll {
		return true
	}
	e.leave(weight)
	return false
}

// force counts an ask that has to wait, whatever waits already.
func (e *exchange) force(weight int) {
	e.late.add(1, weight)
	e.door.late.add(1, weight)
}

func (e *exchange) leave(weight int) {
	e.late.add(-1, -weight)
	e.door.late.add(-1, -weight)
}

// known reports whether the View names the node at the other end.
func (e *exchange) known() bool {
	v := e.door.node.View()
	if v == nil {
		return false
	}
	i := v.Find(e.peer.node)
	return i >= 0 && v.Members[i].Boot == e.peer.boot
}

// isMember reports whether the node at the other end is one of those that members have agreed on.
func (e *exchange) isMember() bool {
	config := e.door.node.Agreed()
	return config != nil && !e.agent &&
		slices.ContainsFunc(config.Members, func(m ownership.Member) bool {
			return m.ID == e.peer.node && cluster.SameProcess(m.Boot, e.peer.boot)
		})
}

// forged is why an ask cannot come from the node at the other end; empty if it can.
func (e *exchange) forged(a *cluster.Ask) string {
	return e.forgedBy(a.For != 0 && e.isMember(), a)
}

func (e *exchange) forgedBy(member bool, a *cluster.Ask) string {
	switch {
	case a.For != 0 && (!member || len(a.Items) > 0):
		return "it is for another node, and its sender is not a member or asks for keys"
	case a.For != 0 && (a.Hop > 1 || a.For == e.door.node.Boot()):
		return forgedOnItsWay(a)
	case a.Words != nil:
		if reason := a.Words.Forged(e.peer.node, e.peer.boot, e.agent); reason != "" {
			return reason
		}
	}
	return e.forgedMove(a)
}

// forgedOnItsWay is why a member that passes an ask on cannot have got it from its sender. The node
// itself decides whether to believe it.
func forgedOnItsWay(a *cluster.Ask) string {
	if a.Words == nil {
		return ""
	}
	return a.Words.Forged(a.Words.ID, a.Words.Process, false)
}

func (e *exchange) forgedMove(a *cluster.Ask) string {
	switch m := a.Move; {
	case m != nil && (m.From != e.peer.boot || m.ID != e.peer.node), a.From != 0 &&
		a.From != e.peer.boot:
		return "it names another sender than the node that has opened the stream"
	case m != nil && e.agent && m.ForMembers():
		return "it says what members say, and the certificate of its sender is an agent's"
	}
	return ""
}
