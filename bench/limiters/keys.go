package limiters

import (
	"math/rand/v2"
	"strings"
	"unsafe"
)

// Keys have 16 to 40 bytes, 28 on average. They are made from their number, so none needs to be
// kept.
const (
	minKey = 16
	maxKey = 40
)

// appendKey appends key number i to b: as many hexadecimal digits as its length.
func appendKey(b []byte, i uint64) []byte {
	const digits = "0123456789abcdef"
	x := mix(i)
	length := minKey + int(x%(maxKey-minKey+1))
	for n := range length {
		if n%16 == 0 {
			x = mix(x + i)
		}
		b = append(b, digits[x%16])
		x /= 16
	}
	return b
}

// mix is a step of splitmix64: neighbours become strangers, and no two numbers the same.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// newKey is key number i, in memory of its own, as a request brings it.
func newKey(i uint64) string {
	var b strings.Builder
	b.Write(appendKey(make([]byte, 0, maxKey), i))
	return b.String()
}

// NewKey is key number i, in memory of its own.
func NewKey(i int) string { return newKey(uint64(i)) }

// Draws are those of draws, for other packages.
type Draws = draws

// NewDraws draws from that many keys, by Zipf (1.01) or each alike.
func NewDraws(keys int, zipf bool) *Draws { return newDraws(keys, zipf) }

// Drawn is how many there are; then they begin again.
const Drawn = drawn

// Key is draw i.
func (d *draws) Key(i int) string { return d.key(i) }

// draws are keys in the order in which they are asked for, one after the other in memory, as
// requests come out of a network buffer: what is measured does not include fetching a million keys
// from everywhere. There is no pointer in it for the collector to follow.
type draws struct {
	bytes []byte
	ends  []uint32
}

const drawn = 1 << 20 // then they begin again

// newDraws draws from that many keys, by Zipf (1.01) or each alike.
func newDraws(keys int, zipf bool) *draws {
	rnd := rand.New(rand.NewPCG(1, 2))
	next := func() uint64 { return rnd.Uint64N(uint64(keys)) }
	if zipf {
		ranks := rand.NewZipf(rnd, 1.01, 1, uint64(keys-1))
		// Rank 0 is key 0 and so on: keys of one rank or another are strangers in memory anyway.
		next = ranks.Uint64
	}
	d := &draws{make([]byte, 0, drawn*(minKey+maxKey)/2+maxKey), make([]uint32, 0, drawn)}
	for range drawn {
		d.bytes = appendKey(d.bytes, next())
		d.ends = append(d.ends, uint32(len(d.bytes)))
	}
	return d
}

// key is draw i.
func (d *draws) key(i int) string {
	i %= drawn
	begin := uint32(0)
	if i > 0 {
		begin = d.ends[i-1]
	}
	return unsafe.String(&d.bytes[begin], d.ends[i]-begin)
}
