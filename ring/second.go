package ring

import "sync"

// seconds are the second heirs of partitions, as far as they were asked for.
type seconds struct {
	mu     sync.Mutex
	placed map[[2]int]bool     // pairs of an owner and an heir that heirs covers
	heirs  *[Partitions]uint16 // index in Ring.ids, or noHeir
}

// SecondHeir is the index in Members of the owner of the partition once its owner and its Heir are
// gone; false if there is no third member.
//
// The first call for an owner and an heir places all partitions without these two, as Heir does for
// an owner.
func (r *Ring) SecondHeir(partition int) (int, bool) {
	heir, _ := r.Heir(partition)
	owner := r.Owner(partition)
	s := &r.seconds
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placed == nil {
		s.placed, s.heirs = make(map[[2]int]bool), new([Partitions]uint16)
	}
	if both := [2]int{owner, heir}; !s.placed[both] {
		s.placed[both] = true
		r.inheritBoth(owner, heir)
	}
	second := s.heirs[partition]
	return int(second), second != noHeir
}

// inheritBoth fills in the second heirs of all partitions of owner that heir inherits.
func (r *Ring) inheritBoth(owner, heir int) {
	var heirs [Partitions]uint16
	if r.circle().place(&heirs, owner, heir) != nil {
		r.restOfBoth(&heirs, owner)
	}
	for p := range r.owners {
		if r.Owner(p) == owner && int(r.heirs[p]) == heir {
			r.seconds.heirs[p] = heirs[p]
		}
	}
}

// restOfBoth has the library place the partitions of owner without their heirs.
func (r *Ring) restOfBoth(heirs *[Partitions]uint16, owner int) {
	rest, err := r.Without(r.ids[owner])
	for p := range heirs {
		heirs[p] = noHeir
		if err != nil || r.Owner(p) != owner {
			continue
		}
		if second, ok := rest.Heir(p); ok {
			if second >= owner {
				// every member after the owner has the index plus 1 in the full ring
				second++
			}
			heirs[p] = uint16(second)
		}
	}
}
