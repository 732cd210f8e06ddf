package main

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"penstock/cluster"
)

// failedFor is how long a node is shown that has gone without a goodbye.
const failedFor = 10 * time.Minute

// failure is a node that has gone without a goodbye.
type failure struct {
	member cluster.Member // as it was last seen
	at     time.Time
}

// failures are the nodes that have gone without a goodbye within failedFor, and have not come back.
type failures struct {
	mu   sync.Mutex // guards below
	list []failure  // oldest first
	last []cluster.Member
}

// see compares v with the view before it, and returns the members that have failed in between.
func (f *failures) see(now time.Time, v *cluster.View) (fresh []cluster.Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.last {
		if v.Find(m.ID) < 0 && m.State != cluster.StateLeaving {
			f.list = append(f.list, failure{m, now})
			fresh = append(fresh, m)
		}
	}
	f.list = slices.DeleteFunc(f.list, func(x failure) bool { return v.Find(x.member.ID) >= 0 })
	f.last = v.Members
	return fresh
}

// at lists those that are shown at now.
func (f *failures) at(now time.Time) []failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(x failure) bool { return now.Sub(x.at) >= failedFor })
	return slices.Clone(f.list)
}

func (f *failures) count() int { return len(f.at(time.Now())) }

// logFailures warns of each member that has gone without a goodbye.
func logFailures(log *slog.Logger, failed []cluster.Member) {
	for _, m := range failed {
		log.Warn("a member has failed: it is gone, and has not said goodbye", "member", m.ID, "role", m.Role.String(), "peer", m.PeerAddr, "state", m.State.String())
	}
}
