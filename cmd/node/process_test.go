package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// process is penstock serve as a user runs it: the built binary, in a process of its own, on free
// ports of loopback.
type process struct {
	name                      string
	cmd                       *exec.Cmd
	grpc, http, redis, gossip string
	exited                    chan struct{} // closed when the process is gone

	mu   sync.Mutex // guards said
	said bytes.Buffer
}

// serveProcess starts a node and waits until it says that it is ready.
func serveProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return serveWith(t, name, func(*exec.Cmd) {}, args...)
}

// serveWith is serveProcess with a command that is changed before it runs.
func serveWith(t *testing.T, name string, change func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p, ready := startWith(t, name, change, args...)
	select {
	case <-ready:
		return p
	case <-p.exited:
		t.Fatalf("%s ended before it was ready:\n%s", name, p.log())
	case <-time.After(20 * time.Second):
		t.Fatalf("%s is not ready after 20 s:\n%s", name, p.log())
	}
	return nil
}

// startProcess starts a node. ready is closed when it says that it is.
func startProcess(t *testing.T, name string, args ...string) (p *process, ready chan struct{}) {
	t.Helper()
	return startWith(t, name, func(*exec.Cmd) {}, args...)
}

// startWith is startProcess with a command that is changed before it runs.
func startWith(t *testing.T, name string, change func(*exec.Cmd),
	args ...string,
) (p *process, ready chan struct{}) {
	t.Helper()
	const free = "127.0.0.1:0"
	p = &process{name: name, exited: make(chan struct{})}
	p.cmd = exec.Command(built, append([]string{
		"serve", "--name", name, "--gossip", free, "--peer", free, "--grpc", free, "--http", free,
		"--redis", free,
	}, args...)...)
	change(p.cmd)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready = make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.hear(lines.Bytes(), ready)
		}
		p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.log())
		}
	})
	return p, ready
}

// hear reads one line of the node's log.
func (p *process) hear(line []byte, ready chan struct{}) {
	var entry struct{ Msg, GRPC, HTTP, Redis, Gossip string }
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said.Write(line)
	p.said.WriteByte('\n')
	if json.Unmarshal(line, &entry) == nil && entry.Msg == "ready" {
		p.grpc, p.http, p.redis, p.gossip = entry.GRPC, entry.HTTP, entry.Redis, entry.Gossip
		close(ready)
	}
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// exitCode waits for the end of the process.
func (p *process) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(20 * time.Second):
		t.Fatalf("%s has not ended after 20 s:\n%s", p.name, p.log())
		return -1
	}
}

const testLimits = `
limits:
  - {name: demo, algorithm: fixed_window, anchor: first_hit, limit: 5, per: 10m}
  - {name: big, algorithm: fixed_window, anchor: first_hit, limit: 10000, per: 10m}
`

// serveCluster starts n nodes that see each other.
func serveCluster(t *testing.T, n int) (nodes []*process) {
	t.Helper()
	limits := write(t, testLimits) // a file without .yaml is read all the same
	for i := range n {
		args := []string{"--limits", limits}
		if i > 0 {
			args = append(args, "--join", nodes[0].gossip)
		}
		nodes = append(nodes, serveProcess(t, fmt.Sprintf("n%d", i+1), args...))
	}
	for _, p := range nodes {
		waitForMembers(t, p, n)
	}
	return nodes
}

// waitForMembers waits until p sees n active members.
func waitForMembers(t *testing.T, p *process, n int) {
	t.Helper()
	c := dial(t, p)
	eventually(t, fmt.Sprintf("%s sees %d active members", p.name, n), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answer, err := adminOf(c).Members(ctx, &penstockv1.MembersRequest{})
		if err != nil {
			return err
		}
		active := 0
		for _, m := range answer.Members {
			if m.State == "active" {
				active++
			}
		}
		if active != n {
			return fmt.Errorf("%d active: %v", active, answer.Members)
		}
		return nil
	})
}

// eventually polls until what holds.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(
		20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not in 15 s: %s: %v", what, err)
}

func dial(t *testing.T, p *process) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Targets: []string{p.grpc}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func item(limit, key string) *penstockv1.Item {
	return &penstockv1.Item{Limit: limit, Key: []byte(key)}
}

