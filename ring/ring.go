// Package ring says which node owns which key. Follow one key:
//
//  1. The key's hash picks one of 4093 partitions: Partition(hash) is a remainder, the same on
//     every node and for ever. A cluster with a Secret mixes that into the hash before.
//  2. The Ring has a flat table with one owner per partition. New fills it once, from nothing but
//     the sorted ids of the members. So nodes that know the same members agree on every owner
//     without asking each other.
//  3. When a member comes or goes, a new Ring is built beside the old one and published whole.
//     Moves lists the changes: about one partition in N, nearly all of them from or to that member.
//  4. Heir names the next owner of a partition, should its owner vanish. It is not a separate
//     choice but the owner in the ring without the present owner. So a replica kept there is
//     already where the next ring will look for it. SecondHeir is the same for two that vanish.
//
// The table comes from consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam:
// "Consistent Hashing with Bounded Loads", 2016). Every member has 100 points on a circle. A
// partition goes clockwise to the first member that has room, and no member gets more than 1.25
// times the average. github.com/buraksezer/consistent defines that table, to the last partition.
// But its time grows with the square of the members, and when a node dies all others make a table
// in the same moment, and nobody decides for the keys of the dead one before they are done. So
// tables come from a circle of our own (circle.go), in a twentieth of the time. Tests compare them
// with the library's, which still makes the tables where two points fall together.
//
// Nothing here reads a clock, waits, logs or draws a random number.
package ring

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// Partitions is the number of partitions of every ring. It is part of the protocol: another number
// moves nearly every key. It is a prime, so that a Table may take its shards from the same hash
// without meeting the same remainder again. It is large enough that each of 100 members owns about
// 41.
const Partitions = 4093

const (
	// MaxMembers is the most members of a Ring: each owns four partitions then, and a fifth takes
	// much more computing.
	MaxMembers = 1024
	// MaxID is the longest id in bytes.
	MaxID = 255

	replicas = 100  // points on the circle per member
	load     = 1.25 // no member owns more than ceil(Partitions / members × load)

	// libraryVersion is part of the ring's hash: another version of the library gives another table
	// (v0.10.0 and v1.0.0 differ in 64 to 98 % of the partitions), and a cluster must not mix them.
	libraryVersion = "v1.1.0"

	noHeir = 1<<16 - 1 // in Ring.heirs
)

// Algorithm names everything that determines a table besides the ids of the members. Nodes with
// different Algorithms disagree on most owners and must not be in one cluster.
func Algorithm() string {
	return fmt.Sprintf("penstock/ring/1 consistent/%s xxh64 partitions=%d replicas=%d load=%g",
		libraryVersion, Partitions, replicas, load)
}

// Partition is the partition of the key with this hash, 0 … Partitions-1.
func Partition(hash uint64) int { return int(hash % Partitions) }

// Ring maps partitions to owners among some members. It is immutable and safe for concurrent use.
type Ring struct {
	hash   uint64
	ids    []string           // sorted
	owners [Partitions]uint16 // index in ids

	// heirs[p] is filled, for all partitions of one owner at once, under heirsOf[owner].
	heirs   [Partitions]uint16 // index in ids, or noHeir
	heirsOf []sync.Once
	circle  func() *circle
	seconds seconds
}

// New builds the ring of the members with these ids: 1 … MaxMembers of them, each 1 … MaxID bytes
// and different from the others, in any order. It does not keep the slice.
func New(ids []string) (*Ring, error) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	if err := validate(ids); err != nil {
		return nil, err
	}
	r := &Ring{hash: hash(ids), ids: ids, heirsOf: make([]sync.Once, len(ids))}
	r.circle = sync.OnceValue(func() *circle { return newCircle(ids) })
	if r.circle().place(&r.owners, nobody, nobody) == nil {
		return r, nil
	}
	if err := fill(&r.owners, ids); err != nil {
		return nil, err
	}
	return r, nil
}

// Hash identifies the table: rings with the same hash have the same owners. It covers Algorithm and
// the ids, and is never 0.
func (r *Ring) Hash() uint64 { return r.hash }

// Members are the ids, sorted. The slice is shared and must not be modified.
func (r *Ring) Members() []string { return r.ids }

// Owner is the index in Members of the owner of the partition, which must be 0 … Partitions-1.
func (r *Ring) Owner(partition int) int { return int(r.owners[partition]) }

