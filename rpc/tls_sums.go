package rpc

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"slices"
)

// TLSSums tell the certificates that were read from those before. No key is in them.
type TLSSums struct {
	Certificate string   // that is shown; empty: none
	Authorities []string // that are trusted, sorted
}

// sumOf is a certificate's serial number, and its fingerprint as openssl x509 shows it.
func sumOf(c *x509.Certificate) string {
	return fmt.Sprintf("serial %x, SHA-256 %x", c.SerialNumber, sha256.Sum256(c.Raw))
}

func (s *credentialSet) sums() (all TLSSums) {
	if c := s.cert.Leaf; c != nil {
		all.Certificate = sumOf(c)
	}
	all.Authorities = slices.Sorted(slices.Values(s.authorities.sums))
	return all
}

// tellRenewedLocked says that next is about to be in force.
func (f *credentialFiles) tellRenewedLocked(next *credentialSet) {
	if f.Renewed != nil {
		f.Renewed(f.read.sums(), next.sums())
	}
}
