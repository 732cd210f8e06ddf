package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// penstock runs a verb, and returns what it says and its exit code.
func penstock(words ...string) (string, int) {
	out, err := exec.Command(built, words...).CombinedOutput()
	return string(out), exitOf(err)
}

// Promise: one command makes the authority, one each certificate; keys are their owner's alone, and
// nothing is written over.
func TestCertsVerb(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	for _, step := range []struct {
		words string
		code  int
		want  string
	}{
		{"add n1", 1, "penstock certs init"},
		{"init", 0, "certs add"},
		{"init", 1, "--force"},
		{"add n1", 0, "--peer-tls-cert"},
		{"add n1", 1, "--force"},
		{"add n1 --force", 0, "--peer-tls-cert"},
		{"add shop-* --out agent", 1, "only --role agent"},
		{"add shop-* --role agent", 1, "--out"},
		{"add shop-* --role agent --out agent", 0, "--peer-tls-cert"},
		{"add * --role agent --out all", 1, "beginning of their names"},
		{"add n2 --days 0", 1, "--days 0"},
		{"add n2 --days 1000000000", 1, "--days 1000000000"},
		{"add ca --force", 1, "the authority's files"},
		{"add n2 --out ca --force", 1, "the authority's files"},
		{"add n2 --out ./ca --force", 1, "the authority's files"},
		{"add n2 --out n1/../ca --force", 1, "the authority's files"},
		{"init --force --days 2", 0, "certs add"},
		{"add n2", 0, "when its authority ends"},
		{"add n3 --days 1", 0, "--peer-tls-cert"},
		{"add shop --role client", 0, "certificate: shop"},
		{"add shop-* --role client --out many", 1, "only --role agent"},
	} {
		words := append(append([]string{"certs"}, strings.Fields(step.words)...), "--dir", dir)
		if out, code := penstock(words...); code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("%s: exit code %d\n%s\nwant %d, and %q", step.words, code, out, step.code,
				step.want)
		}
	}
	until := func(name string) time.Time {
		c, err := readPEM(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(c)
		if err != nil {
			t.Fatal(err)
		}
		return cert.NotAfter
	}
	if ca := until("ca.crt"); !until("n2.crt").Equal(ca) || !until("n3.crt").Before(ca) {
		t.Errorf("the authority ends at %v, n2 at %v, n3 at %v", ca, until("n2.crt"),
			until("n3.crt"))
	}
	for _, name := range []string{"ca.key", "n1.key", "agent.key", "shop.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 600", name, info, err)
		}
	}
}

// Promise: a certificate that is no authority's signs nothing.
func TestOnlyAuthoritiesSign(t *testing.T) {
	dir := t.TempDir()
	for _, words := range []string{"init", "add n1"} {
		if out, code := penstock(append(append([]string{"certs"}, strings.Fields(words)...),
			"--dir", dir)...); code != 0 {
			t.Fatal(out)
		}
	}
	for _, end := range []string{".crt", ".key"} {
		err := os.Rename(filepath.Join(dir, "n1"+end), filepath.Join(dir, "ca"+end))
		if err != nil {
			t.Fatal(err)
		}
	}
	out, code := penstock("certs", "add", "n2", "--dir", dir)
	if code != 1 || !strings.Contains(out, "ca.crt is no authority's certificate") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// Promise: a client's certificate is not one that a node may show, and serves nobody.
func TestCertificateOfAClient(t *testing.T) {
	flags := certified(t, "add n1", "add shop --role client")
	text, err := readPEM(flags("shop")[1])
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cert.DNSNames, []string{"shop"}) || len(cert.IPAddresses)+len(cert.URIs) > 0 ||
		!slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("it names %q, %v and %v, for uses %v", cert.DNSNames, cert.IPAddresses, cert.URIs,
			cert.ExtKeyUsage)
	}
}

// certified makes certificates with the verb, and returns the flags for a node that shows one.
func certified(t *testing.T, adds ...string) (flags func(file string) []string) {
	t.Helper()
	dir := t.TempDir()
	for _, words := range append([]string{"init"}, adds...) {
		if out, code := penstock(append(append([]string{"certs"}, strings.Fields(words)...),
			"--dir", dir)...); code != 0 {
			t.Fatalf("certs %s: %s", words, out)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	return func(file string) []string {
		return []string{
			"--peer-tls-cert", in(file + ".crt"), "--peer-tls-key", in(file + ".key"),
			"--peer-tls-ca", in("ca.crt"),
		}
	}
}

// Promise: a certificate of the peers' authority is one node's, in one role: nobody starts with
// another node's, and an agent's is not a member's.
func TestCertificateIsOneNodes(t *testing.T) {
	flags := certified(t, "add n1", "add n2", "add shop-* --role agent --out agent")
	limits := write(t, testLimits)
	with := func(file string, more ...string) []string {
		return append(append(flags(file), "--limits", limits), more...)
	}
	n1 := serveProcess(t, "n1", with("n1")...)
	n2 := serveProcess(t, "n2", with("n2", "--join", n1.gossip)...)
	agent := serveProcess(t, "shop-7", with("agent", "--join", n1.gossip, "--role", "agent")...)
	key := keysOwnedBy(t, n1, 2+1, "n2", 1)[0] // with the agent
	eventually(t, "n1 and n2 see each other", func() error {
		for _, p := range []*process{n1, agent} {
			if a, err := checkAt(p, "big", key); err != nil || a.Degraded || a.Owner != "n2" {
				return os.ErrNotExist
			}
		}
		return nil
	})
	_ = n2
	for _, c := range []struct {
		name, file, role string
		want             []string
	}{
		{"n3", "n2", "member", []string{`"n2"`, `"n3"`, "certs add n3"}},
		{"shop-8", "agent", "member", []string{`"shop-*"`, "(agent)", `the member "shop-8"`}},
		{"n4", "agent", "agent", []string{`"shop-*"`, `"n4"`}},
	} {
		p, _ := startProcess(t, c.name, with(c.file, "--join", n1.gossip, "--role", c.role)...)
		if code := p.exitCode(t); code != 1 {
			t.Errorf("%s with the certificate of %s: exit code %d, want 1", c.name, c.file, code)
		}
		for _, want := range c.want {
			if !strings.Contains(p.log(), want) {
				t.Errorf("%s with the certificate of %s does not say %q:\n%s", c.name, c.file, want,
					p.log())
			}
		}
	}
}
