package gossip

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
)

// In each round of gossip the library tells three other nodes what is new. Every round wakes the
// process up, also if nothing is new, so the library's own rounds are rare. When the roster has
// changed, this node has rounds of its own, the first one at once: a ping takes along what is to be
// told, as its answer does. News that change no roster, such as a suspicion, travel with the
// library's probes and its own rounds.
const (
	stirRounds = 6 // after a change, at intervals of Timing.Gossip
	stirOthers = 3 // that are pinged in a round
	// quietFactor is how many times Timing.Gossip lies between two rounds of the library.
	quietFactor = 5
)

// stir pings some other nodes, drawn at random, in the first of so many rounds. The library's own
// probes find those that do not answer.
func (g *Gossip) stir(rounds int) (next <-chan time.Time, left int) {
	for _, p := range g.roster.some(stirOthers) {
		addr, err := netip.ParseAddrPort(p.addr)
		if err != nil {
			continue // the library has written the address, so this does not happen
		}
		g.tasks.Go(func() { _, _ = g.list.Ping(p.name, net.UDPAddrFromAddrPort(addr)) })
	}
	if rounds > 1 {
		next = time.After(g.timing.Gossip)
	}
	return next, rounds - 1
}

// namedAddr is a boot of a node, and the address of its gossip.
type namedAddr struct{ name, addr string }

// some are at most n of the nodes that are alive, without this one.
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

// atOnce is a timer that has run out.
func atOnce() <-chan time.Time { return time.After(0) }
