package rpc

import (
	"errors"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
)

// candidateJSON is a candidate as GET /v1/limits shows it: its rule, and how its answers compare
// with those of its limit at this node's doors.
type candidateJSON struct {
	inlineJSON
	Overrides    int    `json:"overrides"`
	Allowed      uint64 `json:"allowed"`
	Denied       uint64 `json:"denied"`
	NewlyDenied  uint64 `json:"newly_denied"`
	NewlyAllowed uint64 `json:"newly_allowed"`
	Unknown      uint64 `json:"unknown"`
}

// newCandidateJSON is nil if l has no candidate.
func newCandidateJSON(l *limiter.Limit, t cluster.CandidateTally) *candidateJSON {
	c := l.Candidate()
	if c == nil {
		return nil
	}
	return &candidateJSON{
		inlineJSON: newInlineJSON(&c.Spec), Overrides: len(c.Overrides()),
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
		Limit: limitMessage(&c.Spec), Overrides: int32(len(c.Overrides())),
		Allowed: t.Allowed, Denied: t.Denied, Unknown: t.Unknown,
		NewlyDenied: t.NewlyDenied, NewlyAllowed: t.NewlyAllowed,
	}
}

// underCandidate says in err that the field is the candidate's.
func underCandidate(err error) error {
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
