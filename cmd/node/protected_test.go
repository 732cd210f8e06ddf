package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for this machine.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = a.newKey()
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(
			1,
		), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().
			Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.file = a.sign(name, a.cert, a.key)
	text, err := os.ReadFile(a.file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

// issue makes a certificate for loopback, for servers and clients, and returns the files. Its DNS
// name is the node's that has it.
func (a *authority) issue(name string) (cert, key string) {
	a.t.Helper()
	k := a.newKey()
	cert = a.sign(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{"localhost", name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().
			Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, k)
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, a.save(name+".key", "EC PRIVATE KEY", der)
}

func (a *authority) sign(name string, c *x509.Certificate, key *ecdsa.PrivateKey) string {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.save(name+".pem", "CERTIFICATE", der)
}

func (a *authority) save(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
		0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// With every protection on, two nodes are a cluster for callers with the keys, and closed to all
// others.
func TestProtectedCluster(t *testing.T) {
	t.Parallel()
	clients, peers, strangers := newAuthority(
		t,
		"clients",
	), newAuthority(
		t,
		"peers",
	), newAuthority(
		t,
		"strangers",
	)
	cert, key := clients.issue("door")
	peerCert, peerKey := peers.issue("n1")
	secondCert, secondKey := peers.issue("n2")
	token := write(t, "a-token-of-some-length\n")
	gossipKey := filepath.Join(t.TempDir(), "gossip")
	if out, err := exec.Command(built, "keygen", "--out", gossipKey).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	args := []string{
		"--limits", write(t, testLimits), "--gossip-key-file", gossipKey, "--auth-token-file",
		token,
		"--tls-cert", cert, "--tls-key", key, "--peer-tls-cert", peerCert, "--peer-tls-key",
		peerKey, "--peer-tls-ca", peers.file,
	}
	first := serveProcess(t, "n1", args...)
	second := serveProcess(
		t,
		"n2",
		append(
			args,
			"--join",
			first.gossip,
			"--peer-tls-cert",
			secondCert,
			"--peer-tls-key",
			secondKey,
		)...)

	ask := func(words ...string) (string, int) {
		out, err := exec.Command(built, words...).CombinedOutput()
		return string(out), exitOf(err)
	}
	friend := []string{"--addr", first.grpc, "--tls-ca", clients.file, "--auth-token-file", token}
	eventually(t, "n1 sees n2 in the ring", func() error {
		out, code := ask(append([]string{"members"}, friend...)...)
		if code != 0 || strings.Count(out, "active") != 2 {
			return os.ErrNotExist
		}
		return nil
	})
	ownedBy := func(owner string) string {
		row := regexp.MustCompile(`(?m)^owner +` + owner + `$`)
		for i := range 100 {
			key := fmt.Sprint("key-", i)
			if out, _ := ask(append([]string{"ring", key}, friend...)...); row.MatchString(out) {
				return key
			}
		}
		t.Fatalf("none of 100 keys is %s's", owner)
		return ""
	}
	theirs := ownedBy("n2")
	if out, code := ask(append([]string{"check", "demo", theirs}, friend...)...); code != 0 ||
		!strings.Contains(out, "forwarded") {
		t.Errorf(
			"a key of the other node: exit code %d\n%s\nwant an answer of its owner, over TLS "+
				"between the nodes",
			code,
			out,
		)
	}
	if out, code := ask("healthcheck", "--http", second.http, "--tls-cert", cert); code != 0 {
		t.Errorf("healthcheck: exit code %d\n%s", code, out)
	}
	for _, trust := range [][]string{{"--tls-ca", clients.file}, {"--tls-cert", cert}} {
		if out, code := ask(append([]string{"healthcheck", "--addr", second.grpc},
			trust...)...); code != 0 {
			t.Errorf("healthcheck --addr with %s: exit code %d\n%s", trust[0], code, out)
		}
	}

	pool := x509.NewCertPool()
	pool.AddCert(clients.cert)
	browser := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer browser.CloseIdleConnections()
	for path, want := range map[string]int{
		"/v1/check?limit=demo&key=x": 401, "/v1/members": 401,
		"/metrics": 401, "/readyz": 200,
	} {
		answer, err := browser.Get("https://" + first.http + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s without a token: %s; want %d", path, answer.Status, want)
		}
	}

	redis := func(password string) string {
		conn, err := tls.Dial("tcp", first.redis, &tls.Config{RootCAs: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return talkRedis(t, conn, "HELLO", "2", "AUTH", "default", password)
	}
	if answer := redis("a-token-of-some-length"); !strings.Contains(answer, "penstock") {
		t.Errorf("a Redis client with the token: %q", answer)
	}
	if answer := redis("guess"); !strings.HasPrefix(answer, "-WRONGPASS") {
		t.Errorf("a Redis client with a guessed token: %q", answer)
	}

	wrongToken := write(t, "another-token-of-some-length\n")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no token": {[]string{
			"check", "demo", "x", "--addr", first.grpc, "--tls-ca",
			clients.file,
		}, "(--auth-token-file)"},
		"wrong token": {[]string{
			"check", "demo", "x", "--addr", first.grpc, "--tls-ca",
			clients.file, "--auth-token-file", wrongToken,
		}, "token"},
		"wrong authority": {[]string{
			"check", "demo", "x", "--addr", first.grpc, "--tls-ca",
			strangers.file, "--auth-token-file", token, "--timeout", "500ms",
		}, "certificate"},
		"no TLS": {[]string{
			"check", "demo", "x", "--addr", first.grpc,
			"--auth-token-file", token, "--timeout", "500ms",
		}, first.grpc},
		"health without TLS": {
			[]string{"healthcheck", "--http", first.http},
			"wants TLS: give its --tls-cert",
		},
		"health, other cert": {[]string{
			"healthcheck", "--http", first.http, "--tls-cert",
			peerCert,
		}, "another certificate"},
	} {
		out, code := ask(c.args...)
		if code != 1 || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d\n%s\nwant 1, and %q in the words", name, code, out, c.want)
		}
	}

	// A node with the gossip key but no certificate for peers may be heard of, but is no member and
	// decides on no key.
	fakeCert, fakeKey := strangers.issue("n3")
	door := freeAddress(t)
	fake, ready := startProcess(
		t,
		"n3",
		append(
			args[:len(args):len(args)],
			"--join",
			first.gossip,
			"--grpc",
			door,
			"--peer-tls-cert",
			fakeCert,
			"--peer-tls-key",
			fakeKey,
			"--peer-tls-ca",
			strangers.file,
		)...)
	eventually(t, "it is refused", func() error {
		if !strings.Contains(fake.log(), "certificate signed by unknown authority") {
			return errors.New("it has not met the others yet")
		}
		return nil
	})
	select {
	case <-ready:
		t.Error("a node with a stranger's certificate was admitted")
	case <-time.After(time.Second):
	}
	out, _ := ask(
		"check",
		"demo",
		ownedBy("n1"),
		"--addr",
		door,
		"--tls-ca",
		clients.file,
		"--auth-token-file",
		token,
	)
	if !strings.Contains(out, "degraded") {
		t.Errorf("a node with a stranger's certificate had a key decided by another one:\n%s", out)
	}
}
