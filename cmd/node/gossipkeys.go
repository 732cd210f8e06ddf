package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"penstock/cluster/gossip"
	"penstock/limiter/policy"
	"penstock/textfile"
)

// gossipKeyBytes is the length of a gossip key: AES-256.
const gossipKeyBytes = 32

// gossipKeys are the keys of --gossip-key-file. They are exchanged while the node runs.
type gossipKeys struct {
	watcher *policy.Watcher // nil without the flag

	mu     sync.Mutex // guards what follows
	latest [][]byte
	gossip *gossip.Gossip // nil until there is one
}

// readGossipKeys reads --gossip-key-file and goes on watching it; without the flag there are none.
func (f *files) readGossipKeys() ([][]byte, error) {
	path := f.settings.GossipKeyFile
	if path == "" {
		return nil, nil
	}
	var err error
	f.keys.watcher, err = policy.WatchFile(
		path,
		"gossip keys",
		f.log,
		func(always bool) (int, bool, error) {
			next, err := readGossipKeys(path)
			if err != nil {
				return 0, false, err
			}
			before, changed, err := f.keys.put(next)
			if err == nil && (always || changed) {
				f.recordReload("load gossip keys", path, before, namesOf(next))
			}
			return len(next), err == nil && (always || changed), err
		},
	)
	if err != nil {
		return nil, err
	}
	warnIfShared(f.log, "--gossip-key-file", path, true)
	f.keys.mu.Lock()
	defer f.keys.mu.Unlock()
	return f.keys.latest, nil
}

// put has gossip use keys, if they are others than before, and returns the names of those before.
func (k *gossipKeys) put(keys [][]byte) (before []string, changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before = namesOf(k.latest)
	if changed = !slices.EqualFunc(keys, k.latest, slices.Equal); !changed {
		return before, false, nil
	}
	if k.gossip != nil {
		err = k.gossip.SetKeys(keys)
	}
	if err == nil {
		k.latest = keys
	}
	return before, true, err
}

// use tells the keys to g, from now on: they may have changed since g was made.
func (k *gossipKeys) use(g *gossip.Gossip) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gossip = g; k.watcher != nil {
		_ = g.SetKeys(k.latest) // they were checked when they were read
	}
}

// namesOf are names by which people tell keys from each other: the first bytes of their hashes.
func namesOf(keys [][]byte) []string {
	names := make([]string, len(keys))
	for i, key := range keys {
		sum := sha256.Sum256(key)
		names[i] = hex.EncodeToString(sum[:4])
	}
	return names
}

// readGossipKeys reads a key file: one key of 32 bytes per line, base64 or hex; empty lines and
// lines that begin with # do not count. Errors name file and line and never show a key.
func readGossipKeys(path string) (keys [][]byte, err error) {
	text, err := textfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("--gossip-key-file: %w", err)
	}
	return parseGossipKeys(path, text)
}

// parseGossipKeys reads the text of the key file at path.
func parseGossipKeys(path string, text []byte) (keys [][]byte, err error) {
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key := decodeKey(line)
		if len(key) != gossipKeyBytes {
			return nil, fmt.Errorf(
				"--gossip-key-file %s:%d: this is not a key of %d bytes in base64 or hex; "+
					"draw one with penstock keygen",
				path,
				i+1,
				gossipKeyBytes,
			)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("--gossip-key-file %s: holds no key; draw one with penstock keygen",
			path)
	}
	return keys, nil
}

// decodeKey reads hex or one of the spellings of base64; nil if line is neither.
func decodeKey(line string) []byte {
	if len(line) == hex.EncodedLen(gossipKeyBytes) {
		if key, err := hex.DecodeString(line); err == nil {
			return key
		}
	}
	for _, e := range []*base64.Encoding{
		base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
	} {
		if key, err := e.DecodeString(line); err == nil {
			return key
		}
	}
	return nil
}
