//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
)

// residentBytes is the memory of a process.
func residentBytes(t *testing.T, p *process) (n int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// leaveUnfinished opens calls on a connection of its own, each with a part of a message, until the
// node closes it.
func leaveUnfinished(address string, calls int, part []byte) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return conn, leaveHalf(conn, "/penstock.v1.RateLimiter/Check", calls, part)
}

// Promise: over TLS, too, a connection to --http has one request under way at a time. With HTTP/2
// some hundred clients that leave no room for answers kept 17,000 requests, and 328 MiB, of a node
// with --memory 64MiB (bench/attack, https-unread).
func TestRequestsOfAConnectionComeOneByOne(t *testing.T) {
	cert, key := newAuthority(t, "clients").issue("door")
	p := serveProcess(t, "n1", "--limits", write(t, testLimits), "--tls-cert", cert,
		"--tls-key", key, "--insecure")
	trusting := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
	conn, err := tls.Dial("tcp", p.http, trusting)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("the door agrees on %q, want http/1.1", got)
	}
	c := &http.Client{Transport: &http.Transport{
		TLSClientConfig: trusting, ForceAttemptHTTP2: true,
	}}
	answer, err := c.Get("https://" + p.http + "/v1/members")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 1 {
		t.Errorf("a client that could speak HTTP/2 gets %s, %s", answer.Proto, answer.Status)
	}
}

// Promise: memory is bounded before any client is known. 100 connections with 1000 half-sent
// requests each, with a wrong token and without one, and the node goes on answering.
func TestHalfSentRequestsTakeBoundedMemory(t *testing.T) {
	// half of --memory for them, garbage, and what gRPC keeps of a connection
	const slack = 160 << 20
	for name, args := range map[string][]string{"with a token": {
		"--auth-token-file",
		write(t, "a-token-of-some-length\n"),
	}, "open": nil} {
		p := serveProcess(
			t,
			"n1",
			append([]string{"--memory", "64MiB", "--limits", write(t, testLimits)}, args...)...)
		before := residentBytes(t, p)
		most := before
		part := make([]byte, 5+600)
		part[2] = 16 // of a message of a megabyte
		var attack sync.WaitGroup
		var mu sync.Mutex
		var conns []net.Conn
		for range 10 {
			attack.Go(func() {
				for range 10 {
					if conn, _ := leaveUnfinished(p.grpc, 1000, part); conn != nil {
						mu.Lock()
						conns = append(conns, conn)
						mu.Unlock()
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { attack.Wait(); close(done) }()
		for under := true; under; {
			select {
			case <-done:
				under = false
			case <-time.After(10 * time.Millisecond):
			}
			most = max(most, residentBytes(t, p))
		}
		if name == "open" {
			client := dial(t, p)
			eventually(t, "a client is answered", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := checkItems(ctx, client, []*penstockv1.Item{item("demo", "k")})
				return err
			})
		}
		most = max(most, residentBytes(t, p))
		t.Logf("%s: %d MB before, %d MB at most", name, before>>20, most>>20)
		if most-before > slack {
			t.Errorf("%s: from %d to %d bytes", name, before, most)
		}
		for _, c := range conns {
			c.Close()
		}
	}
}

// Promise: idle connections at one door leave the other doors, and the peers, their file
// descriptors. The client of each refused one learns it at once, and the log says it once.
func TestOneDoorCannotTakeAllDescriptors(t *testing.T) {
	first := serveProcess(t, "first", "--limits", write(t, testLimits))
	p, ready := startWith(t, "few", func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `ulimit -n 64; exec "$@"`, "sh"}, cmd.Args...)
		cmd.Path = "/bin/sh"
	}, "--limits", write(t, testLimits), "--join", first.gossip)
	select {
	case <-ready:
	case <-time.After(20 * time.Second):
		t.Fatalf("not ready: %s", p.log())
	}
	waitForMembers(t, p, 2)
	clients := dial(t, p)
	fresh := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		Timeout:   10 * time.Second,
	}
	for _, full := range []struct{ door, address string }{
		{"redis", p.redis},
		{"grpc", p.grpc},
		{"http", p.http},
	} {
		var idle []net.Conn
		for range 200 {
			c, err := net.DialTimeout("tcp", full.address, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			idle = append(idle, c)
		}
		for door, ask := range map[string]func() error{
			"http": func() error {
				return askPage(fresh,
					"http://"+p.http+"/v1/check?limit=demo&cost=0&key=k")
			},
			"redis": func() error { return pingRedis(p.redis) },
			"grpc": func() error { // of both nodes' keys
				for i := range 20 {
					if _, err := checkItems(t.Context(), clients,
						[]*penstockv1.Item{item("big", fmt.Sprint(full.door, i))}); err != nil {
						return err
					}
				}
				return nil
			},
		} {
			if door != full.door {
				eventually(t, door+" answers while "+full.door+" is full", ask)
			}
		}
		for _, c := range idle {
			c.Close()
		}
		eventually(t, full.door+" has refused some", func() error {
			return pageHas(
				fresh,
				"http://"+p.http+"/metrics",
				`penstock_connections_refused_total{door="`+full.door+`"} [1-9]`,
			)
		})
	}
	if n := strings.Count(p.log(), "connections are refused"); n == 0 || n > 30 {
		t.Errorf("the log says it %d times:\n%s", n, p.log())
	}
}

// Promise: one address cannot keep new nodes from the door for peers: those at others find room.
func TestOneAddressCannotTakeThePeerDoor(t *testing.T) {
	r, _ := startNode(t, func(s *settings) { s.nodes = max(1, descriptorLimit()/64) })
	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", r.doors.address("--peer"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range 20 {
		dial("127.0.0.2")
	}
	c := dial("127.0.0.3")
	c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a node at another address is refused: %v", err)
	}
}

func askPage(c *http.Client, url string) error {
	answer, err := c.Get(url)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		return errors.New(answer.Status)
	}
	return nil
}

func pageHas(c *http.Client, url, pattern string) error {
	answer, err := c.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && !regexp.MustCompile(pattern).Match(text) {
		err = fmt.Errorf("%s lacks %s", url, pattern)
	}
	return err
}

func pingRedis(address string) error {
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(c, "*1\r\n$4\r\nPING\r\n")
	b := make([]byte, 7)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "+PONG\r\n" {
		return fmt.Errorf("%q, %v", b, err)
	}
	return nil
}
