package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// logBook keeps what is logged.
type logBook struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startNode starts a node on free ports that ends with the test.
func startNode(t *testing.T, change func(*settings)) (*running, *logBook) {
	t.Helper()
	s, err := selfSettings(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster, s.Role, s.Memory = "test", "member", 8<<20
	if change != nil {
		change(&s)
	}
	book := new(logBook)
	r, err := start(t.Context(), s, slog.New(slog.NewTextHandler(book, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r.stop(ctx, 0)
	})
	return r, book
}

// waitReady waits until r is in the ring, or knows one.
func (r *running) waitReady(t *testing.T) {
	t.Helper()
	select {
	case <-r.ready:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s is not ready after 10 s", r.member.ID)
	}
}

// While a node leaves, some of the others have not heard of it yet and still ask it: it must go on
// deciding for its keys until its doors close. A node that never was an owner must not become one
// by leaving.
func TestLeavingNodeGoesOnDeciding(t *testing.T) {
	owner, _ := startNode(t, nil)
	owner.waitReady(t)
	if err := owner.gossip.SetState(cluster.StateLeaving); err != nil {
		t.Fatal(err)
	}
	if !owner.node.Holds(limiter.Hash("key")) {
		t.Errorf("a leaving owner gives up its keys although nobody could take them over: %+v",
			owner.node.View().Members)
	}
	lost, _ := startNode(t, func(s *settings) { s.Name, s.Join = "lost", []string{"127.0.0.1:1"} })
	if err := lost.gossip.SetState(cluster.StateLeaving); err != nil {
		t.Fatal(err)
	}
	if lost.node.Held() != 0 {
		t.Errorf("a node that never joined became an owner by leaving: %+v",
			lost.node.View().Members)
	}
}

// An agent owns nothing and answers everything.
func TestAgentForwards(t *testing.T) {
	l := mustLimit(t, demoLimit)
	named := cluster.Limits{"demo": l}
	member, _ := startNode(t, func(s *settings) { s.named = named })
	agent, _ := startNode(t, func(s *settings) {
		s.Name, s.Role, s.Join, s.named = "agent", "agent", []string{member.gossip.Addr()}, named
	})
	agent.waitReady(t)
	if !agent.node.Ready() {
		t.Error("an agent that knows a member is not ready")
	}
	out := make([]cluster.Decision, 1)
	if err := agent.node.Check(&cluster.Request{Items: []cluster.Item{{
		Limit: "demo", Key: "x",
		Cost: 1,
	}}}, out); err != nil {
		t.Fatal(err)
	}
	if d := out[0]; d.Source != cluster.SourceForwarded || d.Owner != member.member.ID {
		t.Errorf("the agent's answer: %+v; want the member's, forwarded", d)
	}
}

// What may not have been meant is said: a listener that anybody reaches.
func TestWarnings(t *testing.T) {
	book := new(logBook)
	r := running{log: slog.New(slog.NewTextHandler(book, nil)), settings: valid()}
	r.settings.Insecure, r.settings.HTTP = true, "0.0.0.0:1"
	d, err := r.settings.check()
	if err != nil {
		t.Fatal(err)
	}
	r.warn(d)
	if n := strings.Count(book.String(), "INSECURE"); n != 1 ||
		!strings.Contains(book.String(), "--http 0.0.0.0:1 lacks") {
		t.Errorf("said %d times that the node is open; want once, with the door:\n%s", n, book)
	}
}

// A socket file of a process that is gone is replaced; one that somebody answers is not.
func TestSocketFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	d := place{"--http", "unix", path}
	first, err := d.listen()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.listen(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a socket was taken away from whoever listens there: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as after kill -9
	first.Close()
	again, err := d.listen()
	if err != nil {
		t.Fatalf("a dead socket stays in the way: %v", err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.listen(); err == nil {
		t.Error("a file was taken for a socket")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file is gone: %q, %v", text, err)
	}
}

// addressed is a listener of which only the address matters.
type addressed struct {
	net.Listener
	addr net.Addr
}

func (a addressed) Addr() net.Addr { return a.addr }

// Others must be told an address that they can dial.
func TestReachable(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7} }
	for _, c := range []struct {
		addr       net.Addr
		host, want string
	}{
		{tcp("127.0.0.1"), "10.1.2.3", "127.0.0.1:7"},
		{tcp("0.0.0.0"), "10.1.2.3", "10.1.2.3:7"},
		{tcp("::"), "fd00::1", "[fd00::1]:7"},
		{tcp("0.0.0.0"), "", "0.0.0.0:7"},
		{&net.UnixAddr{Name: "/a", Net: "unix"}, "10.1.2.3", "unix:///a"},
	} {
		if got := reachable(addressed{addr: c.addr}, c.host); got != c.want {
			t.Errorf("%v, %q: %s; want %s", c.addr, c.host, got, c.want)
		}
	}
}
