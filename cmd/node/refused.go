package main

import (
	"strings"
	"time"

	"penstock/cluster"
)

// A node with no more room for limits in its table refuses requests, and a client sees no more than
// denials. So the log says it: at once, and then not more often than refusedPause as long as it
// goes on.
const (
	refusedEvery = time.Second
	refusedPause = time.Minute
)

// refusals are how many requests were refused because there was no room for their limits.
type refusals struct {
	limits, inline, atDoors uint64
}

func refusalsOf(node *cluster.Node) (n refusals) {
	n.limits, n.inline = node.Table().Turned()
	n.atDoors = node.Stats().InlineRefused.Load()
	return n
}

// watchLost says when a majority of the voters is lost, and when it is back, until the node leaves;
// and when the node's cluster has given way to another one. Once it warns of flags that its cluster
// does not go by.
func (r *running) watchLost() {
	told, lineage := false, ""
	for lost := ""; ; sleep(r.leaving, refusedEvery) {
		if r.leaving.Err() != nil {
			return
		}
		told = told || r.settings.tellFounders(r.node, r.log)
		if c := r.node.Agreed(); c != nil {
			now := string(c.Epoch.Lineage)
			if !strings.HasPrefix(now, lineage) { // it does not descend from the one before
				r.log.Warn("this node goes on in another cluster of its name: two clusters have "+
					"met, or two halves of one that was cut, and its own has given way, or "+
					"its own has no member left; it gives its counters to those that hold "+
					"the keys there",
					"voters", r.node.Membership().Voters())
			}
			lineage = now
		}
		switch now := r.node.Membership().LostText(); {
		case now != "" && lost == "":
			r.log.Error("a majority is lost; on_partition decides", "help", now)
			lost = now
		case now == "" && lost != "" && r.node.Deciding():
			r.log.Info("a majority is back: this node decides again")
			lost = ""
		}
	}
}

// watchRefused warns of refusals until the node leaves.
func (r *running) watchRefused() {
	var last refusals
	for pause := refusedEvery; ; {
		sleep(r.leaving, pause)
		if r.leaving.Err() != nil {
			return
		}
		now := refusalsOf(r.node)
		if pause = refusedEvery; now == last {
			continue
		}
		r.log.Warn("requests were refused because too many different limits have counters",
			"inline_by_client", now.atDoors-last.atDoors, "inline", now.inline-last.inline,
			"limits", now.limits-last.limits,
			"help", "clients that bring ever new limits along can be refused: --inline deny")
		last, pause = now, refusedPause
	}
}
