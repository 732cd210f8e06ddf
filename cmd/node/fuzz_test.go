package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"penstock/rpc/access"
)

// Promise: whatever stands in a key file, its keys have the right length, each on a line of its
// own, or the error says in which file and shows no line of it.
func FuzzGossipKeys(f *testing.F) {
	key := bytes.Repeat([]byte{0xfe, 1}, gossipKeyBytes/2)
	f.Add([]byte(hex.EncodeToString(key) + "\n"))
	f.Add([]byte("# old\n\n" + base64.StdEncoding.EncodeToString(key) + "\r\n" +
		base64.RawURLEncoding.EncodeToString(key)))
	f.Add([]byte("short"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseGossipKeys("the file", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "--gossip-key-file the file") {
				t.Fatalf("an error without a place: %v", err)
			}
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); len(line) >= access.MinToken &&
					strings.Contains(err.Error(), line) {
					t.Fatalf("%q is shown: %v", line, err)
				}
			}
			return
		}
		if lines := bytes.Count(text, []byte("\n")) + 1; len(keys) == 0 || len(keys) > lines {
			t.Fatalf("%d keys in %d lines", len(keys), lines)
		}
		var again []byte
		for _, key := range keys {
			if len(key) != gossipKeyBytes {
				t.Fatalf("a key of %d bytes", len(key))
			}
			again = append(hex.AppendEncode(again, key), '\n')
		}
		written, err := parseGossipKeys("again", again)
		if err != nil || !bytes.Equal(bytes.Join(written, nil), bytes.Join(keys, nil)) {
			t.Fatalf("%x are written as %q, which is %x, %v", keys, again, written, err)
		}
	})
}

// Promise: whatever stands in the file of --config, its values are those of flags of serve, as the
// command line has them, or the error says in which file.
func FuzzConfigFile(f *testing.F) {
	f.Add([]byte("name: a\njoin: [b:7946, dns+c:7946]\n"))
	f.Add([]byte("{\"name\": 7, \"insecure\": true}"))
	f.Add([]byte("name: &x [*x]\n"))
	f.Add([]byte("name: &x {<<: *x}\njoin: [[1, null], {a: b}]\n"))
	f.Add([]byte("nobody: 1\n---\nname: b"))
	f.Add([]byte{})
	flags := map[string]*kong.Flag{}
	for _, name := range []string{"config", "help", "name", "join", "insecure"} {
		flags[name] = &kong.Flag{}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		values, err := parseConfig("the file", text, flags)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "the file:") || values != nil {
				t.Fatalf("%v with an error without a place: %v", values, err)
			}
			return
		}
		for name, value := range values {
			if _, list := value.([]any); list || flags[name] == nil || name == "config" ||
				name == "help" {
				t.Fatalf("%q: %v", name, value)
			}
		}
	})
}

// Promise: whatever stands for a size or an address on the command line, it is one that can be
// used, or the error shows it.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{
		"256MiB", "1GiB", "4611686018427387905B", "-1", "off", "unix:///run/x", "unix://x",
		"[::1]:80",
		"a:65536", ":0", "a:http",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s size
		err := s.UnmarshalText([]byte(text))
		if err == nil && s <= 0 || err != nil &&
			!strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Fatalf("%q is %d bytes, %v", text, s, err)
		}
		for _, unix := range []bool{false, true} {
			d, err := parseDoor("--http", text, unix)
			if err != nil {
				if !strings.HasPrefix(err.Error(), "--http ") || d != (place{}) {
					t.Fatalf("%q is %+v, %v", text, d, err)
				}
				continue
			}
			nowhere := d.network == "unix" && !unix || d.network == "tcp" && d.loopback() &&
				d.everywhere()
			if nowhere || d.off() != (text == "off") {
				t.Fatalf("%q is %+v", text, d)
			}
		}
	})
}
