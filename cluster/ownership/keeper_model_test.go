package ownership

import (
	"fmt"
	"slices"
)

// keeper is a boot with partitions: a State, and beside it what a shell does with partitions when
// the State installs a configuration or ends. It is the model by which tests of this package look
// at R8 and R9. No node runs it. The shell of a node is package cluster, which claims, copies and
// gives in another way: it has keys to copy before it can give (DESIGN.md, section 7).
//
//	event ──▶ State.Step ──▶ installed: claim what this boot owns now
//	                    ├──▶ ended:     all that is held are copies
//	                    └──▶ messages about partitions, claims that are due
type keeper struct {
	*State
	parts  []Part
	claims claims
	does   []PartEffect // what this step asks of a shell
}

// partEffects are Effects, and what is to be done for partitions.
type partEffects struct {
	Effects
	Parts []PartEffect
}

// These rules are asked for by the model alone. TestDeletions takes them out as it does those of
// params.go.
const (
	ruleEqual  rule = ruleName << (1 + iota) // R8: claims and gifts count between equal epochs
	ruleAll                                  // R8: all members answer a claim
	ruleGift                                 // R8: a gift counts when all have answered the claim
	ruleCopies                               // R9: older copies are refused after an answer
	ruleRelay                                // R10: what is not answered goes by way of a voter
)

// keep is a boot with so many partitions, of which it knows nothing.
func keep(s *State, partitions int) *keeper {
	return &keeper{State: s, parts: make([]Part, partitions)}
}

// Next is the same process under a new boot. Its knowledge of partitions is copies.
func (s *keeper) Next(b Boot) *keeper {
	n := &keeper{State: s.State.Next(b), parts: slices.Clone(s.parts)}
	for i := range n.parts {
		n.parts[i].Bound = 0
	}
	return n
}

// enters has a boot begin an epoch and say nothing of it: some tests begin inside one.
func (s *keeper) enters(now Instant, c *Configuration) {
	s.install(now, c)
	s.follow(now, s.out.Effects)
	s.out, s.does = outbox{}, nil
}

// Due is State.Due. A boot that claims has something under way.
func (s *keeper) Due(now Instant) (due Instant, calm bool) {
	if slices.ContainsFunc(s.parts, func(p Part) bool { return p.Kind == Claiming }) {
		return now, false
	}
	return s.State.Due(now)
}

// Step takes in one event.
func (s *keeper) Step(now Instant, e Event) partEffects {
	if r, received := e.(Received); received && s.stage != StageEnded {
		s.out.Stirred = !renews(e)
		s.receive(now, r.From, r.Message)
	} else {
		s.step(now, e)
	}
	fx := s.effects(now)
	s.follow(now, fx)
	switch e := e.(type) {
	case Poll:
		if len(fx.Installed) == 0 { // else it has just begun to claim
			s.claim(now)
		}
	case Fetched:
		s.conclude(now, e.Partition, true)
	case Copying:
		s.copying(e)
	}
	s.empties()
	fx.Sends = append(fx.Sends, s.effects(now).Sends...)
	all := partEffects{fx, s.does}
	s.does = nil
	return all
}

// follow is what comes of a step of the State for partitions.
func (s *keeper) follow(now Instant, fx Effects) {
	begins := false
	for _, c := range fx.Installed {
		if !c.Has(s.me.Boot) {
			continue
		}
		begins, s.claims = true, claims{}
		for i := range s.parts {
			s.change(i, PartEvent{
				Kind: PartInstalled, Epoch: c.Epoch.Number,
				Mine: placeOwners(c, i) == s.me.Boot,
			})
		}
	}
	if fx.Ended != NotEnded {
		for i := range s.parts {
			s.change(i, PartEvent{Kind: PartEnded})
		}
	} else if begins {
		s.claim(now)
	}
}

// empties tells the State whether a member that leaves holds nothing any more, as Emptied does.
func (s *keeper) empties() {
	if s.stage != StageJoined {
		return
	}
	m, _ := s.config.Member(s.me.Boot)
	s.emptied = m.Role == RoleLeaving
	for i := range s.parts {
		k := s.parts[i].Kind
		if k == Held && placeOwners(s.config, i) != 0 || k == Giving {
			s.emptied = false
		}
	}
}

// receive takes in a message: first the State, for which one about partitions is a sign of life.
func (s *keeper) receive(now Instant, from Boot, m Message) {
	if r, relayed := m.(Relayed); relayed {
		if !s.closed {
			s.relayed(now, from, r)
		}
		return
	}
	s.State.receive(now, from, m)
	s.hear(now, from, m)
}

// hear takes in a message about partitions, one of an epoch only if it is this boot's.
func (s *keeper) hear(now Instant, from Boot, m Message) {
	of, named := m.(ofEpoch)
	if !named || s.closed || s.stage != StageJoined {
		return
	}
	equal := ruleEqual
	if _, copies := m.(CopyOf); copies {
		equal = ruleCopies
	}
	if of.epoch() != s.config.Epoch && s.p.keeps(equal) {
		return
	}
	switch m := m.(type) {
	case Claim:
		s.claimAsked(from, m)
	case ClaimAnswer:
		s.claimAnswered(now, from, m)
	case Gift:
		s.gift(from, m)
	case Taken:
		s.change(m.Partition, PartEvent{Kind: PartTaken, Boot: from, Epoch: m.Epoch.Number})
	case CopyOf:
		s.copyOf(now, from, m)
	}
}

