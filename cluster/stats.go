package cluster

import (
	"sync"
	"sync/atomic"
)

// Stats counts since the start of the node. Items are counted, not requests, unless a line says
// otherwise.
type Stats struct {
	inForce *atomic.Pointer[map[string]limitInForce] // the node's
	mu      sync.Mutex                               // held while limits go from inForce to gone
	other   tally                                    // of limits that requests bring along
	gone    tally                                    // of limits that are in force no more

	candidates candidates

	// partitions held without their counters, because all nodes that had them were gone
	Bereft   atomic.Uint64
	Refused  atomic.Uint64 // requests that were in error: nothing decided, nothing charged
	Degraded atomic.Uint64 // answered under less than the full promise
	Fallback atomic.Uint64 // answered by the limit's on_error
	Settled  atomic.Uint64 // of those that were admitted: charged at the holder, afterwards
	// of those that were admitted: never charged, because no holder could be told in time
	Forgiven  atomic.Uint64
	Forwarded atomic.Uint64 // sent to their owners
	Retried   atomic.Uint64 // sent again
	Unsent    atomic.Uint64 // calls that never reached their peer
	Lost      atomic.Uint64 // calls with an unknown fate
	NotOwner  atomic.Uint64 // refused by a peer that does not hold the key
	Relayed   atomic.Uint64 // sent on to their owners for askers that do not reach them
	Detours   atomic.Uint64 // messages that another member has passed on for this node
	Delivered atomic.Uint64 // asked of this node by peers
	Disowned  atomic.Uint64 // refused to a peer because this node does not hold the key
	Expired   atomic.Uint64 // dropped uncharged because their deadline had passed
	Repeated  atomic.Uint64 // delivered twice and charged once
	Leased    atomic.Uint64 // admitted from a lease
	Cached    atomic.Uint64 // denied without asking, because the owner had said no and until when
	RanOut    atomic.Uint64 // holds that ran out before they were settled
	// requests with attributes that no rule matches: admitted, and nothing counted
	Unmatched atomic.Uint64
	Loops     atomic.Uint64 // asks dropped because they had been sent on too often

	// messages about partitions from a boot that no View has named: not believed
	Strangers atomic.Uint64
	// messages about partitions that no member can have sent: not believed
	Implausible atomic.Uint64

	// Inline limits that doors refused because their clients, or all of them, had brought too many.
	// The doors count.
	InlineRefused atomic.Uint64
	// holds that this node has refused because a client, a holder, a limit or all have too many
	HoldsRefused atomic.Uint64

	// Partitions are counted from here on.
	Claimed   atomic.Uint64 // held because no other node did
	Received  atomic.Uint64 // held because the former holder has given them
	Given     atomic.Uint64 // given to others
	TakenOver atomic.Uint64 // of Claimed: the holder was gone, and had given a copy here
	Shifted   atomic.Uint64 // times that this node began or ceased to decide for a partition
	// times that this node has stopped deciding, because it was stopped or cut off
	Fenced atomic.Uint64

	Copied atomic.Uint64 // entries and charges taken over from others
}

// Changes grows with everything that may have changed what the node knows. It is how one finds out
// that nothing has.
func (s *Stats) Changes() (sum uint64) {
	sum = s.Allowed() + s.Denied() + s.Peeks()
	for _, c := range []*atomic.Uint64{
		&s.Delivered, &s.Copied, &s.Claimed, &s.Received, &s.Given,
		&s.RanOut,
	} {
		sum += c.Load()
	}
	return sum
}
