package cluster

import (
	"slices"
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// All nodes of a cluster may be stopped, and come back one after the other. What only the file of
// one knows of a key the others must not decide without: copies are merged, so of what was counted
// in the file and what was admitted before it was read the smaller would be lost. So a file names
// the other members that should be there (Others). A node that is started with it calls nothing
// free, for itself or for others, until it has all of them in its View (Await). Then a claim asks
// each of them, and a node that has something from a file gives that first (restore.go).
//
// Until then they are missing like members that have vanished: what is admitted comes from shares,
// by on_partition if too few are there, and is charged when a holder decides (debts.go).
//
// The wait ends after awaitLasts: a member that has not come back by then may never do so. One that
// has come back without a file knows no more: in both cases counters may be forgotten. And the wait
// ends when the node meets one that has been up since before the file was written: then the cluster
// was not down, and others have gone on with what the file knows. A member that has entered since
// then goes on from those that were there, so it says the same as they do (goOnFrom): all members
// may have been started anew, one after the other.

// awaits are the members that a file names. Guarded by partitions.mu.
type awaits struct {
	*self
	right  *right
	parts  *partitions
	claims *claimer

	awaited   []string        // members with files that may know what this node does not
	writtenAt limiter.Instant // when the file was that names them
	beside    []string        // if this node is leaving: those that there should have been before
	lacking   atomic.Bool     // a member is awaited that is not there
}

// awaitLasts is how long after its start a node waits for those that its file names.
const awaitLasts = 10 * time.Second

// Await has this node wait for the members that a file names, which was written so long ago.
func (aw *awaits) Await(age time.Duration, ids []string) {
	aw.parts.mu.Lock()
	defer aw.parts.mu.Unlock()
	if age > 0 { // else a clock was set back, and no one knows which node has been up for longer
		aw.writtenAt = aw.clock.Now().Add(-age)
	}
	aw.awaited = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == aw.id })
}

// Others are those of a FileHead.
func (aw *awaits) Others() []string {
	aw.parts.mu.Lock()
	defer aw.parts.mu.Unlock()
	if r := aw.view.Load(); r != nil && r.Me().State == StateLeaving {
		return slices.Clone(aw.beside)
	}
	return aw.othersLocked(aw.view.Load())
}

func (aw *awaits) othersLocked(r *route) (ids []string) {
	ids = slices.Clone(aw.awaited)
	if r != nil {
		on := aw.right.roll.Load()
		for _, p := range r.members {
			if !on.joined() || on.has(p.id, p.boot) { // else gossip has not heard that it is gone
				ids = append(ids, p.id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// lacksLocked reports whether a member that this node waits for is not there, or has not said yet
// whether it has a file.
func (aw *awaits) lacksLocked(r *route) bool {
	return slices.ContainsFunc(aw.awaited, func(id string) bool {
		i := r.Find(id)
		return i < 0 || r.peers[i].gone() || !aw.right.roll.Load().has(id, r.peers[i].boot) ||
			r.peers[i].began.Load() == 0
	})
}

// blank notes that p has no file. If it is awaited, what it knew is gone.
func (aw *awaits) blank(p *peer) {
	aw.parts.mu.Lock()
	defer aw.parts.mu.Unlock()
	aw.parts.gone = aw.parts.gone || slices.Contains(aw.awaited, p.id)
}

// goOnFrom notes since when p knows of members without a break: if it is one of those with which
// this node is a member, this node goes on from them.
func (ps *partitions) goOnFrom(p *peer, since limiter.Instant) {
	on := ps.right.roll.Load()
	if int64(since) < ps.since.Load() && on.joined() && on.has(p.id, p.boot) {
		ps.since.Store(int64(since))
	}
}

// up is for how long members have been there without a break, as far as this node knows.
func (ps *partitions) up(now limiter.Instant) time.Duration {
	return time.Duration(now - limiter.Instant(ps.since.Load()))
}

// tellBreaks says in m since when counters have gone on that it begins to copy, or lends.
func (ps *partitions) tellBreaks(now limiter.Instant, m *Move) {
	ps.tellLacking(now, m)
	if len(m.Begin) > 0 {
		m.Up = ps.up(now)
		m.Known = append(m.Known, ps.givenBy(m.Begin)...)
	}
}

// awaitLocked ends the wait if it has been long enough, or if the cluster was not down.
func (aw *awaits) awaitLocked(now limiter.Instant, r *route) {
	if len(aw.awaited) == 0 {
		return
	}
	outlived := func(p *peer) bool {
		began := limiter.Instant(p.began.Load())
		return began != 0 && began < aw.writtenAt && !p.gone()
	}
	switch late := now >= aw.began.Add(awaitLasts); {
	case r.Me().Role != RoleMember, slices.ContainsFunc(r.members, outlived):
		aw.awaited = nil
	case late:
		aw.parts.gone = aw.parts.gone || aw.lacksLocked(r) // with what it knew
		aw.awaited = nil
	}
	lacking := aw.lacksLocked(r)
	if aw.lacking.Swap(lacking) && !lacking && aw.parts.list != nil {
		aw.claims.tendLocked()
	}
}
