package cluster

import (
	"penstock/limiter"
)

// inbox is what was last taken in from a boot.
type inbox struct {
	heard    limiter.Instant // when that was
	sequence uint64
	pass     uint64 // of the boot over its table: all that it has copied here until then has come
	refused  []uint16
	whole    []uint16        // MoveAnswer.Whole
	begun    map[uint16]bool // partitions of which the boot keeps the copies here
}

// succeedLocked notes that all members have called partition p free, and that this node holds it
// from now on: no other node does. Entries of a boot that has held it before are an old copy from
// then on, or this node's own that come back: merged, they would undo a reset, and windows would
// begin later by the way.
func (ik *intake) succeedLocked(p uint16) {
	for _, in := range ik.inbox {
		delete(in.begun, p)
	}
}

// decides reports whether the boot has decided for partition p since all of its copy came: what it
// says of a key from then on is newer than all that was known here before that, from whichever
// node. Merged, it would hide what the boot has given back.
func (in *inbox) decides(pt *part, p uint16) bool {
	return in.begun[p] && pt.whole && !pt.mixed && !pt.restored
}
