package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"penstock/cluster"
)

// A node id is one process's at a time. Of several boots that gossip holds alive under one id, all
// nodes choose the same one (meta.precedes): the one in the ring before one that is not, the older
// before the younger. So a second process of a name changes nothing for the first one, and a boot
// that another one precedes, itself included, owns nothing.
//
// What the cluster has agreed on goes before that: a process that was stopped may have been
// replaced meanwhile, and be in the ring by its own record when it goes on. The boot that is a
// member then says that it replaces it.
//
// A process that was killed and started again is in the same place for as long as gossip holds its
// earlier boot alive. So a boot that is preceded asks: if nobody listens at the peer address of the
// earlier boot any more, or the newcomer itself does, the earlier boot is gone; the newcomer says
// in its record that it replaces it, and comes first from then on. If the earlier boot answers, at
// its peer address or by gossip, the name is in use, and the newcomer has to stop. If it is silent,
// others may reach it, so the newcomer waits until gossip has found it dead.

const (
	// contestEvery is the pause between two rounds of asking.
	contestEvery = 200 * time.Millisecond
	// contestTimeout bounds one round.
	contestTimeout = time.Second
	// leaverGrace is how long an earlier boot is waited for that is leaving.
	leaverGrace = 20 * time.Second
	// settleRounds is how many rounds of gossip a node that has reached its cluster waits for news
	// of another one of its name.
	settleRounds = 3
	// mostReplaced is how many earlier boots a record names: those that gossip still holds alive.
	mostReplaced = 4
)

// ErrNameTaken is the reason why a node does not become ACTIVE: another node has its name.
var ErrNameTaken = errors.New("gossip: the name of this node is in use")

// precedes reports whether m rather than o is the node of their common id. Two different boots
// never precede each other.
func (m meta) precedes(o meta) bool {
	switch after := m.replaces(o); {
	case after != o.replaces(m):
		return after
	case m.standing() != o.standing():
		return m.standing() > o.standing()
	case m.started != o.started:
		return m.started < o.started
	}
	return m.boot < o.boot
}

// replaces reports whether m says that it has taken the place of o.
func (m meta) replaces(o meta) bool {
	return m.boot != 0 && o.boot != 0 && slices.Contains(m.replaced[:], o.boot)
}

// comesBefore reports whether m rather than o is the node of their common id: the one that the
// cluster has agreed on, or else the one that precedes the other. Two that replace each other are
// members of two clusters.
func (r *roster) comesBefore(m, o meta) bool {
	is, was := r.agreed(m.boot), r.agreed(o.boot)
	switch {
	case is && !was && !o.replaces(m), was && !is && !m.replaces(o):
		return is
	}
	return m.precedes(o)
}

// outlive notes that this boot, if it is the member of its id, has taken the place of those of its
// id that are alive and none, and precede it by their records. It reports whether there are any.
func (r *roster) outlive() (any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, p := range r.alive {
		if name != r.name && p.id == r.id && p.precedes(r.me) && !r.me.replaces(p.meta) &&
			r.agreed(r.me.boot) && !r.agreed(p.boot) {
			r.replaceLocked(p.boot)
			any = true
		}
	}
	return any
}

// standing orders states: a node in the ring is not pushed aside by one that comes, nor one that
// comes by one that goes.
func (m meta) standing() int {
	switch m.state {
	case cluster.StateActive:
		return 2
	case cluster.StateLeaving:
		return 1
	}
	return 0
}

// replace notes that this boot has taken the place of an earlier one.
func (r *roster) replace(boot uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replaceLocked(boot)
}

func (r *roster) replaceLocked(boot uint64) {
	if slices.Contains(r.me.replaced[:], boot) {
		return
	}
	copy(r.me.replaced[1:], r.me.replaced[:])
	r.me.replaced[0] = boot
}

// rivals are the boots of this node's id that come before this one, the first of them first.
func (r *roster) rivals() (rivals []peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rivalsLocked()
}

func (r *roster) rivalsLocked() (rivals []peer) {
	for name, p := range r.alive {
		if name != r.name && p.id == r.id && r.comesBefore(p.meta, r.me) {
			rivals = append(rivals, p)
		}
	}
	slices.SortFunc(rivals, func(a, b peer) int {
		if r.comesBefore(a.meta, b.meta) {
			return -1
		}
		return 1
	})
	return rivals
}

// contest finds out whether this node may have its name, as long as others precede it. At most one
// runs at a time. It returns the reason if this node must stop.
func (g *Gossip) contest() error {
	if twin := g.roster.copied(); twin != nil {
		return twin
	}
	began := time.Now()
	for {
		rivals := g.roster.rivals()
		if len(rivals) == 0 {
			return nil
		}
		for _, p := range rivals {
			waited := time.Since(began)
			switch g.challenge(p) {
			case answersYes:
				if p.state != cluster.StateLeaving || waited > leaverGrace {
					return g.taken(p)
				}
			case answersGone:
				g.log.Info("an earlier process of this name is gone; this one replaces it",
					"peer", p.peer, "boot", fmt.Sprintf("%016x", p.boot))
				g.roster.replace(p.boot)
				g.roster.went.ring()
				g.tasks.Go(g.tellRecord)
			default:
				if waited > conflictGrace {
					return g.taken(p)
				}
			}
		}
		select {
		case <-g.running.Done():
			return nil
		case <-time.After(contestEvery):
		}
	}
}

// tellRecord sends this node's record to the others, with what has changed in it.
func (g *Gossip) tellRecord() {
	if err := g.list.UpdateNode(stateTimeout); err != nil {
		g.log.Debug("the others learn later that an earlier process of this name is gone", "err",
			err)
	}
}

// taken is the reason why this node must stop.
func (g *Gossip) taken(p peer) error {
	other := fmt.Sprintf("another node has it (peer address %s, boot %016x, started %s)",
		p.peer, p.boot, time.Unix(0, int64(p.started)).UTC().Format(time.RFC3339))
	if g.wasActive.Load() {
		return fmt.Errorf(
			"%w: %q: %s and comes first; this one decides nothing any more and must stop; give "+
				"every node a --name of its own",
			ErrNameTaken, g.roster.id, other)
	}
	return fmt.Errorf("%w: %q: %s; give this node another --name, or stop that one first",
		ErrNameTaken, g.roster.id, other)
}

type answers uint8

const (
	answersNothing answers = iota
	answersYes
	answersGone
)

// challenge asks an earlier boot whether it is there, by gossip and at its peer address.
func (g *Gossip) challenge(p peer) answers {
	ctx, cancel := context.WithTimeout(g.running, contestTimeout)
	defer cancel()
	pinged := make(chan bool, 1)
	g.tasks.Go(func() {
		addr, err := netip.ParseAddrPort(p.addr)
		if err == nil {
			// another boot there does not answer
			_, err = g.list.Ping(nodeName(p.id, p.boot), net.UDPAddrFromAddrPort(addr))
		}
		pinged <- err == nil
	})
	err := errUnasked
	if g.config.Answers != nil {
		err = g.config.Answers(ctx, p.member(p.id))
	}
	switch alive := <-pinged; {
	case alive, err == nil:
		return answersYes
	case errors.Is(err, cluster.ErrGone):
		return answersGone
	}
	return answersNothing
}

var errUnasked = errors.New("gossip: nobody can ask at peer addresses")
