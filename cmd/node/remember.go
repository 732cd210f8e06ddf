package main

import (
	"time"

	"penstock/rpc/history"
	"penstock/rpc/overview"
)

// remember has the node keep an hour of counts and events, and show them on the page of any node.
func (r *running) remember() {
	r.history = history.NewRecorder(r.node, r.clock.Now(), time.Now)
	r.tasks.Go(func() { r.history.Run(r.leaving) })
	r.page = overview.New(overview.Config{
		Node: r.node, Recorder: r.history, Network: r.peers, Roster: r, Started: r.started,
		Ended: r.leaving.Done(), Logger: r.log,
	})
}
