package rpctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for 127.0.0.1 and keeps them in files.
type Authority struct {
	T    *testing.T
	dir  string
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

func NewAuthority(t *testing.T, name string) *Authority {
	t.Helper()
	a := &Authority{T: t, dir: t.TempDir()}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	a.Cert, a.Key = a.Sign("ca", template, nil, nil)
	return a
}

// Sign writes NAME.pem and NAME.key.
func (a *Authority) Sign(
	name string, c, parent *x509.Certificate, by *ecdsa.PrivateKey,
) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.T.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.T.Fatal(err)
	}
	if parent == nil {
		parent, by = c, key
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.T.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.T.Fatal(err)
	}
	a.Write(name+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.Write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		a.T.Fatal(err)
	}
	return parsed, key
}

// Issue writes a certificate for a node called name.
func (a *Authority) Issue(name, file string) {
	a.T.Helper()
	a.Sign(file, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.Cert, a.Key)
}

// Config is TLS for either end, by the certificate in a file that Issue or IssueFor has written: it
// shows that, and trusts a alone.
func (a *Authority) Config(file string) *tls.Config {
	a.T.Helper()
	pair, err := tls.LoadX509KeyPair(a.Path(file+".pem"), a.Path(file+".key"))
	if err != nil {
		a.T.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{
			pair,
		},
		RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

// IssueFor writes a certificate for node, with URIs that say what it is.
func (a *Authority) IssueFor(node string, uris ...*url.URL) {
	a.T.Helper()
	a.Sign(node, &x509.Certificate{
		Subject: pkix.Name{CommonName: node}, IPAddresses: []net.IP{
			net.IPv4(127, 0, 0, 1),
		}, URIs: uris,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.Cert, a.Key)
}

func (a *Authority) Path(name string) string { return filepath.Join(a.dir, name) }

func (a *Authority) Write(name string, b []byte) {
	a.T.Helper()
	if err := os.WriteFile(a.Path(name), b, 0o600); err != nil {
		a.T.Fatal(err)
	}
}
