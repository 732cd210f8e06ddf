package main

import (
	"strings"

	"penstock/bench/history/judge"
)

// syncRow is about limits with replication: sync while a node is missing, for each kind of fault.
const syncRow = "replication: sync while a node is missing"

// row is the row of docs/promises.md that says that this promise does not hold; empty: it does.
// Such a contradiction is printed all the same; it does not change the exit code, unless -strict is
// given. The change that mends it deletes it here and in the document.
func row(c *judge.Contradiction) string {
	if strings.HasSuffix(c.Fault, judge.SyncKind) && c.Rule == "right again" {
		return syncRow
	}
	return ""
}
