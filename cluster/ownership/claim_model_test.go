package ownership

import "slices"

// claims are the partitions that this boot owns in its epoch and does not hold yet (R8). All
// members of the epoch are asked, and each answers once for each partition: "free" binds it against
// older gifts and copies, and "held" is followed by a gift. Nothing is concluded by silence: a
// member that does not answer is evicted first, and installing the next epoch begins the claims
// anew.
type claims struct {
	answered []Boot  // members that have answered
	free     []int   // by place in the list of partitions: answers that called it free
	parts    []int   // the partitions
	better   []offer // copies that are better than this boot's own
	tries    int     // how often was asked
}

// offer is a better copy.
type offer struct {
	partition int
	from      Boot
	copy      Copy
}

// claim asks again for partitions that are not held yet. A claim that is not answered goes by way
// of the voters as well: two members that cannot reach each other share one, for their majorities
// intersect (R10).
func (s *keeper) claim(now Instant) {
	if s.stage != StageJoined {
		return
	}
	c := &s.claims
	if c.parts == nil {
		for i := range s.parts {
			if s.parts[i].Kind == Claiming {
				c.parts = append(c.parts, i)
			}
		}
		if c.parts == nil {
			return
		}
		c.free = make([]int, len(c.parts))
		s.concludeFree(now)
	}
	var open []int
	for _, i := range c.parts {
		if s.parts[i].Kind == Claiming {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return
	}
	m := Claim{s.config.Epoch, c.parts}
	for _, other := range s.config.Members {
		if b := other.Boot; b != s.me.Boot && !slices.Contains(c.answered, b) ||
			s.awaitsGift(b, open) {
			s.send(b, m)
			if c.tries > 0 && s.p.keeps(ruleRelay) {
				s.relayBy(b, m)
			}
		}
	}
	c.tries = min(c.tries+1, 1)
	s.concludeFree(now) // what was to be fetched may have got lost
}

// awaitsGift reports whether a member has answered that it held something that has not come.
func (s *keeper) awaitsGift(b Boot, open []int) bool {
	for _, i := range open {
		if k := slices.Index(s.claims.parts, i); s.claims.free[k] < len(s.claims.answered) {
			return b != s.me.Boot
		}
	}
	return false
}

// claimAsked answers the claim of an owner.
func (s *keeper) claimAsked(from Boot, m Claim) {
	answer := ClaimAnswer{Epoch: m.Epoch}
	var gifts []Gift
	for _, i := range m.Partitions {
		if i < 0 || i >= len(s.parts) || placeOwners(s.config, i) != from && s.p.keeps(ruleEqual) {
			return
		}
		s.change(i, PartEvent{Kind: PartClaimed, Epoch: m.Epoch.Number, Boot: from})
		p := s.parts[i]
		a := PartAnswer{Partition: i, Standing: StandingFree, Copy: p.Copy}
		if p.Kind == Giving && p.To == from && p.Epoch == m.Epoch.Number {
			a.Standing = StandingHeld
			gifts = append(gifts, Gift{m.Epoch, i})
		}
		answer.Parts = append(answer.Parts, a)
	}
	s.send(from, answer)
	for _, g := range gifts { // a gift counts after the answer
		s.send(from, g)
	}
}

// claimAnswered counts an answer.
func (s *keeper) claimAnswered(now Instant, from Boot, m ClaimAnswer) {
	c := &s.claims
	if len(m.Parts) != len(c.parts) || slices.Contains(c.answered, from) || !s.config.Has(from) {
		return
	}
	c.answered = append(slices.Clone(c.answered), from)
	slices.Sort(c.answered)
	c.free = slices.Clone(c.free)
	for k, a := range m.Parts {
		if a.Partition != c.parts[k] {
			return
		}
		if a.Standing == StandingFree {
			c.free[k]++
			s.offered(offer{a.Partition, from, a.Copy})
		}
	}
	s.concludeFree(now)
}

// allAnswered reports whether all members of the epoch have answered the claim.
func (s *keeper) allAnswered() bool {
	return len(s.claims.answered) >= len(s.config.Members)-1 || !s.p.keeps(ruleGift)
}

// offered keeps the best copy that was named.
func (s *keeper) offered(o offer) {
	c := &s.claims
	if !o.copy.better(s.parts[o.partition].Copy) {
		return
	}
	for k := range c.better {
		if b := c.better[k]; b.partition == o.partition {
			if o.copy.better(b.copy) {
				c.better = slices.Clone(c.better)
				c.better[k] = o
			}
			return
		}
	}
	c.better = append(slices.Clone(c.better), o)
}

// concludeFree holds what all have called free.
func (s *keeper) concludeFree(now Instant) {
	need := len(s.config.Members) - 1
	if !s.p.keeps(ruleAll) {
		need = min(need, s.config.Quorum()-1)
	}
	for k, i := range s.claims.parts {
		if s.parts[i].Kind == Claiming && s.claims.free[k] >= need {
			s.conclude(now, i, false)
		}
	}
}

// conclude holds a partition that all have called free, unless a better copy is to be fetched
// first. That may take as long as a line is cut. If the right is over by then, the boot may have
// been evicted, and another one may hold the partition; if it gets the right again, claim has the
// copy fetched anew.
func (s *keeper) conclude(now Instant, i int, fetched bool) {
	if s.parts[i].Kind != Claiming || fetched && !s.Deciding(now) {
		return
	}
	for k, b := range s.claims.better {
		if b.partition != i {
			continue
		}
		if !fetched {
			s.does = append(s.does, PartEffect{
				Partition: i, Kind: PartFetch,
				Boot: b.from,
			})
			return
		}
		s.parts[i].Copy = b.copy
		s.claims.better = slices.Delete(slices.Clone(s.claims.better), k, k+1)
		break
	}
	s.change(i, PartEvent{Kind: PartFree})
}

// gift takes over what this boot claims in the same epoch, and nothing else. It counts when all
// members have answered the claim: so a member that has answered none in this epoch knows that
// nobody has begun to hold anything in it (R11).
func (s *keeper) gift(from Boot, m Gift) {
	if m.Partition < 0 || m.Partition >= len(s.parts) {
		return
	}
	if s.parts[m.Partition].Kind == Claiming && !s.allAnswered() {
		return // the claim is repeated, and the gift with it
	}
	s.change(m.Partition, PartEvent{Kind: PartGift, Epoch: m.Epoch.Number, Boot: from})
	if s.parts[m.Partition].Kind == Held {
		s.send(from, Taken(m))
	}
}

// copying tells a heir how far the stream of copies has come.
func (s *keeper) copying(e Copying) {
	if s.stage == StageJoined && s.parts[e.Partition].Kind == Held {
		s.send(e.To, CopyOf{s.config.Epoch, e.Partition, e.Whole})
	}
}

// copyOf takes copies in, unless this boot has answered a claim of a newer epoch (R9).
func (s *keeper) copyOf(now Instant, from Boot, m CopyOf) {
	if m.Partition < 0 || m.Partition >= len(s.parts) {
		return
	}
	s.change(m.Partition, PartEvent{
		Kind: PartCopied, Epoch: m.Epoch.Number, Boot: from, Whole: m.Whole, At: now,
	})
	if s.parts[m.Partition].Copy.Of == from {
		s.send(from, CopyKept{m.Epoch, m.Partition})
	}
}
