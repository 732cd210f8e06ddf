package cluster

import (
	"penstock/cluster/dedup"
	"penstock/limiter"
)

// holder decides from memory on the keys whose partitions this node holds.
type holder struct {
	*self
	right *right
	parts *partitions
	pulse *pulse

	table   *limiter.Table
	book    *limiter.Ledger
	recent  dedup.Window
	charges charges // to replicated limits, that other nodes have not heard of
}
