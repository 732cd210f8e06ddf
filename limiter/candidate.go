package limiter

import "strings"

// candidateMark ends the name of a candidate, under which its counters are kept.
const candidateMark = " (candidate)"

// CandidateFields are the fields of a limit that its candidate may have otherwise, in the words of
// the limits' files: those that say how it counts.
var CandidateFields = []string{
	"algorithm", "limit", "per", "time_zone", "burst", "anchor", "count_rejected", "min_gap",
	"refill",
	"strict", "drain", "buckets", "lenient", "max_debt", "client_time", "sessions",
}

// IsCandidateName reports whether a name is that of a candidate's counters. No other limit should
// have such a name. One of Envoy's domains may end so, and has no candidate.
func IsCandidateName(name string) bool {
	_, envoys := EnvoyDomain(name)
	return !envoys && strings.HasSuffix(name, candidateMark)
}

// Candidate is the limit that is tried beside l; nil if there is none. It sees what l is asked,
// counts by itself, and never decides.
func (l *Limit) Candidate() *Limit { return l.candidate }

// WithCandidate is l with a candidate made of s and the exceptions from it. What a candidate does
// not decide is l's: where and how it is counted, and what happens when the owner of a key is away.
// It has no parent: that of l is charged for l alone. The candidate's name follows from l's. What
// WithCandidate refuses is a *SpecError.
func (l *Limit) WithCandidate(s Spec, overrides ...Override) (*Limit, error) {
	if l.Algorithm == Concurrency || s.Algorithm == Concurrency {
		return nil, &SpecError{"algorithm", "concurrency counts permits that come back, " +
			"which a candidate does not see: a limit with concurrency has no candidate, and is " +
			"none"}
	}
	if s.Name = l.Name + candidateMark; len(s.Name) > MaxName {
		return nil, &SpecError{
			"name",
			"is too long for a candidate beside it; shorten the limit's name by " + candidateMark,
		}
	}
	s.Consistency, s.Sync = l.Consistency, l.Sync
	s.OnError, s.OnPartition, s.Unsettled = l.OnError, l.OnPartition, l.Unsettled
	s.OnDeny, s.MaxDelay, s.DryRun, s.Answers = DenyReject, 0, false, Answers{}
	s.Parent = ""
	if l.Delays() { // what it refuses is compared with what l refuses
		s.OnDeny, s.MaxDelay = DenyDelay, l.MaxDelay
	}
	c, err := New(s, overrides...)
	if err != nil {
		return nil, err
	}
	with := *l
	with.candidate = c
	return &with, nil
}

// Promoted is what l becomes when its candidate takes its place: the candidate's rule under l's
// name, with l's answers to a refusal. It is nil if l has no candidate.
func (l *Limit) Promoted() (*Limit, error) {
	if l.candidate == nil {
		return nil, nil
	}
	s := l.candidate.given // an override has defaults of its own
	s.Name, s.OnDeny, s.DryRun, s.Answers = l.Name, l.OnDeny, l.DryRun, l.Answers
	s.MaxDelay = l.MaxDelay
	s.Parent = l.Parent
	return New(s, l.candidate.Overrides()...)
}

// SameAs reports whether l and other say the same, and their candidates too.
func (l *Limit) SameAs(other *Limit) bool {
	if l == nil || other == nil {
		return l == other
	}
	if l.Spec != other.Spec || len(l.overrides) != len(other.overrides) {
		return false
	}
	for i := range l.overrides {
		if l.overrides[i].Override != other.overrides[i].Override {
			return false
		}
	}
	return l.candidate.SameAs(other.candidate)
}
