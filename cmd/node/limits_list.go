package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

type limitsListVerb struct {
	remote
	output
}

// limitRow is a limit as JSON shows it.
type limitRow struct {
	Limit   string `json:"limit"`
	Rule    string `json:"rule"`
	From    string `json:"from"` // file, put, or put over a file
	Version string `json:"version,omitempty"`
	By      string `json:"by,omitempty"`
	AtMs    int64  `json:"at_ms,omitempty"`
	// Nodes that have another limit of that name in force, or none, and what is different there.
	Different   []string     `json:"different"`
	Differences []difference `json:"differences"`
}

// difference is what one node has otherwise than most.
type difference struct {
	Node   string   `json:"node"`
	Lacks  bool     `json:"lacks"` // it has no limit of that name
	Fields []string `json:"fields"`
}

// text is what differs, each on a line of its own.
func (d difference) text() string {
	if d.Lacks {
		return "  there is none\n"
	}
	text := ""
	for _, f := range d.Fields {
		text += "  " + f + "\n"
	}
	return text
}

// limitList is the answer of all nodes together.
type limitList struct {
	Limits  []limitRow `json:"limits"`
	Missing []string   `json:"missing"` // nodes that did not answer
}

func (v *limitsListVerb) Run(sh shell) error {
	byNode := map[string][]*penstockv1.NamedLimit{}
	missing, err := v.askNodes(func(ctx context.Context, c *client.Client) (func(), error) {
		out, err := adminOf(c).Limits(ctx, &penstockv1.LimitsRequest{})
		return func() { byNode[out.Node] = out.Limits }, err
	})
	if err != nil {
		return err
	}
	list := limitList{Limits: mergeLimits(byNode), Missing: missing}
	if err := v.print(sh.out, list, list.write); err != nil {
		return err
	}
	return unasked(missing)
}

// mergeLimits has each limit as most nodes have it, and the nodes that differ.
func mergeLimits(byNode map[string][]*penstockv1.NamedLimit) []limitRow {
	at := map[string]map[string]*penstockv1.NamedLimit{} // limit → node
	for node, limits := range byNode {
		for _, l := range limits {
			if at[l.Limit.Name] == nil {
				at[l.Limit.Name] = map[string]*penstockv1.NamedLimit{}
			}
			at[l.Limit.Name][node] = l
		}
	}
	list := []limitRow{}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		list = append(list, mergeLimit(slices.Sorted(maps.Keys(byNode)), at[name]))
	}
	return list
}

// mergeLimit is one limit as most of the nodes have it.
func mergeLimit(nodes []string, at map[string]*penstockv1.NamedLimit) limitRow {
	count, most := map[string]int{}, ""
	for _, node := range nodes {
		if at[node] == nil {
			continue
		}
		same := sameLimit(at[node])
		if count[same]++; count[same] > count[most] {
			most = same
		}
	}
	var merged *penstockv1.NamedLimit
	for _, node := range nodes {
		if l := at[node]; l != nil && sameLimit(l) == most && (merged == nil || l.OverFile) {
			merged = l
		}
	}
	row := newLimitRow(merged)
	for _, node := range nodes {
		l := at[node]
		if l != nil && sameLimit(l) == most {
			continue
		}
		d := difference{Node: node, Fields: []string{}}
		switch {
		case l == nil:
			d.Lacks = true
		case l.Version != merged.Version:
			was, is := cmp.Or(merged.Version, row.From), cmp.Or(l.Version, "file")
			d.Fields = append(d.Fields, fmt.Sprintf("version: %s → %s", was, is))
			fallthrough
		default:
			d.Fields = append(d.Fields,
				changedRows(definitionRows(merged.Definition), definitionRows(l.Definition))...)
		}
		row.Different = append(row.Different, node)
		row.Differences = append(row.Differences, d)
	}
	return row
}

// sameLimit is the same text for the same limit: its whole definition, and its version. Nodes of
// before definitions were told say a part of it.
func sameLimit(l *penstockv1.NamedLimit) string {
	if len(l.Definition) > 0 {
		return string(l.Definition) + "\x00" + l.Version
	}
	return newLimitRow(l).Rule + "\x00" + l.Version
}

func newLimitRow(l *penstockv1.NamedLimit) limitRow {
	row := limitRow{
		Limit: l.Limit.Name, Rule: ruleText(l.Limit), From: "file",
		Different: []string{}, Differences: []difference{},
	}
	if l.Put {
		row.From, row.Version, row.By, row.AtMs = "put", l.Version, l.By, l.AtMs
	}
	if l.OverFile {
		row.From = "put over a file"
	}
	if l.Overrides > 0 {
		row.Rule += ", " + some(int(l.Overrides), "override")
	}
	return row
}

// differences says what is different where: nodes that differ alike stand together.
func (r limitRow) differences() (text string) {
	for i, d := range r.Differences {
		alike := func(e difference) bool { return e.text() == d.text() }
		if slices.IndexFunc(r.Differences, alike) < i {
			continue
		}
		nodes := []string{}
		for _, e := range r.Differences {
			if alike(e) {
				nodes = append(nodes, e.Node)
			}
		}
		text += fmt.Sprintf("DIFFERENT at %s: %s\n%s", strings.Join(nodes, ", "), shown(r.Limit),
			d.text())
	}
	return text
}

func (l limitList) write(w io.Writer) error {
	if len(l.Limits) == 0 {
		_, err := fmt.Fprintln(w, "No node has a named limit.")
		return err
	}
	table := [][]string{{"LIMIT", "RULE", "FROM", "VERSION", "BY"}}
	different := ""
	for _, r := range l.Limits {
		table = append(table, []string{shown(r.Limit), r.Rule, r.From, r.Version, shown(r.By)})
		different += r.differences()
	}
	if err := columns(w, table); err != nil {
		return err
	}
	if different != "" {
		_, err := fmt.Fprint(w, "\n", different,
			"Give all nodes the same files, or put the limit: that wins over files.\n")
		return err
	}
	return nil
}
