package sim

import (
	"math/bits"

	"penstock/cluster"
)

// byID finds what is known under an ID: every decision looks for several such things, and a map of
// Go takes longer for it than the judge for the rest. Places are tried one after the other from the
// one that the ID says; what is removed leaves none free in between. IDs are drawn one after the
// other, so some of them in a row lie side by side: they come from memory together. Nobody ever
// goes through all of them, so their order decides nothing.
type byID[T any] struct {
	places []placeOf[T] // as many as a power of two, and at most half of them taken
	n      int
}

type placeOf[T any] struct {
	id   cluster.ID
	what *T // nil: free
}

func (m *byID[T]) home(id cluster.ID) int {
	const row = 8
	hi, lo := bits.Mul64(id.Origin^0x9e3779b97f4a7c15, id.Sequence/row|1<<63)
	return int((hi^lo)*row + id.Sequence%row)
}

// place is where id is, or would be put.
func (m *byID[T]) place(id cluster.ID) int {
	i := m.home(id) & (len(m.places) - 1)
	for m.places[i].what != nil && m.places[i].id != id {
		i = (i + 1) & (len(m.places) - 1)
	}
	return i
}

// get is nil if nothing is known.
func (m *byID[T]) get(id cluster.ID) *T {
	if m.n == 0 {
		return nil
	}
	return m.places[m.place(id)].what
}

func (m *byID[T]) put(id cluster.ID, what *T) {
	if 2*m.n >= len(m.places) {
		old := m.places
		m.places = make([]placeOf[T], max(16, 2*len(old)))
		for _, p := range old {
			if p.what != nil {
				m.places[m.place(p.id)] = p
			}
		}
	}
	i := m.place(id)
	if m.places[i].what == nil {
		m.n++
	}
	m.places[i] = placeOf[T]{id, what}
}

func (m *byID[T]) remove(id cluster.ID) {
	if m.n == 0 {
		return
	}
	hole := m.place(id)
	if m.places[hole].what == nil {
		return
	}
	m.n--
	mask := len(m.places) - 1
	for i := (hole + 1) & mask; m.places[i].what != nil; i = (i + 1) & mask {
		// it may stand at the hole as well
		if home := m.home(m.places[i].id) & mask; (i-home)&mask >= (i-hole)&mask {
			m.places[hole] = m.places[i]
			hole = i
		}
	}
	m.places[hole] = placeOf[T]{}
}
