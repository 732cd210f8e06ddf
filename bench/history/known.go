package main

import (
	"slices"
	"strings"

	"penstock/bench/history/judge"
)

// A known is a promise that does not hold yet, and that docs/promises.md says so of. The judge
// finds it all the same; it does not change the exit code, unless -strict is given. The one that
// mends it deletes the line here and in the document.
type known struct {
	fault string
	rules []string
	row   string // of docs/promises.md
}

var knowns = []known{
	{
		"cut-pair",
		[]string{"right again", "nothing is lost", "charged once"},
		"network partition",
	},
	{
		"cut-one-way",
		[]string{"right again", "nothing is lost", "charged once"},
		"network partition",
	},
	{"cut-off", []string{"right again"}, "network partition"},
	{"cut-off-pair", []string{"right again", "nothing is lost", "0 extra"}, "network partition"},
}

// syncRow is about limits with replication: sync while a node is missing, for each kind of fault.
const syncRow = "replication: sync while a node is missing"

// row is the row of docs/promises.md that says that this promise does not hold yet; empty: it is
// to.
func row(c *judge.Contradiction) string {
	if strings.HasSuffix(c.Fault, judge.SyncKind) && c.Rule == "right again" {
		return syncRow
	}
	for _, k := range knowns {
		if k.fault == c.Fault && slices.Contains(k.rules, c.Rule) {
			return k.row
		}
	}
	return ""
}
