package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"penstock/ring"
)

const (
	maxNodes  = 7
	maxAgents = 2
)

// state is whether requests are sent to a node.
type state int

const (
	down state = iota
	up
	draining // it has been told to leave
	stopped  // by SIGSTOP
)

// node is a process and the doors to it.
type node struct {
	*doors
	name     string
	index    int  // of all, agents last
	agent    bool // it owns nothing, and asks the members
	upgraded bool // it runs the present build, where there is a previous one
	process  *exec.Cmd
	exited   chan struct{}
	began    *vitals // when it had just settled
}

// cluster is all nodes that there may be, and those that ask it.
type cluster struct {
	net      *network
	dir      string
	binary   string
	previous string // the program before, or none
	limits   string
	secrets  *secrets
	copies   int
	zones    int     // 0: none
	disks    bool    // each node has a disk of its own, for its counters
	noFreeze error   // why disks cannot be frozen
	nodes    []*node // members
	agents   []*node

	mu     sync.Mutex // guards states
	states [maxNodes + maxAgents]state
}

func newCluster(o *options, dir string) (*cluster, error) {
	top, err := root()
	if err != nil {
		return nil, err
	}
	c := &cluster{
		dir:    dir,
		binary: filepath.Join(dir, "penstock"),
		limits: filepath.Join(dir, "limits.yaml"),
		copies: o.copies,
		zones:  o.zones,
	}
	args := []string{"build", "-C", top, "-o", c.binary}
	if o.overlay != "" {
		name, err := filepath.Abs(o.overlay)
		if err != nil {
			return nil, err
		}
		args = append(args, "-overlay", name)
	}
	if err := command("go", append(args, "./cmd/node")...); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.limits, []byte(limitsFile(0)), 0o644); err != nil {
		return nil, err
	}
	if c.secrets, err = newSecrets(c.binary, dir); err != nil {
		return nil, err
	}
	if o.previous != "" {
		if err := c.buildPrevious(top, o.previous); err != nil {
			return nil, err
		}
	}
	c.net = newNetwork(o.loopback)
	for i := range maxNodes + o.agents {
		n := &node{name: fmt.Sprintf("n%d", i+1), index: i, doors: newDoors(dir, i)}
		if i < maxNodes {
			c.nodes = append(c.nodes, n)
		} else {
			n.agent, n.upgraded = true, true
			n.name = fmt.Sprintf("a%d", i+1-maxNodes)
			c.agents = append(c.agents, n)
		}
		if err := c.net.plug(i, n.name); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	if o.disks {
		if err := c.mount(); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

// in are the members in one of the states.
func (c *cluster) in(wanted ...state) []*node { return c.among(c.nodes, wanted) }

// asked are the nodes in one of the states, agents as well.
func (c *cluster) asked(wanted ...state) []*node {
	return append(c.in(wanted...), c.among(c.agents, wanted)...)
}

func (c *cluster) among(nodes []*node, wanted []state) (list []*node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nodes {
		if slices.Contains(wanted, c.states[n.index]) {
			list = append(list, n)
		}
	}
	return list
}

func (c *cluster) set(n *node, s state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states[n.index] = s
}

// start runs a node and waits until it is ready and can be asked.
func (c *cluster) start(n *node) error {
	at := c.net.address(n.index)
	if err := c.secrets.equip(n, at); err != nil {
		return err
	}
	args := []string{
		c.program(n), "serve", "--insecure", "--name", n.name, "--limits", c.limits, "--log-format",
		"json",
		"--gossip", at + ":7946", "--peer", at + ":7947",
		"--grpc", "unix://" + n.path("grpc"), "--http", "unix://" + n.path("http"), "--redis",
		"unix://" + n.path("redis"),
	}
	args = append(args, c.secrets.flags(n)...)
	if n.agent {
		args = append(args, "--role", "agent")
	} else {
		args = append(args, "--copies", strconv.Itoa(c.copies))
		if c.disks {
			args = append(args, "--data-dir", c.disk(n))
		}
	}
	if c.zones > 0 {
		args = append(args, "--zone", c.zone(n))
	}
	for _, other := range c.in(up, stopped) {
		args = append(args, "--join", c.net.address(other.index)+":7946")
	}
	n.process, n.exited = c.net.command(n.name, args...), make(chan struct{})
	said, err := n.process.StderrPipe()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(
		filepath.Join(c.dir, n.name+".log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o644,
	)
	if err != nil {
		return err
	}
	if err := n.process.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	ready := make(chan struct{})
	go n.listen(said, log, ready)
	select {
	case <-ready:
	case <-n.exited:
		return fmt.Errorf("%s ended before it was ready: %s", n.name, c.tail(n))
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s is not ready after 30 s: %s", n.name, c.tail(n))
	}
	if err := n.connect(); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	c.set(n, up)
	return nil
}

// zone is where a node lies; empty: there are no zones.
func (c *cluster) zone(n *node) string {
	if c.zones == 0 {
		return ""
	}
	return fmt.Sprintf("z%d", n.index%c.zones+1)
}

// listen keeps what the node says, and waits for its end.
func (n *node) listen(said io.Reader, log *os.File, ready chan struct{}) {
	isReady := false
	for lines := bufio.NewScanner(said); lines.Scan(); {
		fmt.Fprintln(log, lines.Text())
		var entry struct{ Msg string }
		if !isReady && json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "ready" {
			isReady = true
			close(ready)
		}
	}
	_ = n.process.Wait()
	_ = log.Close()
	close(n.exited)
}

func (c *cluster) tail(n *node) string {
	text, _ := os.ReadFile(filepath.Join(c.dir, n.name+".log"))
	return string(text[max(0, len(text)-2000):])
}

func (n *node) signal(s syscall.Signal) error { return n.process.Process.Signal(s) }

// stands waits until all threads of a process that was sent a SIGSTOP have stopped. On a busy
// machine one has answered 20 ms after the signal. Without /proc it does not wait.
func (n *node) stands() {
	threads := fmt.Sprintf("/proc/%d/task", n.process.Process.Pid)
	for range 1000 {
		list, _ := os.ReadDir(threads)
		if !slices.ContainsFunc(list, func(e os.DirEntry) bool {
			stat, _ := os.ReadFile(filepath.Join(threads, e.Name(), "stat"))
			_, state, _ := strings.Cut(string(stat), ") ") // behind the name of the program
			return state != "" && state[0] != 'T'
		}) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// gone waits until the process has ended.
func (n *node) gone() error {
	select {
	case <-n.exited:
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s has not ended after 30 s", n.name)
	}
}

// settled says what is missing until the cluster is whole: all nodes see all, every partition has a
// holder, and a copy.
func (c *cluster) settled(ctx context.Context) error {
	members, held := len(c.in(up)), 0.0
	for _, n := range c.asked(up) {
		var list struct {
			Members []struct{ State, Role string }
		}
		text, err := n.fetch(ctx, "/v1/members")
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		active := 0
		for _, m := range list.Members {
			if m.State == "active" && m.Role != "agent" {
				active++
			}
		}
		if active != members {
			return fmt.Errorf("%s sees %d active members of %d", n.name, active, members)
		}
		page, err := n.fetch(ctx, "/metrics")
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		held += metric(page, `penstock_partitions{state="held"}`)
		missing := metric(page, "penstock_unreplicated_partitions")
		if c.copies > 1 {
			missing = metric(page, "penstock_underreplicated_partitions")
		}
		if missing > 0 && members > c.copies && c.copies > 0 {
			return fmt.Errorf("%s has %v partitions with too few copies", n.name, missing)
		}
	}
	if held != ring.Partitions {
		return fmt.Errorf("%v of %d partitions are held", held, ring.Partitions)
	}
	return nil
}

// settle waits until the cluster is whole.
func (c *cluster) settle(most time.Duration) (err error) {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err = c.settled(ctx)
		cancel()
		if err == nil {
			return nil
		}
	}
	return err
}

// metric is a number of a page of metrics.
func metric(page []byte, name string) float64 {
	for line := range strings.Lines(string(page)) {
		if text, found := strings.CutPrefix(line, name+" "); found {
			x, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return x
		}
	}
	return 0
}

// vitals are what a process takes of its machine.
type vitals struct {
	goroutines, descriptors, kilobytes int
}

func (n *node) vitals(ctx context.Context) (*vitals, error) {
	page, err := n.fetch(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	proc := fmt.Sprintf("/proc/%d/", n.process.Process.Pid)
	open, err := os.ReadDir(proc + "fd")
	if err != nil {
		return nil, err
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return nil, err
	}
	v := &vitals{goroutines: int(metric(page, "go_goroutines")), descriptors: len(open)}
	for line := range strings.Lines(string(status)) {
		if text, found := strings.CutPrefix(line, "VmRSS:"); found {
			v.kilobytes, _ = strconv.Atoi(strings.Fields(text)[0])
		}
	}
	return v, nil
}

func (c *cluster) close() error {
	c.thawAll()
	for _, n := range slices.Concat(c.nodes, c.agents) {
		if n.process != nil {
			_ = n.signal(syscall.SIGKILL)
			<-n.exited
		}
		n.doors.close()
	}
	c.net.close()
	return c.unmount()
}

func (d *doors) fetch(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node"+path, nil)
	if err != nil {
		return nil, err
	}
	request.Host = "localhost"
	answer, err := d.web.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return text, err
}
