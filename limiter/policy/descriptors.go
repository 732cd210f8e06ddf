package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"penstock/limiter"
)

// Envoy is the limits of a directory of envoyproxy/ratelimit's files. It is immutable.
type Envoy struct {
	domains map[string]*Domain
	rules   []*Rule
	sum     [sha256.Size]byte // of the files
}

// Domain returns the domain of a name, or nil.
func (e *Envoy) Domain(name string) *Domain { return e.domains[name] }

// Rules are all rules that limit something, of all domains. Rule.Number is the index.
func (e *Envoy) Rules() []*Rule { return e.rules }

// Hash tells the texts of the files from others.
func (e *Envoy) Hash() string { return hex.EncodeToString(e.sum[:8]) }

func (e *Envoy) count() int { return len(e.rules) }

func (e *Envoy) equal(other *Envoy) bool { return e.sum == other.sum }

// Domain is one file: a tree of keys and values, with rules at some of its nodes.
type Domain struct {
	Name string

	// What envoyproxy/ratelimit has no field for.
	Atomic           bool // all descriptors of a request are charged, or none is
	ResponseHeaders  bool // RateLimit-Limit, -Remaining, -Reset of the tightest limit
	ResponseMetadata bool // dynamic_metadata in the answers
	OnError          limiter.OnError

	level
}

// Rule is one rate_limit of a file.
type Rule struct {
	Number int    // index in Envoy.Rules
	Domain string // name of it
	// keys and values as the file has them: "path_/login.remote_address". Unique in a domain
	Path      string
	Unlimited bool
	Requests  uint32         // per Unit
	Unit      string         // second, minute, hour, day, week, month, year; empty if Unlimited
	Limit     *limiter.Limit // nil if Unlimited, or if Requests is 0: limits have 1 at least

	Name     string   // of the rate_limit; empty if it has none
	Replaces []string // names of those that do not count if this one does
	Shadow   bool     // decided and counted, and never said
	Quota    bool     // says no only if all quotas of a request do
	Metadata map[string]any

	detailed bool // Match.Metric has all values
	measured bool // Match.Metric may differ from Path
}

// Entry is a key and a value of a descriptor.
type Entry struct{ Key, Value string }

// Match is what a domain has for a descriptor.
type Match struct {
	Rule   *Rule  // nil: the domain has none for it
	Key    string // of the counter
	Metric string // Path of the rule, with the values that the file wants to see in metrics
}

// level is the descriptors of one depth.
type level struct {
	exact    map[Entry]*descriptor
	patterns []*descriptor // in the order of the file
	bare     map[string]*descriptor
}

// descriptor is a node of the tree.
type descriptor struct {
	key, value    string // value may have wildcards, or be empty
	rule          *Rule
	shared        bool // all that the wildcards match count as one
	valueToMetric bool
	level
}

// Match finds the rule for a descriptor: at each depth the exact value, else the first pattern that
// fits, else the key without a value; and in the end the rule of the last depth. A choice that
// leads nowhere is not taken back.
func (d *Domain) Match(entries []Entry) Match {
	at := &d.level
	way := make([]*descriptor, 0, 8)
	for _, e := range entries {
		next := at.find(e)
		if next == nil {
			return Match{}
		}
		way = append(way, next)
		at = &next.level
	}
	if len(way) == 0 || way[len(way)-1].rule == nil {
		return Match{}
	}
	m := Match{Rule: way[len(way)-1].rule, Key: counterKey(entries, way)}
	if m.Metric = m.Rule.Path; m.Rule.measured {
		m.Metric = metricPath(entries, way, m.Rule.detailed)
	}
	return m
}

func (l *level) find(e Entry) *descriptor {
	if d := l.exact[e]; d != nil {
		return d
	}
	for _, d := range l.patterns {
		if d.key == e.Key && fits(d.value, e.Value) {
			return d
		}
	}
	return l.bare[e.Key]
}

// fits reports whether s is what pattern says, where each * stands for zero or more characters.
func fits(pattern, s string) bool {
	before, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == s
	}
	s, found := strings.CutPrefix(s, before)
	for found {
		var part string
		if part, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(s, part)
		}
		_, s, found = strings.Cut(s, part)
	}
	return false
}

// Key is the key of the counter of a descriptor that brings its limit along.
func (d *Domain) Key(entries []Entry) string { return counterKey(entries, nil) }

// counterKey writes entries as "key=value,key=value". What would be taken for a separator is
// written as %XX, so no two descriptors have one key. Of values that share a limit it is the
// pattern. A key that is too long for a table is cut, and ends with a hash of the whole; the two =
// of that end are in no other key.
func counterKey(entries []Entry, way []*descriptor) string {
	var b strings.Builder
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		keyEscapes.WriteString(&b, e.Key)
		b.WriteByte('=')
		if way != nil && way[i].shared {
			e.Value = way[i].value
		}
		keyEscapes.WriteString(&b, e.Value)
	}
	key := b.String()
	if len(key) <= limiter.MaxKey {
		return key
	}
	sum := fmt.Sprintf("=#=%x", sha256.Sum256([]byte(key)))
	return key[:limiter.MaxKey-len(sum)] + sum
}

var keyEscapes = strings.NewReplacer("%", "%25", ",", "%2C", "=", "%3D")

// metricPath is the path of a rule with the values that shall be seen: all of them, or those of the
// depths that say value_to_metric. Of values that share a limit it is the pattern.
func metricPath(entries []Entry, way []*descriptor, detailed bool) string {
	steps := make([]string, len(way))
	for i, d := range way {
		value := d.value
		if !d.shared && (detailed || d.valueToMetric) {
			value = entries[i].Value
		}
		steps[i] = pathStep(d.key, value)
	}
	return strings.Join(steps, ".")
}

// pathStep is how envoyproxy/ratelimit names a depth in its statistics.
func pathStep(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}

// envoyUnits are the units there are. As in the original, months and years have one length, and
// every window begins at a multiple of it since 1970: weeks on Thursdays.
var envoyUnits = map[string]time.Duration{
	"second": time.Second,
	"minute": time.Minute,
	"hour":   time.Hour,
	"day":    24 * time.Hour,
	"week":   7 * 24 * time.Hour,
	"month":  30 * 24 * time.Hour,
	"year":   365 * 24 * time.Hour,
}

// EnvoyUnit is how long a unit is; the second result is false if there is none of that name.
func EnvoyUnit(name string) (time.Duration, bool) {
	per, found := envoyUnits[name]
	return per, found
}

// NewLimit is a limit of d: requests within windows of per. Its counters belong to the domain and
// the window's length, so a file that gives a descriptor another number, or another place in the
// tree, keeps what was counted. An error is a *limiter.SpecError.
func (d *Domain) NewLimit(requests int64, per time.Duration, hidden bool) (*limiter.Limit, error) {
	s := limiter.Spec{
		Name: limiter.EnvoyName(d.Name), Algorithm: limiter.FixedWindow, Limit: requests, Per: per,
		Drain: true, OnError: d.OnError,
	}
	if hidden {
		s.OnDeny = limiter.DenyShadow
	}
	return limiter.New(s)
}
