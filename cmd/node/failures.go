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

// maxFailures bounds how many are shown: nodes with names that never come back would add up.
const maxFailures = 256

// failure is a node that has gone without a goodbye.
type failure struct {
	member cluster.Member // as it was last seen
	at     time.Time
}

// failures are the nodes that have gone without a goodbye within failedFor, and have not come back.
type failures struct {
	mu    sync.Mutex // guards below
	list  []failure  // oldest first
	last  []cluster.Member
	boots map[uint64]time.Time // of members that were in the ring; zero: they are in it
	clock func() time.Time     // of tests; nil: time.Now
}

// see compares v with the view before it, and returns the members that have failed in between.
func (f *failures) see(now time.Time, v *cluster.View) (fresh []cluster.Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.last {
		if v.Find(m.ID) < 0 && m.State != cluster.StateLeaving {
			at := f.boots[m.Boot]
			if at.IsZero() {
				at = now
			}
			f.list = append(f.list, failure{m, at})
			fresh = append(fresh, m)
		}
	}
	f.list = slices.DeleteFunc(f.list, func(x failure) bool { return v.Find(x.member.ID) >= 0 })
	f.list = f.list[max(0, len(f.list)-maxFailures):]
	f.last = v.Members
	return fresh
}

// struckOff lists the members of own, the view that the node decides by, that were in the ring and
// are not any more, and have not left: the others have struck them off, and gossip, which is
// slower, still takes them for alive.
func (f *failures) struckOff(now time.Time, own *cluster.View) (list []failure) {
	if own == nil || own.Me().Role == cluster.RoleMember &&
		own.Me().State == cluster.StateJoining {
		return nil // a node that is outside itself does not know whether others are
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	boots := make(map[uint64]time.Time)
	for i, m := range own.Members {
		at, was := f.boots[m.Boot]
		switch {
		case i == own.Self || m.Role != cluster.RoleMember:
		case m.State == cluster.StateActive:
			boots[m.Boot] = time.Time{}
		case m.State == cluster.StateJoining && was:
			if at.IsZero() {
				at = now
			}
			boots[m.Boot] = at
			m.State = cluster.StateActive // when it was last seen
			list = append(list, failure{m, at})
		}
	}
	f.boots = boots
	return list
}

// at lists those that are shown at now.
func (f *failures) at(now time.Time) []failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(x failure) bool { return now.Sub(x.at) >= failedFor })
	return slices.Clone(f.list)
}

func (f *failures) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clock != nil {
		return f.clock()
	}
	return time.Now()
}

// logFailures warns of each member that has gone without a goodbye.
func logFailures(log *slog.Logger, failed []cluster.Member) {
	for _, m := range failed {
		log.Warn("a member has failed: it is gone, and has not said goodbye", "member", m.ID,
			"role", m.Role.String(), "peer", m.PeerAddr, "state", m.State.String())
	}
}
