package cluster

import (
	"sync"
	"time"

	"penstock/cluster/debts"
	"penstock/limiter"
)

// A flight is one item on its way through this node: what the holder of its key is asked, and what
// this node has learned about it. The caller's Item stays as it is.
type flight struct {
	AskItem
	hash  uint64
	tally *tally       // of Limit, if that has a name in force
	doubt *debts.Doubt // the boots that may have charged it without an answer

	namer     uint64 // boot that has named the target; 0: none has
	circled   uint8  // how often two nodes have named each other
	thirds    uint8  // how often another one was asked because of that
	owed      bool   // it was admitted already, and is to be charged (debts.go)
	share     bool   // its limit is a share of this node: a denial is worth little (shares.go)
	again     bool   // this node had answered it before
	delivered bool   // asked by another node
	child     bool   // its limit has a parent (tree.go)
	spared    bool   // a level of a check that another level has refused: it is not counted
}

// A batch is a request on its way: that of a client, or one that this node makes by itself.
type batch struct {
	items      []flight
	deadline   limiter.Instant
	atomic     bool
	parted     bool // atomic, and its items are decided apart (batch.part)
	owed       bool // no client waits: items that no node decides stay undecided (debts.go)
	cautious   bool // boots that may have charged an item are not asked for it, nor their heirs
	multiOwner bool // it takes from several owners: it gives back later (multi_owner_take.go)
	followed   bool // other items of the same request come after it (tree.go)
	trace      Trace
	hungUp     func() bool // Request.HungUp

	trip time.Duration // the longest round trip so far, of calls that were all answered
}

// flights is memory for the items of requests that have several. The item of all others lies on
// the stack.
var flights = sync.Pool{New: func() any { return new([]flight) }}

// same asks something else of the same key under the same limit.
func (it *flight) same(asked AskItem) flight {
	asked.Limit, asked.Key = it.Limit, it.Key
	return flight{AskItem: asked, hash: it.hash}
}
