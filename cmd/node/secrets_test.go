package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	penstockv1 "penstock/proto/penstock/v1"
)

// guardedNode is a protected node of TestSecretsAreShownNowhere, and all that it has said.
type guardedNode struct {
	*running
	t     *testing.T
	trust *x509.CertPool
	said  *logBook // the log, and what the doors have answered
}

// Promise: no token, gossip key or private key of a node, and no credential that a client tries,
// is in the log, the metrics, an error, an answer of a door or the audit log.
func TestSecretsAreShownNowhere(t *testing.T) {
	const (
		shop  = "shop-SECRET-0123456789"
		ops   = "ops-SECRET-0123456789"
		guess = "guess-SECRET-0123456789"
	)
	gossipKey := []byte("0123456789abcdefTHE-GOSSIP-KEY!!")
	clients, peers := newAuthority(t, "clients"), newAuthority(t, "peers")
	cert, key := clients.issue("door")
	tokens, record := write(t, "clients:\n"+
		"- {name: ops, token: "+ops+", admin: write, metrics: true}\n"+
		"- {name: shop, token: "+shop+", check: {limits: [login], inline: true}, refund: true}\n"),
		filepath.Join(t.TempDir(), "audit.jsonl")
	gossipFile := write(t, base64.StdEncoding.EncodeToString(gossipKey)+"\n")
	said := new(logBook)
	log := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(log) // as serve does

	secrets := map[string][]byte{
		"a token": []byte(shop), "the token of an administrator": []byte(ops),
		"a guessed token": []byte(guess), "the gossip key": gossipKey,
		"the key of the doors": body(t, key),
	}
	var nodes []*guardedNode
	for i := range 2 {
		name := fmt.Sprintf("n%d", i+1)
		peerCert, peerKey := peers.issue(name)
		secrets["the key of "+name] = body(t, peerKey)
		s, err := selfSettings(i, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Cluster, s.Role, s.Memory, s.Name = "test", "member", 8<<20, name
		s.HTTP, s.Admin, s.Redis, s.Limits = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0",
			write(t, login(5))
		s.AuthTokenFile, s.AuditLog, s.GossipKeyFile = tokens, record, gossipFile
		s.TLSCert, s.TLSKey = cert, key
		s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA = peerCert, peerKey, peers.file
		if i > 0 {
			s.Join, s.AuditLog = []string{nodes[0].gossip.Addr()}, ""
		}
		r, err := start(t.Context(), s, log)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.stop(t.Context(), 0) })
		pool := x509.NewCertPool()
		pool.AddCert(clients.cert)
		nodes = append(nodes, &guardedNode{r, t, pool, said})
		r.waitReady(t)
	}
	for _, n := range nodes {
		for _, token := range []string{"", guess, shop, ops} {
			n.overHTTP(token)
			n.overGRPC(token, clients.file)
			n.overRedis(token)
		}
	}

	// Files that break while the node runs are spoken of, and not repeated.
	putFile(t, tokens, "clients:\n- {name: ops, token: "+ops+", admin: ["+shop+"]}\n")
	nodes[0].files.reload()
	broken := write(t, string(gossipKey)+"\n")
	if _, err := readGossipKeys(broken); err != nil {
		fmt.Fprintln(said, err)
	}
	putFile(t, key,
		"-----BEGIN EC PRIVATE KEY-----\n"+
			base64.StdEncoding.EncodeToString(secrets["the key of n1"]))
	if _, err := nodes[0].clientTLS(); err != nil {
		fmt.Fprintln(said, err)
	}

	changes, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	text := said.String() + string(changes)
	for _, must := range []string{
		"clients are not loaded", "ring=", "penstock_checks_total{", `"who":"shop (token `,
		"this is not a key of 32 bytes", "--tls-cert: certificate", "WRONGPASS",
		"code = Unauthenticated", "missing_right", `"action":"reset"`,
	} {
		if !strings.Contains(text, must) {
			t.Errorf("the test has not come so far that a node said %s", must)
		}
	}
	places := nodes[1].node.View().Secret
	if places == 0 || places != nodes[0].node.View().Secret {
		t.Error("the nodes have no secret in common under which keys are placed")
	}
	for _, form := range []string{
		fmt.Sprint(uint64(places)), fmt.Sprintf("%x", uint64(places)),
		fmt.Sprintf("%X", uint64(places)),
	} {
		if at := strings.Index(text, form); at >= 0 {
			t.Errorf("the secret of places is shown: %s", text[max(0, at-200):at+len(form)])
		}
	}
	for what, secret := range secrets {
		for _, form := range forms(secret) {
			if at := strings.Index(text, form); at >= 0 {
				t.Errorf("%s is shown: %s", what, text[max(0, at-200):at+len(form)])
			}
		}
	}
}

