package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// fixed is a cluster of processes that keep their addresses, so that one that is restarted is found
// again where it was.
type fixed struct {
	gossip, grpc []string
	limits       string
	nodes        []*process
}

// newFixed starts n nodes at once. All have the same --join, each with its own address in it, as
// the README shows.
func newFixed(t *testing.T, n int) *fixed {
	t.Helper()
	addresses := freeAddresses(t, 2*n)
	f := &fixed{
		gossip: addresses[:n], grpc: addresses[n:], limits: write(t, testLimits),
		nodes: make([]*process, n),
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f.start(t, i) })
	}
	all.Wait()
	for _, p := range f.nodes {
		waitForMembers(t, p, n)
	}
	return f
}

func (f *fixed) start(t *testing.T, i int) {
	f.nodes[i] = serveProcess(t, fmt.Sprintf("n%d", i+1), "--limits", f.limits, "--gossip",
		f.gossip[i], "--grpc", f.grpc[i],
		"--join", strings.Join(f.gossip, ","))
}

// restart stops node i gracefully, and starts it again once it is gone.
func (f *fixed) restart(t *testing.T, i int) {
	t.Helper()
	f.nodes[i].cmd.Process.Signal(syscall.SIGTERM)
	if code := f.nodes[i].exitCode(t); code != 0 {
		t.Errorf("%s ended with code %d after SIGTERM", f.nodes[i].name, code)
	}
	f.start(t, i)
	for _, p := range f.nodes {
		waitForMembers(t, p, len(f.nodes))
	}
}

// Promise (rolling restart): no request fails. bench is a client with several targets, so it meets
// none either: it asks the next node while one is away. Every node is restarted, with the command
// line that the README shows for all of them.
func TestBenchRollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("processes")
	}
	f := newFixed(t, 3)
	var out, said bytes.Buffer
	bench := exec.Command(built, "bench", "--addr", strings.Join(f.grpc, ","), "-d", "10m",
		"--rate", "300", "--keys", "50",
		"--algorithm", "fixed_window", "--first-hit", "--limit-count", "20", "--per",
		"1h", "-o", "json")
	bench.Stdout, bench.Stderr = &out, &said
	if err := bench.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bench.Process.Kill() })
	for i := range f.nodes {
		f.restart(t, i)
	}
	bench.Process.Signal(syscall.SIGTERM) // it ends, and reports
	if err := bench.Wait(); err != nil {
		t.Errorf("bench: %v", err)
	}
	var report struct {
		Errors     int
		Checks     int
		Degraded   int
		FirstError string `json:"first_error"`
		Admitted   struct{ Extra, Missing int64 }
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &said)
	}
	if report.Errors > 0 || report.Degraded > 0 || report.Admitted.Extra > 0 || report.Checks == 0 {
		t.Errorf("%+v", report)
	}
	t.Logf("%+v", report)
}

// freeAddresses are n free addresses of loopback, below the ports that the kernel hands out: so no
// other program gets one of them while a node is away.
func freeAddresses(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		stream, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		packets, err := net.ListenPacket("udp", addr)
		if stream.Close(); err != nil {
			continue
		}
		packets.Close()
		if slices.Contains(addresses, addr) {
			continue
		}
		if addresses = append(addresses, addr); len(addresses) == n {
			return addresses
		}
	}
	t.Fatalf("only %d of %d ports are free", len(addresses), n)
	return nil
}
