package cluster

import (
	"cmp"
	"strings"
	"time"

	"penstock/limiter"
)

// What a node admits while nobody who holds the key answers (fallback.go), nobody has counted. So it is owed: as soon as
// somebody holds the key again and answers, that one is told to charge it, by a report, as far as the limit reaches (and its
// max_debt). What was too much is taken from what comes after, until the limit is used up; what goes beyond that stays extra.
//
// A report has an ID as every take has, so it is charged once. If the take itself was sent to somebody whose answer never
// came, that one may have charged it, and is not told again; another one, who has taken over since, is. Then it may be counted
// twice, if it was copied before: too little is admitted, never too much.

const (
	owedWaiting = 1 << 16 // takes; of more, the latest are not charged
	owedLasts   = time.Minute
)

// reportOrigin makes the ID of a report of that of the take. Under its own ID this node remembers what its share said.
const reportOrigin = 1 << 62

// ofReport is the ID of the report of a take: that of all its repeats, here and elsewhere, and not the take's.
func (id ID) ofReport() ID { return ID{id.Origin ^ reportOrigin, id.Sequence} }

// An owed take was admitted by this node without the holder of its key.
type owed struct {
	limit *limiter.Limit
	key   string
	hash  uint64
	cost  int64
	id    ID // of the report
	at    limiter.Instant
	doubt uint64 // boot that may have charged it; 0: nobody
}

// owe notes what of a request has to be charged later.
func (n *Node) owe(now limiter.Instant, items []Item, out []Decision) {
	for i := range out {
		it := &items[i]
		if out[i].Source != SourceFallback || !out[i].Allowed || out[i].Shadow || it.again || it.Op != OpTake || it.Cost <= 0 {
			continue
		}
		n.owedMu.Lock()
		if len(n.owed) < owedWaiting {
			n.owed = append(n.owed, owed{it.limit, strings.Clone(it.Key), it.hash, it.Cost, it.ID.ofReport(), now, it.doubt})
		} else {
			n.stats.Forgiven.Add(1)
		}
		n.owedMu.Unlock()
	}
}

// settleOwedLocked begins to have charged what is owed, unless it is at it.
func (n *Node) settleOwedLocked() {
	n.owedMu.Lock()
	defer n.owedMu.Unlock()
	if len(n.owed) > 0 && !n.settling && !n.stopped && !n.minority.Load() {
		n.settling = true
		n.clock.AfterFunc(0, n.settleOwed)
	}
}

func (n *Node) settleOwed() {
	for n.settleSome() {
	}
	n.owedMu.Lock()
	n.settling = false
	n.owedMu.Unlock()
}

// settleSome has the oldest of what is owed charged. It reports whether there is more, and a point in going on at once.
func (n *Node) settleSome() (more bool) {
	now, view := n.clock.Now(), n.view.Load()
	n.owedMu.Lock()
	most := min(len(n.owed), MaxItems)
	batch := n.owed[:most:most]
	n.owed = n.owed[most:]
	n.owedMu.Unlock()

	r := &Request{Deadline: now.Add(DefaultDeadline), owed: true}
	var of, later []owed
	for _, x := range batch {
		it := Item{Key: x.key, Cost: x.cost, ID: x.id, Terms: Terms{Report: true}, limit: x.limit, hash: x.hash}
		t := n.aim(now, view, r, &it, 1)
		away := !n.Holds(x.hash)
		asked := away && t >= 0 && view.peers[t].boot == x.doubt
		switch {
		case now > x.at.Add(owedLasts), asked && view.peers[t].heard.Load() > int64(x.at):
			n.stats.Forgiven.Add(1)
		case asked, away && t == nobody: // perhaps somebody takes over
			later = append(later, x)
		default:
			r.Items, of = append(r.Items, it), append(of, x)
		}
	}
	out := make([]Decision, len(r.Items))
	if len(out) > 0 {
		n.checkEach(now, view, r, out)
	}
	for i := range out {
		if out[i].Owner != "" {
			n.stats.Settled.Add(1)
		} else {
			of[i].doubt = cmp.Or(r.Items[i].doubt, of[i].doubt)
			later = append(later, of[i])
		}
	}
	n.owedMu.Lock()
	defer n.owedMu.Unlock()
	n.owed = append(later, n.owed...)
	return len(n.owed) > len(later) && len(later) == 0
}
