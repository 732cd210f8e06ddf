package cluster

// A gift has all that its taker needs. Other members have copies of the partition as well, and the
// last changes before the seal are for these too, if the gift is refused: their copies would count
// as whole without them, and so one of these members could be given the partition next.

// eachCopy calls f where a change of a key of partition p belongs. The last changes before p is
// given away go to its taker, and are kept for the others: if these got them and p was taken, they
// might come after what the taker says.
func (kp *keepers) eachCopy(p int, f func(*changes)) {
	pt := &kp.parts.list[p]
	if pt.to != nil && pt.copied > copyWanted {
		f(&pt.to.out.changes)
	}
	other := func(o *outbox) {
		switch {
		case o == nil:
		case pt.state == partGiving:
			f(&o.sealed)
		case pt.state == partHeld:
			f(&o.changes)
		}
	}
	if s := &pt.second; s.to != nil && s.copied > copyWanted && s.to != pt.to {
		other(s.to.out)
	}
	if pt.former != nil && pt.former != pt.to {
		other(pt.former.out)
	}
}

// dropSealedLocked drops what was kept for the copies of partitions that are not being given any
// more.
func (kp *keepers) dropSealedLocked() {
	for _, p := range kp.outboxes {
		if p.out.sealed.len() > 0 {
			p.out.sealed.split(func(i int) bool {
				return kp.parts.list == nil || kp.parts.list[i].state != partGiving
			}, kp.partition)
		}
	}
}

// goOnLocked has the other copies of p get what had changed last, after a gift of p was refused.
// While p was given away no look has read it, so a copy that had begun is made once more.
func (kp *keepers) goOnLocked(p int) {
	for _, other := range kp.outboxes {
		other.out.changes.add(other.out.sealed.split(func(i int) bool { return i == p },
			kp.partition))
	}
	if s := &kp.parts.list[p].second; s.to != nil && s.copied == copyBegun {
		kp.copyAgainLocked(uint16(p), s)
	}
}
