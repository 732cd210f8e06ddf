package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// secured are attacks on a node with TLS at all doors, certificates between nodes, and a token.
var secured = []attack{
	{
		"half-hellos", "2000 connections to doors with TLS, a byte of a ClientHello each second",
		"http",
		drip(2000, anyTLSDoor, "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03"),
	},
	{
		"half-handshakes", "2000 connections that say a whole ClientHello and nothing more", "http",
		each(2000, halfHandshake),
	},
	{
		"handshakes", "50 clients that shake hands at doors with TLS, and hang up", "http",
		each(50, handshake),
	},
	{
		"long-hellos", "200 clients that send a ClientHello of 64 KiB in records of 16 bytes",
		"http",
		each(200, longHello),
	},
	{
		"https-unread",
		"500 connections to --http with 250 requests at once, by HTTP/2 where the node speaks " +
			"it, and no room for answers",
		"http",
		each(500, unreadHTTPS),
	},
}

// isSecured says that the node has TLS at all doors, certificates between nodes, and a token.
func (a *attack) isSecured() bool {
	return strings.Contains(a.name, "hello") || strings.Contains(a.name, "handshake") ||
		strings.HasPrefix(a.name, "https-") || strings.HasSuffix(a.name, "-tls")
}

// token is the only one that the node knows.
const token = "a-token-of-this-attack"

// trusting takes any certificate: it is the attacked node that is tried here.
var trusting = &tls.Config{InsecureSkipVerify: true}

// secure makes certificates and a token, and has the node use them.
func (v *victim) secure(program, dir string) error {
	place := filepath.Join(dir, "certificates")
	if _, err := os.Stat(place); err != nil {
		for _, args := range [][]string{{"init"}, {"add", "victim"}} {
			args = append(append([]string{"certs"}, args...), "--dir", place)
			made := exec.Command(program, args...)
			made.Stderr = os.Stderr
			if err := made.Run(); err != nil {
				return err
			}
		}
	}
	cert, key := filepath.Join(place, "victim.crt"), filepath.Join(place, "victim.key")
	v.cmd.Args = append(v.cmd.Args, "--tls-cert", cert, "--tls-key", key, "--peer-tls-cert", cert,
		"--peer-tls-key", key, "--peer-tls-ca", filepath.Join(place, "ca.crt"))
	return v.demandToken(dir)
}

// demandToken has the node want the token.
func (v *victim) demandToken(dir string) error {
	tokens := filepath.Join(dir, "token")
	v.cmd.Args = append(v.cmd.Args, "--auth-token-file", tokens)
	return os.WriteFile(tokens, []byte(token+"\n"), 0o600)
}

// door is the name of a door for the client that behaves.
func (v *victim) door(name string) string {
	if v.secured {
		return "https"
	}
	return name
}

// getFrom asks for a page: over TLS and with the token where the door is https.
func getFrom(c *http.Client, door, page string) (*http.Response, error) {
	scheme := "http://"
	if door == "https" {
		scheme = "https://"
	}
	ask, err := http.NewRequest(http.MethodGet, scheme+page, nil)
	if err != nil {
		return nil, err
	}
	ask.Header.Set("Authorization", "Bearer "+token)
	return c.Do(ask)
}

func anyTLSDoor(v *victim) string {
	return []string{v.http, v.grpc, v.redis, v.peer}[rand.IntN(4)]
}

// hello is a ClientHello, as crypto/tls says it, without the head of its record.
func hello() []byte {
	here, there := net.Pipe()
	defer there.Close()
	go func() {
		_ = tls.Client(here, &tls.Config{ServerName: "localhost"}).Handshake()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(there, head); err != nil {
		return nil
	}
	b := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, _ = io.ReadFull(there, b)
	return b
}

// record is a record of a handshake.
func record(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{22, 3, 1}, uint16(len(b))), b...)
}

func halfHandshake(ctx context.Context, v *victim) int {
	c := dial(ctx, "tcp", anyTLSDoor(v))
	if c == nil {
		return 0
	}
	defer c.Close()
	_, _ = c.Write(record(hello()))
	_, _ = io.Copy(io.Discard, c) // until the node has enough
	return 1
}

func handshake(ctx context.Context, v *victim) int {
	c := dial(ctx, "tcp", anyTLSDoor(v))
	if c == nil {
		return 0
	}
	defer c.Close()
	_ = tls.Client(c, trusting).HandshakeContext(ctx)
	return 1
}

// longHello pads a ClientHello to as much as Go reads, and cuts it into many records.
func longHello(ctx context.Context, v *victim) (sent int) {
	c := dial(ctx, "tcp", anyTLSDoor(v))
	if c == nil {
		return 0
	}
	defer c.Close()
	const length = 65_000
	b := append([]byte{1, 0, length >> 8, length & 0xff}, make([]byte, length)...)
	copy(b[4:], "\x03\x03")
	var all []byte
	for len(b) > 0 {
		n := min(16, len(b))
		all = append(all, record(b[:n])...)
		b = b[n:]
	}
	_, _ = c.Write(all)
	_, _ = io.Copy(io.Discard, c)
	return 1
}

// unreadHTTPS asks and has no room for answers: by HTTP/2 without a window, else by a pipeline of
// which nothing is read.
func unreadHTTPS(ctx context.Context, v *victim) (sent int) {
	raw := dial(ctx, "tcp", v.http)
	if raw == nil {
		return 0
	}
	defer raw.Close()
	c := tls.Client(raw, &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"},
	})
	if c.HandshakeContext(ctx) != nil {
		return 0
	}
	const requests = 250
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		for _, frame := range unreadFrames(requests) {
			if _, err := c.Write(frame); err != nil {
				return sent
			}
			sent++
		}
		_, _ = io.Copy(io.Discard, c)
		return sent
	}
	many := strings.Repeat("GET /v1/members HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+
		token+"\r\n\r\n", requests)
	for {
		if _, err := io.WriteString(c, many); err != nil {
			return sent
		}
		sent += requests
	}
}

// unreadFrames are n requests of HTTP/2 without a window for their answers.
func unreadFrames(n int) [][]byte {
	var all [][]byte
	var head, frame bytes.Buffer
	e := hpack.NewEncoder(&head)
	e.SetMaxDynamicTableSize(0) // all heads are the same
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "https"},
		{Name: ":path", Value: "/v1/members"},
		{Name: ":authority", Value: "localhost"},
		{Name: "authorization", Value: "Bearer " + token},
	} {
		_ = e.WriteField(f)
	}
	frame.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&frame, nil)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range n {
		_ = f.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: head.Bytes(), EndHeaders: true,
			EndStream: true,
		})
		all = append(all, bytes.Clone(frame.Bytes()))
		frame.Reset()
	}
	return all
}
