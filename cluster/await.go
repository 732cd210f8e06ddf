package cluster

import (
	"slices"
	"time"

	"penstock/limiter"
)

// All nodes of a cluster may be stopped, and come back one after the other. What only the file of
// one knows of a key the others must not decide without: copies are merged, so of what was counted
// in the file and what was admitted before it was read the smaller would be lost. So a file names
// who else should be there (Others), and a node that is started with it calls nothing free, neither
// for itself nor for anybody else, until it has all of them in its View (Await). Then a claim asks
// each of them, and who has something from a file gives that first (restore.go).
//
// Until then they are missing like members that have vanished: what is admitted comes from shares,
// by on_partition if too few are there, and is charged when somebody decides (debts.go).
//
// That ends after awaitLasts: who has not come back by then may never. And it ends when anybody is
// met who has been up since before the file was written: then the cluster was not down, and others
// have gone on with what the file knows.

// awaitLasts is how long after its start a node waits for those that its file names.
const awaitLasts = 10 * time.Second

// Await has the node wait for the members that a file names, which was written so long ago. It must
// be called before the first SetView.
func (n *Node) Await(age time.Duration, ids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if age > 0 { // else a clock was set back, and nobody knows who has been up for longer
		n.writtenAt = n.clock.Now().Add(-age)
	}
	n.awaited = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == n.id })
}

// Others are the members besides this node that there should be, for a file of what it knows. Of a
// node that is leaving they are those of before: all may be leaving, and be gone by now.
func (n *Node) Others() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.view.Load(); r != nil && r.Me().State == StateLeaving {
		return slices.Clone(n.beside)
	}
	return n.othersLocked(n.view.Load())
}

func (n *Node) othersLocked(r *route) (ids []string) {
	ids = slices.Clone(n.awaited)
	if r != nil {
		for _, p := range r.members {
			ids = append(ids, p.id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// lacksLocked reports whether somebody whom this node waits for is not there.
func (n *Node) lacksLocked(r *route) bool {
	return slices.ContainsFunc(n.awaited, func(id string) bool {
		i := r.Find(id)
		return i < 0 || r.peers[i].gone() || !n.agreed.roll.Load().has(id, r.peers[i].boot)
	})
}

// awaitLocked ends the wait if it has been long enough, or if the cluster was not down.
func (n *Node) awaitLocked(now limiter.Instant, r *route) {
	if len(n.awaited) == 0 {
		return
	}
	outlived := func(p *peer) bool {
		began := limiter.Instant(p.began.Load())
		return began != 0 && began < n.writtenAt && !p.gone()
	}
	if now >= n.began.Add(awaitLasts) || r.Me().Role != RoleMember || slices.ContainsFunc(r.members, outlived) {
		n.awaited = nil
	}
	lacking := n.lacksLocked(r)
	if n.lacking.Swap(lacking) && !lacking && n.parts != nil {
		n.tendLocked()
	}
}
