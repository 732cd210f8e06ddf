package main

import (
	"io"
	"log/slog"
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
	s.HTTP = "127.0.0.1:0"
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
	loop, _, _ = strings.Cut(loop, "Ctrl-C")
	out, err := exec.Command("sh", "-c", loop).Output()
	if want := strings.Repeat("200\n", 5) + "429\n"; err != nil || string(out) != want {
		t.Errorf("the loop printed %q (%v); want %q", out, err, want)
	}
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
