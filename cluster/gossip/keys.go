package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/memberlist"
)

// gossipKey is the length of a key in bytes: AES-256.
const gossipKey = 32

func checkKeys(keys [][]byte) error {
	for i, key := range keys {
		if len(key) != gossipKey {
			return fmt.Errorf(
				"gossip: key %d of %d has %d bytes; every gossip key needs %d",
				i+1,
				len(keys),
				len(key),
				gossipKey,
			)
		}
	}
	return nil
}

// SetKeys exchanges the keys while the node runs: from now on the first encrypts, and all decrypt.
// To change a key without losing a message, give all nodes the new one as a further key, then as
// the first, then alone. On an error the keys stay. A node that was started without keys takes
// none.
func (g *Gossip) SetKeys(keys [][]byte) error {
	switch {
	case g.keys == nil:
		return errors.New(
			"gossip: this node was started without keys, and takes none until it is restarted",
		)
	case len(keys) == 0:
		return errors.New("gossip: a node with keys needs one at least")
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	return exchange(g.keys, keys)
}

// exchange makes keys those of the ring.
func exchange(ring *memberlist.Keyring, keys [][]byte) error {
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return err
		}
	}
	ended := slices.DeleteFunc(slices.Clone(ring.GetKeys()), func(key []byte) bool {
		return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
	})
	if len(ended) > 0 {
		// Each use moves a key to the front, so those that have ended are the last then. Of another
		// place RemoveKey would move the later keys within the array that a reader may just walk
		// over.
		for _, key := range slices.Backward(keys) {
			_ = ring.UseKey(key)
		}
	}
	for range ended {
		all := ring.GetKeys()
		if err := ring.RemoveKey(all[len(all)-1]); err != nil {
			return err
		}
	}
	return ring.UseKey(keys[0])
}

// What a seed's answer means for the people that run the cluster.
const (
	otherCluster = "it hangs up: it has another --cluster than %q, or is not a gossip port"
	sameKeys     = "give all nodes the same --gossip-key-file"
	otherKeys    = "it has other gossip keys: " + sameKeys
	keysThere    = "it has gossip keys, and this node has none: " + sameKeys
	keysHere     = "it has no gossip keys, and this node has: " + sameKeys
)

// explain adds to an error of a knock what it means.
func explain(err error, cluster string) error {
	for said, means := range map[string]string{
		"EOF":                            fmt.Sprintf(otherCluster, cluster),
		"connection reset":               fmt.Sprintf(otherCluster, cluster),
		" pipe":                          fmt.Sprintf(otherCluster, cluster),
		"o installed keys could decrypt": otherKeys,
		"is encrypted and encryption is not configured":   keysThere,
		"is configured but remote state is not encrypted": keysHere,
	} {
		if strings.Contains(err.Error(), said) {
			return fmt.Errorf("%w; %s", err, means)
		}
	}
	return err
}
