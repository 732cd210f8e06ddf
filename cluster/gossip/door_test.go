package gossip

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"penstock/cluster"
)

// keyOf is a key that people tell from others.
func keyOf(c byte) []byte { return bytes.Repeat([]byte{c}, gossipKey) }

// Promise: after each exchange the ring has exactly the keys of the file, in its order of use, and
// readers of the ring at that time see whole keys.
func TestKeysAreExchanged(t *testing.T) {
	ring, err := memberlist.NewKeyring([][]byte{keyOf('a')}, keyOf('a'))
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, key := range ring.GetKeys() {
				if !bytes.Equal(key, keyOf(key[0])) {
					t.Errorf("a reader sees the key %q", key)
				}
			}
		}
	})
	for file := range strings.FieldsSeq("ab ba b bcd dcb ce f abcdef fa g gg hg") {
		var keys [][]byte
		for i := range file {
			keys = append(keys, keyOf(file[i]))
		}
		if err := exchange(ring, keys); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		got := ring.GetKeys()
		if !bytes.Equal(got[0], keys[0]) {
			t.Errorf("%s: the key %q encrypts", file, got[0])
		}
		for _, key := range got {
			if !strings.Contains(file, string(key[0])) {
				t.Errorf("%s: %q is still there", file, key[0])
			}
		}
		for _, c := range file {
			if !strings.Contains(string(bytes.Join(got, nil)), string(c)) {
				t.Errorf("%s: %q is missing", file, c)
			}
		}
	}
	close(done)
	readers.Wait()
}

// Bad input: keys of wrong length, none at all, and keys for a node without any are refused, and
// the keys before stay.
func TestBadKeysAreRefused(t *testing.T) {
	w := newWire()
	n := start(
		t,
		w,
		"a",
		1,
		func(c *Config) { c.Keys = [][]byte{keyOf('a')}; c.Member.State = cluster.StateActive },
	)
	for want, keys := range map[string][][]byte{
		"key 2 of 2 has 5 bytes": {keyOf('b'), []byte("short")}, "needs one at least": {},
	} {
		if err := n.SetKeys(keys); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("SetKeys(%q): %v; want %q", keys, err, want)
		}
	}
	if got := n.keys.GetKeys(); len(got) != 1 || !bytes.Equal(got[0], keyOf('a')) {
		t.Errorf("the keys are now %q", got)
	}
	open := start(t, w, "b", 2, func(c *Config) { c.Member.State = cluster.StateActive })
	if err := open.SetKeys([][]byte{keyOf('b')}); err == nil ||
		!strings.Contains(err.Error(), "started without keys") {
		t.Errorf("SetKeys of a node without keys: %v", err)
	}
}

// real starts a node on an address of this machine.
func real(t *testing.T, id, bind string, change func(*Config)) *Gossip {
	t.Helper()
	boots++
	c := Config{
		Member: cluster.Member{
			ID:       id,
			Boot:     boots,
			PeerAddr: "127.0.0.1:1",
			State:    cluster.StateActive,
		},
		Bind:    bind,
		Cluster: "test",
		Timing:  Timing{Reconnect: 100 * time.Millisecond},
	}
	change(&c)
	if len(c.Join) > 0 {
		c.Member.State = cluster.StateJoining
	}
	g, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(
		func() { g.Close(); time.Sleep(time.Second) },
	) // the library's goroutines end within a probe
	return g
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}

// Promise: with --gossip-allow, addresses elsewhere are not heard: a connection is closed before a
// byte of it is read, and a node with an address elsewhere becomes no member. Nodes within the
// networks find each other.
func TestGossipIsBoundedByNetworks(t *testing.T) {
	allow := func(networks ...string) func(*Config) {
		return func(c *Config) {
			for _, n := range networks {
				c.Allow = append(c.Allow, netip.MustParsePrefix(n))
			}
		}
	}
	a := real(t, "a", "127.0.0.1:0", allow("127.0.0.1/32", "fd00::/8"))
	joining := func(c *Config) { c.Join = []string{a.Addr()} }
	b := real(t, "b", "127.0.0.1:0", func(c *Config) { joining(c); allow("127.0.0.1/32")(c) })
	stranger := real(t, "stranger", "127.0.0.9:0", joining)
	await(t, "nodes within the networks find each other", func() bool {
		return len(b.View().Members) == 2
	})
	if stranger.knocks.refused.Load() == nil {
		time.Sleep(300 * time.Millisecond) // three rounds
	}
	for _, m := range a.View().Members {
		if m.ID == "stranger" {
			t.Error("a node at 127.0.0.9 is a member")
		}
	}
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	c, err := from.DialContext(t.Context(), "tcp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	var timeout net.Error
	if n, err := c.Read(make([]byte, 1)); n != 0 || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("a connection from 127.0.0.9 gets %d bytes, %v; want it closed", n, err)
	}

	// A seed elsewhere is not dialled.
	lost := real(
		t,
		"lost",
		"127.0.0.1:0",
		func(c *Config) { c.Join = []string{"127.0.0.9:7946"}; allow("127.0.0.1/32")(c) },
	)
	await(t, "a node with a seed elsewhere says it", func() bool {
		return lost.knocks.refused.Load() != nil
	})
	if err := *lost.knocks.refused.Load(); !strings.Contains(
		err.Error(),
		"127.0.0.9:7946 is in none of the networks of --gossip-allow",
	) {
		t.Error(err)
	}

	boots++
	bad := Config{
		Member: cluster.Member{
			ID:       "x",
			Boot:     boots,
			PeerAddr: "127.0.0.1:1",
			State:    cluster.StateActive,
		},
		Bind: "127.0.0.1:0", Cluster: "test",
	}
	allow("10.0.0.0/8")(&bad)
	if _, err := Start(t.Context(), bad); err == nil ||
		!strings.Contains(err.Error(), "address 127.0.0.1 is in none") {
		t.Errorf("a node whose own address is not allowed starts: %v", err)
	}
}
