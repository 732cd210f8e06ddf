package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// What is measured of a failure.
const (
	// settleTime is how long after a failure its heirs are looked at.
	settleTime = 4 * time.Second
	// lookBack is how long before it was noticed the last answers of the node are looked for: heirs
	// may go on earlier than gossip notices.
	lookBack = 8 * time.Second
	// often is how many units a second a key has to use for the time without an owner to be told
	// from the time between two questions.
	often = 5
	// copyInterval is how often an owner gives its heirs what has changed; see docs/promises.md.
	copyInterval = 100 * time.Millisecond
	handedRoom   = 256 // keys of a failure
	failureRoom  = 8   // failures of which keys are remembered
)

// Failure is what a node saw at its doors of the keys of a member that has failed.
type Failure struct {
	Handed []Handed `json:"handed"`
	More   int      `json:"more,omitzero"` // keys that there was no room for
	Share  int64    `json:"share"`         // 1 in how many keys was looked at
}

// Handed is a key that an heir has taken over: the last answer of the member that has failed, and
// the first one of the node that decides instead. Times are nanoseconds since 1970.
type Handed struct {
	Hash  uint64 `json:"hash,string"` // of the key
	Limit string `json:"limit"`

	LastAt        int64  `json:"last_at"`
	LastRemaining int64  `json:"last_remaining"` // after that answer
	LastResetAt   int64  `json:"last_reset_at"`
	FirstAt       int64  `json:"first_at"`
	FirstBefore   int64  `json:"first_before"` // what there was before that answer
	Heir          string `json:"heir"`

	Units    int64 `json:"units"`    // that the member admitted in the second before LastAt
	Between  int64 `json:"between"`  // answers without an owner, between the two
	Capacity int64 `json:"capacity"` // of the limit: the most that may be lost
	PerNs    int64 `json:"per_ns"`   // in which Refill units come back
	Refill   int64 `json:"refill"`   // 0: all come back at LastResetAt
	Sync     bool  `json:"sync,omitzero"`
}

// comparable reports whether what a limit says remains can be told from what remained before.
func isComparable(l *limiter.Limit) bool {
	switch l.Algorithm {
	case limiter.FixedWindow, limiter.GCRA, limiter.LeakyBucket:
		return l.Consistency == limiter.Exact
	case limiter.TokenBucket:
		return l.Consistency == limiter.Exact && !l.ClientTime && !l.Strict
	}
	return false
}

// owned reports whether an owner has given an answer that says what remains.
func (x *answer) owned() bool {
	return (x.source == cluster.SourceOwner || x.source == cluster.SourceForwarded) &&
		x.op == cluster.OpTake && isComparable(x.limit)
}

// survey is the look for keys that have gone from a member that failed to its heirs.
type survey struct {
	failed string
	out    Failure
	place  map[surveyed]int // in out
}

type surveyed struct {
	hash  uint64
	limit *limiter.Limit
}

// measure looks at the answers around a failure. at is when it was noticed, in nanoseconds since
// 1970.
func (a *answers) measure(failed string, at int64) Failure {
	s := survey{failed, Failure{Handed: []Handed{}}, map[surveyed]int{}}
	a.inOrder(func(x *answer) {
		if x.at >= at-int64(lookBack) && x.at <= at+int64(settleTime) && isComparable(x.limit) {
			s.see(x)
		}
	})
	a.inOrder(s.count)
	s.out.Handed = slices.DeleteFunc(s.out.Handed, func(h Handed) bool { return h.FirstAt == 0 })
	return s.out
}

// see looks at the next answer.
func (s *survey) see(x *answer) {
	k := surveyed{x.hash, x.limit}
	i, known := s.place[k]
	switch {
	case x.owner == s.failed && x.owned() && known:
		s.out.Handed[i].last(x)
	case x.owner == s.failed && x.owned() && len(s.out.Handed) == handedRoom:
		s.out.More++
	case x.owner == s.failed && x.owned():
		s.place[k] = len(s.out.Handed)
		s.out.Handed = append(s.out.Handed, newHanded(x))
	case !known || s.out.Handed[i].FirstAt != 0:
	case x.source == cluster.SourceFallback:
		s.out.Handed[i].Between++
	case x.owned():
		s.out.Handed[i].first(x)
	}
}

// count adds up what the member that failed has admitted of each key within its last second.
func (s *survey) count(x *answer) {
	i, known := s.place[surveyed{x.hash, x.limit}]
	if !known || x.owner != s.failed || !x.allowed || x.beyond {
		return
	}
	h := &s.out.Handed[i]
	if x.at > h.LastAt-int64(time.Second) && x.at <= h.LastAt {
		h.Units += max(0, x.cost)
	}
}

