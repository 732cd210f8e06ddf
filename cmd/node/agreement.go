package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"penstock/cluster"
	"penstock/cluster/gossip"
	"penstock/limiter/policy"
)

// agreement is what a node knows of whether all nodes have the same limits.
type agreement struct {
	// tells the others this node's hash; nil before it has begun, and alone
	teller atomic.Pointer[gossip.Gossip]
	// that were last warned of; written by the callback of gossip alone
	groups string
}

// tellLimits tells the others the hash of this node's limits, when files have changed them.
func (r *running) tellLimits() {
	g := r.teller.Load()
	if g == nil {
		return // join tells it
	}
	if err := g.SetLimits(r.node.LimitsHash()); err != nil {
		r.log.Warn("the others may not have heard of the change of limits yet", "err", err)
	}
}

// tellLimitsTo makes g the teller, and tells what has changed since it was made.
func (r *running) tellLimitsTo(g *gossip.Gossip) {
	r.teller.Store(g)
	r.tellLimits()
}

// compareLimits warns once for each way in which the limits of the members of v differ, and says
// when they agree again.
func (r *running) compareLimits(v *cluster.View) {
	members := map[uint64][]string{}
	for _, m := range v.Members {
		if m.Limits != 0 {
			members[m.Limits] = append(members[m.Limits], m.ID)
		}
	}
	var groups []string
	for _, hash := range slices.Sorted(maps.Keys(members)) {
		groups = append(groups, fmt.Sprintf("%016x: %s", hash, strings.Join(members[hash], ", ")))
	}
	text := ""
	if len(groups) > 1 {
		text = strings.Join(groups, "; ")
	}
	switch {
	case text == r.groups:
	case text == "":
		r.log.Info("all nodes have the same limits again")
	default:
		r.log.Warn("nodes have different limits; give all of them the same files: until then "+
			"the owner of a key decides by its own", "limits", groups)
	}
	r.groups = text
}

// watchers are those of the files that the node was given.
func (r *running) watchers() (given []*policy.Watcher) {
	for _, w := range []*policy.Watcher{r.limits, r.envoys, r.tokens, r.keys.watcher} {
		if w != nil {
			given = append(given, w)
		}
	}
	return given
}

// lastReload says whether the files of limits, clients, gossip keys and TLS were taken over when
// they were last read, and when some last were.
func (r *running) lastReload() (ok bool, at time.Time) {
	ok, at = r.tlsState.good(), r.started
	for _, w := range r.watchers() {
		s := w.State()
		if ok = ok && s.OK; s.Last.After(at) {
			at = s.Last
		}
	}
	return ok, at
}
