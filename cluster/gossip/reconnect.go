package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxKnocks     = 8 // seeds per round, until the cluster is reached
	maxLostKnocks = 3 // lost members per round, after that
	// lookupTimeout bounds the lookups of one round.
	lookupTimeout = 4 * time.Second
	// aloneRounds is how many rounds in a row (about 10 s) the seeds' names must lead only to this
	// node itself until it counts as the first node, if they are names of all nodes: the others'
	// records may come a little later.
	aloneRounds = 10
	// quietRounds is every how many rounds the log says again that nobody was reached.
	quietRounds = 30
)

// reconnect knocks at others in rounds, until Close.
func (g *Gossip) reconnect() {
	alone, failed := 0, 0
	for {
		interval := g.timing.Reconnect
		if g.Joined() {
			g.lookAfter()
		} else {
			interval /= 5
			err := g.lookFor(&alone)
			if err != nil && failed%quietRounds == 0 {
				g.log.Warn("no seed was reached; trying again until one is", "err", err)
			}
			failed++
		}
		select {
		case <-g.running.Done():
			return
		case <-time.After(time.Duration(float64(interval) * (0.8 + 0.4*rand.Float64()))):
		}
	}
}

// lookFor looks for the cluster: one round of knocking at the seeds.
func (g *Gossip) lookFor(alone *int) error {
	addrs, lookupErr := g.resolveSeeds()
	own := g.ownAddrs()
	others := slices.DeleteFunc(addrs, func(a netip.AddrPort) bool { return own[a.String()] })
	if len(others) == 0 && lookupErr == nil {
		*alone++
		if *alone >= aloneRounds || !slices.ContainsFunc(g.seeds, func(s seed) bool {
			return s.kind != seedHost
		}) {
			g.log.Info("all seeds are this node itself: it is the first node")
			g.markJoined()
			return nil
		}
		lookupErr = errors.New("the seeds' names lead only to this node itself so far")
	} else {
		*alone = 0
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	knocked := g.knock(asText(others[:min(maxKnocks, len(others))]))
	if g.Joined() {
		g.log.Info("joined", "members", len(g.roster.addrs()))
		return nil
	}
	err := oneLine(errors.Join(lookupErr, knocked))
	if err == nil {
		err = fmt.Errorf(
			"%s answered but named no other member: is it this node by another address?",
			strings.Join(asText(others), ", "))
	}
	g.knocks.refused.Store(&err)
	return err
}

// lookAfter looks for members that are missing: some that died without a goodbye, and a seed that
// is none of the members. If the network was cut, the first of them that answers brings both sides
// together.
func (g *Gossip) lookAfter() {
	targets := g.roster.missing(maxLostKnocks)
	known := g.ownAddrs()
	maps.Copy(known, g.roster.addrs())
	seeds, err := g.resolveSeeds()
	if err != nil {
		g.log.Debug("looking up the seeds", "err", err)
	}
	strange := slices.DeleteFunc(seeds, func(a netip.AddrPort) bool { return known[a.String()] })
	if len(strange) > 0 {
		targets = append(targets, strange[rand.IntN(len(strange))].String())
	}
	slices.Sort(targets)
	targets = slices.DeleteFunc(slices.Compact(targets), func(a string) bool { return known[a] })
	if len(targets) == 0 {
		return
	}
	if err := g.knock(targets); err != nil {
		g.log.Debug("missing members do not answer", "err", err)
	}
}

// knock exchanges everything known with the nodes at these addresses, all at once because each may
// take streamTimeout to not answer. nil if at least one did.
func (g *Gossip) knock(addrs []string) error {
	errs := make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			if _, err := g.list.Join([]string{addr}); err != nil {
				// of a list of one error, that one
				errs[i] = explain(cmp.Or(errors.Unwrap(err), err), g.config.Cluster)
				return
			}
			g.knocks.answered.Store(addr, true)
			g.log.Debug("exchanged members", "with", addr)
		})
	}
	wg.Wait()
	if slices.Contains(errs, nil) { // somebody did
		return nil
	}
	return errors.Join(errs...)
}

func (g *Gossip) resolveSeeds() ([]netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(g.running, lookupTimeout)
	defer cancel()
	var addrs []netip.AddrPort
	var places []place
	var errs []error
	for _, s := range g.seeds {
		found, err := s.resolve(ctx, g.config.Resolver)
		addrs, errs = append(addrs, found...), append(errs, err)
		places = append(places, s.places(found)...)
	}
	g.knocks.found.Store(&places)
	g.knocks.answered.Range(func(addr, _ any) bool { // of seeds, and no more of them than there are
		if !slices.ContainsFunc(addrs, func(a netip.AddrPort) bool { return a.String() == addr }) {
			g.knocks.answered.Delete(addr)
		}
		return true
	})
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return slices.Compact(addrs), errors.Join(errs...)
}

// ownAddrs are the addresses under which this node would reach itself, as far as it can know them.
func (g *Gossip) ownAddrs() map[string]bool {
	own := map[string]bool{g.Addr(): true, g.bound.String(): true}
	if !g.bound.Addr().IsUnspecified() {
		return own
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		g.log.Debug("listing this machine's addresses", "err", err)
	}
	for _, a := range interfaces {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				own[netip.AddrPortFrom(ip.Unmap(), g.bound.Port()).String()] = true
			}
		}
	}
	return own
}

func asText(addrs []netip.AddrPort) []string {
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return texts
}

// oneLine makes a list of errors fit for the log.
func oneLine(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}
