package gossip

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
)

// Enter has node found its cluster with the others that its seeds lead to, or be admitted to it. It
// returns nil as soon as node decides for what it owns, or knows the nodes that still do. If ctx
// ends before, the error says what is missing. expected, if it is not 0, says how many nodes found
// a cluster together (Electors).
func (g *Gossip) Enter(ctx context.Context, node *cluster.Node, expected int) error {
	for {
		size, ids := g.Electors(expected)
		node.Membership().Elect(size, ids, uint64(g.config.Started.UnixNano()))
		if node.Membership().Entered() {
			return nil
		}
		select {
		case <-g.running.Done():
			return ErrStopped
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ErrNotAdmitted, standing(node, size, ids))
		case <-time.After(enterEvery):
		}
	}
}

// ErrNotAdmitted is why a node does not decide that has reached others.
var ErrNotAdmitted = errors.New("gossip: this node is not a member of its cluster yet")

// enterEvery is how often a node that enters looks for others, and whether it is a member.
const enterEvery = 20 * time.Millisecond

// standing says how far a node has come.
func standing(node *cluster.Node, size int, ids []string) string {
	switch {
	case node.Agreed() != nil:
		return "it was admitted, and a majority of the voters does not answer it"
	case node.View().Active() > 0:
		return "the cluster has not admitted it: a majority of its voters is missing, or its " +
			"name is in use"
	}
	return fmt.Sprintf(
		"a majority of %d nodes has to be there to found a cluster, and these are known: %s",
		size,
		strings.Join(ids, ", "),
	)
}

// Electors are those that found a cluster together, if there is none yet: this node and those that
// its seeds lead to. size is how many they are, ids are those known by now. A seed that leads to
// nobody counts as well, for its node may be starting; one of an agent does not. expected, if it is
// not 0, says how many they are instead, and every member that is known is one of them: where a
// name stands for all nodes, it leads to more of them from moment to moment.
func (g *Gossip) Electors(expected int) (size int, ids []string) {
	byAddr := map[string]cluster.Member{}
	for _, p := range g.roster.everyone() {
		byAddr[p.addr] = p.member(p.id)
	}
	ids = []string{g.roster.id}
	add := func(m cluster.Member) {
		if m.Role == cluster.RoleMember && !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	if expected > 0 {
		for _, m := range byAddr {
			add(m)
		}
		slices.Sort(ids)
		return max(expected, len(ids)), ids
	}
	own, unknown := g.ownAddrs(), 0
	for _, p := range *g.knocks.found.Load() {
		known := false
		for _, a := range p {
			m, met := byAddr[a.String()]
			_, answered := g.knocks.answered.Load(a.String())
			switch {
			case met:
				add(m)
			case own[a.String()]:
			case answered: // an address of all nodes, or of one by another name
				for _, m := range byAddr {
					add(m)
				}
			default:
				continue
			}
			known = true
		}
		if !known {
			unknown++
		}
	}
	slices.Sort(ids)
	return len(ids) + unknown, ids
}

// everyone are all boots that are alive.
func (r *roster) everyone() (all []peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.alive {
		all = append(all, p)
	}
	return all
}
