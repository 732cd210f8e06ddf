package history

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

const (
	heavyTurn = 30 * time.Second // a sketch counts for so long, and is kept as long again
	calmAfter = 3 * time.Second  // a span of degraded answers ends so long after the last one
	watchFor  = 10 * time.Minute // a key that an operator has looked at
	watchRoom = 64               // such keys
)

// Recorder is what one node remembers. All methods are safe for concurrent use.
type Recorder struct {
	node *cluster.Node
	now  func() time.Time
	base int64 // nanoseconds since 1970 at instant 0 of the node's clock
	sampling

	mu       sync.Mutex // guards below
	series   *Series
	events   events
	answers  answers
	heavy    [2]*heavy // the one that counts, and the one before
	tried    tried
	turned   [2]time.Time
	watching map[uint64]time.Time // hashes of keys, and until when
	last     *cluster.View
	before   reading
	degraded span
	pending  []pending
}

// reading is what a node's counters say.
type reading struct {
	counts                       Counts
	given, received, taken       uint64
	bereft, fenced, limits, hash uint64
}

// span is an event that goes on.
type span struct {
	event uint64 // 0: none goes on
	count uint64
	until time.Time
}

// pending is a failure that is to be measured.
type pending struct {
	event uint64
	node  string
	at    time.Time
}

// NewRecorder observes a node with a clock that shows at at the time now. Run makes it read
// counters.
func NewRecorder(n *cluster.Node, at limiter.Instant, now func() time.Time) *Recorder {
	r := &Recorder{
		node: n, now: now, base: now().UnixNano() - int64(at), series: NewSeries(),
		heavy: [2]*heavy{newHeavy(), newHeavy()}, tried: newTried(),
		watching: map[uint64]time.Time{},
	}
	r.turned = [2]time.Time{now(), now()}
	r.before = r.read()
	n.SetObserver(r)
	return r
}

// Run records until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.Tick(r.now())
		case <-ctx.Done():
			return
		}
	}
}

// Wants is asked about every answer (cluster.Observer).
func (r *Recorder) Wants(now limiter.Instant, hash uint64) bool {
	return r.takesKey(hash) || r.takesCheck(now, hash)
}

// Saw remembers an answer (cluster.Observer).
func (r *Recorder) Saw(o cluster.Observed) {
	key, check := r.takesKey(o.Hash), o.Op == cluster.OpTake && r.takesCheck(o.At, o.Hash)
	r.mu.Lock()
	defer r.mu.Unlock()
	if key {
		r.tookAnswer()
		r.answers.add(answer{
			at: r.base + int64(o.At), hash: o.Hash, limit: o.Limit, owner: o.Owner, cost: o.Cost,
			remaining: o.Remaining, resetAfter: o.ResetAfter, retryAfter: o.RetryAfter,
			op: o.Op, source: o.Source, allowed: o.Allowed, beyond: o.Beyond, degraded: o.Degraded,
		})
	}
	if check {
		r.heavy[0].add(o.Limit.Name, o.Key, !o.Allowed, r.weight())
		r.tookCheck()
	}
}

func (r *Recorder) read() reading {
	s := r.node.Stats()
	out := reading{
		given: s.Given.Load(), received: s.Received.Load(), taken: s.TakenOver.Load(),
		bereft: s.Bereft.Load(), fenced: s.Fenced.Load(),
		limits: uint64(len(r.node.Limits())), hash: r.node.LimitsHash(),
	}
	out.counts = Counts{
		Allowed: s.Allowed(), Denied: s.Denied(), Beyond: s.Beyond(), Degraded: s.Degraded.Load(),
	}
	for _, t := range s.Candidates() {
		out.counts[Candidate] += t.NewlyDenied
	}
	return out
}

// Tick records what has changed since the last one.
func (r *Recorder) Tick(now time.Time) {
	fresh := r.read()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adjust()
	old := r.before
	r.before = fresh
	r.series.Record(now.Unix(), fresh.counts)
	for _, c := range []struct {
		kind, text string
		old, fresh uint64
	}{
		{Handover, "received", old.received, fresh.received},
		{Handover, "given", old.given, fresh.given},
		{Takeover, "", old.taken, fresh.taken},
		{Bereft, "", old.bereft, fresh.bereft},
		{Fenced, "", old.fenced, fresh.fenced},
	} {
		if c.fresh > c.old {
			r.noteLocked(now, Event{
				Kind: c.kind, Count: c.fresh - c.old, Text: c.text, Node: r.node.ID(),
			})
		}
	}
	if fresh.hash != old.hash {
		r.noteLocked(now, Event{
			Kind: Reloaded, Node: r.node.ID(), Count: fresh.limits,
			Text: fmt.Sprintf("%d limits, %d before", fresh.limits, old.limits),
		})
	}
	r.spanLocked(now, fresh.counts[Degraded]-min(old.counts[Degraded], fresh.counts[Degraded]))
	r.measureLocked(now)
	if now.Sub(r.turned[0]) >= heavyTurn {
		r.heavy = [2]*heavy{newHeavy(), r.heavy[0]}
		r.turned = [2]time.Time{now, r.turned[0]}
	}
	r.unwatchLocked(now)
	limits := r.node.Limits()
	r.tried.keep(func(name string) *limiter.Limit { return limits[name] })
}

