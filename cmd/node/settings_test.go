package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]size{
		"1": 1, "7B": 7, "64KiB": 64 << 10, "256MiB": 256 << 20,
		"3GiB": 3 << 30,
	} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "MiB", "0", "-1MiB", "1.5GiB", "256MB", "1 MiB",
		"9999999999999GiB", "9223372036854775808",
	} {
		if err := new(size).UnmarshalText([]byte(text)); err == nil ||
			!strings.Contains(err.Error(), "KiB, MiB or GiB") {
			t.Errorf("%q: error %v; want one that lists the units", text, err)
		}
	}
}

// valid are settings that check accepts.
func valid() settings {
	return settings{
		Name: "n", Cluster: "c", Role: "member",
		doorFlags: doorFlags{
			Gossip: "127.0.0.1:1", Peer: "127.0.0.1:2", GRPC: "127.0.0.1:3", HTTP: "127.0.0.1:4",
			Redis: "127.0.0.1:5",
		},
		limitFlags: limitFlags{Memory: leastMemory},
	}
}

// Each mistake is found before anything is opened, and its error names the flag.
func TestSettingsCheck(t *testing.T) {
	if s := valid(); true {
		if _, err := s.check(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*settings)
		want   []string // in the error
	}{
		{"empty name", func(s *settings) { s.Name = "" }, []string{"--name"}},
		{
			"long name", func(s *settings) { s.Name = strings.Repeat("x", 129) },
			[]string{"--name", "128"},
		},
		{
			"a name that is no UTF-8", func(s *settings) { s.Name = "a\xff" },
			[]string{"--name", "UTF-8"},
		},
		{"a control in the name", func(s *settings) { s.Name = "a\x1b[m" }, []string{"--name"}},
		{
			"a cluster that is no UTF-8", func(s *settings) { s.Cluster = "a\xff" },
			[]string{"--cluster", "UTF-8"},
		},
		{
			"two doors at one address", func(s *settings) { s.Redis = s.GRPC },
			[]string{"--grpc and --redis are both 127.0.0.1:3; give each"},
		},
		{
			"two doors at one socket",
			func(s *settings) { s.HTTP, s.Admin = "unix:///x", "unix:///x" },
			[]string{"--http and --admin are both unix:///x; give each"},
		},
		{
			"a directory for a socket", func(s *settings) { s.HTTP = "unix:///" },
			[]string{"--http unix:///: give an absolute path, as in"},
		},
		{"slash in name", func(s *settings) { s.Name = "a/b" }, []string{"--name", "slash"}},
		{
			"a size without its unit", func(s *settings) { s.Memory = 256 },
			[]string{"--memory", "256 bytes", "64KiB"},
		},
		{
			"more than a machine has", func(s *settings) { s.Memory = 5 << 40 },
			[]string{"--memory", "5497558138880 bytes", "4096GiB"},
		},
		{
			"a port to advertise", func(s *settings) { s.Advertise = "10.0.0.7:7946" },
			[]string{"--advertise", "10.0.0.7:7946", "without a port"},
		},
		{
			"brackets to advertise", func(s *settings) { s.Advertise = "[::1]" },
			[]string{"--advertise"},
		},
		{
			"any address to advertise", func(s *settings) { s.Advertise = "0.0.0.0" },
			[]string{"--advertise"},
		},
		{
			"a URL to advertise", func(s *settings) { s.Advertise = "http://x" },
			[]string{"--advertise"},
		},
		{"empty cluster", func(s *settings) { s.Cluster = "" }, []string{"--cluster"}},
		{
			"no port", func(s *settings) { s.GRPC = "localhost" },
			[]string{"--grpc", "host:port", "unix:///path", "off"},
		},
		{"port too high", func(s *settings) { s.HTTP = "localhost:65536" }, []string{"--http"}},
		{
			"relative socket", func(s *settings) { s.HTTP = "unix://x" },
			[]string{"--http", "absolute"},
		},
		{
			"peers over a socket", func(s *settings) { s.Peer = "unix:///x" },
			[]string{"--peer", "host:port"},
		},
		{
			"gossip over a socket", func(s *settings) { s.Gossip = "unix:///x" },
			[]string{"--gossip", "host:port"},
		},
		{"bad redis", func(s *settings) { s.Redis = "x" }, []string{"--redis"}},
		{
			"peer without gossip", func(s *settings) { s.Gossip = "off" },
			[]string{"--peer", "--gossip"},
		},
		{"join without gossip", func(s *settings) {
			s.Gossip, s.Peer, s.Join = "off", "off",
				[]string{"x:1"}
		}, []string{"--join"}},
		{
			"agent alone", func(s *settings) { s.Gossip, s.Peer, s.Role = "off", "off", "agent" },
			[]string{"--role agent"},
		},
		{"three copies", func(s *settings) { s.Copies = new(3) }, []string{"--copies 3", "0 to 2"}},
		{
			"copies below none", func(s *settings) { s.Copies = new(-1) },
			[]string{"--copies -1", "0 to 2"},
		},
		{
			"empty zone", func(s *settings) { s.Zone = new("") },
			[]string{`--zone ""`, "1 to 255 bytes", "no zone"},
		},
		{
			"long zone", func(s *settings) { s.Zone = new(strings.Repeat("z", 256)) },
			[]string{"--zone", "1 to 255 bytes"},
		},
		{
			"zone with a tab", func(s *settings) { s.Zone = new("a\tb") },
			[]string{`--zone "a\tb"`, "printable"},
		},
		{
			"half a certificate", func(s *settings) { s.TLSKey = "x" },
			[]string{"--tls-cert", "--tls-key"},
		},
		{
			"authority alone", func(s *settings) { s.TLSCA = "x" },
			[]string{"--tls-ca", "--tls-cert"},
		},
		{
			"peers without authority", func(s *settings) { s.PeerTLSCert, s.PeerTLSKey = "x", "x" },
			[]string{"--peer-tls-ca"},
		},
		{
			"gossip off loopback", func(s *settings) { s.Gossip = "0.0.0.0:1" },
			[]string{"--gossip 0.0.0.0:1", "--gossip-key-file", "--insecure"},
		},
		{
			"peer off loopback", func(s *settings) { s.Peer = ":2" },
			[]string{"--peer :2", "--peer-tls-cert", "--insecure"},
		},
		{
			"grpc off loopback", func(s *settings) { s.GRPC = "10.0.0.1:3" },
			[]string{"--grpc 10.0.0.1:3", "--tls-cert", "--auth-token-file", "--insecure"},
		},
		{"http off loopback with a token only", func(s *settings) {
			s.HTTP, s.AuthTokenFile = "[::]:4", "x"
		}, []string{"--http [::]:4 lacks --tls-cert", "--insecure"}},
		{"redis off loopback with a certificate only", func(s *settings) {
			s.Redis, s.TLSCert, s.TLSKey = ":5", "x", "x"
		}, []string{"--redis :5 lacks --auth-token-file", "--insecure"}},
		{"admin off loopback with a certificate only", func(s *settings) {
			s.Admin, s.TLSCert, s.TLSKey = "host:5", "x", "x"
		}, []string{"--admin host:5 lacks --auth-token-file", "--insecure"}},
	} {
		s := valid()
		c.change(&s)
		_, err := s.check()
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the error lacks %q: %v", c.name, w, err)
			}
		}
	}
}