// relayBy sends a message to a member by way of all other voters.
func (s *keeper) relayBy(to Boot, m Message) {
	for _, v := range s.config.Voters {
		if v != s.me.Boot && v != to {
			s.send(v, Relayed{s.me.Boot, to, m})
		}
	}
}

// relayed passes a message on between two members, once, or takes it in if it is for this boot.
// An answer goes back by the same way.
func (s *keeper) relayed(now Instant, via Boot, r Relayed) {
	if _, twice := r.Inner.(Relayed); twice || s.stage != StageJoined || !s.config.Has(r.From) {
		return
	}
	if r.To != s.me.Boot {
		if via == r.From && s.config.Has(r.To) {
			s.send(r.To, r)
		}
		return
	}
	before := len(s.out.Sends)
	if m, named := r.Inner.(ofEpoch); named {
		if s.inEpoch(now, r.From, m) {
			m.heard(s.State, now, r.From)
		}
		s.hear(now, r.From, m)
	}
	for i, x := range s.out.Sends[before:] {
		if x.To == r.From {
			s.out.Sends[before+i] = Send{To: via, Message: Relayed{s.me.Boot, r.From, x.Message}}
		}
	}
}

type (
	// Fetched says that the better copy which a PartFetch asked for is here.
	Fetched struct{ Partition int }
	// Copying says that this holder wants To to keep copies of a partition.
	Copying struct {
		Partition int
		To        Boot
		Whole     bool
	}
)

func (Fetched) happens(*State, Instant) {}
func (Copying) happens(*State, Instant) {}

// Standing is how a member stands to a partition that another one claims.
type Standing uint8

const (
	StandingFree Standing = iota // holds it not, and takes no gift of an older epoch
	StandingHeld                 // held it until now; a gift follows
)

// PartAnswer answers a claim for one partition.
type PartAnswer struct {
	Partition int
	Standing  Standing
	Copy      Copy // what the answerer has of it
}

type (
	// Claim asks a member whether it holds partitions that the sender owns in Epoch.
	Claim struct {
		Epoch      Epoch
		Partitions []int
	}
	// ClaimAnswer answers it, partition by partition.
	ClaimAnswer struct {
		Epoch Epoch
		Parts []PartAnswer
	}
	// Gift is the end of a holding: with the last changes goes the right to decide.
	Gift struct {
		Epoch     Epoch
		Partition int
	}
	// Taken says that the gift was taken.
	Taken struct {
		Epoch     Epoch
		Partition int
	}
	// CopyOf says which partitions a stream of copies belongs to, and whether they are whole by
	// now.
	CopyOf struct {
		Epoch     Epoch
		Partition int
		Whole     bool
	}
	// CopyKept acknowledges it.
	CopyKept struct {
		Epoch     Epoch
		Partition int
	}

	// Relayed carries a message by way of a voter.
	Relayed struct {
		From, To Boot
		Inner    Message
	}
)

func (m Claim) String() string { return fmt.Sprintf("Claim %v %v", m.Epoch, m.Partitions) }
func (m ClaimAnswer) String() string {
	s := fmt.Sprintf("ClaimAnswer %v", m.Epoch)
	for _, a := range m.Parts {
		word := "free"
		if a.Standing == StandingHeld {
			word = "held"
		}
		s += fmt.Sprintf(" %d:%s", a.Partition, word)
	}
	return s
}
func (m Gift) String() string     { return fmt.Sprintf("Gift %v %d", m.Epoch, m.Partition) }
func (m Taken) String() string    { return fmt.Sprintf("Taken %v %d", m.Epoch, m.Partition) }
func (m CopyOf) String() string   { return fmt.Sprintf("CopyOf %v %d", m.Epoch, m.Partition) }
func (m CopyKept) String() string { return fmt.Sprintf("CopyKept %v %d", m.Epoch, m.Partition) }
func (m Relayed) String() string  { return fmt.Sprintf("Relayed %d→%d: %v", m.From, m.To, m.Inner) }

func (m Claim) epoch() Epoch       { return m.Epoch }
func (m ClaimAnswer) epoch() Epoch { return m.Epoch }
func (m Gift) epoch() Epoch        { return m.Epoch }
func (m Taken) epoch() Epoch       { return m.Epoch }
func (m CopyOf) epoch() Epoch      { return m.Epoch }

func (Claim) heard(*State, Instant, Boot)       {}
func (ClaimAnswer) heard(*State, Instant, Boot) {}
func (Gift) heard(*State, Instant, Boot)        {}
func (Taken) heard(*State, Instant, Boot)       {}
func (CopyOf) heard(*State, Instant, Boot)      {}
func (CopyKept) heard(*State, Instant, Boot)    {}
func (Relayed) heard(*State, Instant, Boot)     {}