func (r *Recorder) noteLocked(now time.Time, x Event) uint64 {
	x.AtMs, x.By = now.UnixMilli(), r.node.ID()
	return r.events.add(x)
}

// spanLocked begins, goes on with, or ends a span of degraded answers.
func (r *Recorder) spanLocked(now time.Time, fresh uint64) {
	d := &r.degraded
	switch {
	case fresh > 0 && d.event == 0:
		*d = span{count: fresh, until: now}
		d.event = r.noteLocked(now, Event{
			Kind: Weakened, Node: r.node.ID(), Count: fresh, UntilMs: now.UnixMilli(),
		})
	case fresh > 0:
		d.count, d.until = d.count+fresh, now
		r.events.change(d.event, func(x *Event) { x.Count, x.UntilMs = d.count, now.UnixMilli() })
	case d.event != 0 && now.Sub(d.until) >= calmAfter:
		*d = span{}
	}
}

// measureLocked looks at the heirs of members that have failed a moment ago.
func (r *Recorder) measureLocked(now time.Time) {
	for len(r.pending) > 0 && now.Sub(r.pending[0].at) >= settleTime {
		p := r.pending[0]
		r.pending = r.pending[1:]
		seen := r.answers.measure(p.node, p.at.UnixNano())
		seen.Share = r.keyShare()
		r.events.change(p.event, func(x *Event) { x.Failure = &seen })
		r.events.forgetFailures(failureRoom)
	}
}

// Seen compares a new View with the one before.
func (r *Recorder) Seen(v *cluster.View) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.last
	r.last = v
	if old == nil {
		return
	}
	for i := range v.Members {
		m := &v.Members[i]
		if kind := fate(find(old, m.ID), m); kind != "" {
			r.noteLocked(now, Event{Kind: kind, Node: m.ID, Boot: m.Boot, Text: m.Role.String()})
		}
	}
	for i := range old.Members {
		m := &old.Members[i]
		if v.Find(m.ID) >= 0 {
			continue
		}
		kind := Failed
		if m.State == cluster.StateLeaving {
			kind = Left
		}
		id := r.noteLocked(now, Event{Kind: kind, Node: m.ID, Boot: m.Boot, Text: m.Role.String()})
		if kind == Failed && m.Role == cluster.RoleMember && len(r.pending) < failureRoom {
			r.pending = append(r.pending, pending{id, m.ID, now})
		}
	}
}

func find(v *cluster.View, id string) *cluster.Member {
	if i := v.Find(id); i >= 0 {
		return &v.Members[i]
	}
	return nil
}

// fate is the kind of what has happened to a member; empty: nothing.
func fate(old, m *cluster.Member) string {
	switch {
	case old == nil:
		return Joined
	case old.Boot != m.Boot:
		return Restarted
	case old.State == m.State:
		return ""
	case m.State == cluster.StateActive && m.Role == cluster.RoleMember:
		return Owning
	case m.State == cluster.StateLeaving:
		return Leaving
	}
	return ""
}

// Watch has all answers about a key be remembered for the next ten minutes, however busy the node
// is. Of many such keys the one that was looked at longest ago is dropped.
func (r *Recorder) Watch(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hash := limiter.Hash(key)
	if _, known := r.watching[hash]; !known && len(r.watching) >= watchRoom {
		var oldest uint64
		for h, until := range r.watching {
			if oldest == 0 || until.Before(r.watching[oldest]) {
				oldest = h
			}
		}
		delete(r.watching, oldest)
	}
	r.watching[hash] = r.now().Add(watchFor)
	r.publishLocked()
}

func (r *Recorder) unwatchLocked(now time.Time) {
	n := len(r.watching)
	maps.DeleteFunc(r.watching, func(_ uint64, until time.Time) bool { return now.After(until) })
	if len(r.watching) != n {
		r.publishLocked()
	}
}

func (r *Recorder) publishLocked() {
	if len(r.watching) == 0 {
		r.watched.Store(nil)
		return
	}
	m := make(map[uint64]int64, len(r.watching))
	for h, until := range r.watching {
		m[h] = until.UnixNano()
	}
	r.watched.Store(&m)
}

// Series returns counts from a time on (Series.Read).
func (r *Recorder) Series(from int64, rough bool) Rows {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.series.Read(from, rough)
}

// Events are those that have changed after a change.
func (r *Recorder) Events(change uint64) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events.since(change)
}

// Answers are the latest answers about a key, latest first, and 1 in how many keys is remembered at
// the moment.
func (r *Recorder) Answers(limit, key string, count int) (list []Answer, share int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers.of(r.node.ID(), limit, limiter.Hash(key), count), r.keyShare()
}

// Heavy are the keys that were asked for most at this node's doors, within the last 30 to 60
// seconds, or since the start.
func (r *Recorder) Heavy() HeavyList {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Sum(r.heavy[0].list(), r.heavy[1].list())
	out.Sampled, out.Seconds = r.weight(), now.Sub(r.turned[1]).Seconds()
	return out
}
