package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/limiter/policy"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// limitsVerb is about the limits that nodes have in force.
type limitsVerb struct {
	Candidate limitsCandidateVerb `cmd:"" help:"Show what the candidates of limits would have refused, over all nodes."`
	Promote   limitsPromoteVerb   `cmd:"" help:"Put the candidate of a limit in the limit's place: in a file, or at all nodes."`
	List      limitsListVerb      `cmd:"" help:"List the limits in force, where they come from, and whether nodes differ."`
	Put       limitsPutVerb       `cmd:"" help:"Put limits at all nodes, over those of files."`
	Delete    limitsDeleteVerb    `cmd:"" help:"Take a limit away that was put. That of a file is in force again."`
	History   limitsHistoryVerb   `cmd:"" help:"List the last changes of limits that were put: when, at which node and by which client."`
	Rollback  limitsRollbackVerb  `cmd:"" help:"Put a limit again as it was with an earlier version."`
}

type limitsCandidateVerb struct {
	Limit string `arg:"" optional:"" help:"Only the candidate of this limit."`
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
}

// candidateList is the answer of all nodes together.
type candidateList struct {
	Candidates []candidateRow `json:"candidates"`
	Missing    []string       `json:"missing"` // nodes that did not answer
}

func (v *limitsCandidateVerb) Run(sh shell) error {
	rows := map[string]*candidateRow{}
	var mu sync.Mutex // guards rows
	missing, err := v.askNodes(func(ctx context.Context, c *client.Client) error {
		out, err := adminOf(c).Limits(ctx, &penstockv1.LimitsRequest{})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, l := range out.Limits {
			if l.Candidate != nil && (v.Limit == "" || l.Limit.Name == v.Limit) {
				addCandidate(rows, l.Limit.Name, l.Candidate)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	list := candidateList{Candidates: []candidateRow{}, Missing: missing}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
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
}

// ruleText is a limit in a few words.
func ruleText(l *penstockv1.InlineLimit) string {
	window := (time.Duration(l.PerMs) * time.Millisecond).String()
	for _, zero := range []string{"m0s", "h0m"} { // 10m0s, 1h0m0s
		if strings.HasSuffix(window, zero) {
			window = window[:len(window)-2]
		}
	}
	if l.Calendar != 0 {
		window = strings.ToLower(strings.TrimPrefix(l.Calendar.String(), "CALENDAR_"))
	}
	algorithm := strings.ToLower(strings.TrimPrefix(l.Algorithm.String(), "ALGORITHM_"))
	text := fmt.Sprintf("%s in %s, %s", thousands(l.Limit), window, algorithm)
	if l.Burst > 0 && l.Burst != l.Limit {
		text += fmt.Sprintf(", burst %s", thousands(l.Burst))
	}
	return text
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
			different += fmt.Sprintf(
				"DIFFERENT CANDIDATES of %s: give all nodes the same files.\n",
				c.Limit,
			)
		}
	}
	if err := columns(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "\nNewly denied: the limit has admitted what its candidate refuses. ",
		"Newly allowed: the other way round.\n", different)
	return err
}

// promoteInFile rewrites a file as a whole, so that a node that watches it never reads half of it.
func promoteInFile(file, limit string) error {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("--file %s: is a directory; name the file that has the limit", file)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	after, err := policy.Promote(file, before, limit)
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(file), ".promote-*")
	if err != nil {
		return err
	}
	defer os.Remove(fresh.Name()) // it is gone if all went well
	_, err = fresh.Write(after)
	err = errors.Join(err, fresh.Chmod(info.Mode().Perm()), fresh.Close())
	if err != nil {
		return err
	}
	return os.Rename(fresh.Name(), file)
}
