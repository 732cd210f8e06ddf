package ownership

import "slices"

// relayBy sends a message to a member by way of all other voters.
func (s *speaker) relayBy(to Boot, m Message) {
	for _, v := range s.config.Voters {
		if v != s.me.Boot && v != to {
			s.send(v, Relayed{s.me.Boot, to, m})
		}
	}
}

// relayed passes a message on between two members, once, or takes it in if it is for this boot.
// An answer goes back by the same way.
func (s *State) relayed(now Instant, via Boot, r Relayed) {
	if _, twice := r.Inner.(Relayed); twice || s.stage != StageJoined || !s.config.Has(r.From) {
		return
	}
	if r.To != s.me.Boot {
		if via == r.From && s.config.Has(r.To) {
			s.send(r.To, r)
		}
		return
	}
	s.out.via, s.out.asker = via, r.From
	if m, named := r.Inner.(ofEpoch); named && s.inEpoch(now, r.From, m) {
		m.heard(s, now, r.From)
	}
	s.out.via, s.out.asker = 0, 0
}

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
