package limiter

import "sync/atomic"

// lostStates remembers of which limits states came from elsewhere (Merge, Import) while there was
// no number for the limit: a key of such a limit, seen later as if it had consumed nothing, would
// be admitted too much. So limits without a rule are refused until what was lost has run out. Which
// limits that are is known by their identities modulo the number of cells; so a newcomer may be
// refused for another's sake, and is never admitted too much.
type lostStates struct {
	cells atomic.Pointer[[lostCells]atomic.Int64] // Instants, or 0; nil until something is lost
}

const lostCells = 1024

// add says that a state with words w of a key under l is lost.
func (s *lostStates) add(now Instant, l *Limit, w []int64) {
	if l.fresh(w, now) {
		return
	}
	if s.cells.Load() == nil {
		s.cells.CompareAndSwap(nil, new([lostCells]atomic.Int64))
	}
	putOff(&s.cells.Load()[l.seed%lostCells], now.Add(l.debtOf(w, now).reset))
}

// of reports whether states of l, which has no rule, may be lost.
func (s *lostStates) of(now Instant, l *Limit) bool {
	cells := s.cells.Load()
	if cells == nil {
		return false
	}
	until := cells[l.seed%lostCells].Load()
	return until != 0 && until > int64(now)
}

// learn is rules.learn for a state or a request at now. It counts what is refused.
func (t *Table) learn(now Instant, l *Limit) *rule {
	if l.Unlimited {
		return nil
	}
	class := classOf(l)
	if !t.rules.lost[class].of(now, l) {
		if r := t.rules.learn(l, t.shards); r != nil {
			return r
		}
	}
	t.rules.refused[class].Add(1)
	return nil
}

// lose notes that there is no number for the limit of a state from elsewhere.
func (t *Table) lose(now Instant, l *Limit, w []int64) {
	if !l.Unlimited {
		t.rules.lost[classOf(l)].add(now, l, w)
	}
}