// Index is the index of id in Members; false if it is not a member.
func (r *Ring) Index(id string) (int, bool) { return slices.BinarySearch(r.ids, id) }

// Heir is the index in Members of the next owner of the partition, once its owner is gone; false if
// the owner is alone.
//
// The first call for any partition of an owner places all partitions without that owner, which
// takes some ten microseconds. Later calls for partitions of the same owner are a lookup.
func (r *Ring) Heir(partition int) (int, bool) {
	owner := r.Owner(partition)
	r.heirsOf[owner].Do(func() { r.inherit(owner) })
	heir := r.heirs[partition]
	return int(heir), heir != noHeir
}

// inherit fills in the heirs of all partitions of owner.
func (r *Ring) inherit(owner int) {
	var heirs [Partitions]uint16
	if r.circle().place(&heirs, owner, nobody) != nil {
		r.restOf(&heirs, owner)
	}
	for p := range r.owners {
		if r.Owner(p) == owner {
			r.heirs[p] = heirs[p]
		}
	}
}

// restOf has the library place all partitions without owner.
func (r *Ring) restOf(heirs *[Partitions]uint16, owner int) {
	rest, err := r.Without(r.ids[owner])
	for p := range heirs {
		switch {
		case err != nil: // no member is left, or the library failed
			heirs[p] = noHeir
		case rest.Owner(p) < owner:
			heirs[p] = rest.owners[p]
		default: // every member after the owner has the index plus 1 in the full ring
			heirs[p] = rest.owners[p] + 1
		}
	}
}

// Without is the ring of the same members but id. It is an error if id is not a member or the only
// one.
func (r *Ring) Without(id string) (*Ring, error) {
	i, ok := r.Index(id)
	if !ok {
		return nil, fmt.Errorf("ring: %q cannot be taken out: it is not one of the %d members", id,
			len(r.ids))
	}
	if len(r.ids) == 1 {
		return nil, fmt.Errorf("ring: %q cannot be taken out: it is the only member, and a ring "+
			"has at least one", id)
	}
	return New(slices.Delete(slices.Clone(r.ids), i, i+1))
}

// validate refuses ids from which the library would make a panic, a hang or a table that depends on
// chance.
func validate(sorted []string) error {
	if len(sorted) == 0 {
		return fmt.Errorf("ring: no members: a ring has at least one")
	}
	if len(sorted) > MaxMembers {
		return fmt.Errorf("ring: %d members, at most %d are supported; let some join as agents, "+
			"which own no keys",
			len(sorted), MaxMembers)
	}
	for i, id := range sorted {
		switch {
		case id == "":
			return fmt.Errorf("ring: a member has an empty id; give every node a name")
		case len(id) > MaxID:
			return fmt.Errorf("ring: the id %.32q… has %d bytes, at most %d are supported", id,
				len(id), MaxID)
		case i > 0 && sorted[i-1] == id:
			return fmt.Errorf("ring: the id %q is given twice; every node needs a name of its own",
				id)
		}
	}
	return nil
}

func hash(sorted []string) uint64 {
	b := []byte(Algorithm())
	for _, id := range sorted {
		b = binary.AppendUvarint(b, uint64(len(id))) // so that {"ab"} and {"a","b"} differ
		b = append(b, id...)
	}
	return max(1, xxhash.Sum64(b))
}

// fill asks the library for the owner of every partition. The library panics if it finds no room.
// Valid ids give it no reason to, but a node that cannot build a ring must keep its old one and not
// die.
func fill(owners *[Partitions]uint16, sorted []string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("ring: consistent %s gave up on %d members: %v", libraryVersion,
				len(sorted), p)
		}
	}()
	members := make([]consistent.Member, len(sorted))
	for i, id := range sorted {
		members[i] = member{id: id, index: uint16(i)}
	}
	c := consistent.New(members, consistent.Config{
		Hasher:            hasher{},
		PartitionCount:    Partitions,
		ReplicationFactor: replicas,
		Load:              load,
	})
	for p := range owners {
		owners[p] = c.GetPartitionOwner(p).(member).index
	}
	return nil
}

// member is a node as the library knows it.
type member struct {
	id    string
	index uint16
}

func (m member) String() string { return m.id }

type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }
