package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/rpc/access"
)

// askAs is the status and the body of a page for a client with a token.
func askAs(t *testing.T, r *running, token, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequest("GET", "http://"+r.doors.address("--http")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// Promise: a file of clients is reloaded while the node runs. A broken one never replaces a good
// one, which the log and a metric say, and no token is in the log.
func TestFileOfClientsIsReloaded(t *testing.T) {
	const shop, next, ops = "shop-secret-0123456789", "next-secret-0123456789",
		"ops-secret-0123456789"
	entry := func(name, token, rights string) string {
		return fmt.Sprintf("- {name: %s, token: %s, %s}\n", name, token, rights)
	}
	root := entry("ops", ops, "admin: read, metrics: true")
	file := filepath.Join(t.TempDir(), "clients.yaml")
	putFile(t, file, "clients:\n"+root+entry("shop", shop, "check: {limits: [login]}"))
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(t.TempDir(), "audit.jsonl")
	r, book := startNode(t, func(s *settings) {
		s.Limits, s.AuthTokenFile, s.AuditLog, s.HTTP = write(t, login(5)), file, record,
			"127.0.0.1:0"
	})
	r.waitReady(t)
	status := func(token, path string, want int) error {
		if got, body := askAs(t, r, token, path); got != want {
			return fmt.Errorf("%s answers %d, want %d: %s", path, got, want, body)
		}
		return nil
	}
	reloaded := func(want string) error {
		_, body := askAs(t, r, ops, "/metrics")
		if !strings.Contains(body, "\npenstock_config_last_reload_successful "+want+"\n") {
			return fmt.Errorf("the metric is not %s", want)
		}
		return nil
	}
	const check, read = "/v1/check?limit=login&key=k", "/v1/members"
	for _, err := range []error{
		status(shop, check, 200), status(shop, read, 403), status(ops, read, 200),
		status(ops, check, 403),
		status(next, check, 401), reloaded("1"),
	} {
		if err != nil {
			t.Error(err)
		}
	}

	putFile(t, file, "clients:\n"+root+entry("shop", shop, "check: {}"))
	eventually(t, "the metric says that the file is broken", func() error { return reloaded("0") })
	if err := status(shop, check, 200); err != nil {
		t.Error("a broken file replaced a good one:", err)
	}
	text := book.String()
	if !strings.Contains(text, "clients are not loaded; those in force stay") ||
		!strings.Contains(text, "names no limit") {
		t.Errorf("nothing is logged:\n%s", text)
	}

	putFile(t, file, "clients:\n"+root+entry("shop", next, "check: {limits: [login]}"))
	eventually(t, "the new token is in force", func() error { return status(next, check, 200) })
	if err := status(shop, check, 401); err != nil {
		t.Error("the old token is still good:", err)
	}
	if err := reloaded("1"); err != nil {
		t.Error(err)
	}
	changes, err := os.ReadFile(record)
	if n := strings.Count(string(changes), `"action":"load clients"`); err != nil || n != 2 {
		t.Errorf("%d loads are recorded, want 2: %v\n%s", n, err, changes)
	}
	for _, secret := range []string{shop, next, ops} {
		if strings.Contains(book.String()+string(changes), secret) {
			t.Errorf("a log shows a token:\n%s\n%s", book, changes)
		}
	}
}

// Promise: a file of clients with a fault ends the start, with a text that says what to do.
func TestBrokenFileOfClientsEndsTheStart(t *testing.T) {
	const token = "secret-0123456789abcdef"
	for _, row := range []struct {
		text, want string
		mode       os.FileMode
	}{
		{"", "the first line is empty", 0o600},
		{token + "\n" + token + "\n", "has one line", 0o600},
		{token + "\n", "chmod 600", 0o644},
		{token + "\n", "chmod 600", 0o646},
		{"clients:\n- {name: shop, token: " + token + ", metrics: true}\n", "chmod 600", 0o644},
		{"clients:\n- {name: shop, token: " + token + ", check: {}}\n", "names no limit", 0o600},
		{
			"clients:\n- {name: shop, certificate: shop.example, metrics: true}\n",
			"--tls-ca, which verifies them, is not given", 0o600,
		},
		{
			"clients:\n- {name: shop, token: " + token +
				", check: {limits: [login, logn, \"logs*\"]}}\n",
			`"shop": check.limits: no file of limits has the limit "logn"`, 0o600,
		},
	} {
		file := write(t, row.text)
		if err := os.Chmod(file, row.mode); err != nil {
			t.Fatal(err)
		}
		s, err := selfSettings(0, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Cluster, s.Memory, s.Role, s.Redis, s.AuthTokenFile = "test", 8<<20, "member", "off", file
		s.Limits = write(t, login(5))
		r, err := start(t.Context(), s, slog.New(slog.DiscardHandler))
		if err == nil {
			r.stop(t.Context(), 0)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "--auth-token-file: "+file) ||
			!strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), token) {
			t.Errorf("%q: started, or ended with %v; want %q", row.text, err, row.want)
		}
	}
}

// Promise: whatever is wrong with a file of clients when it changes, the clients in force stay.
// The log says the fault, and the metric that there is one.
func TestNoBrokenFileOfClientsIsTakenOver(t *testing.T) {
	const ops = "ops-secret-0123456789"
	good := "clients:\n- {name: ops, token: " + ops + ", admin: read, metrics: true}\n"
	file := filepath.Join(t.TempDir(), "clients.yaml")
	putFile(t, file, good)
	r, book := startNode(t, func(s *settings) {
		s.AuthTokenFile, s.HTTP, s.Limits = file, "127.0.0.1:0", write(t, login(5))
	})
	r.waitReady(t)
	for i, row := range []struct {
		text, want string
		mode       os.FileMode
	}{
		{"", "the first line is empty", 0o600},
		{good, "chmod 600", 0o644},
		{ops + "\n", "chmod 600", 0o644},
		{ops + "\n" + ops + "\n", "has one line", 0o600},
		{"short\n", "at least 16 printable", 0o600},
		{"clients: []\n", "clients: is empty", 0o600},
		{good + "- {name: shop, token: " + ops + "x, check: {}}\n", "names no limit", 0o600},
		{good + "- {name: shop, certificate: shop.example, metrics: true}\n", "--tls-ca", 0o600},
		{
			good + "- {name: shop, token: " + ops + "x, check: {limits: [logn]}}\n",
			`\"shop\": check.limits: no file of limits has the limit \"logn\"`, 0o600,
		},
	} {
		if err := os.Chmod(file, row.mode); err != nil {
			t.Fatal(err)
		}
		putFile(t, file, row.text)
		r.files.reload()
		said := book.String()
		if strings.Count(said, "clients are not loaded") <= i || !strings.Contains(said, row.want) {
			t.Errorf("%q: nothing is logged of it:\n%s", row.text, said)
		}
		if strings.Contains(said, ops) {
			t.Errorf("%q: the log shows the token:\n%s", row.text, said)
		}
		code, body := askAs(t, r, ops, "/metrics")
		if code != 200 || !strings.Contains(body, "\npenstock_config_last_reload_successful 0\n") {
			t.Errorf("%q: the metrics answer %d, and show no fault", row.text, code)
		}
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	putFile(t, file, good)
	r.files.reload()
	if _, body := askAs(t, r, ops, "/metrics"); !strings.Contains(body,
		"last_reload_successful 1\n") {
		t.Error("the file is good again, and the metrics do not say so")
	}
}

// Promise: a certificate that changes and is faulty is not taken over, and the metric says it.
func TestFaultyCertificateShowsInTheMetrics(t *testing.T) {
	ca := newAuthority(t, "peers")
	cert, key := ca.issue("node-1")
	otherCert, _ := ca.issue("other")
	r, _ := startNode(t, func(s *settings) {
		s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA, s.HTTP = cert, key, ca.file, "127.0.0.1:0"
	})
	r.waitReady(t)
	shows := func(want string) func() error {
		return func() error {
			_, body := askAs(t, r, "", "/metrics")
			if !strings.Contains(body, "\npenstock_config_last_reload_successful "+want+"\n") {
				return fmt.Errorf("the metric is not %s", want)
			}
			return nil
		}
	}
	if err := shows("1")(); err != nil {
		t.Error(err)
	}
	for _, spoil := range []func(){
		func() { putFile(t, cert, string(readBytes(t, otherCert))) }, // without its key
		func() { putFile(t, key, "") },
	} {
		before := [2]string{string(readBytes(t, cert)), string(readBytes(t, key))}
		spoil()
		eventually(t, "the metric says that a file is faulty", shows("0"))
		putFile(t, cert, before[0])
		putFile(t, key, before[1])
		eventually(t, "the metric says that the files are good", shows("1"))
	}
}

// issueDoor makes a certificate for some names, and its key.
func issueDoor(t *testing.T, ca *authority, names ...string) (cert, key string) {
	t.Helper()
	k := ca.newKey()
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(3), DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	file := fmt.Sprintf("door%d", time.Now().UnixNano())
	return ca.sign(file, template, k), ca.save(file+".key", "EC PRIVATE KEY", der)
}

// Promise: a certificate of the doors that comes while the node runs is not taken if it has no name
// of the node and none of the one in force, which has: the metric says so, and clients go on to
// verify the node. One that shares a name is taken, and so is another one where the one in force
// had none of the node's names either.
func TestCertificateForOtherNamesIsNotTakenLater(t *testing.T) {
	ca := newAuthority(t, "clients")
	issue := func(names ...string) (cert, key string) { return issueDoor(t, ca, names...) }
	shown := func(r *running) string {
		conn, err := tls.Dial("tcp", r.doors.address("--http"),
			&tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		return strings.Join(conn.ConnectionState().PeerCertificates[0].DNSNames, " ")
	}
	for _, row := range []struct {
		name         string
		first, later []string
		taken        bool
	}{
		{"for others", []string{"localhost"}, []string{"api.example.com"}, false},
		{
			"which shares a name",
			[]string{"localhost", "a.example.com"},
			[]string{"a.example.com"},
			true,
		},
		{
			"one foreign one after another",
			[]string{"api.example.com"},
			[]string{"b.example.com"},
			true,
		},
	} {
		cert, key := issue(row.first...)
		next, nextKey := issue(row.later...)
		r, _ := startNode(t, func(s *settings) {
			s.TLSCert, s.TLSKey, s.HTTP = cert, key, "127.0.0.1:0"
		})
		putFile(t, key, string(readBytes(t, nextKey)))
		putFile(t, cert, string(readBytes(t, next)))
		eventually(t, row.name, func() error {
			names := shown(r)
			if ok, _ := r.files.lastReload(); ok != row.taken {
				return fmt.Errorf("taken over: %t", ok)
			}
			if taken := names == strings.Join(row.later, " "); taken != row.taken {
				return fmt.Errorf("the door shows %s", names)
			}
			return nil
		})
	}
}

// Promise: a certificate of the doors that has none of the node's names is told of at the start,
// unless --http-host has its name. One without any name ends the start.
func TestCertificateForOtherNamesIsToldOf(t *testing.T) {
	const told = "the certificate of --tls-cert is for other names"
	ca := newAuthority(t, "clients")
	issue := func(names ...string) (cert, key string) { return issueDoor(t, ca, names...) }
	serve := func(cert, key string, hosts ...string) (*running, *logBook) {
		return startNode(t, func(s *settings) {
			s.TLSCert, s.TLSKey, s.HTTPHost, s.HTTP = cert, key, hosts, "127.0.0.1:0"
		})
	}
	cert, key := issue("localhost")
	foreign, foreignKey := issue("api.example.com")
	for _, row := range []struct {
		cert, key string
		hosts     []string
		told      bool
	}{
		{cert, key, nil, false},
		{foreign, foreignKey, nil, true},
		{foreign, foreignKey, []string{"api.example.com"}, false},
		{foreign, foreignKey, []string{"*"}, false},
	} {
		_, book := serve(row.cert, row.key, row.hosts...)
		if text := book.String(); strings.Contains(text, told) != row.told {
			t.Errorf(
				"%s, --http-host %v: told %v, want %v:\n%s",
				row.cert,
				row.hosts,
				!row.told,
				row.told,
				text,
			)
		}
	}

	s, err := selfSettings(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster, s.Memory, s.Role, s.Redis = "test", 8<<20, "member", "off"
	s.TLSCert, s.TLSKey = issue()
	nameless, err := start(t.Context(), s, slog.New(slog.DiscardHandler))
	if err == nil {
		nameless.stop(t.Context(), 0)
	}
	if err == nil || !strings.Contains(err.Error(), s.TLSCert+": has no alternative name") {
		t.Errorf("a certificate without names: %v", err)
	}
}

func readBytes(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Promise: keygen --token draws a token, and an entry that the nodes accept and that has only its
// hash.
func TestKeygenToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.token")
	out, code := runVerb(t, "keygen", "--token", "shop", "--out", file)
	entry, _, _ := strings.Cut(out, "\n")
	text, err := os.ReadFile(file)
	if code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	token, err := access.ParseToken(text)
	if err != nil || strings.Contains(out, token) {
		t.Fatalf("token %q, %v, said: %s", token, err, out)
	}
	if !strings.HasPrefix(entry, "  - ") { // as the list in docs/security.md
		t.Errorf("entry %q does not stand as others below clients:", entry)
	}
	set, err := access.Parse([]byte("clients:\n" + entry))
	if err != nil || set.Plain() {
		t.Fatalf("entry %q: %v, or it has the token in it", entry, err)
	}
	ticket := access.New(set).Token([]byte(token))
	if ticket == nil || !strings.HasPrefix(ticket.Shown(), "shop ") {
		t.Errorf("the token is that of %v", ticket)
	}
	out, code = runVerb(t, "keygen", "--token", "two words")
	if code != 1 || !strings.Contains(out, "name: give") {
		t.Errorf("a name with a blank: exit code %d: %s", code, out)
	}
	// a variable of a script that is not set: a gossip key would be taken for a token
	if out, code = runVerb(t, "keygen", "--token", ""); code != 1 ||
		!strings.Contains(out, "name: give") {
		t.Errorf("an empty name: exit code %d: %s", code, out)
	}
	for _, name := range []string{"a,admin:write", "0x10", "true", `a"b`, "a}"} {
		out, code = runVerb(t, "keygen", "--token", name)
		token, rest, _ := strings.Cut(out, "\n")
		_, entry, _ := strings.Cut(rest, "  - ")
		set, err := access.Parse([]byte("clients:\n  - " + entry))
		if code != 0 || err != nil {
			t.Errorf("%q: exit code %d, %v: %s", name, code, err, out)
			continue
		}
		ticket := access.New(set).Token([]byte(token))
		if ticket == nil || !strings.HasPrefix(ticket.Shown(), name+" ") ||
			ticket.May(access.Read) == nil {
			t.Errorf("%q has become %s", name, entry)
		}
	}
}
