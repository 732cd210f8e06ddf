package policy

import (
	"errors"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
)

// candidateFields are the fields that a candidate may have.
var candidateFields = append(slices.Clone(limiter.CandidateFields), "overrides")

// candidate reads the candidate of the limit that is drafted in live. A field that it leaves out is
// the limit's. If it has another algorithm, only limit, per and overrides are: other fields may
// mean nothing there.
func (p *page) candidate(n ast.Node, live draft, places map[string]ast.Node) *draft {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		p.fault(n, "candidate", "must be a mapping of fields, not "+describe(n))
		return nil
	}
	d := live
	d.spec.Parent = "" // a candidate has none
	for _, v := range m.Values {
		if fieldName(v.Key) != "algorithm" {
			continue
		}
		var other draft
		if fieldNamed("algorithm").read(value{v.Value}, &other) == nil &&
			other.spec.Algorithm != live.spec.Algorithm {
			d = draft{per: live.per, overrides: live.overrides}
			d.spec.Name, d.spec.Limit = live.spec.Name, live.spec.Limit
		}
	}
	for _, v := range m.Values {
		name := fieldName(v.Key)
		if !slices.Contains(candidateFields, name) {
			p.fault(v.Key, "candidate."+shorten(name), "is not a candidate's; it has, and all "+
				"else is the limit's: "+strings.Join(candidateFields, ", "))
			continue
		}
		places["candidate."+name] = v.Value
		if name == "overrides" {
			d.overrides = nil
			p.overrides(v.Value, &d, places, "candidate.overrides")
		} else if err := fieldNamed(name).read(value{v.Value}, &d); err != nil {
			p.fault(v.Value, "candidate."+name, err.Error())
		}
	}
	return &d
}

// finishWith makes the limit, with the candidate that is drafted in tried if that is not nil. An
// error is a *limiter.SpecError.
func (d *draft) finishWith(tried *draft) (*limiter.Limit, error) {
	l, err := d.finish()
	if err != nil || tried == nil {
		return l, err
	}
	own, err := tried.finish()
	if err == nil {
		l, err = l.WithCandidate(tried.spec, own.Overrides()...)
	}
	var spec *limiter.SpecError
	if errors.As(err, &spec) {
		return nil, &limiter.SpecError{Field: "candidate." + spec.Field, Reason: spec.Reason}
	}
	return l, err
}
