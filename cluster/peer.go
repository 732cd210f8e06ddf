package cluster

import (
	"sync/atomic"

	"penstock/cluster/breaker"
	"penstock/cluster/ownership"
	"penstock/limiter"
)

// peer is what a node remembers of another one, from View to View while its boot lives.
type peer struct {
	breaker.Breaker
	id     string
	boot   uint64
	member atomic.Pointer[Member] // as the latest View has it
	heard  atomic.Int64           // Instant of its last sign of life
	left   atomic.Bool            // no process of this boot listens at its address
	// it has said that it is leaving, whatever the View says: news may be late
	leaves atomic.Bool
	// Instant since when members have been there without a break, as far as it knows: that of its
	// start at the latest, or a little later; 0: it has not said so
	began atomic.Int64
	// Instant at which it was first sent something that it did not answer as one that may decide,
	// since it last did; 0: it answers
	missed atomic.Int64
	// Instant at which words were said to it that it has answered; 0: it has answered none
	spoke atomic.Int64
	// Instant at which it was first sent something that it did not answer at all, since it last
	// did; 0: it answers
	mute   atomic.Int64
	astray atomic.Uint32 // messages to it that other members did not pass on (detour.go)
	// when it was last probed; guarded by partitions.mu, as is all that follows
	asked    limiter.Instant
	asking   bool            // a probe is under way
	hungUp   limiter.Instant // when the last stream of its own to this node ended
	behavior                 // as of the last tick
	life     ownership.Boot  // of its process, in the configuration
	// it has not answered for ownership.Params.Suspect, and the agreement was told so
	unreached bool
	claimed   claimed // its claims in the latest epoch
	// nil: nothing has been said yet about partitions (Node.outboxLocked)
	out *outbox
}

// behavior is how a peer behaves.
type behavior struct {
	silent bool // it has not answered for heirAnswers
	away   bool // … and nothing comes from it by another way, or it is cut off
	quits  bool // it leaves
}

func newPeer(m *Member, now limiter.Instant) *peer {
	p := &peer{id: m.ID, boot: m.Boot}
	p.member.Store(m)
	p.heard.Store(int64(now))
	return p
}

// met notes a sign of life.
func (p *peer) met(now limiter.Instant) {
	if int64(now) > p.heard.Load() {
		p.heard.Store(int64(now))
	}
	if p.left.Load() {
		p.left.Store(false)
	}
}

// answered notes that p has answered what was sent at some instant. One that is cut off from most
// members is missed nevertheless, as is one that is heard and does not answer: they take no copies.
func (p *peer) answered(sent, now limiter.Instant, cutOff bool) {
	p.met(now)
	if p.mute.Load() != 0 {
		p.mute.Store(0)
	}
	switch {
	case cutOff:
		p.miss(sent)
	case p.missed.Load() != 0:
		p.missed.Store(0)
	}
}

// lookLocked notes how p stands, and whether that has changed since the last tick.
func (p *peer) lookLocked(now limiter.Instant) (changed bool) {
	missed, heard := limiter.Instant(p.missed.Load()), limiter.Instant(p.heard.Load())
	before := p.behavior
	p.silent = p.left.Load() || missed != 0 && now > missed.Add(heirAnswers)
	p.away = p.silent && (p.mute.Load() == 0 || now > heard.Add(heirAnswers))
	p.quits = p.leaving()
	return p.behavior != before
}

// leaving reports whether p leaves: it has said so itself, or others have.
func (p *peer) leaving() bool { return p.leaves.Load() || p.member.Load().State == StateLeaving }

// miss notes that what was sent at some instant was not answered.
func (p *peer) miss(sent limiter.Instant) { p.missed.CompareAndSwap(0, int64(sent)) }

// ignored notes that what was sent at some instant was not answered at all.
func (p *peer) ignored(sent limiter.Instant) {
	p.mute.CompareAndSwap(0, int64(sent))
	p.miss(sent)
}

// unheard reports whether p has answered nothing for so long that calls take a detour.
func (p *peer) unheard(now limiter.Instant) bool {
	mute := limiter.Instant(p.mute.Load())
	return mute != 0 && now > mute.Add(detourAfter)
}

// Open reports whether requests are kept away from p. One that has been mute for long is asked for
// signs of life, five a second: no request has to find out at its own cost whether it answers.
func (p *peer) Open(now limiter.Instant) bool { return p.mutes(now) || p.Breaker.Open(now) }

// Pass reports whether a request may be sent to p now.
func (p *peer) Pass(now limiter.Instant) bool { return !p.mutes(now) && p.Breaker.Pass(now) }

func (p *peer) mutes(now limiter.Instant) bool { return p.Tripped() && p.unheard(now) }

// gone reports whether the process of p exists no more: its machine says so. One that is silent is
// evicted before others hold what it held.
func (p *peer) gone() bool { return p.left.Load() }

// beginLives has members of new boots be missed from now on, if their process is.
func (r *route) beginLives(now limiter.Instant, roll *roll) {
	for _, p := range r.peers {
		m, found := roll.member(p.id)
		if !found || m.Boot == p.life {
			continue
		}
		p.life = m.Boot
		p.leaves.Store(false) // that was the one before
		p.unreached = false
		if p.missed.Load() != 0 {
			p.missed.Store(int64(now))
		}
	}
}

// claimed is how often a peer has claimed from this node in one epoch. It takes gifts when all
// members have answered its first claim, and says so by a second one: a gift before that would be
// refused, and no node decides while one is under way.
type claimed struct {
	epoch ownership.Epoch
	again bool
}

// note counts a claim.
func (c *claimed) note(e ownership.Epoch) { *c = claimed{e, e == c.epoch} }
