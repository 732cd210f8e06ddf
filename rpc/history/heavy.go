package history

import (
	"cmp"
	"slices"
	"strings"
)

// heavyPlaces is how many keys a sketch counts.
const heavyPlaces = 512

// heavy finds the keys that are asked for most, in a stream of any number of keys, with as much
// memory as heavyPlaces keys take: Space-Saving (Metwally, Agrawal, El Abbadi: Efficient
// Computation of Frequent and Top-k Elements in Data Streams, 2005). A key that is new takes the
// place of the one with the least count, and goes on from there. So no count is too low, and each
// is too high by its Over at most, which is at most all checks divided by heavyPlaces.
type heavy struct {
	total  int64
	unseen int64 // of keys without a place, while places are free (forget)
	places []Heavy
	at     map[heavyKey]int
}

type heavyKey struct{ limit, key string }

// Heavy is a key with how often it was asked for.
type Heavy struct {
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	Checks int64  `json:"checks"` // an upper bound
	Over   int64  `json:"over"`   // Checks is too high by this at most
	Denied int64  `json:"denied"` // of those that were counted under this key: a lower bound
}

func newHeavy() *heavy { return &heavy{at: make(map[heavyKey]int)} }

// add counts a check that stands for weight of them. It keeps nothing of limit and key.
func (h *heavy) add(limit, key string, denied bool, weight int64) {
	h.total += weight
	i, known := h.at[heavyKey{limit, key}]
	if !known {
		i = h.place(strings.Clone(limit), strings.Clone(key))
	}
	h.places[i].Checks += weight
	if denied {
		h.places[i].Denied += weight
	}
}

// place gives a key that is new a place.
func (h *heavy) place(limit, key string) int {
	i, over := len(h.places), h.unseen
	if i < heavyPlaces {
		h.places = append(h.places, Heavy{})
	} else {
		i = 0
		for k := range h.places {
			if h.places[k].Checks < h.places[i].Checks {
				i = k
			}
		}
		over = h.places[i].Checks
		delete(h.at, heavyKey{h.places[i].Limit, h.places[i].Key})
	}
	h.places[i] = Heavy{Limit: limit, Key: key, Checks: over, Over: over}
	h.at[heavyKey{limit, key}] = i
	return i
}

// HeavyList is what a sketch says, or several of them together.
type HeavyList struct {
	Keys    []Heavy `json:"keys"`
	Total   int64   `json:"total"`   // checks
	Unseen  int64   `json:"unseen"`  // a key that is not listed has at most so many
	Sampled int64   `json:"sampled"` // 1 in how many checks was counted; above 1: estimates
	Seconds float64 `json:"seconds"` // that the checks were counted in
}

// Sum adds up what sketches say, of several nodes or times. A key that one of them does not list
// may have been asked for there as often as Unseen says, so Checks stay upper bounds, and Over
// grows. Seconds and Sampled are those of the widest.
func Sum(lists ...HeavyList) HeavyList {
	out := HeavyList{Keys: []Heavy{}}
	at := map[heavyKey]int{}
	for _, l := range lists {
		out.Total += l.Total
		out.Unseen += l.Unseen
		out.Sampled = max(out.Sampled, l.Sampled)
		out.Seconds = max(out.Seconds, l.Seconds)
		for _, k := range l.Keys {
			id := heavyKey{k.Limit, k.Key}
			i, known := at[id]
			if !known {
				i = len(out.Keys)
				at[id] = i
				out.Keys = append(out.Keys, Heavy{Limit: k.Limit, Key: k.Key})
			}
			// Unseen of this list is added to all keys below, and does not count for this one.
			out.Keys[i].Checks += k.Checks - l.Unseen
			out.Keys[i].Over += k.Over - l.Unseen
			out.Keys[i].Denied += k.Denied
		}
	}
	for i := range out.Keys {
		out.Keys[i].Checks += out.Unseen
		out.Keys[i].Over += out.Unseen
	}
	out.sort()
	return out
}

func (l *HeavyList) sort() {
	slices.SortFunc(l.Keys, func(a, b Heavy) int {
		if a.Checks != b.Checks {
			return cmp.Compare(b.Checks, a.Checks)
		}
		return cmp.Compare(a.Limit+" "+a.Key, b.Limit+" "+b.Key)
	})
}

// Of leaves the keys of one limit, or of all of them if limit is empty, and at most count. Unseen
// is then about the keys that were left out, too.
func (l HeavyList) Of(limit string, count int) HeavyList {
	kept := make([]Heavy, 0, min(count, len(l.Keys)))
	for _, k := range l.Keys {
		if limit != "" && k.Limit != limit {
			continue
		}
		if len(kept) == count {
			l.Unseen = max(l.Unseen, k.Checks)
			break
		}
		kept = append(kept, k)
	}
	l.Keys = kept
	return l
}

// list is what h says.
func (h *heavy) list() HeavyList {
	out := HeavyList{Keys: slices.Clone(h.places), Total: h.total, Unseen: h.unseen}
	out.sort()
	if n := len(out.Keys); n == heavyPlaces {
		out.Unseen = out.Keys[n-1].Checks
	}
	return out
}
