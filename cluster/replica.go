package cluster

import (
	"penstock/cluster/charges"
	"penstock/limiter"
)

// A replicated limit is decided by whichever node is asked, from what it has admitted itself and
// what the others have said that they did. Every tick each node tells all others what it has
// charged since the last one, as sums per key, in the order and with the care of all messages about
// copies (copy.go): each arrives once. They charge it afterwards, with a debt where several have
// admitted the same units: so what was too much is paid back, and the rate is right in the long
// run.
//
// A refund takes from what has been taken in that tick and not been told yet, and the rest of it is
// told before what is taken later: what gives back more than was charged gives back no more than
// all, here as there, and a take that follows is heard of in full. A node that hears of a refund
// before the take, or is asked for one before it has heard of the take, counts it as charged still:
// too little is admitted then, never too much.
//
// A node that comes is told all that is known, by each member that meets it, and merges that with
// what it has heard: more consumed wins. So what was charged outlives every node that charged it.
// A charge of that moment may be told twice, as a charge and in the counter of a third node: too
// little is admitted there then.
//
// What others have admitted and this node has not heard of is extra: at most (N-1) × what is
// offered in a tick and the time under way, and never more than their whole limits. That is the
// bound that a decision states.

// A Charge is what a node has charged to a key of a replicated limit since it last said so.
type Charge = charges.Charge

// chargesWaiting is how many charges may wait for a peer. Of more, the oldest are forgotten: the
// peer has been away for so long that it is out of all bounds.
const chargesWaiting = 1 << 16

// isElsewhere reports whether it is about a hold that this node does not know: it was opened before
// the limit became a replicated one, so the owner of its key has it.
func (hd *holder) isElsewhere(it *flight) bool {
	if it.Op != OpSettle && it.Op != OpExtend || it.Hold == nil {
		return false
	}
	_, known := hd.book.Get(it.holdID())
	return !known
}

// decideReplica decides on an item of a replicated limit.
func (hd *holder) decideReplica(now limiter.Instant, it *flight, out *Decision) {
	*out = Decision{Owner: hd.id, Source: SourceReplica}
	hd.decide(now, it, &out.Decision)
	view := hd.view.Load()
	if !it.again {
		hd.charge(it, &out.Decision)
	}
	if view != nil {
		out.Bound = int64(len(view.Members)-1) * it.Limit.Capacity()
	}
}

// charge notes what the others have to hear of what was decided here on an item of a replicated
// limit, for the first time.
func (hd *holder) charge(it *flight, d *limiter.Decision) {
	units := d.Drained
	if d.Allowed {
		units = it.Cost
	}
	view := hd.view.Load()
	if view == nil || len(view.Members) < 2 || it.Op != OpReset && (it.Op != OpTake || units == 0) {
		return
	}
	if it.Op == OpReset {
		hd.charges.Reset(it.Limit, it.Key)
		return
	}
	hd.charges.Add(it.Limit, it.Key, units)
}

// spreadLocked has all other nodes told what was charged.
func (cp *copier) spreadLocked(r *route) {
	cp.meetLocked(r)
	list := cp.holder.charges.Tell()
	if len(list) == 0 {
		return
	}
	for i, p := range r.peers {
		if i == r.Self {
			continue
		}
		o := cp.keepers.outboxLocked(p)
		if o.telling && o.told == 0 {
			continue // these are in what will be known when that is read
		}
		o.charges = append(o.charges, list...)
		if over := len(o.charges) - chargesWaiting; over > 0 {
			o.charges = o.charges[over:]
		}
	}
}

// meetLocked has those that the View has not named before told what is known. Agents tell nobody:
// there are many of them, and members know as much.
func (cp *copier) meetLocked(r *route) {
	before := cp.met
	cp.met = r
	if r == before || r.Me().Role == RoleAgent || !cp.holder.table.HasReplicas() {
		return
	}
	for i, p := range r.peers {
		if i != r.Self && (before == nil || !before.has(p)) {
			o := cp.keepers.outboxLocked(p)
			o.told, o.telling = 0, true
		}
	}
}

// tell takes as many charges off s as travel well at once, and first what is known.
func (hd *holder) tell(now limiter.Instant, s *spread) (list []Charge) {
	for range partsAtOnce {
		if s.telling = s.telling && s.told < hd.table.Parts(); !s.telling ||
			len(s.known) >= copiesAtOnce {
			break
		}
		hd.table.Replicas(now, s.told, func(e limiter.Entry) {
			s.known = append(s.known, waitingEntry{e, now})
		})
		s.told++
	}
	var known []limiter.Entry
	known, s.known = takeEntries(now, s.known)
	for _, e := range known {
		list = append(list, Charge{
			Limit: e.Limit, Key: e.Key, State: string(e.State), Age: e.Age,
		})
	}
	most := min(len(s.charges), copiesAtOnce)
	list = append(list, s.charges[:most]...)
	s.charges = s.charges[most:]
	return list
}

// chargedElsewhere charges what another node has admitted.
func (hd *holder) chargedElsewhere(now limiter.Instant, m *Move) {
	for i := range m.Charges {
		c := &m.Charges[i]
		hash := limiter.Hash(c.Key)
		if len(c.State) > 0 {
			hd.table.Import(now, &limiter.Entry{
				Limit: c.Limit, Key: c.Key, State: []byte(c.State), Age: c.Age + m.Age,
			}, false)
		}
		if c.Reset {
			hd.table.Reset(now, c.Limit, c.Key, hash)
		}
		if c.Units != 0 {
			hd.table.Do(now, c.Limit, c.Key, hash,
				limiter.Request{Cost: c.Units, Report: c.Units > 0})
		}
	}
}