func newHanded(x *answer) Handed {
	h := Handed{
		Hash: x.hash, Limit: x.limit.Name, Capacity: x.limit.Capacity(), PerNs: int64(x.limit.Per),
		Sync: x.limit.Sync,
	}
	h.last(x)
	switch x.limit.Algorithm {
	case limiter.TokenBucket:
		h.Refill = cmp.Or(x.limit.Refill, x.limit.Limit)
	case limiter.GCRA, limiter.LeakyBucket:
		h.Refill = x.limit.Limit
	}
	return h
}

func (h *Handed) last(x *answer) {
	h.LastAt, h.LastRemaining, h.LastResetAt = x.at, x.remaining, x.at+x.resetAfter
}

func (h *Handed) first(x *answer) {
	h.FirstAt, h.FirstBefore, h.Heir = x.at, x.remaining, x.owner
	if x.allowed && !x.beyond && x.cost > 0 {
		h.FirstBefore += x.cost
	}
}

// Forgotten are the units of a key that its heir did not know of. known is false if that cannot be
// told: its window had ended meanwhile. The units that come back with time are taken as one more
// than they are, so that rounding is never called a loss.
func (h *Handed) Forgotten() (units int64, known bool) {
	expected := h.LastRemaining
	if h.Refill == 0 {
		if h.FirstAt >= h.LastResetAt {
			return 0, false
		}
	} else {
		back := float64(h.FirstAt-h.LastAt) / float64(h.PerNs) * float64(h.Refill)
		expected = min(h.Capacity, h.LastRemaining+int64(math.Ceil(back))+1)
	}
	return max(0, h.FirstBefore-expected), true
}

// Promised is the most that may be forgotten of a key: what it uses within the interval at which
// heirs get copies, at the rate of the last second, rounded up; at most the capacity of the limit,
// and nothing of a limit with replication: sync. The time that a message takes is left out.
func (h *Handed) Promised() int64 {
	if h.Sync {
		return 0
	}
	units := math.Ceil(float64(h.Units) * copyInterval.Seconds())
	return min(h.Capacity, int64(units))
}

// Verdict is what all nodes together saw of a failure.
type Verdict struct {
	Keys      int   `json:"keys"`       // that were compared
	Untold    int   `json:"untold"`     // with a window that had ended, so that nothing can be told
	More      int   `json:"more"`       // that there was no room for
	Share     int64 `json:"share"`      // 1 in how many keys was looked at
	Nodes     int   `json:"nodes"`      // that have looked
	Extra     int64 `json:"extra"`      // units forgotten in all
	Worst     int64 `json:"worst"`      // … of the key that has lost most
	Promised  int64 `json:"promised"`   // most that may be forgotten of that key
	Broken    int   `json:"broken"`     // keys of which more was forgotten than is promised
	LongestMs int64 `json:"longest_ms"` // from the old owner to the new one
	Between   int64 `json:"between"`    // answers without an owner meanwhile
}

// Judge puts together what nodes saw of one failure.
func Judge(seen []Failure) Verdict {
	v := Verdict{Nodes: len(seen)}
	type id struct {
		hash  uint64
		limit string
	}
	all := map[id]Handed{}
	for _, f := range seen {
		v.More += f.More
		v.Share = max(v.Share, f.Share)
		for _, h := range f.Handed {
			k := id{h.Hash, h.Limit}
			if old, known := all[k]; known {
				h = together(old, h)
			}
			all[k] = h
		}
	}
	for _, h := range all {
		v.Between += h.Between
		units, known := h.Forgotten()
		if !known {
			v.Untold++
			continue
		}
		v.Keys++
		v.Extra += units
		promised := h.Promised()
		if units > promised {
			v.Broken++
		}
		if units > v.Worst || units == v.Worst && promised > v.Promised {
			v.Worst, v.Promised = units, promised
		}
		if h.Units >= often {
			v.LongestMs = max(v.LongestMs, (h.FirstAt-h.LastAt)/1_000_000)
		}
	}
	return v
}

// together is one key as two nodes saw it: the latest answer of the old owner, and the first one of
// the new one.
func together(a, b Handed) Handed {
	out := a
	if b.LastAt > a.LastAt {
		out.LastAt, out.LastRemaining, out.LastResetAt = b.LastAt, b.LastRemaining, b.LastResetAt
	}
	if b.FirstAt < a.FirstAt {
		out.FirstAt, out.FirstBefore, out.Heir = b.FirstAt, b.FirstBefore, b.Heir
	}
	out.Units += b.Units
	out.Between += b.Between
	return out
}
