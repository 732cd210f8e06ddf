package ring

import (
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// Promise: without a secret each key is where it always was.
func TestNoSecretMovesNoKey(t *testing.T) {
	r, err := New([]string{"n1", "n2", "n3"})
	if err != nil {
		t.Fatal(err)
	}
	if r.HashUnder(0) != r.Hash() {
		t.Error("without a secret the hash of the ring is another one")
	}
	rapid.Check(t, func(t *rapid.T) {
		hash := rapid.Uint64().Draw(t, "hash")
		if p := PartitionUnder(0, hash); p != Partition(hash) {
			t.Fatalf("without a secret %x is in partition %d instead of %d", hash, p,
				Partition(hash))
		}
	})
}

// Promise: 50,000 keys that were chosen to be one owner's are spread over all members by a secret,
// as evenly as its partitions are, and over all partitions; so are keys of one partition.
func TestChosenKeysAreSpreadByASecret(t *testing.T) {
	const keys = 50_000
	r, err := New([]string{"n1", "n2", "n3", "n4", "n5"})
	if err != nil {
		t.Fatal(err)
	}
	owned := make([]int, 5)
	for p := range Partitions {
		owned[r.Owner(p)]++
	}
	choices := map[string]func(hash uint64) bool{
		"of one owner":     func(hash uint64) bool { return r.Owner(Partition(hash)) == 2 },
		"of one partition": func(hash uint64) bool { return Partition(hash) == 17 },
	}
	for _, secret := range []uint64{1, 2, 0x8000000000000000, 0xfeedfacecafebeef} {
		for name, chosen := range choices {
			var of [5]int
			var in [Partitions]int
			for i, found := uint64(0), 0; found < keys; i++ {
				// counted hashes find keys of one partition soon
				hash := xxhash.Sum64String(fmt.Sprint("key-", i))
				if name == "of one partition" {
					hash = 17 + i*Partitions
				}
				if !chosen(hash) {
					continue
				}
				found++
				p := PartitionUnder(secret, hash)
				of[r.Owner(p)]++
				in[p]++
			}
			chi := 0.0
			for o, n := range of {
				want := float64(keys) * float64(owned[o]) / Partitions
				chi += (float64(n) - want) * (float64(n) - want) / want
			}
			if chi > 23.5 { // one in ten thousand, of 4 degrees of freedom
				t.Errorf("secret %x: keys %s lie at %v; chi-square is %.1f", secret, name, of, chi)
			}
			chi = 0
			for _, n := range in {
				const want = float64(keys) / Partitions
				chi += (float64(n) - want) * (float64(n) - want) / want
			}
			if chi > 4092+3.72*90.5 { // one in ten thousand, of 4092 degrees of freedom
				t.Errorf("secret %x: keys %s are uneven over partitions: chi-square is %.0f",
					secret, name, chi)
			}
		}
	}
}

// Promise: the hash of a ring tells of another secret, and nobody reads the secret from it.
func TestHashUnderASecret(t *testing.T) {
	r, err := New([]string{"n1", "n2", "n3"})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]uint64{}
	for secret := range uint64(1000) {
		h := r.HashUnder(secret)
		if before, found := seen[h]; found {
			t.Errorf("secrets %d and %d have one hash", before, secret)
		}
		seen[h] = secret
	}
}
