package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var update = flag.Bool("update", false, "write what is made from the flags of serve")

// examples are values of flags without a default, for the example of a configuration. All of them
// together are accepted by serve.
var examples = map[string]string{
	"name":            "node-1",
	"join":            "[10.0.0.1:7946, 10.0.0.2:7946, 10.0.0.3:7946]",
	"advertise":       "10.0.0.1",
	"admin":           "127.0.0.1:7951",
	"limits":          "/etc/penstock/limits",
	"envoy-config":    "/etc/penstock/envoy",
	"data-dir":        "/var/lib/penstock",
	"tls-cert":        "/etc/penstock/tls.crt",
	"tls-key":         "/etc/penstock/tls.key",
	"tls-ca":          "/etc/penstock/clients-ca.crt",
	"peer-tls-cert":   "/etc/penstock/node-1.crt",
	"peer-tls-key":    "/etc/penstock/node-1.key",
	"peer-tls-ca":     "/etc/penstock/ca.crt",
	"auth-token-file": "/etc/penstock/clients.yaml",
	"audit-log":       "/var/lib/penstock/audit.jsonl",
	"trace-endpoint":  "http://127.0.0.1:4318",
	"gossip-key-file": "/etc/penstock/gossip.key",
	"gossip-allow":    "[10.0.0.0/8]",
	"trusted-proxy":   "[10.0.0.0/8]",
	"http-host":       "[limits.example.com]",
	"insecure":        "false",
	"log-format":      "json",
	"expect":          "3",
	"zone":            "eu-1",
}

// inForce are the flags that the package's configuration sets.
var inForce = map[string]bool{"limits": true, "data-dir": true}

// serveFlags are serve's own, by group in the order of its help.
func serveFlags(t *testing.T) (titles []string, flags map[string][]*kong.Flag) {
	t.Helper()
	parser, _ := parse(t)
	flags = map[string][]*kong.Flag{}
	for _, c := range commandsOf(parser) {
		if c.path != "serve" {
			continue
		}
		for _, f := range c.node.Flags {
			title := "The node"
			if f.Group != nil {
				title = f.Group.Title
			}
			if len(flags[title]) == 0 {
				titles = append(titles, title)
			}
			flags[title] = append(flags[title], f)
		}
	}
	return titles, flags
}

