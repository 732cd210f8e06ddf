package limiter

import (
	"math/bits"
	"unsafe"
)

// Where a key lies in a table follows from a hash of its bytes under a secret of the table. The
// public Hash cannot say it: anybody computes that, and finds as many keys as he likes for one
// shard, or for one slot. They would fill it, and newcomers there would share the cells of the
// sketch while the rest of the table is empty.
//
// The sketch goes by the public hash all the same, since its cells travel to other nodes, and each
// table has a secret of its own. To choose keys for a cell helps nobody before the whole table is
// full.

// placement is where keys lie. It is never changed.
type placement struct {
	secret   [3]uint64 // without one, keys lie by their public hash
	shift    uint      // of a hash, to the number of a shard, or of a part of the sketch
	sketches []sketch  // as many as shards, by the public hash
}

// newPlacement draws the secret out of a seed; 0 is none.
func newPlacement(seed uint64, shift uint, parts int) placement {
	p := placement{shift: shift, sketches: make([]sketch, parts)}
	if seed != 0 {
		for i := range p.secret { // splitmix64; odd, so that a product loses nothing
			seed += 0x9e3779b97f4a7c15
			z := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
			z = (z ^ z>>27) * 0x94d049bb133111eb
			p.secret[i] = z ^ z>>31 | 1
		}
	}
	return p
}

// of is the hash by which the table finds a key, of which hash is the public one. Its top bits pick
// the shard.
//
// As wyhash does, it multiplies 8 bytes by 8 bytes, both under the secret, and folds the product.
// Without the secret, one finds no two keys with one place but by chance.
func (p *placement) of(key string, hash uint64) uint64 {
	if p.secret[0] == 0 {
		return hash
	}
	return p.hidden(key)
}

func (p *placement) hidden(key string) uint64 {
	at, n := unsafe.Pointer(unsafe.StringData(key)), uintptr(len(key))
	x := p.secret[0] ^ uint64(n)*p.secret[2]
	var a, b uint64
	switch {
	case n > 16:
		end := unsafe.Add(at, n-16) // of the last 16 bytes; some of them come twice
		for ; uintptr(at) < uintptr(end); at = unsafe.Add(at, 16) {
			x = folded(word(at, 0)^p.secret[1], word(at, 8)^x)
		}
		a, b = word(end, 0), word(end, 8)
	case n >= 8:
		a, b = word(at, 0), word(at, n-8)
	case n >= 4:
		a, b = uint64(half(at, 0)), uint64(half(at, n-4))
	case n > 0:
		a = uint64(octet(at, 0))<<16 | uint64(octet(at, n>>1))<<8 | uint64(octet(at, n-1))
	}
	return folded(a^p.secret[1], b^x)
}

// folded is the product of two words, the higher half on the lower.
func folded(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func word(p unsafe.Pointer, at uintptr) uint64 { return *(*uint64)(unsafe.Add(p, at)) }
func half(p unsafe.Pointer, at uintptr) uint32 { return *(*uint32)(unsafe.Add(p, at)) }
func octet(p unsafe.Pointer, at uintptr) uint8 { return *(*uint8)(unsafe.Add(p, at)) }
