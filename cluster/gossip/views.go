package gossip

import (
	"fmt"
	"slices"
	"time"

	"penstock/cluster"
	"penstock/ring"
)

// announce makes the Views until Close. After Start it is the only goroutine that does.
func (g *Gossip) announce() {
	var later, stir <-chan time.Time // nil while nothing waits
	rounds := 0                      // of stir that are to come
	var verdict chan error           // nil while no contest is under way
	reported := false
	for {
		var done chan struct{}
		select {
		case <-g.running.Done():
			return
		case <-g.roster.came:
			if later == nil {
				later = time.After(g.timing.Coalesce)
			}
			stir, rounds = atOnce(), stirRounds
			continue
		case <-stir:
			stir, rounds = g.stir(rounds)
			continue
		case err := <-verdict:
			verdict = nil
			if err != nil {
				reported = true
				g.reportConflict(err)
				continue
			}
		case <-later:
		case <-g.roster.went:
			stir, rounds = atOnce(), stirRounds
		case done = <-g.flush:
		}
		later = nil // the View has everything that was waiting
		if contested := g.publish(); contested && verdict == nil && !reported {
			verdict = make(chan error, 1)
			g.tasks.Go(func() { verdict <- g.contest() })
		}
		if done != nil {
			close(done)
		}
	}
}

// publish makes a View of the roster if it differs from the present one. It reports whether another
// node comes before this one under its id.
func (g *Gossip) publish() (contested bool) {
	if g.roster.outlive() {
		g.tasks.Go(g.tellRecord)
	}
	members, contested := g.roster.members()
	if contested && g.config.OnContest != nil {
		defer g.config.OnContest()
	}
	if old := g.view.Load(); old != nil && slices.Equal(old.Members, members) {
		return contested
	}
	view, err := cluster.NewViewOn(g.config.Member.ID, members, g.ring)
	if err != nil {
		g.log.Error("the view of the cluster stays as it was", "err", err)
		return contested
	}
	g.view.Store(view)
	g.log.Debug("view", "members", len(view.Members), "active", view.Active(), "state",
		view.Me().State.String(),
		"ring", fmt.Sprintf("%016x", view.RingHash()))
	if g.config.OnView != nil {
		g.config.OnView(view)
	}
	return contested
}

// ring is the ring of these nodes. Building one takes milliseconds, and most changes of the roster
// leave the ring as it is: a node that joins or leaves changes the roster three times and the ring
// once.
func (g *Gossip) ring(ids []string) (*ring.Ring, error) {
	if v := g.view.Load(); v != nil && v.Ring != nil && slices.Equal(v.Ring.Members(), ids) {
		return v.Ring, nil
	}
	return ring.New(ids)
}

func (g *Gossip) reportConflict(rival error) {
	g.log.Error("this node must stop", "err", rival)
	if g.config.OnConflict != nil {
		g.config.OnConflict(rival)
	}
}
