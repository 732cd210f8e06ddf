package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// healthcheckVerb asks /readyz of a node on this machine. Its flags and variables are those of
// serve, so in the environment of a node it finds that node: an image that holds nothing but this
// binary can check itself.
type healthcheckVerb struct {
	HTTP    string        `name:"http" default:"127.0.0.1:7949" help:"HTTP door of the node, as serve has it."`
	TLSCert string        `name:"tls-cert" type:"path" placeholder:"FILE" help:"The node's certificate, as serve has it: ask over TLS, and accept this one alone."`
	TLSKey  string        `name:"tls-key" type:"path" placeholder:"FILE" help:"Its key: show the certificate, in case the node wants one."`
	Timeout time.Duration `default:"2s" help:"How long to wait for the answer."`
}

func (v *healthcheckVerb) Run(sh shell) error {
	d, err := parseDoor("--http", v.HTTP, true)
	if err != nil {
		return err
	}
	if d.off() {
		return fmt.Errorf("--http is off: there is nothing to ask")
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _,
		_ string,
	) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, d.network, dialable(d))
	}}
	scheme := "http"
	if v.TLSCert != "" {
		scheme = "https"
		if transport.TLSClientConfig, err = v.pinned(); err != nil {
			return err
		}
	}
	asker := http.Client{Transport: transport, Timeout: v.Timeout}
	answer, err := asker.Get(scheme + "://localhost/readyz")
	if err != nil {
		var of *url.Error // its text repeats the method and a name that is not the address
		if errors.As(err, &of) {
			err = of.Err
		}
		return fmt.Errorf("cannot reach --http %s: %w", v.HTTP, err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	_, err = fmt.Fprintln(sh.out, "ready")
	return err
}

// dialable turns "any address" into loopback.
func dialable(d place) string {
	host, port, err := net.SplitHostPort(d.address)
	if err != nil || d.network != "tcp" {
		return d.address
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if err == nil && ip.Is6() {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port)
}

// pinned accepts the certificate of --tls-cert and no other: names and authorities need not fit for
// asking oneself.
func (v *healthcheckVerb) pinned() (*tls.Config, error) {
	text, err := os.ReadFile(v.TLSCert)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("--tls-cert %s: holds no certificate in PEM", v.TLSCert)
	}
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection is stricter
		VerifyConnection: func(s tls.ConnectionState) error {
			want, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return err
			}
			if !s.PeerCertificates[0].Equal(want) {
				return fmt.Errorf("the node shows another certificate than %s", v.TLSCert)
			}
			return nil
		},
	}
	if v.TLSKey != "" {
		own, err := tls.LoadX509KeyPair(v.TLSCert, v.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("--tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}
