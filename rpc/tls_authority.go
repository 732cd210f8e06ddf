package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"penstock/textfile"
)

// authorities are those in a file.
type authorities struct {
	roots *x509.CertPool // nil: there is no file
	until time.Time      // when the last of them ends
	sums  []string       // of each
}

// loadAuthorities reads the authorities of a file. One that is good now is enough: while an
// authority is replaced, the file has the old one too.
func loadAuthorities(path string, now time.Time) (a authorities, err error) {
	text, err := textfile.Read(path)
	if err != nil {
		return a, err
	}
	a.roots = x509.NewCertPool()
	var last *x509.Certificate
	good := false
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue // as AppendCertsFromPEM does
		}
		a.roots.AddCert(c)
		a.sums = append(a.sums, sumOf(c))
		good = good || checkDates(path, c, now) == nil
		if last == nil || c.NotAfter.After(last.NotAfter) {
			last, a.until = c, c.NotAfter
		}
	}
	switch {
	case last == nil:
		return a, fmt.Errorf("%s: holds no certificate in PEM", path)
	case !good:
		return a, checkDates(path, last, now)
	}
	return a, nil
}

// checkMutual is an error if nodes with the same authorities would refuse this node's certificate:
// some of them dial it, and it dials others.
func (a *authorities) checkMutual(own *tls.Certificate, now time.Time) error {
	between := x509.NewCertPool()
	for _, der := range own.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	var errs []error
	for _, end := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := own.Leaf.Verify(x509.VerifyOptions{
			Roots: a.roots, Intermediates: between, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{end},
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
