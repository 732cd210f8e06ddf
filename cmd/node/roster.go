package main

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"penstock/cluster"
	"penstock/cluster/gossip"
	"penstock/rpc/admin"
)

// roster is what a node knows of the others: those that have failed, the versions of their
// programs, and whether all have the same limits.
type roster struct {
	node     *cluster.Node
	boot     uint64 // of this node
	log      *slog.Logger
	failures failures
	// tells the others this node's hash; nil before it has begun, and alone
	teller atomic.Pointer[gossip.Gossip]
	// that were last warned of; written by the callback of gossip alone
	groups string
}

// tellLimits tells the others the hash of this node's limits, when files have changed them.
func (r *roster) tellLimits() {
	g := r.teller.Load()
	if g == nil {
		return // join tells it
	}
	if err := g.SetLimits(r.node.LimitsHash()); err != nil {
		r.log.Warn("the others may not have heard of the change of limits yet", "err", err)
	}
}

// tellLimitsTo makes g the teller, and tells what has changed since it was made.
func (r *roster) tellLimitsTo(g *gossip.Gossip) {
	r.teller.Store(g)
	r.tellLimits()
}

// compareLimits warns once for each way in which the limits of the members of v differ, and says
// when they agree again.
func (r *roster) compareLimits(v *cluster.View) {
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

// Failed lists the members that are shown as failed (admin.Roster).
func (r *roster) Failed() (list []admin.FailedMember) {
	now := r.failures.now()
	gone := r.failures.struckOff(now, r.node.View())
	for _, f := range append(r.failures.at(now), gone...) {
		list = append(list, admin.FailedMember{Member: f.member, Ago: now.Sub(f.at)})
	}
	return list
}

// countFailed says how many members have failed, and how many of them gossip has not missed yet.
func (r *roster) countFailed() (failed, unnoticed int) {
	now := r.failures.now()
	unnoticed = len(r.failures.struckOff(now, r.node.View()))
	return len(r.failures.at(now)) + unnoticed, unnoticed
}

// Version is that of the program of m (admin.Roster).
func (r *roster) Version(m cluster.Member) string {
	if m.Boot == r.boot {
		return version()
	}
	if g := r.teller.Load(); g != nil {
		return g.Version(m.ID, m.Boot)
	}
	return ""
}
