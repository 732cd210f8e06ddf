package main

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/rpc/peer"
)

// certsVerb makes the certificates that nodes show each other, and those that clients show nodes.
type certsVerb struct {
	Init certsInit `cmd:"" help:"Make an authority: ca.crt, which every node gets, and ca.key, which no node needs."`
	Add  certsAdd  `cmd:"" help:"Make the certificate of one node or client."`
}

type certsDir struct {
	Dir   string `type:"path" default:"certs" placeholder:"FOLDER" help:"Where the files are. Default: certs."`
	Force bool   `help:"Replace files that are there already."`
}

type certsInit struct {
	Name string `default:"penstock" help:"Name of the authority."`
	Days int    `default:"3650" help:"How long it is good for. No certificate of it lasts longer."`
	certsDir
}

type certsAdd struct {
	Node string   `arg:"" help:"Name of the node, as in serve --name. For agents, PREFIX* is all names that begin so. Of a client, the name that --auth-token-file has as certificate."`
	Role string   `enum:"member,agent,client" default:"member" help:"member, agent or client. An agent's certificate is refused where keys are owned, a client's wherever nodes talk."`
	Host []string `placeholder:"HOST" help:"Names and addresses by which others dial the node. Default: its name, localhost and loopback; of a client its name."`
	Out  string   `placeholder:"FILE" help:"Name of the files without .crt and .key. Default: the node's name."`
	Days int      `default:"365" help:"How long it is good for, at most as long as the authority."`
	certsDir
}

const (
	authorityCert = "ca.crt"
	authorityKey  = "ca.key"
	roleClient    = "client"

	mostDays = 100 * 365
)

func (v *certsInit) Run(sh shell) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca, err := certTemplate(v.Days)
	if err != nil {
		return err
	}
	ca.Subject.CommonName = v.Name
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		return err
	}
	if err := v.save(authorityCert, authorityKey, der, key); err != nil {
		return err
	}
	fmt.Fprintf(sh.err,
		"Wrote %s. Make a certificate for each node: penstock certs add NAME --dir %s\n",
		filepath.Join(v.Dir, authorityCert), v.Dir)
	return nil
}

func (v *certsAdd) Run(sh shell) error {
	if err := v.check(); err != nil {
		return err
	}
	ca, caKey, err := v.authority()
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c, err := certTemplate(v.Days)
	if err != nil {
		return err
	}
	v.fill(c)
	if err := v.endWith(sh, c, ca); err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	if err := v.save(v.Out+".crt", v.Out+".key", der, key); err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(v.Dir, name) }
	if v.Role == roleClient {
		fmt.Fprintf(sh.err, "Clients show it with --tls-cert %s --tls-key %s to nodes with "+
			"--tls-ca %s. In --auth-token-file it is certificate: %s\n",
			in(v.Out+".crt"), in(v.Out+".key"), in(authorityCert), v.Node)
		return nil
	}
	fmt.Fprintf(sh.err,
		"Start the %s with --name %s --peer-tls-cert %s --peer-tls-key %s --peer-tls-ca %s\n",
		v.Role, v.Node, in(v.Out+".crt"), in(v.Out+".key"), in(authorityCert))
	return nil
}

func (v *certsAdd) check() error {
	prefix, many := strings.CutSuffix(v.Node, "*")
	switch {
	case v.Node == "" || many && prefix == "":
		return errors.New("give the node's name, or for agents the beginning of their names and *")
	case many && v.Role != cluster.RoleAgent.String():
		return fmt.Errorf("%q: a certificate names one node or client; only --role agent may "+
			"name many", v.Node)
	case v.Out == "" && (many || v.Node != filepath.Base(v.Node)):
		return fmt.Errorf("%q is not a name for a file; give one with --out", v.Node)
	}
	v.Out = cmp.Or(v.Out, v.Node)
	if filepath.Join(v.Dir, v.Out+".crt") == filepath.Join(v.Dir, authorityCert) {
		return fmt.Errorf("--out %s: these are the authority's files; give others", v.Out)
	}
	return nil
}

