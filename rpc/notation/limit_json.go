package notation

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"penstock/limiter"
)

// LimitJSON is a limit that comes along, in the words of the limits' files. A pointer tells a field
// that is left out from a 0, which means nothing there.
type LimitJSON struct {
	Name          string `json:"name"`
	Algorithm     string `json:"algorithm"`
	Limit         *int64 `json:"limit"`
	Per           string `json:"per"`
	Burst         *int64 `json:"burst,omitzero"`
	Anchor        string `json:"anchor,omitzero"`
	CountRejected bool   `json:"count_rejected,omitzero"`
	OnError       string `json:"on_error,omitzero"`
	MinGap        string `json:"min_gap,omitzero"`
	Refill        *int64 `json:"refill,omitzero"`
	Strict        bool   `json:"strict,omitzero"`
	Drain         bool   `json:"drain,omitzero"`
	Buckets       *int   `json:"buckets,omitzero"`
	Lenient       bool   `json:"lenient,omitzero"`
	ClientTime    bool   `json:"client_time,omitzero"`
	Sessions      bool   `json:"sessions,omitzero"`
	TimeZone      string `json:"time_zone,omitzero"`
	MaxDebt       int64  `json:"max_debt,omitzero"`
	Consistency   string `json:"consistency,omitzero"`
	Replication   string `json:"replication,omitzero"`
	OnPartition   string `json:"on_partition,omitzero"`
	OnDeny        string `json:"on_deny,omitzero"`
	DryRun        bool   `json:"dry_run,omitzero"`
	Unsettled     string `json:"unsettled,omitzero"`
	Spread        string `json:"spread,omitzero"`
	Tag           string `json:"tag,omitzero"`
	Tier          *int   `json:"tier,omitzero"`
	MaxDelay      string `json:"max_delay,omitzero"`
}

