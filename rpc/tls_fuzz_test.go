package rpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/rpc/peer"
)

// Promise: whatever stands in the files of a certificate and its key, they are a pair that is good
// now, or the error names both files and shows nothing of the key.
func FuzzCertificates(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "n1"}, DNSNames: []string{"n1"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		URIs: []*url.URL{peer.NodeURI("n1"), peer.RoleURI(cluster.RoleMember)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		f.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		f.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	f.Add(certPEM, keyPEM, int64(0))
	f.Add(certPEM, keyPEM, int64(2*time.Hour))
	f.Add(
		append(certPEM, certPEM...),
		[]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
		int64(0),
	)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n"), []byte{}, int64(-1))
	f.Fuzz(func(t *testing.T, certPEM, keyPEM []byte, off int64) {
		pair, err := parsePair("the cert", certPEM, "the key", keyPEM, now.Add(time.Duration(off)))
		if err != nil {
			if !strings.Contains(err.Error(), "certificate the cert") {
				t.Fatalf("an error without the file: %v", err)
			}
			for line := range strings.Lines(string(keyPEM)) {
				if line = strings.TrimSpace(line); len(line) > 20 &&
					!strings.HasPrefix(line, "-----") &&
					strings.Contains(err.Error(), line) {
					t.Fatalf("%q is shown: %v", line, err)
				}
			}
			return
		}
		if pair.Leaf == nil || pair.PrivateKey == nil {
			t.Fatal("a pair without certificate or key")
		}
		if peer.CheckNode("a node with no name like this", cluster.RoleMember)(pair.Leaf) == nil {
			t.Fatal("the certificate is everybody's")
		}
	})
}
