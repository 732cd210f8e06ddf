package limiter

// alone reports whether there is no other rule that the key's entry could belong to.
func (t *target) alone() bool {
	all := *t.rule.family.rules.Load()
	return len(all) == 1 && all[0] == t.rule
}

// find returns the index of the slot of the key: of its rule, or of another of the same family; or
// -1.
func (s *shard) find(t *target) int {
	if i := s.entries.find(t.mix, t.rule.id, t.key); i >= 0 || t.alone() {
		return i
	}
	return s.entryOf(t.mix, t.limit, t.key)
}

// adopt is find before a write: an entry of another rule becomes one of the key's.
func (s *shard) adopt(t *target) int {
	i := s.find(t)
	if i < 0 {
		return i
	}
	if e := &s.entries.slots[i]; e.rule() != t.rule.id {
		s.rules.index.Load().byID(e.rule()).live.Add(-1)
		t.rule.live.Add(1)
		e.setRule(t.rule.id)
		if s.changed != nil {
			e.head &^= listed // it was under the other rule
			s.changed.add(e)
		}
	}
	return i
}

// entryOf is the slot with mix that the key has under the identity of l, of any rule; or -1.
func (s *shard) entryOf(mix uint32, l *Limit, key string) int {
	st, index := &s.entries, s.rules.index.Load()
	// an empty slot, 0, becomes the largest
	for i := st.home(mix); st.slots[i].mix()-1 <= mix-1; i++ {
		if e := &st.slots[i]; e.mix() == mix && st.hasKey(e, key) &&
			index.byID(e.rule()).limit.Load().sameIdentity(l) {
			return i
		}
	}
	return -1
}

// restarts reports whether the key, which has no entry, has one under a namesake that is none of
// the family, with a state that would count there.
func (s *shard) restarts(now Instant, t *target) bool {
	if t.rule == nil || t.rule.namesakes == nil {
		return false
	}
	latest := *t.rule.namesakes.rules.Load()
	if len(latest) == 1 && latest[0] == t.rule {
		return false
	}
	index := s.rules.index.Load()
	for _, r := range latest {
		l := r.limit.Load()
		if r.gone.Load() || l.sameIdentity(t.limit) {
			continue
		}
		i := s.entryOf(mixOf(s.place.of(t.key, t.hash), l), l, t.key)
		if i >= 0 && !s.entries.fresh(now, index, &s.entries.slots[i]) {
			return true
		}
	}
	return false
}
