package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"penstock/rpc/door"
	"penstock/textfile"
)

// TLSFiles are the PEM files of a door or a caller. They are read again when they change, whenever
// a handshake or a look at the metrics needs them.
type TLSFiles struct {
	Cert, Key, CA string // paths; empty: none
	// Mutual says that both ends of a connection have such files. Cert must then be of an authority
	// in CA, for both ends.
	Mutual bool

	// Check refuses a certificate that is good in itself, and not good here. nil: it refuses none.
	Check func(*x509.Certificate) error
	// Reloaded is told how each reading of changed files ended; nil: nobody is. It must not call
	// back.
	Reloaded func(error)
	// Renewed is told what of changed files is put in force, after Reloaded; nil: nobody is. It
	// must not call back.
	Renewed func(before, after TLSSums)
}

// ClientTLS is TLSFiles.Client for three files.
func ClientTLS(cert, key, ca string) (*tls.Config, error) {
	return TLSFiles{Cert: cert, Key: key, CA: ca}.Client()
}

// Server is what a door shows: the certificate in the file Cert with its key. If CA is not empty,
// callers must show a certificate of one of the authorities in it. While changed files are faulty,
// what was read last stays in force. An error names the file.
func (files TLSFiles) Server() (*tls.Config, error) {
	if files.Cert == "" {
		return nil, errors.New("a door with TLS needs a certificate; give the file")
	}
	f, err := files.open()
	if err != nil {
		return nil, err
	}
	shown := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	base := shown.Clone() // net/http writes to what it is given, when others may be at a handshake
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := f.now()
		c := shown.Clone()
		c.Certificates = []tls.Certificate{now.cert}
		if now.roots != nil {
			c.ClientCAs, c.ClientAuth = now.roots, tls.RequireAndVerifyClientCert
		}
		return c, nil
	}
	// net/http wants to see a certificate before it serves.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c := f.now().cert
		return &c, nil
	}
	return base, nil
}

// Client is what a caller shows and trusts: the certificate in the file Cert with its key, both
// empty if it shows none, and the authorities in the file CA; the system's if that is empty. The
// certificate is read again when it changes, as for Server. The authorities are not, since
// crypto/tls cannot exchange them: for a caller that lives long there is Caller.
func (files TLSFiles) Client() (*tls.Config, error) {
	now, err := files.Caller()
	if err != nil {
		return nil, err
	}
	return now(), nil
}

// Caller is Client for a caller that lives long: what it returns is the configuration for the next
// connection, with the authorities that are in the file then. To replace an authority, let the file
// hold both, until all nodes have certificates of the new one.
func (files TLSFiles) Caller() (now func() *tls.Config, err error) {
	f, err := files.open()
	if err != nil {
		return nil, err
	}
	return func() *tls.Config {
		c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: f.now().roots}
		if files.Cert != "" {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				c := f.now().cert
				return &c, nil
			}
		}
		return c
	}, nil
}

// credentialFiles are PEM files that may change.
type credentialFiles struct {
	TLSFiles

	mu      sync.Mutex // guards all below
	read    credentialSet
	stamp   string    // of the files when they were read
	faulty  string    // stamp of the files that were last found faulty, and told of
	looked  time.Time // for a change
	looking bool      // a handshake is at it
	warned  time.Time // that the certificate expires soon
}

type credentialSet struct {
	cert tls.Certificate
	authorities
}

// lookEvery is how often the files are looked at, at most, and only when a handshake needs them.
const lookEvery = time.Second

func (files TLSFiles) open() (*credentialFiles, error) {
	f := &credentialFiles{TLSFiles: files}
	f.stamp = f.stampNow()
	set, err := f.load()
	if err != nil {
		return nil, err
	}
	f.read, f.looked = set, time.Now()
	f.warnLocked(f.looked)
	return f, nil
}

// now is what the files say. One handshake reads those that have changed; what others ask for
// meanwhile is what was read before, for a disk may take long.
func (f *credentialFiles) now() credentialSet {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looking || time.Since(f.looked) < lookEvery {
		return f.read
	}
	f.looking = true
	before := f.stamp
	f.mu.Unlock()
	stamp := f.stampNow()
	var set credentialSet
	var err error
	if stamp != before {
		set, err = f.loadAgain()
	}
	f.mu.Lock()
	f.looking, f.looked = false, time.Now()
	defer f.warnLocked(f.looked)
	switch {
	case stamp != f.stamp:
		f.tellLocked(stamp, err)
		if err == nil {
			f.tellRenewedLocked(&set)
			f.read, f.stamp, f.warned = set, stamp, time.Time{}
		} // else they are half written, perhaps: look again in a second
	case f.faulty != "": // those that were read are back
		f.tellLocked(stamp, nil)
	}
	return f.read
}

