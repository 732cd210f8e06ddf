package history

import (
	"slices"

	"penstock/limiter"
)

// tried counts the keys that candidates refuse, and their limits admit. Its counts are of the whole
// time that a candidate is in force, as those of the candidate itself. Its caller keeps others
// away.
type tried struct {
	keys *heavy
	by   map[string]*limiter.Limit // the candidates that are counted, by the names of their limits
}

func newTried() tried { return tried{newHeavy(), map[string]*limiter.Limit{}} }

func (t *tried) add(limit string, candidate *limiter.Limit, key string, weight int64) {
	if t.by[limit] != candidate { // another one begins anew
		t.keys.forget(limit)
		t.by[limit] = candidate
	}
	t.keys.add(limit, key, true, weight)
}

// keep forgets what was counted for candidates that are not in force any more.
func (t *tried) keep(inForce func(limit string) *limiter.Limit) {
	for name, candidate := range t.by {
		l := inForce(name)
		if l == nil || l.Candidate() == nil || !l.Candidate().SameAs(candidate) {
			t.keys.forget(name)
			delete(t.by, name)
		}
	}
}

// forget takes the keys of a limit away. The places are free; what they had displaced before may
// come back with as many checks as the least of them had.
func (h *heavy) forget(limit string) {
	if len(h.places) == heavyPlaces {
		h.unseen = h.list().Unseen
	}
	h.places = slices.DeleteFunc(h.places, func(k Heavy) bool { return k.Limit == limit })
	clear(h.at)
	for i, k := range h.places {
		h.at[heavyKey{k.Limit, k.Key}] = i
	}
}

// NewlyDenied counts a key that the candidate of a limit refuses, and the limit admits
// (cluster.Observer).
func (r *Recorder) NewlyDenied(limit string, candidate *limiter.Limit, key string) {
	if !r.takesCheck(limiter.Instant(r.now().UnixNano()), limiter.Hash(key)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried.add(limit, candidate, key, r.weight())
	r.tookCheck()
}

// NewlyDeniedKeys are the keys that candidates refuse most often, and their limits admit, at this
// node's doors: since each candidate came into force.
func (r *Recorder) NewlyDeniedKeys() HeavyList {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.tried.keys.list()
	out.Sampled = r.weight()
	return out
}
