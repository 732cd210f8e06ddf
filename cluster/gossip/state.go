package gossip

import (
	"fmt"
	"time"

	"penstock/cluster"
)

// SetState changes this node's state. When it returns nil, View shows the change and it has been
// sent out; a node must have Joined to become ACTIVE. On another error than ErrNotJoined and
// ErrStopped the state is changed and the others will learn it from a later exchange.
func (g *Gossip) SetState(state cluster.State) error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.left || g.closed {
		return ErrStopped
	}
	return g.setState(state, stateTimeout)
}

func (g *Gossip) setState(state cluster.State, timeout time.Duration) error {
	if state > cluster.StateLeaving {
		return fmt.Errorf("gossip: %v is not a state that a node can take", state)
	}
	if state == cluster.StateActive && !g.Joined() {
		return ErrNotJoined
	}
	if !g.roster.setState(state) {
		return nil
	}
	if state == cluster.StateActive {
		g.wasActive.Store(true)
	}
	if err := g.tell(timeout); err != nil {
		return fmt.Errorf("gossip: %w within %v: the others may not know the state %v yet: %w",
			errUnconfirmed, timeout, state, err)
	}
	return nil
}

// SetLimits tells the others the hash of this node's limits (Member.Limits). If it has not reached
// them soon, they learn it from a later exchange.
func (g *Gossip) SetLimits(hash uint64) error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.left || g.closed {
		return ErrStopped
	}
	if !g.roster.setLimits(hash) {
		return nil
	}
	if err := g.tell(stateTimeout); err != nil {
		return fmt.Errorf(
			"gossip: %w within %v: the others may not know the hash of limits yet: %w",
			errUnconfirmed, stateTimeout, err)
	}
	return nil
}

// tell makes a View of what this node says of itself, and sends it out.
func (g *Gossip) tell(timeout time.Duration) error {
	done := make(chan struct{})
	g.flush <- done
	<-done
	return g.list.UpdateNode(timeout)
}

// Leave says goodbye: the others drop this node at once and do not look for it. It takes the state
// LEAVING if it does not have it yet, goes on answering the others' probes until Close, and cannot
// join again. timeout, which must be positive, bounds each of its two messages; on an error the
// others will miss this node only by its silence.
func (g *Gossip) Leave(timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("gossip: cannot leave within %v; give it a second or two", timeout)
	}
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.closed {
		return ErrStopped
	}
	if g.left {
		return nil
	}
	g.left = true
	if g.View().Me().State != cluster.StateLeaving {
		if err := g.setState(cluster.StateLeaving, timeout); err != nil {
			g.log.Warn("leaving unannounced", "err", err)
		}
		time.Sleep(leavingRounds * g.timing.Gossip)
	}
	if err := g.list.Leave(timeout); err != nil {
		return fmt.Errorf("gossip: the goodbye has not reached the others within %v: %w", timeout,
			err)
	}
	return nil
}

// Close stops everything and waits for it, up to about 4 s if the reconnector is just waiting for a
// silent seed. Without Leave before, it looks like a crash to the others. The library's own
// goroutines end by themselves within a probe or two. View keeps its last value.
func (g *Gossip) Close() error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.closed {
		return nil
	}
	g.closed = true
	g.stop()
	err := g.list.Shutdown()
	g.tasks.Wait()
	if err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}
