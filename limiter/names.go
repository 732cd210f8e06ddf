package limiter

import "strings"

// algorithmNames are the algorithms as files, requests and errors call them, in the order of their
// numbers.
var algorithmNames = [...]string{
	GCRA:           "gcra",
	FixedWindow:    "fixed_window",
	SlidingWindow:  "sliding_window",
	SlidingLog:     "sliding_log",
	TokenBucket:    "token_bucket",
	LeakyBucket:    "leaky_bucket",
	SlidingCounter: "sliding_counter",
	StatedWindow:   "stated_window",
	StatedBucket:   "stated_bucket",
	Concurrency:    "concurrency",
}

// Words are the words of the fields that are one of a few, in the order of their values, and by the
// names that files have for the fields.
var Words = map[string][]string{
	"anchor":       {"epoch", "first_hit"},
	"on_error":     {"local", "allow", "deny"},
	"unsettled":    {"charge", "release"},
	"on_deny":      {"reject", "shadow", "tag", "deprioritize", "delay"},
	"consistency":  {"exact", "replicated", "leased"},
	"replication":  {"async", "sync"},
	"on_partition": {"proportional", "deny", "open"},
}

// AlgorithmNamed returns the algorithm that people call name.
func AlgorithmNamed(name string) (a Algorithm, known bool) {
	for i, n := range algorithmNames {
		if n == name && n != "" {
			return Algorithm(i), true
		}
	}
	return 0, false
}

// AlgorithmNames lists the names of all algorithms.
func AlgorithmNames() string { return strings.Join(algorithmNames[1:], ", ") }

// DefaultAnchor is the anchor of an algorithm where none is given: a token bucket is refilled from
// its first request on, as the origin of that algorithm does it; windows are aligned to the epoch.
func DefaultAnchor(a Algorithm) Anchor {
	if a == TokenBucket {
		return FirstHit
	}
	return Epoch
}
