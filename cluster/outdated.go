package cluster

import (
	"slices"

	"penstock/limiter"
)

// A file is older than what the holder of a partition knows, if members have gone on with its
// counters without a break since before the file was written: all that the file says had been said
// to them by the death of its writer, but for the last message. Merged, it would undo what was
// given back and reset since. So the holder does not take in what it is lent of such a file, and a
// member that has one discards what it says of a partition when the holder begins a copy there.
//
// In the same way a copy of a boot that has given the partition away since is older than what its
// taker knows: a member may have been stopped while the boot said what it gave back.
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

// outdatedLocked discards what is here of partitions that m begins to copy, from a file or from
// when this node held them, if the sender of m, which holds them, knows better. It returns what
// that one may not know, to be merged once the copies have begun.
func (ik *intake) outdatedLocked(
	now limiter.Instant, r *route, m *Move,
) (unsaid []limiter.Entry) {
	given := m.lentOf()
	for _, p := range m.Begin {
		if int(p) >= len(ik.parts.list) || ik.outsiderLocked(r, m, p) {
			continue
		}
		some, known := ik.unsaidLocked(now, m, p)
		if known || ik.fileIsOldLocked(now, m, p) || ik.wasGivenLocked(p, given[p]) {
			ik.parts.list[p].restored = false
			ik.parts.forgetLocked(int(p))
			unsaid = append(unsaid, some...)
		}
	}
	return unsaid
}

// fileIsOldLocked reports whether all that is here of partition p is from a file, and the sender of
// m, which holds p, has gone on with its counters since before that was written.
func (ik *intake) fileIsOldLocked(now limiter.Instant, m *Move, p uint16) bool {
	fileAt, pt := ik.claims.restorer.fileAt, &ik.parts.list[p]
	return pt.restored && pt.state == partCopied && pt.copyOf == ik.boot &&
		fileAt != 0 && now.Add(-m.Up) < fileAt &&
		(now.Add(-max(0, m.Lack.Age)) < fileAt || !slices.Contains(m.Lack.Of, p))
}

// wasGivenLocked reports whether all that is here of partition p is a copy of a boot that has given
// p to another member since: all that it has said here, the taker of the gift knows.
func (ik *intake) wasGivenLocked(p uint16, by uint64) bool {
	pt := &ik.parts.list[p]
	return by != 0 && pt.state == partCopied && pt.copyOf == by && by != ik.boot &&
		!pt.restored && !pt.mixed && pt.to == nil
}

// mergeUnsaidLocked merges what was left here with the copies that have begun.
func (ik *intake) mergeUnsaidLocked(now limiter.Instant, unsaid []limiter.Entry) {
	for i := range unsaid {
		ik.parts.list[ik.partition(limiter.Hash(unsaid[i].Key))].pure = false
		ik.holder.table.Import(now, &unsaid[i], false)
	}
}