// The owner of a key counts it alone, whichever node is asked and however: the sixth check is
// denied everywhere.
func TestSixthCheckIsDenied(t *testing.T) {
	nodes := serveCluster(t, 3)
	for i := range 9 {
		p := nodes[i%3]
		answer, err := http.Get("http://" + p.http + "/v1/check?limit=demo&key=alice")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		want := http.StatusOK
		if i >= 5 {
			want = http.StatusTooManyRequests
		}
		if answer.StatusCode != want {
			t.Errorf("check %d, by %s: %s; want %d", i+1, p.name, answer.Status, want)
		}
		for _, h := range []string{"RateLimit", "RateLimit-Policy"} {
			if answer.Header.Get(h) == "" {
				t.Errorf("check %d, by %s: no header %s", i+1, p.name, h)
			}
		}
		if i >= 5 && answer.Header.Get("Retry-After") == "" {
			t.Errorf("check %d, by %s: denied without Retry-After", i+1, p.name)
		}
		out, err := exec.Command(built, "check", "demo", "bob", "--addr", p.grpc).CombinedOutput()
		if code := exitOf(err); (i < 5 && code != 0) || (i >= 5 && code != 2) {
			t.Errorf("penstock check %d, by %s: exit code %d\n%s", i+1, p.name, code, out)
		}
	}
}

func exitOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// A healthy cluster admits exactly its limit through any node: 64 clients, 3 nodes, limit 10,000 in
// 10 minutes, for one key and for 200.
func TestExactlyTheLimit(t *testing.T) {
	nodes := serveCluster(t, 3)
	clients := make([]*client.Client, len(nodes))
	for i, p := range nodes {
		clients[i] = dial(t, p)
	}
	for _, c := range []struct {
		keys, batch, requests int // requests per client, of batch items each
	}{
		{1, 1, 200},
		{200, 200, 160},
	} {
		t.Run(fmt.Sprintf("keys=%d", c.keys), func(t *testing.T) {
			// A machine that is so busy that a peer stalls for half a second makes decisions
			// without the owner; they are marked, and outside of this promise. Such a run proves
			// nothing and is done again, with new keys.
			for try := 1; ; try++ {
				admitted, degraded := offer(t, clients, fmt.Sprintf("exact-%d-%d-", c.keys, try),
					c.keys, c.batch, c.requests)
				if degraded > 0 && try < 3 {
					t.Logf("try %d: %d degraded decisions", try, degraded)
					continue
				}
				if degraded > 0 {
					t.Errorf("%d degraded decisions in a healthy cluster", degraded)
				}
				for k, n := range admitted {
					if n != 10000 {
						t.Errorf("key %d: %d admitted; want exactly 10000", k, n)
					}
				}
				return
			}
		})
	}
}

