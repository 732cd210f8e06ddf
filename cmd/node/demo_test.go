package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/cluster"
	"penstock/limiter"
)

// freeDemo are the settings of the demo on free ports.
func freeDemo(i int, first *running) (settings, error) {
	s, err := selfSettings(i, first)
	s.HTTP, s.Redis = "127.0.0.1:0", "127.0.0.1:0"
	l, err2 := limiter.New(demoLimit)
	s.named = cluster.Limits{demoLimit.Name: l}
	if err == nil {
		err = err2
	}
	return s, err
}

// What the demo tells people to type works as it says, fits their terminal, and shows in the table; and three nodes in
// one process leave nothing behind when they stop.
func TestDemo(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	nodes, err := startThree(t.Context(), slog.New(slog.DiscardHandler), freeDemo)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer stopAll(nodes)
	greeting := demoGreeting(nodes)
	for line := range strings.Lines(greeting) {
		if n := len(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	urls := regexp.MustCompile(`curl -i '(http://[^']+)'`).FindAllStringSubmatch(greeting, -1)
	if len(urls) != demoNodes {
		t.Fatalf("%d lines with curl; want one per node:\n%s", len(urls), greeting)
	}
	for i := range 7 {
		answer, err := http.Get(urls[i%demoNodes][1])
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if limited := answer.StatusCode == http.StatusTooManyRequests; limited != (i >= 5) {
			t.Errorf("answer %d is %s; the demo promises 429 from the sixth on", i+1, answer.Status)
		}
	}
	if c := countAll(nodes, counts{}); c.nodes[0].allowed+c.nodes[1].allowed+c.nodes[2].allowed != 5 {
		t.Errorf("the table does not show the 5 that were allowed:\n%s", c.table())
	}

	// The loop over all nodes, in a shell, as it stands there.
	_, loop, _ := strings.Cut(greeting, "over all nodes:\n")
	loop, redis, _ := strings.Cut(loop, "With a Redis client")
	out, err := exec.Command("sh", "-c", loop).Output()
	if want := strings.Repeat("200\n", 5) + "429\n"; err != nil || string(out) != want {
		t.Errorf("the loop printed %q (%v); want %q", out, err, want)
	}

	// The same key at the doors for Redis clients.
	lines := regexp.MustCompile(`redis-cli -p (\d+) (.+)`).FindAllStringSubmatch(redis, -1)
	if len(lines) != demoNodes {
		t.Fatalf("%d lines with redis-cli; want one per node:\n%s", len(lines), greeting)
	}
	for _, line := range lines {
		got := sayRedis(t, "127.0.0.1:"+line[1], strings.Fields(line[2])...)
		if want := "*5\r\n:0\r\n:5\r\n"; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q; want %q first", line[0], got, want)
		}
	}
}

// sayRedis sends one command to the door for Redis clients, and reads up to its end.
func sayRedis(t *testing.T, address string, words ...string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return talkRedis(t, conn, words...)
}

func talkRedis(t *testing.T, conn net.Conn, words ...string) string {
	t.Helper()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(w), w)
	}
	fmt.Fprintf(conn, "*1\r\n$4\r\nQUIT\r\n")
	out, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(out), "+OK\r\n")
}

// A demo whose port is taken says which one, and leaves nothing running.
func TestDemoPortTaken(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	begin := time.Now()
	nodes, err := startThree(t.Context(), slog.New(slog.DiscardHandler), func(i int, first *running) (settings, error) {
		s, err := freeDemo(i, first)
		if first != nil {
			s.GRPC = first.member.GRPCAddr
		}
		return s, err
	})
	if err == nil {
		stopAll(nodes)
		t.Fatal("two nodes listen on one port")
	}
	if !strings.Contains(err.Error(), "--grpc 127.0.0.1:") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the error does not name flag and address: %v", err)
	}
	t.Logf("said after %v", time.Since(begin))
}