// LimitFields lists the names of LimitJSON's fields, for errors about others.
func LimitFields() string {
	var names []string
	for f := range reflect.TypeFor[LimitJSON]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// Spec is in in the words of package limiter. Its errors are *limiter.SpecError.
func (in *LimitJSON) Spec() (s limiter.Spec, err error) {
	s = limiter.Spec{
		Name: in.Name, Limit: orZero(in.Limit), Burst: orZero(in.Burst),
		CountRejected: in.CountRejected,
		Refill:        orZero(in.Refill), Strict: in.Strict, Drain: in.Drain,
		Buckets: orZero(in.Buckets),
		Lenient: in.Lenient, ClientTime: in.ClientTime, Sessions: in.Sessions,
		TimeZone: in.TimeZone, MaxDebt: in.MaxDebt, DryRun: in.DryRun,
	}
	var known bool
	switch s.Algorithm, known = limiter.AlgorithmNamed(in.Algorithm); {
	case in.Algorithm == "":
		return s, &limiter.SpecError{Field: "algorithm", Reason: "is missing; there is: " +
			limiter.AlgorithmNames()}
	case !known:
		return s, &limiter.SpecError{Field: "algorithm", Reason: fmt.Sprintf("%.40q is not "+
			"there; there is: %s", in.Algorithm, limiter.AlgorithmNames())}
	}
	if err := in.refuseZeros(s.Algorithm); err != nil {
		return s, err
	}
	s.Anchor = limiter.DefaultAnchor(s.Algorithm)
	for _, w := range []struct {
		field, text string
		set         func(int)
	}{
		{"anchor", in.Anchor, func(i int) { s.Anchor = limiter.Anchor(i) }},
		{"on_error", in.OnError, func(i int) { s.OnError = limiter.OnError(i) }},
		{"consistency", in.Consistency, func(i int) { s.Consistency = limiter.Consistency(i) }},
		{"replication", in.Replication, func(i int) { s.Sync = i == 1 }},
		{"on_partition", in.OnPartition, func(i int) { s.OnPartition = limiter.OnPartition(i) }},
		{"on_deny", in.OnDeny, func(i int) { s.OnDeny = limiter.OnDeny(i) }},
		{"unsettled", in.Unsettled, func(i int) { s.Unsettled = limiter.Unsettled(i) }},
	} {
		choices := limiter.Words[w.field]
		i := slices.Index(choices, w.text)
		if i < 0 && w.text != "" {
			return s, &limiter.SpecError{Field: w.field, Reason: fmt.Sprintf("%.40q is unknown; "+
				"there is: %s", w.text, strings.Join(choices, ", "))}
		}
		if i >= 0 {
			w.set(i)
		}
	}
	s.Answers.Tag, s.Answers.Tier = in.Tag, orZero(in.Tier)
	if err = in.readTimes(&s); err == nil && in.Limit == nil {
		err = &limiter.SpecError{Field: "limit", Reason: fmt.Sprintf("is missing; 1 to %d are "+
			"accepted", int64(limiter.MaxLimit))}
	}
	return s, err
}

// readTimes reads the period, other spans and shares of them.
func (in *LimitJSON) readTimes(s *limiter.Spec) (err error) {
	if in.Per == "" {
		return &limiter.SpecError{Field: "per", Reason: "is missing; " + limiter.PerForms}
	}
	if err = s.ReadPer(in.Per); err != nil {
		return &limiter.SpecError{Field: "per", Reason: err.Error()}
	}
	if in.MinGap != "" {
		if s.MinGap, err = limiter.ParsePer(in.MinGap); err != nil {
			return &limiter.SpecError{Field: "min_gap", Reason: err.Error()}
		}
	}
	if in.MaxDelay != "" {
		if s.MaxDelay, err = limiter.ParseMaxDelay(in.MaxDelay); err != nil {
			return &limiter.SpecError{Field: "max_delay", Reason: err.Error()}
		}
	}
	if in.Spread != "" {
		if s.Answers.Spread, err = limiter.ParseSpread(in.Spread); err != nil {
			return &limiter.SpecError{Field: "spread", Reason: err.Error()}
		}
	}
	return nil
}

// refuseZeros is an error about a 0 that is written and means nothing, as in files. A negative
// burst or refill has the same error: that of package limiter would offer 0 in its place.
func (in *LimitJSON) refuseZeros(a limiter.Algorithm) error {
	zero := func(p *int) bool { return p != nil && *p == 0 }
	field, accepted, n := "", "", int64(0)
	switch {
	case in.Burst != nil && *in.Burst < 1 && a != limiter.LeakyBucket:
		field, accepted, n = "burst", "leave it out to have the limit", *in.Burst
	case in.Refill != nil && *in.Refill < 1:
		field, accepted, n = "refill", "leave it out to have the limit", *in.Refill
	case zero(in.Buckets):
		field, accepted = "buckets", fmt.Sprintf("1 to %d are accepted", limiter.MaxBuckets)
	case zero(in.Tier):
		field, accepted = "tier", fmt.Sprintf("1 to %d are accepted", limiter.MaxTier)
	default:
		return nil
	}
	return &limiter.SpecError{Field: field, Reason: fmt.Sprintf("is %d; %s", n, accepted)}
}

func orZero[T int | int64](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// orNil is nil for 0, which is left out.
func orNil[T int | int64](v T) *T {
	if v == 0 {
		return nil
	}
	return &v
}

// NewLimitJSON is s as LimitJSON.Spec reads it.
func NewLimitJSON(s *limiter.Spec) LimitJSON {
	out := LimitJSON{
		Name: s.Name, Algorithm: s.Algorithm.String(), Limit: &s.Limit, Per: perText(s.Per),
		Burst: orNil(s.Burst), CountRejected: s.CountRejected, Refill: orNil(s.Refill),
		Strict: s.Strict, Drain: s.Drain, Buckets: orNil(s.Buckets), Lenient: s.Lenient,
		ClientTime: s.ClientTime, Sessions: s.Sessions,
		TimeZone: s.TimeZone, MaxDebt: s.MaxDebt, DryRun: s.DryRun,
		OnError:     limiter.Words["on_error"][s.OnError],
		Consistency: limiter.Words["consistency"][s.Consistency],
		OnPartition: limiter.Words["on_partition"][s.OnPartition],
		OnDeny:      limiter.Words["on_deny"][s.OnDeny],
		Unsettled:   limiter.Words["unsettled"][s.Unsettled],
	}
	if s.Calendar != 0 {
		out.Per = s.Calendar.String()
	}
	if s.Anchor != limiter.DefaultAnchor(s.Algorithm) {
		out.Anchor = limiter.Words["anchor"][s.Anchor]
	}
	if s.MinGap != 0 {
		out.MinGap = perText(s.MinGap)
	}
	if s.MaxDelay != 0 {
		out.MaxDelay = perText(s.MaxDelay)
	}
	if s.Sync {
		out.Replication = "sync"
	}
	if s.Answers.Spread != 0 {
		out.Spread = fmt.Sprintf("%d%%", s.Answers.Spread)
	}
	out.Tag, out.Tier = s.Answers.Tag, orNil(s.Answers.Tier)
	return out
}

// perText is d as limiter.ParsePer reads it.
func perText(d time.Duration) string {
	if d%time.Second != 0 {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return d.String()
}

// WordsJSON is what a limit of the cluster has beyond one that a request brings along: what a
// denial says over HTTP, and the name of its parent.
type WordsJSON struct {
	Status      int    `json:"status,omitzero"`
	Body        string `json:"body,omitzero"`
	ContentType string `json:"content_type,omitzero"`
	Parent      string `json:"parent,omitzero"`
}

// NewWordsJSON is what s has of it.
func NewWordsJSON(s *limiter.Spec) WordsJSON {
	return WordsJSON{s.Answers.Status, s.Answers.Body, s.Answers.ContentType, s.Parent}
}
