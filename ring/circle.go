package ring

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// circle has the points of all members, in the order in which a partition passes them. From it the
// library's table can be rebuilt in linear time, also without any one of the members; the library
// sorts its circle again for every member that it is given. The tables are the same, to the last
// partition (a test).
type circle struct {
	at      []uint64 // rising
	of      []uint16 // index of the point's member
	members int
	clashes bool // two points coincide: only the library decides which of them counts
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
		at: make([]uint64, len(points)), of: make([]uint16, len(points)),
		members: len(sorted),
	}
	for i, p := range points {
		c.at[i], c.of[i] = p.at, p.of
	}
	c.clashes = len(slices.Compact(slices.Clone(c.at))) < len(c.at)
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
	var key [8]byte
	for p := range owners {
		binary.LittleEndian.PutUint64(key[:], uint64(p))
		i, _ := slices.BinarySearch(c.at, xxhash.Sum64(key[:]))
		for ; ; i++ { // most × members is more than there are partitions, so it ends
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
