package rpc

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/rpc/native"
	"penstock/rpc/peer"
	"penstock/rpc/rpctest"
)

// shake connects c to s and returns the name in the certificate that s shows.
func shake(t *testing.T, s, c *tls.Config) (string, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", s)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = conn.(*tls.Conn).Handshake()
			conn.Write([]byte("x"))
			conn.Close()
		}
		served <- err
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), c)
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 a refused client learns it here
	}
	if serverErr := <-served; serverErr != nil && err == nil {
		err = serverErr
	}
	if err != nil {
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// expire makes the next handshake look at the files again, as if a second had passed.
func (f *credentialFiles) expire() {
	f.mu.Lock()
	f.looked = time.Time{}
	f.mu.Unlock()
}

func TestTLS(t *testing.T) {
	ours, others := rpctest.NewAuthority(t, "ours"), rpctest.NewAuthority(t, "others")
	ours.Issue("n1", "n1")
	others.Issue("stranger", "n1")
	server, err := serverTLS(ours.Path("n1.pem"), ours.Path("n1.key"), ours.Path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	anyone, err := serverTLS(ours.Path("n1.pem"), ours.Path("n1.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	client := func(a *rpctest.Authority, cert string, ca *rpctest.Authority) *tls.Config {
		t.Helper()
		certFile, key := "", ""
		if cert != "" {
			certFile, key = a.Path(cert+".pem"), a.Path(cert+".key")
		}
		c, err := ClientTLS(certFile, key, ca.Path("ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, c := range []struct {
		name   string
		server *tls.Config
		client *tls.Config
		want   string // part of the error; empty: it works
	}{
		{"with a certificate", server, client(ours, "n1", ours), ""},
		{"without one", server, client(ours, "", ours), "certificate required"},
		{"with a stranger's", server, client(others, "n1", ours), "tls: "},
		{"to a door that asks for none", anyone, client(ours, "", ours), ""},
		{"of a client that trusts others", anyone, client(ours, "", others), "unknown authority"},
	} {
		name, err := shake(t, c.server, c.client)
		switch {
		case c.want == "" && (err != nil || name != "n1"):
			t.Errorf("%s: %q, %v", c.name, name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Promise: a new certificate is shown without a restart, and a broken one never replaces a good
// one.
func TestTLSFilesChange(t *testing.T) {
	a := rpctest.NewAuthority(t, "ours")
	a.Issue("first", "n1")
	f, err := TLSFiles{Cert: a.Path("n1.pem"), Key: a.Path("n1.key"), CA: a.Path("ca.pem")}.open()
	if err != nil {
		t.Fatal(err)
	}
	shows := func() string {
		t.Helper()
		c, err := x509.ParseCertificate(f.now().cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return c.Subject.CommonName
	}
	a.Issue("second", "n1")
	if got := shows(); got != "first" {
		t.Errorf("within a second of the last look: shows %q", got)
	}
	f.expire()
	if got := shows(); got != "second" {
		t.Errorf("after a change: shows %q", got)
	}
	a.Write("n1.key", []byte("half of a k"))
	f.expire()
	if got := shows(); got != "second" {
		t.Errorf("after a broken change: shows %q", got)
	}
	a.Issue("third", "n1")
	f.expire()
	if got := shows(); got != "third" {
		t.Errorf("after it was repaired: shows %q", got)
	}
}

// Promise: of changed files that are faulty, whatever the fault, none replaces a good one. The log
// says it once, and Reloaded each time.
func TestFaultyTLSFilesAreNotTakenOver(t *testing.T) {
	said := new(bytes.Buffer)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	a := rpctest.NewAuthority(t, "ours")
	sign := func(file, node string, from, to time.Duration) {
		a.Sign(file, &x509.Certificate{
			Subject: pkix.Name{CommonName: node}, DNSNames: []string{node},
			NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to),
		}, a.Cert, a.Key)
	}
	sign("other", "n1", -time.Hour, time.Hour)
	otherKey, err := os.ReadFile(a.Path("other.key"))
	if err != nil {
		t.Fatal(err)
	}
	var last error
	sign("n", "n1", -time.Hour, time.Hour)
	f, err := TLSFiles{
		Cert: a.Path("n.pem"), Key: a.Path("n.key"), CA: a.Path("ca.pem"),
		Check:    peer.CheckNode("n1", cluster.RoleMember),
		Reloaded: func(err error) { last = err },
	}.open()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(a.Path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		want  string
		spoil func()
	}{
		{"expired at", func() { sign("n", "n1", -2*time.Hour, -time.Hour) }},
		{"is not good before", func() { sign("n", "n1", time.Hour, 2*time.Hour) }},
		{"not this node's", func() { sign("n", "n2", -time.Hour, time.Hour) }},
		{"n.key", func() { a.Write("n.key", otherKey) }},
		{"n.key", func() { os.Remove(a.Path("n.key")) }},
		{"n.pem", func() { a.Write("n.pem", nil) }},
		{"holds no certificate", func() { a.Write("ca.pem", []byte("no PEM")) }},
	} {
		sign("n", "n1", -time.Hour, time.Hour)
		a.Write("ca.pem", authority)
		f.expire()
		good := f.now().cert.Leaf
		if last != nil {
			t.Fatalf("before %q: a good file is faulty: %v", row.want, last)
		}
		said.Reset()
		row.spoil()
		for range 2 {
			f.expire()
			if now := f.now().cert.Leaf; !now.Equal(good) {
				t.Errorf("%s: a faulty file replaced a good one", row.want)
			}
		}
		if last == nil || !strings.Contains(last.Error(), row.want) {
			t.Errorf("Reloaded is told %v, want %q", last, row.want)
		}
		if n := strings.Count(said.String(), "those before stay in force"); n != 1 {
			t.Errorf("%s: the log says it %d times:\n%s", row.want, n, said)
		}
	}
}

// Promise: a certificate that expires within two weeks is told of once a day, and one that lasts
// longer never.
func TestExpiryIsToldInTime(t *testing.T) {
	said := new(bytes.Buffer)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	a := rpctest.NewAuthority(t, "ours")
	for _, c := range []struct {
		lasts time.Duration
		want  int
	}{{warnBefore + time.Hour, 0}, {warnBefore - time.Hour, 2}} {
		a.Sign("n", &x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(c.lasts)},
			a.Cert, a.Key)
		said.Reset()
		f, err := TLSFiles{Cert: a.Path("n.pem"), Key: a.Path("n.key")}.open()
		if err != nil {
			t.Fatal(err)
		}
		f.expire()
		f.now()
		now := time.Now().Add(warnEvery)
		if c.want > 0 {
			f.warnLocked(now)
			f.warnLocked(now)
		}
		if got := strings.Count(said.String(), "expires soon"); got != c.want {
			t.Errorf("a certificate for %s: %d warnings, want %d:\n%s", c.lasts, got, c.want, said)
		}
	}
}

// Promise: nodes speak TLS 1.3 with each other, and refuse what is older.
func TestPeersSpeakTLS13(t *testing.T) {
	a := rpctest.NewAuthority(t, "ours")
	a.Issue("node", "node")
	server, err := serverTLS(a.Path("node.pem"), a.Path("node.key"), a.Path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := ClientTLS(a.Path("node.pem"), a.Path("node.key"), a.Path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shake(t, PeerTLS(server), PeerTLS(client)); err != nil {
		t.Errorf("two nodes: %v", err)
	}
	client.MaxVersion = tls.VersionTLS12
	if _, err := shake(t, PeerTLS(server), client); err == nil ||
		!strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2: %v, want that the version is refused", err)
	}
}

// Promise: what is wrong with a file says which file.
func TestTLSErrorsNameTheFile(t *testing.T) {
	a := rpctest.NewAuthority(t, "ours")
	a.Issue("n1", "n1")
	a.Issue("n2", "n2")
	a.Write("empty.pem", nil)
	dated := func(file string, from, to time.Duration) {
		a.Sign(file, &x509.Certificate{
			NotBefore: time.Now().Add(from),
			NotAfter:  time.Now().Add(to),
		}, a.Cert, a.Key)
	}
	dated("old", -2*time.Hour, -time.Hour)
	dated("early", time.Hour, 2*time.Hour)
	for _, c := range []struct{ cert, key, ca, want string }{
		{"missing.pem", "n1.key", "", "missing.pem"},
		{"old.pem", "old.key", "", "old.pem: expired at"},
		{"early.pem", "early.key", "", "early.pem: is not good before"},
		{"n1.pem", "missing.key", "", "missing.key"},
		{"n1.pem", "n2.key", "", "n2.key"},
		{"empty.pem", "n1.key", "", "empty.pem"},
		{"n1.pem", "n1.key", "missing.pem", "missing.pem"},
		{"n1.pem", "n1.key", "empty.pem", "empty.pem: holds no certificate"},
	} {
		ca := ""
		if c.ca != "" {
			ca = a.Path(c.ca)
		}
		if _, err := serverTLS(a.Path(c.cert), a.Path(c.key), ca); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := ClientTLS(a.Path(c.cert), a.Path(c.key), ca); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := ClientTLS(a.Path("n1.pem"), "", ""); err == nil {
		t.Error("a certificate without a key is accepted")
	}
	if _, err := serverTLS("", "", ""); err == nil {
		t.Error("a door without a certificate is accepted")
	}
}

// Promise: a server may write to what it was given, while others are at a handshake.
func TestServerWritesToItsTLS(t *testing.T) {
	a := rpctest.NewAuthority(t, "ours")
	a.Issue("node", "node")
	server, err := serverTLS(a.Path("node.pem"), a.Path("node.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	server.NextProtos, server.MinVersion = nil, 0
	c, err := server.GetConfigForClient(nil)
	if err != nil || !slices.Equal(c.NextProtos, []string{"h2", "http/1.1"}) ||
		c.MinVersion != tls.VersionTLS12 || c.GetConfigForClient != nil {
		t.Errorf("%v, %+v", err, c)
	}
}

// Promise: nodes with certificates of one authority reach each other; one without does not.
func TestPeersOverTLS(t *testing.T) {
	a := rpctest.NewAuthority(t, "ours")
	for _, node := range []string{"n1", "n2"} {
		a.IssueFor(node, peer.NodeURI(node), peer.RoleURI(cluster.RoleMember))
	}
	s := newStations(t, 2, five)
	server, err := serverTLS(a.Path("n2.pem"), a.Path("n2.key"), a.Path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := ClientTLS(a.Path("n1.pem"), a.Path("n1.key"), a.Path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	to := s[1].member
	to.PeerAddr = s[1].open(peer.NewServer(peer.ServerConfig{
		Node: s[1].node, Cluster: testCluster,
		Clock: s[1].clock, TLS: server,
	}))
	call := func(c *tls.Config) cluster.Call {
		peers := peer.NewLines(peer.LinesConfig{
			ID: "n1", Boot: 1, Cluster: testCluster, Clock: s[0].clock, TLS: c,
			Logger: slog.New(slog.DiscardHandler),
		})
		defer peers.Close()
		deadline := s[0].clock.Now().Add(time.Minute)
		calls := []cluster.Call{{To: to, Deadline: deadline, Ask: &cluster.Ask{
			Hop: 1, Deadline: deadline,
			Items: []cluster.AskItem{{
				Limit: rpctest.MustLimit(five), Key: rpctest.OwnKey(s[1].node, 0),
				Cost: 1,
			}},
		}}}
		peers.Call(calls)
		return calls[0]
	}
	if c := call(client); c.Err != nil || !c.Answer.Items[0].Decision.Allowed {
		t.Errorf("over TLS: %+v", c)
	}
	if c := call(nil); !errors.Is(c.Err, cluster.ErrUnsent) ||
		!strings.Contains(c.Err.Error(), "peer n2") {
		t.Errorf("a call without TLS ended with %v; want one that was not sent, and peer n2", c.Err)
	}

	public := s[0].open(native.NewServer(native.Config{
		Node: s[0].node, Clock: s[0].clock, TLS: server,
	}))
	conn, err := grpc.NewClient("passthrough:///"+public,
		grpc.WithTransportCredentials(credentials.NewTLS(client)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthv1.NewHealthClient(conn).Check(rpctest.Patience(t),
		&healthv1.HealthCheckRequest{}); status.Code(err) != codes.OK {
		t.Errorf("the public door over TLS: %v", err)
	}
}

func serverTLS(cert, key, ca string) (*tls.Config, error) {
	return TLSFiles{Cert: cert, Key: key, CA: ca}.Server()
}