// endWith has a certificate end with its authority: nobody would accept it later.
func (v *certsAdd) endWith(sh shell, c, ca *x509.Certificate) error {
	end := ca.NotAfter.UTC().Format(time.RFC3339)
	if time.Now().After(ca.NotAfter) {
		return fmt.Errorf("%s expired at %s; make a new authority in another --dir, and give it "+
			"to the nodes beside the old one", authorityCert, end)
	}
	if c.NotAfter.After(ca.NotAfter) {
		c.NotAfter = ca.NotAfter
		fmt.Fprintf(sh.err, "It is only good until %s, when its authority ends.\n", end)
	}
	return nil
}

// fill writes the owner's name and role into the certificate.
func (v *certsAdd) fill(c *x509.Certificate) {
	role := cluster.RoleMember
	if v.Role == cluster.RoleAgent.String() {
		role = cluster.RoleAgent
	}
	hosts := v.Host
	switch {
	case len(hosts) > 0:
	case v.Role == roleClient:
		hosts = []string{v.Node}
	default:
		hosts = []string{"localhost", "127.0.0.1", "::1"}
		if !strings.ContainsAny(v.Node, "*/ :") {
			hosts = append(hosts, v.Node)
		}
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	c.Subject.CommonName = v.Node
	c.KeyUsage = x509.KeyUsageDigitalSignature
	if v.Role == roleClient {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		return
	}
	c.URIs = []*url.URL{peer.NodeURI(v.Node), peer.RoleURI(role)}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
}

// authority reads what certs init has written.
func (d *certsDir) authority() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	cert, err := readPEM(filepath.Join(d.Dir, authorityCert))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w; make an authority first: penstock certs init --dir %s",
			err, d.Dir)
	}
	if err != nil {
		return nil, nil, err
	}
	key, err := readPEM(filepath.Join(d.Dir, authorityKey))
	if err != nil {
		return nil, nil, err
	}
	ca, err := x509.ParseCertificate(cert)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", authorityCert, err)
	}
	private, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", authorityKey, err)
	}
	if !ca.IsCA {
		return nil, nil, fmt.Errorf("%s is no authority's certificate: nobody would accept what "+
			"it signs; make one by penstock certs init", authorityCert)
	}
	signer, ok := private.(*ecdsa.PrivateKey)
	if !ok || !signer.PublicKey.Equal(ca.PublicKey) {
		return nil, nil, fmt.Errorf("%s is not the key of %s", authorityKey, authorityCert)
	}
	return ca, signer, nil
}

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds nothing in PEM", path)
	}
	return block.Bytes, nil
}

// certTemplate is a certificate that is good for so many days.
func certTemplate(days int) (*x509.Certificate, error) {
	if days < 1 || days > mostDays {
		return nil, fmt.Errorf("--days %d: a certificate is good for 1 to %d days", days, mostDays)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, days),
	}, nil
}

// save writes a certificate and its key, which its owner alone can read. Unless --force is given,
// neither may be there.
func (d *certsDir) save(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{certFile, keyFile} {
		if _, err := os.Lstat(filepath.Join(d.Dir, name)); err == nil && !d.Force {
			return fmt.Errorf("%s is there already; --force replaces it",
				filepath.Join(d.Dir, name))
		}
	}
	if err := d.write(keyFile, "PRIVATE KEY", private, 0o600); err != nil {
		return err
	}
	return d.write(certFile, "CERTIFICATE", der, 0o644)
}

func (d *certsDir) write(name, kind string, der []byte, mode os.FileMode) error {
	path := filepath.Join(d.Dir, name)
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if d.Force {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f, err := os.OpenFile(path, flags, mode)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err = pem.Encode(&text, &pem.Block{Type: kind, Bytes: der}); err == nil {
		_, err = f.Write(text.Bytes())
	}
	return errors.Join(err, f.Close())
}
