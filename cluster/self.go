package cluster

import (
	"sync/atomic"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// self is what all parts of a node know: which start of which node it is, how it reaches the world,
// the View of the moment, and its counters.
type self struct {
	id    string
	boot  uint64
	began limiter.Instant

	clock       Clock
	net         Network
	callTimeout time.Duration
	observer    Observer // nil: nothing looks on

	view    atomic.Pointer[route]
	stopped atomic.Bool
	still   stillness

	_        [64]byte      // what every check reads is no neighbour of what every check writes
	sequence atomic.Uint64 // of the last ID drawn
	stats    Stats
	_        [64]byte
}

// ID is the node's stable id.
func (s *self) ID() string { return s.id }

// Boot is what tells this start of the node from all others.
func (s *self) Boot() uint64 { return s.boot }

// partition is the partition of the key with this hash, by the View of the moment.
func (s *self) partition(hash uint64) int {
	if r := s.view.Load(); r != nil {
		return r.Partition(hash)
	}
	return ring.Partition(hash)
}

// peerAddr is where others reach this node, as its View has it.
func (s *self) peerAddr() string {
	if r := s.view.Load(); r != nil {
		return r.Me().PeerAddr
	}
	return ""
}

// nodeOrigin marks the IDs that nodes draw. Clients cannot draw such an ID (Check clears the bit),
// so no client can take the place of another node's take in an owner's memory.
const nodeOrigin = 1 << 63

func (s *self) nextID() ID { return ID{Origin: s.boot | nodeOrigin, Sequence: s.sequence.Add(1)} }
