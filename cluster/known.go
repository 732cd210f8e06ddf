package cluster

import (
	"penstock/limiter"
)

// Known is what a claimer has of partitions that another boot held, or is lent of them: whole
// copies, with all that the holder had found changed until some pass over its table. Of partitions
// that the sender begins to copy it says which boot has given them to it.
type Known struct {
	Of    uint64   // boot of the holder
	Pass  uint64   // of a claimer
	Whole []uint16 // partitions
}

// lentOf has, by partition that m lends whole, the boot that held it last, as far as m says.
func (m *Move) lentOf() map[uint16]uint64 {
	if len(m.Known) == 0 {
		return nil
	}
	of := make(map[uint16]uint64)
	for i := range m.Known {
		for _, p := range m.Known[i].Whole {
			of[p] = m.Known[i].Of
		}
	}
	return of
}

// givenBy says which boots have given some of the partitions that are held here.
func (ps *partitions) givenBy(begun []uint16) (known []Known) {
	of := func(p uint16) uint64 {
		if pt := &ps.list[p]; pt.state == partHeld {
			return pt.held.from
		}
		return 0
	}
	return knownBy(begun, of)
}

// knownBy sorts partitions by the boots that they are of, but for those of none.
func knownBy(parts []uint16, of func(p uint16) uint64) (known []Known) {
	at := make(map[uint64]int)
	for _, p := range parts {
		boot := of(p)
		if boot == 0 {
			continue
		}
		i, found := at[boot]
		if !found {
			i = len(known)
			at[boot] = i
			known = append(known, Known{Of: boot})
		}
		known[i].Whole = append(known[i].Whole, p)
	}
	return known
}

// wholeOf says of which holders the whole copies are that are lent.
func (ps *partitions) wholeOf(whole, lent []uint16) (known []Known) {
	if len(lent) == 0 {
		return nil
	}
	isLent := memberOf(lent)
	return knownBy(whole, func(p uint16) uint64 {
		if !isLent(p) {
			return 0
		}
		return ps.list[p].lastHolder()
	})
}

// knownLocked is what this node has of the partitions that it claims.
func (cl *claimer) knownLocked(wanted []uint16) (known []Known) {
	at := make(map[uint64]int)
	for _, p := range wanted {
		pt := &cl.parts.list[p]
		in := cl.intake.inbox[pt.copyOf]
		if !pt.whole || in == nil || in.pass == 0 {
			continue
		}
		i, found := at[pt.copyOf]
		if !found {
			i = len(known)
			at[pt.copyOf] = i
			known = append(known, Known{Of: pt.copyOf, Pass: in.pass})
		}
		known[i].Whole = append(known[i].Whole, p)
	}
	return known
}

// sufficesLocked lists the partitions that a claimer has copies of that lack nothing that this node
// has: those need not be lent.
func (cl *claimer) sufficesLocked(m *Move) map[uint16]bool {
	suffices := make(map[uint16]bool)
	for i := range m.Known {
		k := &m.Known[i]
		for _, p := range k.Whole {
			if int(p) >= len(cl.parts.list) {
				continue
			}
			pt := &cl.parts.list[p]
			if pt.copyOf == k.Of && k.Of != 0 && k.Of != cl.boot && pt.pass != 0 &&
				k.Pass >= pt.pass {
				suffices[p] = true
			}
		}
	}
	return suffices
}

// passed notes that the copy of the key with this hash has what m says of it.
func (ik *intake) passed(m *Move, hash uint64) {
	if pt := &ik.parts.list[ik.partition(hash)]; pt.copyOf == m.From {
		pt.pass = max(pt.pass, m.Pass)
	}
}

// holdsPassed is passed for the holds of m.
func (ik *intake) holdsPassed(m *Move) {
	for i := range m.Holds {
		ik.passed(m, limiter.Hash(m.Holds[i].Key))
	}
}
