package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// victim is a node that is attacked.
type victim struct {
	cmd                             *exec.Cmd
	gossip, peer, grpc, http, redis string
	admin                           string // empty: --http has those pages
	secured                         bool   // with TLS and a token

	said       string       // by the attack, about itself
	began      time.Time    // when it was started, and later when it was attacked
	overloaded atomic.Int64 // answers that said so
	mu         sync.Mutex   // guards admitted
	admitted   latencies    // of the other answers
}

// start starts a node with a member's doors, a gossip key, and one limit.
func start(program, dir string, processors int, a attack) (*victim, error) {
	v := &victim{began: time.Now(), secured: a.isSecured()}
	if err := v.choose(); err != nil {
		return nil, err
	}
	if !a.isAdministered() {
		v.admin = ""
	}
	key, limits := filepath.Join(dir, "gossip.key"), filepath.Join(dir, "limits.yaml")
	err := errors.Join(
		os.WriteFile(key, []byte(strings.Repeat("5a", 32)+"\n"), 0o600),
		os.WriteFile(
			limits,
			[]byte("limits: [{name: demo, algorithm: gcra, limit: 1000000, per: 1s}]\n"),
			0o600,
		),
	)
	if err != nil {
		return nil, err
	}
	v.cmd = v.command(
		program,
		"serve",
		"--name",
		"victim",
		"--gossip",
		v.gossip,
		"--peer",
		v.peer,
		"--grpc",
		v.grpc,
		"--http",
		v.http,
		"--redis",
		v.redis,
		"--gossip-key-file",
		key,
		"--limits",
		limits,
		"--memory",
		fmt.Sprintf("%dMiB", budget),
		"--log-level",
		"error",
	)
	if v.admin != "" {
		v.cmd.Args = append(v.cmd.Args, "--admin", v.admin)
	}
	if v.secured {
		if err := v.secure(program, dir); err != nil {
			return nil, err
		}
	}
	if a.isClosed() {
		if err := v.demandToken(dir); err != nil {
			return nil, err
		}
	}
	v.cmd.Stderr = os.Stderr
	v.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", processors))
	return v, v.await()
}

// choose finds ports without a listener.
func (v *victim) choose() error {
	for _, addr := range []*string{&v.gossip, &v.peer, &v.grpc, &v.http, &v.redis, &v.admin} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close() // all of them at the end: no port comes twice
		*addr = l.Addr().String()
	}
	return nil
}

// address is that of a door.
func (v *victim) address(door string) string {
	switch door {
	case "grpc":
		return v.grpc
	case "redis":
		return v.redis
	}
	return v.http
}

// await starts the process, and waits until it answers.
func (v *victim) await() error {
	if err := v.cmd.Start(); err != nil {
		return err
	}
	for range 200 {
		if v.get("/readyz") == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	v.stop()
	return errors.New("the node does not get ready")
}

func (v *victim) stop() {
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(10*time.Second, func() { _ = v.cmd.Process.Kill() })
	defer late.Stop()
	_ = v.cmd.Wait()
}

// figures are what the node takes at a moment.
type figures struct {
	resident, most    int // MiB: now, and the most until now, as the kernel saw it
	files, goroutines int
	counters          map[string]float64
}

// operator asks from an address of its own, and waits longer than others do.
var operator = &http.Client{Timeout: 20 * time.Second, Transport: from("127.0.0.3")}

// from is a transport for connections from an address of this machine.
func from(address string) *http.Transport {
	return &http.Transport{
		DialContext: dialerFrom(address).DialContext, MaxIdleConnsPerHost: 8,
		TLSClientConfig: trusting,
	}
}

func dialerFrom(address string) *net.Dialer {
	return &net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 5 * time.Second,
	}
}

func (v *victim) get(path string) error {
	_, err := v.read(path)
	return err
}

