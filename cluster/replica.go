package cluster

import (
	"strings"

	"penstock/limiter"
)

// A replicated limit is decided by whichever node is asked, from what it has admitted itself and what the others have
// said that they did. Every tick each node tells all others what it has charged since the last one, as sums per key, in
// the order and with the care of all messages about copies (copy.go): each arrives once. They charge it afterwards, with a debt
// where several have admitted the same units: so what was too much is paid back, and the rate is right in the long run.
//
// What others have admitted and this node has not heard of is extra: at most (N-1) × what is offered in a tick and the
// time under way, and never more than their whole limits. That is the bound that a decision states.

// A Charge is what a node has charged to a key of a replicated limit since it last said so; negative: given back.
type Charge struct {
	Limit *limiter.Limit
	Key   string
	Units int64
	Reset bool // the key was reset before
}

type chargeKey struct {
	limit *limiter.Limit
	key   string
}

// charges are what this node has charged since the last tick. Guarded by Node.chargesMu.
type charges struct {
	list  []Charge
	where map[chargeKey]int
}

// chargesWaiting is how many charges may wait for a peer. Of more, the oldest are forgotten: the peer has been away for
// so long that it is out of all bounds.
const chargesWaiting = 1 << 16

// decideReplica decides on an item of a replicated limit.
func (n *Node) decideReplica(now limiter.Instant, it *Item) Decision {
	d := n.decide(now, it)
	view := n.view.Load()
	if view != nil && len(view.Members) > 1 && (it.Op == OpReset || it.Op == OpTake && it.Cost != 0 && d.Allowed) {
		n.charge(it)
	}
	out := Decision{Decision: d, Owner: n.id, Source: SourceReplica}
	if view != nil {
		out.Bound = int64(len(view.Members)-1) * it.limit.Capacity()
	}
	return out
}

func (n *Node) charge(it *Item) {
	n.chargesMu.Lock()
	defer n.chargesMu.Unlock()
	c := &n.charges
	i, again := c.where[chargeKey{it.limit, it.Key}]
	if !again {
		if c.where == nil {
			c.where = make(map[chargeKey]int)
		}
		i = len(c.list)
		key := strings.Clone(it.Key) // it may lie in a frame
		c.where[chargeKey{it.limit, key}] = i
		c.list = append(c.list, Charge{Limit: it.limit, Key: key})
	}
	if it.Op == OpReset {
		c.list[i].Reset, c.list[i].Units = true, 0
	} else {
		c.list[i].Units += it.Cost
	}
}

// spreadLocked has everybody told what was charged.
func (n *Node) spreadLocked(r *route) {
	n.chargesMu.Lock()
	list := n.charges.list
	n.charges = charges{}
	n.chargesMu.Unlock()
	if len(list) == 0 {
		return
	}
	for i, p := range r.peers {
		if i == r.Self {
			continue
		}
		o := n.outboxLocked(p)
		o.charges = append(o.charges, list...)
		if over := len(o.charges) - chargesWaiting; over > 0 {
			o.charges = o.charges[over:]
		}
	}
}

// chargedElsewhere charges what another node has admitted.
func (n *Node) chargedElsewhere(now limiter.Instant, list []Charge) {
	for i := range list {
		c := &list[i]
		hash := limiter.Hash(c.Key)
		if c.Reset {
			n.table.Reset(now, c.Limit, c.Key, hash)
		}
		if c.Units != 0 {
			n.table.Do(now, c.Limit, c.Key, hash, limiter.Request{Cost: c.Units, Report: c.Units > 0})
		}
	}
}