// parse reads a command line, and opens nothing.
func parse(t *testing.T, args ...string) (*kong.Kong, *verbs) {
	t.Helper()
	v := &verbs{}
	parser := newParser(v, shell{out: io.Discard, err: io.Discard}, func(int) {})
	if len(args) > 0 {
		if _, err := parser.Parse(args); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	return parser, v
}

// shownDefault is the default of f as a document shows it.
func shownDefault(f *kong.Flag) string {
	d := defaultOf(f)
	if d == "" || !takesValue(f) && d != "true" {
		return ""
	}
	return "`" + d + "`"
}

func configurationPage(t *testing.T) string {
	var b strings.Builder
	b.WriteString(`# Configuration

Every setting of ` + "`penstock serve`" + `. This page is made from the program by
` + "`go test ./cmd/node -run TestReference -update`" + `; a test holds it against the program.

A setting is a flag (--peer-tls-cert), a variable (PENSTOCK_PEER_TLS_CERT), or a field
(peer-tls-cert:) of the YAML file that --config names. A flag overrides the variable, the
variable the file, and the file the default. Lists stand in the file as YAML lists, in
flags and variables with commas. An unknown field of the file is an error, and a variable that is
empty is none.

[deploy/debian/penstock.yaml](../deploy/debian/penstock.yaml) is such a file, with every setting
as a comment. Limits and rules have files of their own: [limits.md](limits.md). Rights of clients:
[security.md](security.md).
`)
	titles, flags := serveFlags(t)
	for _, title := range titles {
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		b.WriteString("| flag | variable | default | meaning |\n|---|---|---|---|\n")
		for _, f := range flags[title] {
			variable := ""
			if len(f.Envs) > 0 {
				variable = "`" + f.Envs[0] + "`"
			}
			help := strings.ReplaceAll(f.Help, "|", `\|`)
			fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", f.Name, variable, shownDefault(f), help)
		}
	}
	return b.String()
}

func exampleConfig(t *testing.T) string {
	var b strings.Builder
	b.WriteString(`# Settings of this node: every flag of penstock serve by its name without dashes.
# Remove the # before a name to set it; what is shown then is the default, or an example.
# Flags and PENSTOCK_ variables go before this file. After a change: systemctl restart penstock.
`)
	titles, flags := serveFlags(t)
	for _, title := range titles {
		fmt.Fprintf(&b, "\n# --- %s ---\n", title)
		for _, f := range flags[title] {
			if f.Name == "config" {
				continue
			}
			value, comment := examples[f.Name], "#"
			if value == "" {
				value = f.Default
			}
			if value == "" {
				t.Errorf("--%s has no default; give it an example in this file", f.Name)
			}
			if inForce[f.Name] {
				comment = ""
			}
			fmt.Fprintf(&b, "\n%s%s%s: %s\n", wrapped(f.Help), comment, f.Name, value)
		}
	}
	return b.String()
}

// wrapped is text as comments of at most 100 columns.
func wrapped(text string) string {
	var b strings.Builder
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 100 {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// The page of settings and the package's example name every flag of serve, with today's words.
func TestReference(t *testing.T) {
	for path, want := range map[string]string{
		"../../docs/configuration.md":       configurationPage(t),
		"../../deploy/debian/penstock.yaml": exampleConfig(t),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: %v, or it is not what the flags of serve say today: "+
				"go test ./cmd/node -run TestReference -update", path, err)
		}
	}
}

// serve --config accepts the example as it is, and with every line uncommented.
func TestExampleConfig(t *testing.T) {
	text, err := os.ReadFile("../../deploy/debian/penstock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	commented := regexp.MustCompile(`(?m)^#([a-z-]+: )`)
	all := commented.ReplaceAllString(string(text), "$1")
	if n, set := len(commented.FindAll(text, -1)), strings.Count(all, "\n"); n < 25 || set == 0 {
		t.Fatalf("%d commented settings; want all that serve has", n)
	}
	for _, text := range []string{string(text), all} {
		path := filepath.Join(t.TempDir(), "penstock.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, v := parse(t, "serve", "--config", path)
		if _, err := v.Serve.check(); err != nil {
			t.Errorf("serve refuses it: %v\n%s", err, text)
		}
		if v.Serve.DataDir != "/var/lib/penstock" {
			t.Errorf("data-dir is %q; want that of the file", v.Serve.DataDir)
		}
	}
}

// Promise: numbers and words of the file of --config are read as the command line reads them.
func TestConfigHasPlainValues(t *testing.T) {
	_, v := parse(t, "serve", "--config", write(t, "name: 5\ncluster: 2026\nmemory: 1048576\n"+
		"copies: 2\ntrust-refused: 0\ninsecure: true\ntrace-ratio: 0.5\nzone: 1\nlimits:\n"+
		"join: [a:1, b:2]\n"))
	for name, want := range map[string]string{
		"0123": "0123", "1_000": "1_000", "0x1F": "0x1F", "1e3": "1e3", "1.50": "1.50",
		"True": "True", "~x": "~x", "'05'": "05", "2026-11-27": "2026-11-27", ".inf": ".inf",
	} {
		_, v := parse(t, "serve", "--config", write(t, "name: "+name+"\n"))
		if v.Serve.Name != want {
			t.Errorf("name: %s is read as %q, want %q", name, v.Serve.Name, want)
		}
	}
	s := &v.Serve.settings
	if s.Name != "5" || s.Cluster != "2026" || s.Memory != 1<<20 || *s.Copies != 2 ||
		s.TrustRefused || !s.Insecure || s.TraceRatio != 0.5 || *s.Zone != "1" || s.Limits != "" ||
		!slices.Equal(s.Join, []string{"a:1", "b:2"}) {
		t.Errorf("%+v", s)
	}
	for text, want := range map[string]string{
		"failover: 2\n": `--failover: .*"2": time: missing unit`,
		"memory: 1.5\n": `--memory: .*"1.5" is not a size`,
	} {
		var said strings.Builder
		code := run([]string{"serve", "--config", write(t, text)}, shell{out: &said, err: &said})
		if code != 1 || !regexp.MustCompile(want).MatchString(said.String()) {
			t.Errorf("%s: exit %d, %s", text, code, said.String())
		}
	}
}

// Promise: what is wrong with the file of --config is said of --config.
func TestConfigErrorsNameTheFlag(t *testing.T) {
	path, limits := write(t, "nmae: a\n"), write(t, "limits: [{name: a, limit: 5}]\n")
	for _, c := range []struct{ file, want string }{
		{path, "penstock: --config: " + path + `: "nmae" is not a flag of serve`},
		{path + ".not", "penstock: --config: open " + path + ".not"},
		{limits, "penstock: --config: " + limits + `: "limits" has fields or a list in it`},
	} {
		var out, said strings.Builder
		code := run([]string{"serve", "--config", c.file}, shell{out: &out, err: &said})
		if code != 1 || !strings.HasPrefix(said.String(), c.want) {
			t.Errorf("exit %d, %q\nwant 1, %q", code, said.String(), c.want)
		}
	}
}
