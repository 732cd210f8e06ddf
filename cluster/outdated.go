package cluster

import "penstock/limiter"

// A file is older than what the holder of a partition knows, if members have gone on with its
// counters without a break since before the file was written: all that the file says had been said
// to them by the death of its writer, but for the last message. Merged, it would undo what was given
// back and reset since. So the holder does not take in what it is lent of such a file, and a member
// that has one discards what it says of a partition when the holder begins a copy there.
//
// There was a break where the counters were forgotten (bereft.go), and when all members were down.

// unbroken is since when members have gone on with the counters of partition p, as far as this node
// knows, which holds it.
func (ps *partitions) unbroken(p int) limiter.Instant {
	return max(limiter.Instant(ps.since.Load()), limiter.Instant(ps.bereftAt[p].Load()))
}

// outlives reports whether what m says of partition p is from a file, and this node knows better.
func (ps *partitions) outlives(now limiter.Instant, m *Move, p uint16) bool {
	return m.Stored > 0 && ps.held[p].Load() && ps.unbroken(int(p)) < now.Add(-m.Stored)
}

// outdatedLocked discards what is here from a file of partitions that m begins to copy, if its
// sender, which holds them, knows better.
func (ik *intake) outdatedLocked(now limiter.Instant, r *route, m *Move) {
	fileAt := ik.claims.restorer.fileAt
	if fileAt == 0 || now.Add(-m.Up) >= fileAt {
		return
	}
	broken := func(uint16) bool { return false }
	if now.Add(-max(0, m.Lack.Age)) >= fileAt {
		broken = memberOf(m.Lack.Of)
	}
	for _, p := range m.Begin {
		if int(p) >= len(ik.parts.list) || broken(p) || ik.outsiderLocked(r, m, p) {
			continue
		}
		if pt := &ik.parts.list[p]; pt.restored && pt.state == partCopied && pt.copyOf == ik.boot {
			pt.restored = false
			ik.parts.forgetLocked(int(p))
		}
	}
}