// body is what a PEM file holds.
func body(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	der, err := base64.StdEncoding.DecodeString(strings.Join(lines[1:len(lines)-1], ""))
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// forms are the spellings of a secret in a text. A part of 24 characters is enough.
func forms(secret []byte) (out []string) {
	for _, form := range []string{
		string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)),
		base64.StdEncoding.EncodeToString(secret), base64.URLEncoding.EncodeToString(secret),
		strings.Trim(fmt.Sprint(secret), "[]"), strings.Trim(fmt.Sprintf("%q", secret), `"`),
	} {
		out = append(out, form[:min(24, len(form)-1)], form[len(form)-min(20, len(form)-4):])
	}
	return out
}

// overHTTP asks pages of both listeners, by the header and by other ways that are wrong.
func (n *guardedNode) overHTTP(token string) {
	browser := http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: n.trust}},
	}
	defer browser.CloseIdleConnections()
	ask := func(method, url, body, authorization string) {
		request, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			n.t.Fatal(err)
		}
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		answer, err := browser.Do(request)
		if err != nil {
			n.t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			n.t.Fatal(err)
		}
		fmt.Fprintln(n.said, method, answer.Status, answer.Header, string(text))
	}
	for _, door := range []string{"--http", "--admin"} {
		at := "https://" + n.doors.address(door)
		for _, path := range []string{
			"/v1/check?limit=login&key=k", "/v1/check?limit=none&key=k",
			"/v1/peek?limit=login&key=k",
			"/v1/auth?limit=login&key=k", "/v1/members", "/v1/ring?key=k", "/v1/status", "/v1/top",
			"/v1/holds", "/v1/limits", "/v1/audit", "/metrics", "/debug/pprof/cmdline", "/readyz",
			"/debug/pprof/goroutine?debug=2", "/ui/", "/none",
		} {
			ask("GET", at+path, "", "Bearer "+token)
			ask("GET", at+path, "", "Basic "+token)
		}
		ask("POST", at+"/v1/reset", `{"limit":"login","key":"k"}`, "Bearer "+token)
		ask("POST", at+"/v1/check", `{"items":[{"limit":"login"`, "Bearer "+token)
		ask("POST", at+"/v1/GetRateLimits", `{"requests":[{"name":"x"}]}`, "Bearer "+token)
	}
}

// overGRPC asks both services.
func (n *guardedNode) overGRPC(token, ca string) {
	credential := credentials{TLSCA: ca}
	if token != "" {
		credential.AuthTokenFile = write(n.t, token)
	}
	for _, door := range []string{"--grpc", "--admin"} {
		c, err := credential.dial([]string{n.doors.address(door)})
		if err != nil {
			n.t.Fatal(err)
		}
		_, err = checkItems(n.t.Context(), c,
			[]*penstockv1.Item{{Limit: "login", Key: []byte("k")}})
		fmt.Fprintln(n.said, err)
		out, err := adminOf(c).Members(n.t.Context(), &penstockv1.MembersRequest{})
		fmt.Fprintln(n.said, out, err)
		limits, err := adminOf(c).Limits(n.t.Context(), &penstockv1.LimitsRequest{})
		fmt.Fprintln(n.said, limits, err)
		c.Close()
	}
}

// overRedis logs in, and sends the token where it does not belong.
func (n *guardedNode) overRedis(token string) {
	for _, words := range [][]string{
		{"AUTH", token},
		{"AUTH", "shop", token},
		{"HELLO", "3", "AUTH", "shop", token},
		{"AUTH", "shop", token, "more"},
		{"CLIENT", "SETINFO", "lib-name", "x"},
		{"CL.THROTTLE", "k", "1", "1", "1"},
	} {
		conn, err := tls.Dial("tcp", n.doors.address("--redis"), &tls.Config{RootCAs: n.trust})
		if err != nil {
			n.t.Fatal(err)
		}
		fmt.Fprintln(n.said, words[0], talkRedis(n.t, conn, words...))
		conn.Close()
	}
}

// Promise: a file of clients with hashes alone may be read by everybody, and nothing is said of it;
// that others can change it is said, and so is that others can read a secret.
func TestFilesOfHashesMayBeRead(t *testing.T) {
	hashed := "clients:\n- {name: a, sha256: " + strings.Repeat("0a", 32) + ", metrics: true}\n"
	for _, c := range []struct {
		text, mode string
		insecure   bool
		want       string
	}{
		{hashed, "0644", false, ""},
		{hashed, "0664", false, "a file can be changed"},
		{"a-token-of-some-length\n", "0640", false, ""},
		{"a-token-of-some-length\n", "0644", true, "a secret can be read"},
	} {
		path := write(t, c.text)
		mode, _ := strconv.ParseUint(c.mode, 8, 32)
		if err := os.Chmod(path, os.FileMode(mode)); err != nil {
			t.Fatal(err)
		}
		_, book := startNode(t, func(s *settings) {
			s.AuthTokenFile, s.Insecure = path, c.insecure
		})
		said := book.String()
		if strings.Contains(said, "other users of this machine") != (c.want != "") ||
			!strings.Contains(said, c.want) {
			t.Errorf("%s with mode %s: the log says\n%s\nwant %q", c.text, c.mode, said, c.want)
		}
	}
}
