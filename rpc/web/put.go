package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"penstock/limiter"
	"penstock/rpc/admin"
	"penstock/rpc/notation"
)

// putJSON is the body of PUT /v1/limits.
type putJSON struct {
	notation.LimitJSON
	notation.WordsJSON
	Overrides []overrideJSON             `json:"overrides"`
	Candidate map[string]json.RawMessage `json:"candidate"`
}

// overrideJSON is an override in the words of the limits' files.
type overrideJSON struct {
	Key       string `json:"key"`
	Plan      string `json:"plan"`
	Limit     *int64 `json:"limit"`
	Burst     *int64 `json:"burst"`
	Refill    *int64 `json:"refill"`
	Unlimited bool   `json:"unlimited"`
}

// spec is the whole limit but for its overrides and its candidate.
func (in *putJSON) spec() (limiter.Spec, error) {
	s, err := in.LimitJSON.Spec()
	s.Answers.Status, s.Answers.Body, s.Answers.ContentType = in.Status, in.Body, in.ContentType
	s.Parent = in.Parent
	return s, err
}

// overrides are the exceptions from it. An error is a *limiter.SpecError.
func (in *putJSON) overrides() (list []limiter.Override, err error) {
	for i, in := range in.Overrides {
		o := limiter.Override{Key: in.Key, Plan: in.Plan, Unlimited: in.Unlimited}
		for _, f := range []struct {
			name string
			from *int64
			to   *int64
		}{
			{"limit", in.Limit, &o.Limit},
			{"burst", in.Burst, &o.Burst},
			{"refill", in.Refill, &o.Refill},
		} {
			if f.from == nil {
				continue
			}
			if *f.to = *f.from; *f.to == 0 {
				return nil, &limiter.SpecError{
					Field:  fmt.Sprintf("overrides[%d].%s", i, f.name),
					Reason: "is 0; leave it out to have the limit's",
				}
			}
		}
		list = append(list, o)
	}
	return list, nil
}

// candidate is the Spec of the candidate, or nil: what it leaves out is the limit's, as in a file.
func (in *putJSON) candidate() (*limiter.Spec, error) {
	if in.Candidate == nil {
		return nil, nil
	}
	live, err := json.Marshal(in.LimitJSON)
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
				Reason: "is not a candidate's; it has: " + strings.Join(limiter.CandidateFields,
					", "),
			}
		}
		fields[name] = value
	}
	merged, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	own, err := decodeJSON[notation.LimitJSON](merged, "a candidate has the fields of a limit")
	if err != nil {
		return nil, admin.UnderCandidate(err)
	}
	s, err := own.Spec()
	return &s, admin.UnderCandidate(err)
}
