package ring

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// PartitionUnder is the partition of the key with this public hash where members mix a secret into
// the hash before it picks a partition. Without one, anybody that knows the names of
// the members finds any number of keys that one of them owns. Secret 0 is none: then it is
// Partition.
//
// Keys that have all 64 bits of the public hash in common share a partition under each secret.
func PartitionUnder(secret, hash uint64) int {
	if secret != 0 {
		hash = mix(secret, hash)
	}
	return Partition(hash)
}

// mix multiplies twice and folds the product, as wyhash does with each 8 bytes.
func mix(secret, hash uint64) uint64 {
	other := bits.RotateLeft64(secret, 32) ^ 0x9e3779b97f4a7c15
	x := folded(hash^secret, other|1)
	return folded(x^other, secret|1)
}

// folded is the product of two words, the higher half on the lower.
func folded(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// HashUnder identifies where keys lie under a secret: two nodes with one hash agree on the owner of
// each key. It tells nobody the secret.
func (r *Ring) HashUnder(secret uint64) uint64 {
	if secret == 0 {
		return r.Hash()
	}
	b := binary.LittleEndian.AppendUint64(nil, secret)
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(b, r.Hash()))
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}
