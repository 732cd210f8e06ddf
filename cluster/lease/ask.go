package lease

import (
	"penstock/cluster/dedup"
	"penstock/limiter"
)

// Ask is a message to the holder of a key: it settles old leases, and if More is set it asks for
// another one. There is one at a time for a key. It goes through two steps: [Leases.Begin], when it
// is written, and [Leases.Done], when it was answered or lost.
type Ask struct {
	Key  Key
	More bool

	lease *lease
}

// Begin returns the leases that the message settles, and how many units it asks for if it asks for
// more.
func (ls *Leases) Begin(a *Ask) (old []Held, want int64) {
	s := ls.shard(a.Key.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, a.lease.old = a.lease.old, nil
	return old, a.lease.Want()
}

// Grant is what became of an Ask for more.
type Grant struct {
	ID dedup.ID
	// no answer came, or no copy of the grant is known to exist: it may have been granted
	Unknown bool
	Units   int64            // 0: nothing was granted
	Rest    limiter.Decision // what the holder said of the rest
}

// Done notes what became of a message that was sent at sent: unheard are the settlements that
// nobody has heard, and g is the grant, or nil if none was asked for.
func (ls *Leases) Done(sent, now limiter.Instant, a *Ask, unheard []Held, g *Grant) {
	s := ls.shard(a.Key.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := a.lease
	l.asking = false
	for _, h := range unheard {
		if now < h.Until.Add(limiter.LeaseTTL) { // later the holder has forgotten it
			l.old = append(l.old, h)
		}
	}
	if g != nil {
		l.granted(sent, g)
	}
}

// granted takes the lease that was asked for at sent into use, if there is one.
func (l *lease) granted(sent limiter.Instant, g *Grant) {
	switch {
	case g.Unknown: // it is settled without being used
		l.old = append(l.old, Held{g.ID, limiter.Lent{Until: sent.Add(limiter.LeaseTTL)}})
		l.NotGranted(sent)
	case g.Units > 0:
		l.retire()
		l.id = g.ID
		l.Granted(sent, g.Units, &g.Rest)
	default:
		l.NotGranted(sent)
		if l.Units == 0 { // spent units are better charged than reserved
			l.retire()
		}
	}
}
