package main

import (
	"errors"
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
)

// freeDemo are the settings of the demo on free ports.
func freeDemo(i int, first *running) (settings, error) {
	s, err := selfSettings(i, first)
	s.HTTP, s.Redis = "127.0.0.1:0", "127.0.0.1:0"
	return s, errors.Join(err, loadDemo(&s))
}

// nothingRuns fails if a goroutine is left. A probe that is under way when a node closes its gossip
// ends with its own time, which grows where members answer late.
func nothingRuns(t *testing.T) {
	t.Helper()
	goleak.VerifyNone(t, goleak.IgnoreAnyFunction(
		"github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// What the demo tells people to type works as it says, fits their terminal, and shows in the table;
// and three nodes in one process leave nothing behind when they stop.
func TestDemo(t *testing.T) {
	t.Cleanup(func() { nothingRuns(t) })
	d, err := startDemo(t.Context(), slog.New(slog.DiscardHandler), freeDemo, true)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer d.stop()
	nodes := d.nodes
	greeting := demoGreeting(nodes)
	first := "$ penstock demo\n" + greeting + d.count(counts{}).table() + demoHelp + "the cursor\n"
	if n := strings.Count(first, "\n"); n > 24 {
		t.Errorf("the first screen has %d lines; terminals have 24:\n%s", n, first)
	}
	for line := range strings.Lines(first) {
		if n := len(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}

	if named := strings.Index(greeting, "/ui/"); named < 0 ||
		named > strings.Index(greeting, "\n") {
		t.Errorf("the first line does not name the page:\n%s", greeting)
	}
	// The page that it names is there, and where one looks for it first.
	named := regexp.MustCompile(`http://\S+/ui/`).FindString(greeting)
	for _, url := range []string{named, strings.TrimSuffix(named, "ui/")} {
		if page := get(t, url); !strings.Contains(page, "<title>") {
			t.Errorf("%s: %q; want the page", url, page)
		}
	}

	// The loop over all nodes and the line after it, in a shell, as they stand there; and then at
	// every node.
	_, lines, _ := strings.Cut(greeting, "is 429:\n")
	lines, redis, _ := strings.Cut(lines, "  redis-cli")
	out, err := exec.Command("sh", "-c", lines).Output()
	if want := strings.Repeat("200\n", 5) + "429\nHTTP/1.1 429 Too Many Requests\r\n"; err != nil ||
		!strings.HasPrefix(string(out), want) {
		t.Errorf("the loop printed %q (%v); want %q", out, err, want)
	}
	for _, r := range nodes {
		answer, err := http.Get("http://" + r.member.HTTPAddr +
			"/v1/check?limit=demo&key=" + demoKey)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: %s; want 429 from every node", r.member.ID, answer.Status)
		}
	}
	line := regexp.MustCompile(`-p (\d+) ([^#]+) #`).FindStringSubmatch(redis)
	if line == nil {
		t.Fatalf("no line with redis-cli:\n%s", greeting)
	}
	if got := sayRedis(t, "127.0.0.1:"+line[1], strings.Fields(line[2])...); !strings.HasPrefix(got,
		"*5\r\n:0\r\n:5\r\n") {
		t.Errorf("redis-cli -p%s: %q", redis, got)
	}
}

// The demo's table counts what its nodes were asked, and each key once, however many of them have a
// copy.
func TestDemoCounts(t *testing.T) {
	nodes, err := startThree(t.Context(), slog.New(slog.DiscardHandler), freeDemo)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer stopAll(nodes)
	const keys = 30
	for i := range keys {
		get(t, fmt.Sprintf("http://%s/v1/check?limit=demo&key=k%d",
			nodes[i%demoNodes].member.HTTPAddr, i))
	}
	eventually(t, "there are copies", func() error {
		entries := int64(0)
		for _, r := range nodes {
			entries += int64(r.node.Table().Stats().Keys)
		}
		if entries <= keys {
			return fmt.Errorf("%d entries", entries)
		}
		return nil
	})
	// A key that changes hands is in no column until its new holder has it.
	eventually(t, "each key is counted once", func() error {
		allowed, counted := uint64(0), 0
		c := countAll(nodes, counts{})
		for _, n := range c.nodes {
			allowed += n.allowed
			counted += n.keys
		}
		if allowed != keys || counted != keys {
			return fmt.Errorf("%d allowed, %d keys; want %d of each:\n%s", allowed, counted,
				keys, c.table())
		}
		return nil
	})
}

// get is the body of a page.
func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
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

// A demo says which port is taken, and leaves nothing running.
func TestDemoPortTaken(t *testing.T) {
	t.Cleanup(func() { nothingRuns(t) })
	begin := time.Now()
	nodes, err := startThree(t.Context(), slog.New(slog.DiscardHandler),
		func(i int, first *running) (settings, error) {
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
	if !strings.Contains(err.Error(), "--grpc 127.0.0.1:") ||
		!strings.Contains(err.Error(), "in use") {
		t.Errorf("the error does not name flag and address: %v", err)
	}
	t.Logf("said after %v", time.Since(begin))
}
