package ownership

import "slices"

// descends reports whether this boot has installed e, or what followed it.
func (s *sight) descends(e Epoch) bool {
	return slices.ContainsFunc(s.chain, func(c *Configuration) bool {
		return c.Previous == e || c.Epoch == e
	})
}

// handOn tells a member of an older epoch what followed.
func (s *speaker) handOn(to Boot, e Epoch) {
	for _, c := range s.chain {
		if c.Previous == e {
			s.send(to, Decided{c})
			return
		}
	}
	s.send(to, Missed{e})
}