// offer has 64 clients send requests of batch items each, over keys in turn, and counts what is
// admitted of each key.
func offer(t *testing.T, clients []*client.Client, prefix string, keys, batch,
	requests int,
) (admitted []int64, degraded int64) {
	t.Helper()
	if offered := 64 * requests * batch / keys; offered <= 10000 {
		t.Fatalf("only %d checks per key: this proves nothing", offered)
	}
	counts, marked := make([]atomic.Int64, keys), new(atomic.Int64)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			items := make([]*penstockv1.Item, batch)
			for k := range items {
				items[k] = item("big", prefix+fmt.Sprint(k%keys))
			}
			for range requests {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				decisions, err := checkItems(ctx, clients[i%len(clients)], items)
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				for k, d := range decisions {
					switch {
					case d.Degraded:
						marked.Add(1)
					case d.Allowed:
						counts[k%keys].Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	for k := range counts {
		admitted = append(admitted, counts[k].Load())
	}
	return admitted, marked.Load()
}

// After kill -9 of a node its keys are answered again within 5 s, by owners and not by fallback,
// and no request outlives its deadline on the way there.
func TestKilledNode(t *testing.T) {
	t.Parallel()
	const (
		deadline = time.Second
		hang     = 4 * time.Second // far more than a deadline and a busy machine explain
		again    = 5 * time.Second
	)
	nodes := serveCluster(t, 3)
	survivor := dial(t, nodes[0])
	keys := keysOwnedBy(t, nodes[0], 3, "n3", 20)
	if place, err := adminOf(survivor).Ring(t.Context(),
		&penstockv1.RingRequest{Key: []byte(keys[0])}); err != nil || place.Owner != "n3" {
		t.Fatalf("the key %q belongs to %v (%v); this test expects n3", keys[0], place, err)
	}
	check := func(key string) (*penstockv1.Decision, error) {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		begin := time.Now()
		d, err := checkItems(ctx, survivor, []*penstockv1.Item{item("big", key)})
		if took := time.Since(begin); took > hang {
			t.Errorf("a request with a deadline of %v took %v", deadline, took)
		}
		if err != nil {
			return nil, err
		}
		return d[0], nil
	}
	for _, k := range keys {
		eventually(t, "n3, which has just come, has taken over what it owns", func() error {
			if d, err := check(k); err != nil || d.Owner != "n3" {
				return fmt.Errorf("%s: %v, %v; want an answer of n3", k, d, err)
			}
			return nil
		})
	}

	if err := nodes[2].cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	waiting := map[string]error{}
	for _, k := range keys {
		waiting[k] = errors.New("not asked yet")
	}
	for len(waiting) > 0 {
		if time.Since(killed) > again {
			t.Fatalf("%v after the kill, %d of %d keys are not answered by an owner: %v", again,
				len(waiting), len(keys), waiting)
		}
		for k := range waiting {
			d, err := check(k)
			switch {
			case err != nil:
				waiting[k] = err
			case d.Degraded:
				waiting[k] = fmt.Errorf("degraded: %v", d)
			default:
				delete(waiting, k)
			}
		}
	}
	t.Logf("all %d keys have an owner again %v after kill -9", len(keys),
		time.Since(killed).Round(time.Millisecond))
}

// keysOwnedBy makes n keys that are owner's, as a node of so many members says: the cluster has a
// secret, so nobody else can know.
func keysOwnedBy(t *testing.T, at *process, members int, owner string, n int) (keys []string) {
	t.Helper()
	waitForMembers(t, at, members)
	a := adminOf(dial(t, at))
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprintf("key-%d", i)
		place, err := a.Ring(t.Context(), &penstockv1.RingRequest{Key: []byte(key)})
		if err != nil {
			t.Fatal(err)
		}
		if place.Owner == owner {
			keys = append(keys, key)
		}
	}
	return keys
}

// SIGTERM takes a node out without a failed request: the others drop it, and it exits 0.
func TestTermination(t *testing.T) {
	t.Parallel()
	nodes := serveCluster(t, 3)
	stayer := dial(t, nodes[0])
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			d, err := checkItems(ctx, stayer,
				[]*penstockv1.Item{item("big", fmt.Sprintf("t-%d", i%100))})
			cancel()
			if err != nil || d[0].Degraded {
				t.Errorf("while a node left in peace, a check by another one: %v, %v", d, err)
				return
			}
		}
	})
	if err := nodes[2].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node says that it is not ready", func() error {
		answer, err := http.Get("http://" + nodes[2].http + "/readyz")
		if err != nil {
			return fmt.Errorf("gone without having said it: %w", err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusServiceUnavailable {
			return errors.New(answer.Status)
		}
		return nil
	})
	if code := nodes[2].exitCode(t); code != 0 {
		t.Errorf("exit code %d; want 0", code)
	}
	for _, p := range nodes[:2] {
		waitForMembers(t, p, 2)
		eventually(t, p.name+" forgets who has left", func() error {
			answer, err := adminOf(dial(t, p)).Members(t.Context(), &penstockv1.MembersRequest{})
			if err == nil && len(answer.Members) != 2 {
				err = fmt.Errorf("%v", answer.Members)
			}
			return err
		})
		if strings.Contains(p.log(), "as failed") {
			t.Errorf("%s had to find out by silence that n3 is gone: it got no goodbye", p.name)
		}
	}
	close(stop)
	load.Wait()
}

// A second signal means that the operator does not want to wait.
func TestSecondSignal(t *testing.T) {
	p := serveProcess(t, "hurried")
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the signal is heard", func() error {
		if strings.Contains(p.log(), "stopping") {
			return nil
		}
		return errors.New(p.log())
	})
	time.Sleep(sameSignal + 50*time.Millisecond)
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.exitCode(t); code != 1 {
		t.Errorf("exit code %d; want 1: it has not left in peace", code)
	}
	if !strings.Contains(p.log(), "second signal") {
		t.Errorf("the log does not say why:\n%s", p.log())
	}
}

