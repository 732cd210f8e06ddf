package ring

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// circle has the points of all members, in the order in which a partition passes them. From it the
// library's table can be rebuilt in linear time, also without any one of the members; the library
// sorts its circle again for every member that it is given. The tables are the same, to the last
// partition (a test).
type circle struct {
	of      []uint16            // by point: the index of its member
	first   *[Partitions]uint32 // by partition: the first point that it passes, or one too many
	members int
	clashes bool // two points coincide: only the library decides which of them counts
}

// begins are the partitions in the order in which they lie on the circle.
var begins = sync.OnceValue(func() *[Partitions]begin {
	var list [Partitions]begin
	var key [8]byte
	for p := range list {
		binary.LittleEndian.PutUint64(key[:], uint64(p))
		list[p] = begin{xxhash.Sum64(key[:]), p}
	}
	slices.SortFunc(list[:], func(a, b begin) int { return cmp.Compare(a.at, b.at) })
	return &list
})

// begin is where a partition lies on the circle.
type begin struct {
	at        uint64
	partition int
}

func newCircle(sorted []string) *circle {
	type point struct {
		at uint64
		of uint16
	}
	points := make([]point, 0, replicas*len(sorted))
	var key []byte
	for i, id := range sorted {
		for k := range replicas {
			key = append(append(strconv.AppendInt(key[:0], int64(k), 10), ':'), id...)
			points = append(points, point{xxhash.Sum64(key), uint16(i)})
		}
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	c := &circle{
		of: make([]uint16, len(points)), first: new([Partitions]uint32), members: len(sorted),
	}
	for i, p := range points {
		c.of[i] = p.of
		c.clashes = c.clashes || i > 0 && points[i-1].at == p.at
	}
	i := 0
	for _, b := range begins() {
		for i < len(points) && points[i].at < b.at {
			i++
		}
		c.first[b.partition] = uint32(i)
	}
	return c
}

// nobody is not the index of any member: with it, place leaves no member out.
const nobody = -1

// place gives every partition the first member after it that has room, as if the members without
// and nor did not exist. They differ, or are nobody.
func (c *circle) place(owners *[Partitions]uint16, without, nor int) error {
	members := c.members
	if without != nobody {
		members--
	}
	if nor != nobody {
		members--
	}
	if c.clashes || members <= 0 {
		return fmt.Errorf("ring: no circle for %d members", members)
	}
	most := int(math.Ceil(float64(Partitions) / float64(members) * load))
	owned := make([]int, c.members)
	for p := range owners {
		// most × members is more than there are partitions, so it ends
		for i := int(c.first[p]); ; i++ {
			if i >= len(c.of) {
				i = 0
			}
			if m := int(c.of[i]); m != without && m != nor && owned[m] < most {
				owned[m]++
				owners[p] = c.of[i]
				break
			}
		}
	}
	return nil
}
