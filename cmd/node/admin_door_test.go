package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

var adminPages = []string{"/metrics", "/debug/pprof/cmdline", "/v1/status", "/v1/audit"}

// Promise: the pages for administrators and the gRPC service Admin are served only where --admin
// says: without the flag on --http and --grpc, with it on its own listener alone, with off nowhere.
func TestAdminIsServedWhereTheFlagSays(t *testing.T) {
	const free = "127.0.0.1:0"
	for _, row := range []struct {
		flag  string
		pages []string // doors that serve /metrics and profiles
		calls []string // doors that serve penstock.v1.Admin
	}{
		{flag: "", pages: []string{"--http"}, calls: []string{"--grpc"}},
		{flag: free, pages: []string{"--admin"}, calls: []string{"--admin"}},
		{flag: "off"},
	} {
		t.Run("admin "+row.flag, func(t *testing.T) {
			r, _ := startNode(t, func(s *settings) { s.HTTP, s.Admin = free, row.flag })
			r.waitReady(t)
			for _, flag := range []string{"--http", "--admin"} {
				addr := r.doors.address(flag)
				if addr == "" {
					continue
				}
				for _, path := range adminPages {
					answer, err := http.Get("http://" + addr + path)
					if err != nil {
						t.Fatal(err)
					}
					answer.Body.Close()
					if got := answer.StatusCode == 200; got != slices.Contains(row.pages, flag) {
						t.Errorf("%s%s: %s, want it at %v", flag, path, answer.Status, row.pages)
					}
				}
			}
			for _, flag := range []string{"--grpc", "--admin"} {
				addr := r.doors.address(flag)
				if addr == "" {
					continue
				}
				out, code := runVerb(t, "members", "--addr", addr)
				if (code == 0) != slices.Contains(row.calls, flag) {
					t.Errorf("members at %s: exit code %d, want it at %v: %s", flag, code,
						row.calls, out)
				}
				if code != 0 && !strings.Contains(out, "a node with --admin has it there alone") {
					t.Errorf("the error does not say where Admin is: %s", out)
				}
			}
		})
	}
}

// Promise: --admin speaks HTTP/1.1 to clients that ask for pages, also to those that could speak
// HTTP/2, and gRPC to all others; with TLS and without it. The calls of all connections have
// bounded memory: with HTTP/2 of net/http some hundred connections that read nothing took 485 MiB
// of a node with --memory 64MiB (bench/attack, admin-unread-tls).
func TestAdminSpeaksPagesAndCalls(t *testing.T) {
	cert, key := newAuthority(t, "clients").issue("door")
	half := append([]byte{0, 0, 1, 0, 0}, make([]byte, 12<<10)...) // of a message of 64 KiB
	for name, secure := range map[string]func(*settings){
		"cleartext": func(*settings) {},
		"TLS":       func(s *settings) { s.TLSCert, s.TLSKey, s.Insecure = cert, key, true },
	} {
		t.Run(name, func(t *testing.T) {
			r, book := startNode(t, func(s *settings) { s.Admin = "127.0.0.1:0"; secure(s) })
			r.waitReady(t)
			address := r.doors.address("--admin")
			both := &http.Transport{ForceAttemptHTTP2: true}
			open, page := net.Dial, "http://"+address+"/v1/status"
			if r.settings.TLSCert != "" {
				both.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
				page = "https" + strings.TrimPrefix(page, "http")
				open = func(network, address string) (net.Conn, error) {
					return tls.Dial(network, address, &tls.Config{
						InsecureSkipVerify: true, NextProtos: []string{"h2"},
					})
				}
			}
			defer both.CloseIdleConnections()
			answer, err := (&http.Client{Transport: both}).Get(page)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 1 {
				t.Errorf("a page: %s, %s; want HTTP/1.1", answer.Proto, answer.Status)
			}
			for range 4 { // each has less than a half of the room
				conn, err := open("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = leaveHalf(conn, "/penstock.v1.Admin/Members", 150, half)
			}
			eventually(t, "the heaviest connection is closed", func() error {
				if !strings.Contains(book.String(), "a connection is closed: the unfinished") {
					return errors.New("the log says nothing of it")
				}
				return nil
			})
		})
	}
}

// leaveHalf opens calls of a method on a connection, each with a part of a message.
func leaveHalf(conn net.Conn, method string, calls int, part []byte) error {
	go io.Copy(io.Discard, conn)
	io.WriteString(conn, http2.ClientPreface)
	var head, all bytes.Buffer
	enc := hpack.NewEncoder(&head)
	f := http2.NewFramer(&all, nil)
	f.WriteSettings()
	for i := range calls {
		head.Reset()
		for _, h := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", method},
			{":authority", "localhost"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
		} {
			enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		stream := uint32(2*i + 1)
		f.WriteHeaders(
			http2.HeadersFrameParam{
				StreamID:      stream,
				BlockFragment: head.Bytes(),
				EndHeaders:    true,
			},
		)
		f.WriteData(stream, false, part)
	}
	_, err := conn.Write(all.Bytes())
	return err
}
