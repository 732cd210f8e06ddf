package rpc

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

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

// putJSON is the body of PUT /v1/limits.
type putJSON struct {
	inlineJSON
	wordsJSON
	Overrides []overrideJSON             `json:"overrides"`
	Candidate map[string]json.RawMessage `json:"candidate"`
}

// wordsJSON is what a limit of the cluster has beyond one that a request brings along: what a
// denial says over HTTP, and the name of its parent.
type wordsJSON struct {
	Status      int    `json:"status,omitzero"`
	Body        string `json:"body,omitzero"`
	ContentType string `json:"content_type,omitzero"`
	Parent      string `json:"parent,omitzero"`
}

func newWordsJSON(s *limiter.Spec) wordsJSON {
	return wordsJSON{s.Answers.Status, s.Answers.Body, s.Answers.ContentType, s.Parent}
}

// overrideJSON is an override in the words of the limits' files.
type overrideJSON struct {
	Key       string `json:"key"`
	Plan      string `json:"plan"`
	Limit     int64  `json:"limit"`
	Burst     int64  `json:"burst"`
	Refill    int64  `json:"refill"`
	Unlimited bool   `json:"unlimited"`
}

// spec is the whole limit but for its overrides and its candidate.
func (in *putJSON) spec() (limiter.Spec, error) {
	s, err := in.inlineJSON.spec()
	s.Answers.Status, s.Answers.Body, s.Answers.ContentType = in.Status, in.Body, in.ContentType
	s.Parent = in.Parent
	return s, err
}

// overrides are the exceptions from it.
func (in *putJSON) overrides() (list []limiter.Override) {
	for _, o := range in.Overrides {
		list = append(list, limiter.Override(o))
	}
	return list
}

// candidate is the Spec of the candidate, or nil: what it leaves out is the limit's, as in a file.
func (in *putJSON) candidate() (*limiter.Spec, error) {
	if in.Candidate == nil {
		return nil, nil
	}
	live, err := json.Marshal(in.inlineJSON)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(live, &fields); err != nil {
		return nil, err
	}
	if own := in.Candidate["algorithm"]; own != nil && string(own) != string(fields["algorithm"]) {
		fields = map[string]json.RawMessage{
			"name": fields["name"], "limit": fields["limit"], "per": fields["per"],
		}
	}
	for name, value := range in.Candidate {
		if !slices.Contains(limiter.CandidateFields, name) {
			return nil, &limiter.SpecError{
				Field: "candidate." + name,
				Reason: "is not a candidate's; it has: " + strings.Join(
					limiter.CandidateFields,
					", ",
				),
			}
		}
		fields[name] = value
	}
	merged, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	own, err := decodeJSON[inlineJSON](merged, "a candidate has the fields of a limit")
	if err != nil {
		return nil, underCandidate(err)
	}
	s, err := own.spec()
	return &s, underCandidate(err)
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
