package cluster

import (
	"time"

	"penstock/limiter"
)

// A rival is the other one of a cluster of two that was cut: both go on, and mark what they decide.
// Who comes to one of them makes a majority with it, of which the other knows nothing. So a rival
// is one until it is reached, or forgotten, whoever comes meanwhile; a node says in its answers
// that it has one, and whoever knows such a node marks as well.
type rival struct {
	id    string
	until limiter.Instant
}

// knowRivalLocked finds out whether this node has a rival.
func (n *Node) knowRivalLocked(now limiter.Instant, r *route, contact time.Duration, s sides) {
	if x := n.rival.Load(); x != nil {
		if i := r.Find(x.id); now >= x.until || i >= 0 && now <= limiter.Instant(r.peers[i].hears.Load()).Add(contact) {
			n.rival.Store(nil)
		}
	}
	if s.reached == 1 && s.missed == 1 && !n.deadLocked(r, s.there) {
		n.haveRivalLocked(now, s.there)
	}
}

// deadLocked reports whether nobody listened any more at the address of a member when it was last
// asked: then it is no rival.
func (n *Node) deadLocked(r *route, id string) bool {
	if i := r.Find(id); i >= 0 {
		return r.peers[i].left.Load()
	}
	for _, f := range n.former {
		if f.id == id && f.left.Load() {
			return true
		}
	}
	return false
}

// Rival is the id of a member that may decide as well as this node, which does not reach it, or as
// one that this node knows; empty: there is none.
func (n *Node) Rival() string {
	if x := n.rival.Load(); x != nil {
		return x.id
	}
	if r := n.view.Load(); r != nil {
		for _, p := range r.peers {
			if id := p.rival.Load(); id != nil {
				return *id
			}
		}
	}
	return ""
}

// toldOfRival notes whether p says that it has a rival. What this node gets from it, it marks from
// then on.
func (n *Node) toldOfRival(p *peer, id string) {
	if was := p.rival.Load(); id == "" && was != nil {
		p.rival.Store(nil)
	} else if id != "" && (was == nil || *was != id) {
		p.rival.Store(&id)
		n.tied.Store(true)
	}
}

func (n *Node) haveRivalLocked(now limiter.Instant, id string) {
	if x := n.rival.Load(); x == nil || x.id != id {
		n.rival.Store(&rival{id, now.Add(forgetAfter)})
	}
}
