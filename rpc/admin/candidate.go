package admin

import (
	"errors"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/notation"
)

// CandidateJSON is a candidate as GET /v1/limits shows it: its rule, and how its answers compare
// with those of its limit at this node's doors.
type CandidateJSON struct {
	notation.LimitJSON
	Overrides    int    `json:"overrides"`
	Allowed      uint64 `json:"allowed"`
	Denied       uint64 `json:"denied"`
	NewlyDenied  uint64 `json:"newly_denied"`
	NewlyAllowed uint64 `json:"newly_allowed"`
	Unknown      uint64 `json:"unknown"`
}

// NewCandidateJSON is nil if l has no candidate.
func NewCandidateJSON(l *limiter.Limit, t cluster.CandidateTally) *CandidateJSON {
	c := l.Candidate()
	if c == nil {
		return nil
	}
	return &CandidateJSON{
		LimitJSON: notation.NewLimitJSON(&c.Spec), Overrides: len(c.Overrides()),
		Allowed: t.Allowed, Denied: t.Denied, Unknown: t.Unknown,
		NewlyDenied: t.NewlyDenied, NewlyAllowed: t.NewlyAllowed,
	}
}

// candidateMessage is nil if l has no candidate.
func candidateMessage(l *limiter.Limit, t cluster.CandidateTally) *penstockv1.Candidate {
	c := l.Candidate()
	if c == nil {
		return nil
	}
	return &penstockv1.Candidate{
		Limit: notation.LimitMessage(&c.Spec), Overrides: int32(len(c.Overrides())),
		Allowed: t.Allowed, Denied: t.Denied, Unknown: t.Unknown,
		NewlyDenied: t.NewlyDenied, NewlyAllowed: t.NewlyAllowed,
	}
}

// UnderCandidate says in err that the field is the candidate's.
func UnderCandidate(err error) error {
	var spec *limiter.SpecError
	var input *cluster.InputError
	switch {
	case errors.As(err, &spec):
		return &limiter.SpecError{Field: "candidate." + spec.Field, Reason: spec.Reason}
	case errors.As(err, &input):
		return &cluster.InputError{Field: "candidate." + input.Field, Reason: input.Reason}
	}
	return err
}
