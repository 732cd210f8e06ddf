package ownership

import "time"

// Kind is how this boot stands to one partition. There is one transition function, Part.Next:
//
//	            installed, mine                    all free, or gift taken
//	none, copy ─────────────────▶ claiming{epoch} ────────────────────────▶ held{epoch}
//	    ▲  ▲                          │    ▲                                  │      │
//	    │  └──installed, not mine─────┘    └──installed, mine──┐              │   installed:
//	    │                                                      │              │   held{new epoch}
//	    └──gift taken, or installed, not mine────────── giving{to, epoch} ◀───┘
//	       (copy of to)                                            claimed by its owner
type Kind uint8

const (
	None     Kind = iota // nothing is known of it
	Copied               // a copy of what another boot holds, or held
	Claiming             // this boot owns it in Epoch, and asks all members whether they hold it
	Held                 // this boot decides for it, while it has the right
	Giving               // held until now; given to To in Epoch, and not yet known to be taken
)

func (k Kind) String() string {
	return [...]string{"none", "copy", "claiming", "held", "giving"}[k]
}

// Copy says which boot's entries are here, and how good they are.
type Copy struct {
	Of    Boot
	Epoch uint64 // in which they were sent
	Whole bool
	At    Instant // when the stream was last heard, on this boot's clock
}

// better reports whether entries of c are to be had by a boot that has those of o.
func (c Copy) better(o Copy) bool {
	switch {
	case c.Of == 0:
		return false
	case c.Epoch != o.Epoch:
		return c.Epoch > o.Epoch && (c.Whole || !o.Whole)
	}
	return c.Whole && !o.Whole
}

// Part is what a boot knows of one partition.
type Part struct {
	Kind  Kind
	Epoch uint64 // of Claiming, Held and Giving
	To    Boot   // of Giving
	Bound uint64 // no gift and no copy of an epoch below is taken
	Copy  Copy   // the entries that are here
}

// PartKind is what may happen to a partition.
type PartKind uint8

const (
	PartInstalled PartKind = iota // a configuration, in which it is Mine or not
	PartClaimed                   // its owner Boot asks for it
	PartFree                      // all members have answered that they do not hold it
	PartGift                      // Boot gives it
	PartTaken                     // Boot has taken the gift
	PartCopied                    // Boot streams copies
	PartEnded                     // this boot has ended
)

// PartEvent is something that happens to a partition.
type PartEvent struct {
	Kind  PartKind
	Epoch uint64
	Mine  bool
	Boot  Boot
	Whole bool
	At    Instant
}

// Next is the state after an event. An event that does not fit changes nothing.
func (p Part) Next(e PartEvent, keeps func(rule) bool) Part {
	switch e.Kind {
	case PartInstalled:
		return p.installed(e)
	case PartClaimed:
		return p.claimed(e, keeps)
	case PartFree:
		if p.Kind == Claiming {
			p.Kind = Held
		}
	case PartGift:
		return p.given(e, keeps)
	case PartTaken:
		if p.Kind == Giving && p.To == e.Boot && p.Epoch == e.Epoch {
			p.Kind, p.To = Copied, 0
		}
	case PartCopied:
		return p.copied(e, keeps)
	case PartEnded:
		if p.Kind != None {
			p.Kind, p.Epoch, p.To = Copied, 0, 0
		}
	}
	return p
}

// installed is Next for a new configuration. A held partition stays held, until its owner claims
// it.
func (p Part) installed(e PartEvent) Part {
	switch {
	case p.Kind == Held:
		p.Epoch = e.Epoch
	case e.Mine:
		p.Kind, p.Epoch, p.To = Claiming, e.Epoch, 0
		p.Bound = max(p.Bound, e.Epoch)
	case p.Copy.Of != 0:
		p.Kind, p.Epoch, p.To = Copied, 0, 0
	default:
		p.Kind, p.Epoch, p.To = None, 0, 0
	}
	return p
}

// claimed is Next for a claim: what is held is given to the owner, unless the claim is too old.
func (p Part) claimed(e PartEvent, keeps func(rule) bool) Part {
	if e.Epoch < p.Bound && keeps(ruleEqual) {
		return p
	}
	p.Bound = max(p.Bound, e.Epoch)
	if p.Kind == Held {
		p.Kind, p.Epoch, p.To = Giving, e.Epoch, e.Boot
		p.Copy = Copy{Of: e.Boot, Epoch: e.Epoch, Whole: true}
	}
	return p
}

// given is Next for a gift, which counts in the epoch of the claim only.
func (p Part) given(e PartEvent, keeps func(rule) bool) Part {
	switch {
	case p.Kind == Claiming && (p.Epoch == e.Epoch || !keeps(ruleEqual)):
	case keeps(ruleEqual) || p.Kind == Held:
		return p
	}
	p.Kind, p.Epoch = Held, max(p.Epoch, e.Epoch)
	return p
}

// copied is Next for copies, which are not taken over anything better.
func (p Part) copied(e PartEvent, keeps func(rule) bool) Part {
	old := e.Epoch < p.Bound || p.Kind != None && p.Kind != Copied
	if !old || !keeps(ruleCopies) {
		if p.Kind == None {
			p.Kind = Copied
		}
		p.Copy = Copy{Of: e.Boot, Epoch: e.Epoch, Whole: e.Whole, At: e.At}
	}
	return p
}

// PartEffect is what a partition's shell has to do.
type PartEffect struct {
	Partition int
	Kind      PartEffectKind
	Boot      Boot // of PartGive, PartFetch
	Fresh     bool // of PartHold: nothing is missing; else decisions carry a bound for one window
}

// PartEffectKind is one of them.
type PartEffectKind uint8

const (
	PartHold  PartEffectKind = iota // decide, while the right lasts
	PartDrop                        // decide no more
	PartGive                        // decide no more; send the last changes along with the Gift
	PartFetch                       // fetch the better copy of Boot, then say Fetched
)

func (k PartEffectKind) String() string { return [...]string{"hold", "drop", "give", "fetch"}[k] }

// Part is what this boot knows of a partition.
func (s *keeper) Part(i int) Part { return s.parts[i] }

// Holds reports whether this boot may charge a take of the partition that was read at now, unmarked
// or not: it is held, and the right is valid.
func (s *keeper) Holds(now Instant, i int) bool {
	return s.stage == StageJoined && s.parts[i].Kind == Held && s.Deciding(now)
}

// change moves one partition, and reports what its shell has to do.
func (s *keeper) change(i int, e PartEvent) {
	before := s.parts[i]
	after := before.Next(e, s.p.keeps)
	s.parts[i] = after
	if before.Kind == after.Kind {
		return
	}
	fx := PartEffect{Partition: i}
	switch {
	case after.Kind == Held:
		fx.Kind, fx.Fresh = PartHold, e.Kind == PartGift || s.fresh(before)
	case after.Kind == Giving:
		fx.Kind, fx.Boot = PartGive, after.To
	case before.Kind == Held:
		fx.Kind = PartDrop
	default:
		return
	}
	s.does = append(s.does, fx)
}

// copyLag is how far a copy may lag behind the last sign of life of its holder.
const copyLag = 500 * time.Millisecond

// fresh reports whether what is here of a partition is all that its holder had, but for copyLag
// (R9). A partition that was never held anywhere is fresh in the first epoch of its lineage's root.
func (s *keeper) fresh(p Part) bool {
	c := p.Copy
	if c.Of == 0 {
		return s.config.Previous == Epoch{}
	}
	return c.Whole && (c.Of == s.me.Boot || s.entry(c.Of).heard.Since(c.At) <= copyLag)
}