func (v *victim) read(path string) (string, error) {
	at := cmp.Or(v.admin, v.http)
	answer, err := getFrom(operator, v.door("http"), at+path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return string(text), err
}

func (v *victim) figures() (f figures, err error) {
	if err = v.outside(&f); err != nil {
		return f, err
	}
	page, err := v.read("/metrics")
	f.counters = make(map[string]float64)
	for line := range strings.Lines(page) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		f.counters[name] = n
	}
	f.goroutines = int(f.counters["go_goroutines"])
	return f, err
}

// outside finds what the system says of the process.
func (v *victim) outside(f *figures) error {
	proc := fmt.Sprintf("/proc/%d/", v.cmd.Process.Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		for name, to := range map[string]*int{"VmRSS:": &f.resident, "VmHWM:": &f.most} {
			if text, found := strings.CutPrefix(line, name); found {
				kb, _ := strconv.Atoi(strings.Fields(text)[0])
				*to = kb >> 10
			}
		}
	}
	files, err := os.ReadDir(proc + "fd")
	f.files = len(files)
	return err
}

// share is what a process had of the processors, and how long it waited for one while others had
// them all, of its threads that still run.
type share struct{ had, waited time.Duration }

func (s share) since(before share) share {
	return share{s.had - before.had, s.waited - before.waited}
}

// share is that of the node until now.
func (v *victim) share() (s share) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", v.cmd.Process.Pid))
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		var had, waited time.Duration
		if _, err := fmt.Sscan(string(text), &had, &waited); err == nil {
			s.had, s.waited = s.had+had, s.waited+waited
		}
	}
	return s
}

// watch returns the largest figures until ctx ends.
func (v *victim) watch(ctx context.Context) (peak figures) {
	for ctx.Err() == nil {
		var now figures
		if v.outside(&now) != nil {
			return peak
		}
		if page, err := v.read("/metrics"); err == nil {
			_, rest, _ := strings.Cut(page, "\ngo_goroutines ")
			text, _, _ := strings.Cut(rest, "\n")
			now.goroutines, _ = strconv.Atoi(text)
		}
		peak.files = max(peak.files, now.files)
		peak.goroutines = max(peak.goroutines, now.goroutines)
		time.Sleep(100 * time.Millisecond)
	}
	return peak
}

// settleTime is how long goroutines and descriptors of an attack may stay after it. A node on a
// busy machine needs some of it to work off what has come.
const settleTime = 15 * time.Second

// settle waits until connections have ended and garbage is collected, and returns the figures.
func (v *victim) settle(before figures) (after figures, err error) {
	began := time.Now()
	time.Sleep(3 * time.Second)
	for {
		_ = v.get("/debug/pprof/heap?gc=1")
		after, err = v.figures()
		if err != nil || time.Since(began) > settleTime ||
			after.goroutines < before.goroutines+20 && after.files < before.files+20 {
			return after, err
		}
		time.Sleep(time.Second)
	}
}

// refused are the metrics of what a node refuses, and their short names.
var refused = []struct{ metric, name string }{
	{"penstock_connections_refused_total", "connections"},
	{"penstock_overloaded_total", "overloaded"},
	{"penstock_holds_refused_total", "holds"},
	{"penstock_redis_broken_total", "Redis connections"},
	{"penstock_redis_errors_total", "Redis commands"},
	{"penstock_grpc_overweight_total", "heavy connections"},
	{"penstock_grpc_overdue_total", "overdue messages"},
	{"penstock_grpc_flooded_total", "floods of frames"},
	{"penstock_gossip_refused_total", "of gossip"},
}

func refusals(before, after map[string]float64) string {
	var said []string
	for _, r := range refused {
		sum := 0.0
		for name, n := range after {
			if strings.HasPrefix(name, r.metric) {
				sum += n - before[name]
			}
		}
		if sum > 0 {
			said = append(said, fmt.Sprintf("%.0f %s", sum, r.name))
		}
	}
	if said == nil {
		return "at the protocol"
	}
	return strings.Join(said, ", ")
}
