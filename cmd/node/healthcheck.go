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
	"sync"
	"time"

	"penstock/rpc/client"
)

// healthcheckVerb asks /readyz of a node on this machine. Its flags and variables are those of
// serve, so in the environment of a node it finds that node: an image that holds nothing but this
// binary can check itself. --addr and the flags that go with it are those of the verbs that ask any
// node; they have no variables, which would have the image check another node.
type healthcheckVerb struct {
	HTTP    string        `name:"http" default:"127.0.0.1:7949" help:"HTTP door of the node, as serve has it."`
	TLSCert string        `name:"tls-cert" type:"path" placeholder:"FILE" help:"The node's certificate, as serve has it: ask over TLS, and accept this one alone."`
	TLSKey  string        `name:"tls-key" type:"path" placeholder:"FILE" help:"Its key: show the certificate, in case the node wants one."`
	Timeout time.Duration `default:"2s" help:"How long to wait for the answer."`
	healthByGRPC
	output
}

// healthByGRPC are the flags of a question by gRPC.
type healthByGRPC struct {
	Addr  []string `env:"-" placeholder:"HOST:PORT" help:"Ask a gRPC door, as other verbs do."`
	TLS   bool     `name:"tls" env:"-" help:"Speak TLS to --addr, as other verbs do."`
	TLSCA string   `name:"tls-ca" env:"-" type:"path" placeholder:"CA" help:"Authority of --addr."`
}

func (v *healthcheckVerb) Run(sh shell) error {
	if err := checkTimeout(v.Timeout); err != nil {
		return err
	}
	ask := v.askHTTP
	if len(v.Addr) > 0 {
		ask = v.askGRPC
	}
	if err := ask(); err != nil {
		return err
	}
	return v.print(sh.out, struct {
		Ready bool `json:"ready"`
	}{true}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, "ready")
		return err
	})
}

// askGRPC is nil if the node at --addr says by its health service that it is ready. That answers
// everybody, so there is no token to send.
func (v *healthcheckVerb) askGRPC() error {
	for _, addr := range v.Addr {
		if _, err := parseTarget(addr); err != nil {
			return err
		}
	}
	config, err := v.clientTLS()
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{Targets: v.Addr, TLS: config})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), v.Timeout)
	defer cancel()
	ready, err := c.Ready(ctx)
	if err == nil && !ready {
		return errors.New("not ready; /readyz of the node says why")
	}
	return client.Explain(err, v.Addr)
}

// clientTLS is what the flags say of TLS with --addr; nil is plaintext.
func (v *healthcheckVerb) clientTLS() (*tls.Config, error) {
	if !v.TLS && v.TLSCA == "" && v.TLSCert != "" {
		return v.pinned()
	}
	return credentials{TLS: v.TLS, TLSCA: v.TLSCA, TLSCert: v.TLSCert, TLSKey: v.TLSKey}.config()
}

// askHTTP is nil if the node at --http says that it is ready.
func (v *healthcheckVerb) askHTTP() error {
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
		conn, err := new(net.Dialer).DialContext(ctx, d.network, dialable(d))
		if err != nil {
			return nil, err
		}
		return &asking{Conn: conn, asked: make(chan struct{})}, nil
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
		if strings.Contains(err.Error(), "malformed HTTP") { // and then what was answered
			err = errors.New("it does not answer in HTTP, so this is another door")
		}
		return fmt.Errorf("cannot reach --http %s: %w", v.HTTP, err)
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
	text := strings.TrimSpace(string(b))
	switch {
	case answer.StatusCode == http.StatusOK:
		return nil
	case answer.StatusCode == http.StatusBadRequest && strings.Contains(text, "HTTPS server"):
		return fmt.Errorf("the node at --http %s wants TLS: give its --tls-cert", v.HTTP)
	}
	return fmt.Errorf("not ready: %s: %s", answer.Status, text)
}

// asking is a connection on which nothing is read before something was written. A gRPC door speaks
// first, and what comes of that in net/http depends on which of the two is faster.
type asking struct {
	net.Conn
	asked chan struct{} // closed by the first Write, or by Close
	once  sync.Once
}

func (a *asking) Read(b []byte) (int, error) {
	<-a.asked
	return a.Conn.Read(b)
}

func (a *asking) Write(b []byte) (int, error) {
	a.once.Do(func() { close(a.asked) })
	return a.Conn.Write(b)
}

func (a *asking) Close() error {
	a.once.Do(func() { close(a.asked) })
	return a.Conn.Close()
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
