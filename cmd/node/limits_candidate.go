package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/admin"
	"penstock/rpc/client"
	"penstock/rpc/history"
)

type limitsCandidateVerb struct {
	Limit string `arg:"" optional:"" help:"Only the candidate of this limit."`
	Keys  int    `default:"5" help:"How many newly denied keys of each to list, 0 to 1000."`
	remote
	output
}

// candidateRow is a candidate as JSON shows it, with the counts of all nodes.
type candidateRow struct {
	Limit        string `json:"limit"`     // name of the limit that it is tried beside
	Rule         string `json:"candidate"` // as people read it
	Allowed      uint64 `json:"allowed"`
	Denied       uint64 `json:"denied"`
	NewlyDenied  uint64 `json:"newly_denied"`
	NewlyAllowed uint64 `json:"newly_allowed"`
	Unknown      uint64 `json:"unknown"`
	Different    bool   `json:"different"` // nodes have different candidates
	// NewlyDeniedKeys are those of newly_denied that were counted most often.
	NewlyDeniedKeys []refusedKey `json:"newly_denied_keys"`

	counted []history.HeavyList // what each node has counted by key
	sampled bool                // of the checks, a part was counted by key
}

// refusedKey is a key with how often a candidate has newly denied it.
type refusedKey struct {
	Key         string `json:"key"`
	NewlyDenied int64  `json:"newly_denied"` // an upper bound
	Over        int64  `json:"over"`         // by which it is too high at most
}

// candidateList is the answer of all nodes together.
type candidateList struct {
	Candidates []candidateRow `json:"candidates"`
	Missing    []string       `json:"missing"` // nodes that did not answer
}

func (v *limitsCandidateVerb) Run(sh shell) error {
	if v.Keys < 0 || v.Keys > admin.MaxListed {
		return fmt.Errorf("--keys: is %d; 0 to %d are accepted", v.Keys, admin.MaxListed)
	}
	// Nodes are asked for all keys that they know, so that sums leave out none.
	in := &penstockv1.LimitsRequest{}
	if v.Keys > 0 {
		in.CandidateKeys = admin.MaxListed
	}
	rows := map[string]*candidateRow{}
	missing, err := v.askNodes(func(ctx context.Context, c *client.Client) (func(), error) {
		out, err := adminOf(c).Limits(ctx, in)
		return func() {
			for _, l := range out.Limits {
				if l.Candidate != nil && (v.Limit == "" || l.Limit.Name == v.Limit) {
					addCandidate(rows, l.Limit.Name, l.Candidate)
				}
			}
		}, err
	})
	if err != nil {
		return err
	}
	list := candidateList{Candidates: []candidateRow{}, Missing: missing}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		rows[name].sumKeys(v.Keys)
		list.Candidates = append(list.Candidates, *rows[name])
	}
	if v.Limit != "" && len(rows) == 0 && len(missing) == 0 {
		return fmt.Errorf("no node has a limit named %q with a candidate", v.Limit)
	}
	if err := v.print(sh.out, list, list.write); err != nil {
		return err
	}
	return unasked(missing)
}

func addCandidate(rows map[string]*candidateRow, name string, c *penstockv1.Candidate) {
	rule := ruleText(c.Limit)
	row := rows[name]
	if row == nil {
		row = &candidateRow{Limit: name, Rule: rule}
		rows[name] = row
	}
	row.Different = row.Different || row.Rule != rule
	row.Allowed += c.Allowed
	row.Denied += c.Denied
	row.NewlyDenied += c.NewlyDenied
	row.NewlyAllowed += c.NewlyAllowed
	row.Unknown += c.Unknown
	if c.NewlyDeniedKeys != nil {
		row.counted = append(row.counted, heavyList(c.NewlyDeniedKeys))
		row.sampled = row.sampled || c.NewlyDeniedKeys.Sampled > 1
	}
}

// sumKeys adds up what the nodes have counted by key, and leaves the first so many.
func (r *candidateRow) sumKeys(count int) {
	r.NewlyDeniedKeys = []refusedKey{}
	for _, k := range history.Sum(r.counted...).Of(r.Limit, count).Keys {
		r.NewlyDeniedKeys = append(r.NewlyDeniedKeys, refusedKey{k.Key, k.Checks, k.Over})
	}
}

func (l candidateList) write(w io.Writer) error {
	if len(l.Candidates) == 0 {
		_, err := fmt.Fprintln(w, "No limit has a candidate.")
		return err
	}
	rows := [][]string{
		{"LIMIT", "CANDIDATE", "ALLOWED", "DENIED", "NEWLY DENIED", "NEWLY ALLOWED", "UNKNOWN"},
	}
	different := ""
	for _, c := range l.Candidates {
		rows = append(rows, []string{
			c.Limit, c.Rule, thousands(int64(c.Allowed)), thousands(int64(c.Denied)),
			thousands(
				int64(c.NewlyDenied),
			), thousands(int64(c.NewlyAllowed)), thousands(int64(c.Unknown)),
		})
		if c.Different {
			different += fmt.Sprintf("DIFFERENT CANDIDATES of %s: give all nodes the same files.\n",
				c.Limit)
		}
	}
	if err := columns(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "\nNewly denied: the limit has admitted what its candidate refuses. ",
		"Newly allowed: the other way round.\n", different)
	if err != nil {
		return err
	}
	return l.writeKeys(w)
}

// writeKeys writes the keys that candidates refuse, and their limits admit.
func (l candidateList) writeKeys(w io.Writer) error {
	rows, sampled, bounded := [][]string{{"NEWLY DENIED", "LIMIT", "KEY"}}, false, false
	for _, c := range l.Candidates {
		sampled = sampled || c.sampled
		for _, k := range c.NewlyDeniedKeys {
			times := thousands(k.NewlyDenied)
			if k.Over > 0 {
				bounded = true
				times = thousands(k.NewlyDenied-k.Over) + " to " + times
			}
			rows = append(rows, []string{times, c.Limit, shown(k.Key)})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	fmt.Fprintln(w)
	if err := columns(w, rows); err != nil {
		return err
	}
	if bounded {
		fmt.Fprintln(w, "More keys than there is room for: of some of them a range is known.")
	}
	if sampled {
		fmt.Fprintln(w, "A part of the checks was counted by key: these are estimates.")
	}
	return nil
}