// tellLocked says how a reading of changed files ended, and of faulty files once.
func (f *credentialFiles) tellLocked(stamp string, err error) {
	switch {
	case err == nil:
		f.faulty = ""
		slog.Info("TLS files read again", "cert", f.Cert, "ca", f.CA)
	case stamp != f.faulty:
		f.faulty = stamp
		slog.Warn("changed TLS files are not taken over; those before stay in force", "error", err)
	}
	if f.Reloaded != nil {
		f.Reloaded(err)
	}
}

// A certificate that expires within warnBefore is told of once in warnEvery.
const (
	warnBefore = 14 * 24 * time.Hour
	warnEvery  = 24 * time.Hour
)

// warnLocked warns of a certificate, and of a last authority, that expires soon or has expired.
// f.mu is held, or f is not shared yet.
func (f *credentialFiles) warnLocked(now time.Time) {
	if now.Sub(f.warned) < warnEvery {
		return
	}
	warn := func(what, path string, end time.Time) {
		if end.Sub(now) > warnBefore {
			return
		}
		f.warned = now
		slog.Warn(what+" expires soon, or has expired; put a new one in its place, it is read "+
			"without a restart", "file", path, "expires", end.UTC().Format(time.RFC3339))
	}
	if c := f.read.cert.Leaf; c != nil {
		warn("a certificate", f.Cert, c.NotAfter)
	}
	if f.read.roots != nil {
		warn("the last authority", f.CA, f.read.until)
	}
}

// stampNow tells one state of the files from another.
func (f *credentialFiles) stampNow() (s string) {
	for _, path := range []string{f.Cert, f.Key, f.CA} {
		if info, err := os.Stat(path); err == nil {
			s += fmt.Sprint(info.ModTime().UnixNano(), info.Size(), " ")
		}
	}
	return s
}

func (f *credentialFiles) load() (set credentialSet, err error) {
	if f.Cert != "" || f.Key != "" {
		if set.cert, err = loadPair(f.Cert, f.Key); err != nil {
			return set, err
		}
		if f.Check != nil {
			if err := f.Check(set.cert.Leaf); err != nil {
				return set, fmt.Errorf("certificate %s: %w", f.Cert, err)
			}
		}
	}
	if f.CA == "" {
		return set, nil
	}
	now := time.Now()
	if set.authorities, err = loadAuthorities(f.CA, now); err != nil || !f.Mutual {
		return set, err
	}
	if err := set.checkMutual(&set.cert, now); err != nil {
		return set, fmt.Errorf("certificate %s: other nodes would refuse it: %w; give one of an "+
			"authority in %s", f.Cert, err, f.CA)
	}
	return set, nil
}

// loadAgain is load while handshakes wait for it, or soon will.
func (f *credentialFiles) loadAgain() (credentialSet, error) {
	for _, path := range []string{f.Cert, f.Key, f.CA} {
		if err := textfile.Again(path); err != nil {
			return credentialSet{}, err
		}
	}
	return f.load()
}

func loadPair(cert, key string) (tls.Certificate, error) {
	if cert == "" || key == "" {
		return tls.Certificate{}, fmt.Errorf("certificate %q and key %q: give both files or none",
			cert, key)
	}
	certPEM, err := textfile.Read(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := textfile.Read(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return parsePair(cert, certPEM, key, keyPEM, time.Now())
}

// parsePair reads a certificate and its key from the texts of two files.
func parsePair(
	cert string, certPEM []byte, key string, keyPEM []byte, now time.Time,
) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	return pair, checkDates(cert, pair.Leaf, now)
}

// checkDates is an error if a certificate is not good now: callers would refuse it.
func checkDates(path string, c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("certificate %s: expired at %s; give a new one", path,
			c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("certificate %s: is not good before %s; check the clock of this machine",
			path, c.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// PeerTLS is t for nodes among themselves: TLS 1.3 at least.
func PeerTLS(t *tls.Config) *tls.Config {
	return door.Adjusted(t, func(t *tls.Config) { t.MinVersion = tls.VersionTLS13 })
}
