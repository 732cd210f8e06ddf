package gossip

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
)

// The library tells its news to three others in each round of gossip, and every round wakes the process, also if there are none. So its
// own rounds are rare. Whenever the roster has changed, some more follow, the first at once: a ping takes along what there is to be
// told, as its answer does. What changes no roster, such as a suspicion, travels with the probes and the library's own rounds.
const (
	stirRounds  = 6
	stirOthers  = 3
	retransmit  = 8 // × digits of the cluster's size: how often one node tells a change. Pings and answers tell some of it to who knows it
	quietFactor = 3 // the library's own rounds come so much more seldom
)

// stir pings some others, drawn at random.
func (g *Gossip) stir() {
	for _, p := range g.roster.some(stirOthers) {
		addr, err := netip.ParseAddrPort(p.addr)
		if err != nil {
			continue // the library writes them
		}
		g.tasks.Go(func() { _, _ = g.list.Ping(p.name, net.UDPAddrFromAddrPort(addr)) }) // who does not answer is what probes are for
	}
}

// namedAddr is a boot of a node, and where its gossip is reached.
type namedAddr struct{ name, addr string }

// some are at most n of those who are alive, without this node.
func (r *roster) some(n int) []namedAddr {
	r.mu.Lock()
	defer r.mu.Unlock()
	others := make([]namedAddr, 0, len(r.alive))
	for name, p := range r.alive {
		if name != r.name {
			others = append(others, namedAddr{name, p.addr})
		}
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others[:min(n, len(others))]
}

// now is a timer that has run out.
func now() <-chan time.Time { return time.After(0) }