// Settings that are protected, meant, or out of reach for strangers are accepted.
func TestSettingsAccepted(t *testing.T) {
	for name, change := range map[string]func(*settings){
		"loopback by name": func(s *settings) { s.HTTP = "localhost:1" },
		"loopback IPv6":    func(s *settings) { s.HTTP = "[::1]:1" },
		"advertised name":  func(s *settings) { s.Advertise = "node-1.example.com" },
		"advertised IPv6":  func(s *settings) { s.Advertise = "fd00::7" },
		"sockets":          func(s *settings) { s.HTTP, s.GRPC = "unix:///a", "unix:///b" },
		"all off": func(s *settings) {
			s.Gossip, s.Peer, s.GRPC, s.HTTP, s.Admin = "off",
				"off", "off", "off", "off"
		},
		"meant": func(s *settings) {
			s.Gossip, s.Peer, s.GRPC, s.HTTP, s.Insecure = ":1",
				":2", ":3", ":4", true
		},
		"protected": func(s *settings) {
			s.Gossip, s.Peer, s.GRPC, s.HTTP, s.Admin = ":1", ":2", ":3", ":4", ":5"
			s.GossipKeyFile, s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA = "x", "x", "x", "x"
			s.TLSCert, s.TLSKey, s.AuthTokenFile = "x", "x", "x"
		},
	} {
		s := valid()
		change(&s)
		if _, err := s.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGossipKeys(t *testing.T) {
	const (
		base64Key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
		hexKey    = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	)
	keys, err := readGossipKeys(write(t, "# old and new\n\n"+base64Key+"\n  "+hexKey+"\r\n"))
	if err != nil || len(keys) != 2 || string(keys[0]) != string(keys[1]) || keys[0][31] != 31 {
		t.Errorf("keys %x, error %v; want the same key twice", keys, err)
	}
	for name, text := range map[string]string{
		"empty": "# nothing\n", "short": "AAEC\n", "no encoding": "!" + base64Key[1:],
		"second line bad": base64Key + "\nx" + hexKey,
	} {
		_, err := readGossipKeys(write(t, text))
		if err == nil || !strings.Contains(err.Error(), "--gossip-key-file") {
			t.Errorf("%s: error %v; want one that names the flag", name, err)
		} else if strings.Contains(err.Error(), "AAEC") || strings.Contains(err.Error(), "0001") {
			t.Errorf("%s: the error shows a key: %v", name, err)
		}
	}
}

func TestToken(t *testing.T) {
	if got, err := readToken(write(t, "0123456789abcdef\r\n\n")); err != nil ||
		got != "0123456789abcdef" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{
		"", "short", "\n0123456789abcdef", "0123456789abcdef\nrest",
		"0123456789 abcdef", "0123456789abcdé…",
	} {
		if _, err := readToken(write(t, text)); err == nil ||
			!strings.Contains(err.Error(), "--auth-token-file") {
			t.Errorf("%q: error %v; want one that names the flag", text, err)
		}
	}
}
