package admin

import (
	"context"
	"maps"
	"slices"

	"penstock/cluster"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/catalog"
	"penstock/rpc/door"
	"penstock/rpc/history"
	"penstock/rpc/notation"
)

// NamedLimits are the limits of a node.
type NamedLimits struct {
	Node   string       `json:"node"`
	Limits []NamedLimit `json:"limits"`
}

// NamedLimit is a limit with its counts.
type NamedLimit struct {
	notation.LimitJSON
	notation.WordsJSON
	Put       bool `json:"put"` // at all nodes, and not by a file
	Overrides int  `json:"overrides"`

	Version  string `json:"version,omitempty"` // of one that was put
	By       string `json:"by,omitempty"`      // client that has put it
	AtMs     int64  `json:"at_ms,omitzero"`
	OverFile bool   `json:"over_file,omitzero"` // a file of this node has the name too

	// checks at the doors of this node; a refusal in dry_run is in shadow
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
	Shadow  uint64 `json:"shadow"`
	Tagged  uint64 `json:"tagged,omitzero"`        // on_deny: tag
	Lower   uint64 `json:"deprioritized,omitzero"` // on_deny: deprioritize
	Delayed uint64 `json:"delayed,omitzero"`       // admitted, and told to wait first

	Candidate *CandidateJSON `json:"candidate,omitempty"`
}

// Count adds up the checks of the limit, however they were decided.
func (row *NamedLimit) Count(t cluster.LimitTally) {
	for source := range t.Checks[cluster.OutcomeAllowed] {
		row.Allowed += t.Checks[cluster.OutcomeAllowed][source]
		row.Denied += t.Checks[cluster.OutcomeDenied][source]
		row.Shadow += t.Checks[cluster.OutcomeShadow][source]
		row.Tagged += t.Checks[cluster.OutcomeTagged][source]
		row.Lower += t.Checks[cluster.OutcomeTier][source]
		row.Delayed += t.Checks[cluster.OutcomeDelayed][source]
	}
}

// Limits lists the named limits.
func (a *Service) Limits(
	_ context.Context,
	in *penstockv1.LimitsRequest,
) (*penstockv1.LimitsResponse, error) {
	count := int(in.GetCandidateKeys())
	if count < 0 || count > MaxListed {
		return nil, door.StatusError(door.Wrong("candidate_keys", "is %d; 0 to %d are accepted",
			count, MaxListed))
	}
	out := &penstockv1.LimitsResponse{Node: a.Node.ID()}
	var denied *history.HeavyList
	if count > 0 && a.Recorder != nil {
		list := a.Recorder.NewlyDeniedKeys()
		denied = &list
	}
	limits, tallies := a.Node.Limits(), a.Node.Stats().Candidates()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		l := limits[name]
		row := &penstockv1.NamedLimit{
			Limit: notation.LimitMessage(&l.Spec),
			Put:   a.Node.IsPut(name), Overrides: int32(len(l.Overrides())),
			Definition: catalog.Format(l),
			Candidate:  candidateMessage(l, tallies[name]),
		}
		if row.Put {
			head := a.Catalog.Head(name)
			row.Version, row.By, row.AtMs = head.Version.String(), head.By, head.AtMs
			row.OverFile = a.Node.Given(name) != nil
		}
		if denied != nil && row.Candidate != nil {
			row.Candidate.NewlyDeniedKeys = askedKeys(denied.Of(name, count))
		}
		out.Limits = append(out.Limits, row)
	}
	return out, nil
}
