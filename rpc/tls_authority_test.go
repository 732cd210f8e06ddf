package rpc

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"penstock/rpc/rpctest"
)

// authorityUntil writes the certificate of an authority that ends after so long, as NAME.pem.
func authorityUntil(a *rpctest.Authority, name string, lasts time.Duration) {
	a.Sign(name, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(lasts),
	}, nil, nil)
}

// Promise: authorities that have all ended are refused, since every handshake would be; one that is
// still good is enough, as while an authority is replaced. The last one's end is told of in time.
func TestAuthoritiesEnd(t *testing.T) {
	said := new(bytes.Buffer)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	a := rpctest.NewAuthority(t, "ours")
	authorityUntil(a, "ended", -time.Hour)
	authorityUntil(a, "soon", time.Hour)
	authorityUntil(a, "later", 2*warnBefore)
	_, err := TLSFiles{CA: a.Path("ended.pem")}.open()
	if err == nil || !strings.Contains(err.Error(), "ended.pem: expired at") {
		t.Errorf("an authority that has ended: %v", err)
	}
	for _, row := range []struct {
		files []string
		told  int
	}{
		{[]string{"ended", "soon"}, 1},
		{[]string{"soon", "later"}, 0},
		{[]string{"later", "ended"}, 0},
	} {
		var both []byte
		for _, file := range row.files {
			text, err := os.ReadFile(a.Path(file + ".pem"))
			if err != nil {
				t.Fatal(err)
			}
			both = append(both, text...)
		}
		a.Write("both.pem", both)
		said.Reset()
		if _, err := (TLSFiles{CA: a.Path("both.pem")}).open(); err != nil {
			t.Errorf("%v: %v", row.files, err)
		}
		if n := strings.Count(said.String(), "last authority"); n != row.told {
			t.Errorf("%v: told %d times: %s", row.files, n, said)
		}
	}
}

// Promise: a node does not begin with a certificate that other nodes would refuse: of an authority
// that is not in the file of theirs, or for one end of a connection alone.
func TestOwnCertificateIsOfTheAuthority(t *testing.T) {
	a, other := rpctest.NewAuthority(t, "ours"), rpctest.NewAuthority(t, "theirs")
	a.Issue("n1", "n1")
	a.Sign("half", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{
		x509.ExtKeyUsageServerAuth,
	}}, a.Cert, a.Key)
	for _, row := range []struct {
		file, ca, want string
	}{
		{"n1", a.Path("ca.pem"), ""},
		{"n1", other.Path("ca.pem"), "n1.pem: other nodes would refuse it"},
		{"half", a.Path("ca.pem"), "half.pem: other nodes would refuse it"},
	} {
		_, err := TLSFiles{
			Cert: a.Path(row.file + ".pem"), Key: a.Path(row.file + ".key"), CA: row.ca,
			Mutual: true,
		}.Server()
		if row.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(),
			row.want) {
			t.Errorf("%s with %s: %v", row.file, row.ca, err)
		}
	}
}

// Promise: files that are put back as they were are good again, though nothing is new in them; and
// a certificate that takes the place of another is told of if it ends soon.
func TestFilesPutBackAreGood(t *testing.T) {
	said := new(bytes.Buffer)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	a := rpctest.NewAuthority(t, "ours")
	a.Issue("n1", "n1")
	var last error
	f, err := TLSFiles{
		Cert: a.Path("n1.pem"), Key: a.Path("n1.key"),
		Reloaded: func(err error) { last = err },
	}.open()
	if err != nil {
		t.Fatal(err)
	}
	look := func() {
		f.expire()
		f.now()
	}
	if err := os.Rename(a.Path("n1.pem"), a.Path("kept.pem")); err != nil {
		t.Fatal(err)
	}
	if look(); last == nil {
		t.Fatal("a file that is gone is no fault")
	}
	if err := os.Rename(a.Path("kept.pem"), a.Path("n1.pem")); err != nil {
		t.Fatal(err)
	}
	if look(); last != nil {
		t.Errorf("the files are as they were, and faulty: %v", last)
	}
	said.Reset()
	a.Issue("n1", "n1") // for an hour
	if look(); strings.Count(said.String(), "expires soon") != 1 {
		t.Errorf("a new certificate that ends soon: %s", said)
	}
}

// Promise: a client of an authority that was left out of the file is refused from its next
// connection on, also if it resumes a session from before.
func TestRemovedAuthorityResumesNoSession(t *testing.T) {
	a, other := rpctest.NewAuthority(t, "ours"), rpctest.NewAuthority(t, "others")
	a.Issue("door", "door")
	a.Issue("client", "client")
	trust := func(of *rpctest.Authority) {
		text, err := os.ReadFile(of.Path("ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		a.Write("trusted.pem", text)
	}
	trust(a)
	config, err := TLSFiles{
		Cert: a.Path("door.pem"), Key: a.Path("door.key"), CA: a.Path("trusted.pem"),
	}.Server()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("."))
			conn.Close()
		}
	}()
	caller := a.Config("client")
	caller.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	ask := func() (resumed bool, err error) {
		conn, err := tls.Dial("tcp", l.Addr().String(), caller)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
		return conn.ConnectionState().DidResume, err
	}
	if _, err := ask(); err != nil {
		t.Fatal(err)
	}
	if resumed, err := ask(); err != nil || !resumed {
		t.Fatalf("resumed %v, %v; want a session that goes on", resumed, err)
	}
	trust(other)
	rpctest.Eventually(t, "the client is refused", func() bool {
		_, err := ask()
		return err != nil
	})
}