// Strangers stay outside: another cluster's name or another gossip key does not get in, and both
// sides go on.
func TestStrangersDoNotJoin(t *testing.T) {
	key := func() string {
		out, err := exec.Command(built, "keygen").Output()
		if err != nil {
			t.Fatal(err)
		}
		return write(t, string(out))
	}
	ours := key()
	first := serveProcess(t, "first", "--gossip-key-file", ours)
	friend := serveProcess(t, "friend", "--gossip-key-file", ours, "--join", first.gossip)
	waitForMembers(t, first, 2)
	for _, c := range []struct {
		name, says string
		args       []string
	}{
		{"other-key", "has other gossip keys", []string{"--gossip-key-file", key()}},
		{"no-key", "has gossip keys, and this node has none", nil},
		{
			"other-label", `has another --cluster than \"other\"`,
			[]string{"--gossip-key-file", ours, "--cluster", "other"},
		},
	} {
		name := c.name
		t.Run(name, func(t *testing.T) {
			p, ready := startProcess(t, name, append(c.args, "--join", first.gossip)...)
			eventually(t, "it says what differs", func() error {
				said := p.log()
				if strings.Contains(said, "no seed was reached") && strings.Contains(said, c.says) {
					return nil
				}
				return errors.New(p.log())
			})
			select {
			case <-ready:
				t.Errorf("%s has joined", name)
			case <-p.exited:
				t.Errorf("%s has ended instead of trying on", name)
			default:
			}
			waitForMembers(t, first, 2)
			waitForMembers(t, friend, 2)
		})
	}
}

// Promise: top shows the keys of all members, each once, the most used first, in 80 columns.
func TestTop(t *testing.T) {
	nodes := serveCluster(t, 3)
	c := dial(t, nodes[1])
	busy := false // somebody fell back to a share of the limit, which may have been charged as well
	for i := range 60 {
		cost := int64(1 + i)
		it := &penstockv1.Item{
			Limit: "big",
			Key:   fmt.Appendf(nil, "%s-%d", strings.Repeat("key", i%9), i), Cost: &cost,
		}
		eventually(t, "a charge that is counted", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			out, err := checkItems(ctx, c, []*penstockv1.Item{it})
			if err == nil && out[0].Degraded {
				busy, err = true, errors.New("degraded")
			}
			return err
		})
	}
	var list topList
	out, err := exec.Command(built, "top", "-n", "5", "-o", "json", "--timeout", "20s", "--addr",
		nodes[2].grpc).Output()
	if err := errors.Join(err, json.Unmarshal(out, &list)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(list.Keys) != 5 || list.Seen != 60 || list.Partial || len(list.Missing) > 0 {
		t.Errorf("%+v", list)
	}
	for i, k := range list.Keys {
		if !busy && k.Used != int64(60-i) || i > 0 && k.Used > list.Keys[i-1].Used ||
			!strings.HasSuffix(k.Key, fmt.Sprintf("-%d", 59-i)) || k.Name != "big" ||
			k.Limit != 10000 || !strings.HasPrefix(k.Owner, "n") {
			t.Errorf("%d: %+v", i, k)
		}
	}
	out, err = exec.Command(built, "top", "--timeout", "20s", "--addr", nodes[0].grpc).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != 22 || !strings.HasPrefix(lines[0], "USED") ||
		lines[21] != "60 keys looked at" {
		t.Errorf("%v\n%s", err, out)
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}

	// And the holds with their holders, of all members together.
	for i := range 6 {
		key := fmt.Sprintf("held-%d", i)
		eventually(t, "a hold that is kept", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			all, err := c.ReserveAll(ctx, []client.Request{{Limit: "big", Key: key, Cost: 1}},
				time.Hour, client.HoldOptions{Holder: "me"})
			if err == nil && all[0].Degraded {
				err = errors.New("degraded")
			}
			return err
		})
	}
	for args, want := range map[string]int{
		"": 6, "--holder me": 6, "--holder you": 0,
		"--key held-3": 1, "--limit big -n 2": 2,
	} {
		var held holdList
		out, err := exec.Command(built, append([]string{
			"top", "--holds", "-o", "json", "--timeout",
			"20s", "--addr", nodes[0].grpc,
		}, strings.Fields(args)...)...).Output()
		if err := errors.Join(err, json.Unmarshal(out, &held)); err != nil ||
			len(held.Holds) != want || len(held.Missing) > 0 {
			t.Errorf("top --holds %s: %v\n%s", args, err, out)
		}
	}
}
