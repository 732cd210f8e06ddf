package main

import (
	"cmp"
	"log/slog"
	"time"

	"penstock/cluster"
)

// What the founder of a cluster was started with holds for all its members.

// trust is what the flags say about the cluster.
func (s *settings) trust() cluster.Trust {
	t := cluster.Trust{
		Failover: s.Failover, DoubtRefused: !s.TrustRefused, Secret: cluster.Secret(newBoot()),
	}
	if s.Copies != nil {
		t.Copies = cluster.CopiesOf(*s.Copies)
	}
	if s.Zone != nil {
		t.Zone = *s.Zone
	}
	return t
}

// tellFounders warns of flags that say something else than the cluster goes by, and reports whether
// that is known by now.
func (s *settings) tellFounders(node *cluster.Node, log *slog.Logger) (known bool) {
	c := node.Agreed()
	if c == nil {
		return false
	}
	const help = "its founder has said so; a new value needs a stop of all members, with " +
		"--data-dir the counters stay"
	if s.Copies != nil && *s.Copies != c.Copies.Heirs() {
		log.Warn("the cluster goes by another --copies", "flag", *s.Copies, "cluster",
			c.Copies.Heirs(), "help", help)
	}
	failover := cmp.Or(c.Failover, time.Second)
	if s.Failover != 0 && s.Failover != failover {
		log.Warn("the cluster goes by another --failover", "flag", s.Failover, "cluster",
			failover, "help", help)
	}
	return true
}
