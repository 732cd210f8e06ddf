// Command idle measures what nodes cost of which nobody asks anything.
//
//	cd bench && go run ./idle -seconds 60 ../bin/before ../bin/after
//
// It starts a cluster of each program that is named, waits until each node holds all its partitions
// and until what follows a start is over, and then looks at all of them at once for the time given.
// So noise of the machine meets all programs alike. Without a program it builds the node of this
// repository.
//
// A line of its table is one program, and its figures are the mean of one node:
//
//	CPU       share of one core that all threads of a process used (/proc/PID/task/*/schedstat)
//	sleeps    how often a second one of its threads went to sleep: each is a wake-up as well
//	switches  all switches of threads a second, those that the kernel forced included
//	asks      asks that a node wrote to other nodes a second; each is answered
//	frames    messages that carried those asks
//	words     asks among them that carried words about ownership
//	moves     messages about partitions
//	kB        read and written by the process a second, all sockets and files (/proc/PID/io)
//	memory    resident, at the end, in MB
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	nodes := flag.Int("nodes", 3, "nodes of each cluster")
	seconds := flag.Int("seconds", 60, "how long one round takes")
	rounds := flag.Int("rounds", 1, "how many rounds are measured")
	warm := flag.Duration("warm", 15*time.Second, "wait before the first round, with whole nodes")
	with := flag.String("with", "", "further arguments of each node, separated by blanks")
	flag.Parse()
	each := time.Duration(*seconds) * time.Second
	err := run(*nodes, *rounds, each, *warm, strings.Fields(*with), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

func run(
	nodes, rounds int, each, warm time.Duration, with, programs []string,
) (err error) {
	dir, err := os.MkdirTemp("", "idle")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if len(programs) == 0 {
		programs = []string{filepath.Join(dir, "penstock")}
		build := exec.Command("go", "build", "-o", programs[0], "./cmd/node")
		build.Dir = ".." // the module of the node
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("the node cannot be built: %w\n%s", err, out)
		}
	}
	clusters := make([]*cluster, len(programs))
	for i, program := range programs {
		if program, err = filepath.Abs(program); err != nil {
			return err
		}
		clusters[i] = &cluster{program: program}
		defer clusters[i].stop()
		if err := clusters[i].start(dir, nodes, with); err != nil {
			return err
		}
	}
	for _, c := range clusters {
		if err := c.awaitWhole(time.Minute); err != nil {
			return err
		}
	}
	time.Sleep(warm)
	for range rounds {
		if err := measure(clusters, each); err != nil {
			return err
		}
	}
	return nil
}

// measure looks at all clusters for a while, and prints a line for each.
func measure(clusters []*cluster, d time.Duration) error {
	before := make([]counts, len(clusters))
	for i, c := range clusters {
		if err := c.count(&before[i]); err != nil {
			return err
		}
	}
	began := time.Now()
	time.Sleep(d)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "program\tCPU, %\tsleeps/s\tswitches/s\tasks/s\tframes/s\t"+
		"words/s\tmoves/s\tkB/s\tmemory, MB\t")
	for i, c := range clusters {
		var after counts
		if err := c.count(&after); err != nil {
			return err
		}
		s := time.Since(began).Seconds() * float64(len(c.nodes))
		rate := func(of func(*counts) float64) float64 { return (of(&after) - of(&before[i])) / s }
		fmt.Fprintf(w, "%s\t%.3f\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%.1f\t\n",
			c.program,
			100*rate(func(c *counts) float64 { return c.cpu }),
			rate(func(c *counts) float64 { return c.sleeps }),
			rate(func(c *counts) float64 { return c.switches }),
			rate(func(c *counts) float64 { return c.asks }),
			rate(func(c *counts) float64 { return c.frames }),
			rate(func(c *counts) float64 { return c.words }),
			rate(func(c *counts) float64 { return c.moves }),
			rate(func(c *counts) float64 { return c.bytes })/1000,
			after.resident/float64(len(c.nodes)),
		)
	}
	return w.Flush()
}

// cluster is nodes of one program.
type cluster struct {
	program string
	nodes   []*node
}

type node struct {
	cmd  *exec.Cmd
	said bytes.Buffer
	http string
}

func (c *cluster) start(dir string, n int, with []string) error {
	addrs, err := freePorts(5 * n)
	if err != nil {
		return err
	}
	for i := range n {
		a := addrs[5*i:]
		args := append([]string{
			"serve", "--name", fmt.Sprintf("n%d", i+1), "--gossip", a[0], "--peer", a[1],
			"--grpc", a[2], "--http", a[3], "--redis", a[4],
		}, with...)
		if n > 1 {
			args = append(args, "--join", addrs[0])
		}
		x := &node{cmd: exec.Command(c.program, args...), http: a[3]}
		x.cmd.Dir, x.cmd.Stdout, x.cmd.Stderr = dir, &x.said, &x.said
		if err := x.cmd.Start(); err != nil {
			return fmt.Errorf("%s cannot be started: %w", c.program, err)
		}
		c.nodes = append(c.nodes, x)
	}
	return nil
}

// stop ends the nodes. They had nothing to do, so nothing is lost.
func (c *cluster) stop() {
	for _, x := range c.nodes {
		x.cmd.Process.Signal(syscall.SIGKILL)
		x.cmd.Wait()
	}
}

// awaitWhole waits until each node counts all others as members, and holds what it should.
func (c *cluster) awaitWhole(most time.Duration) error {
	until := time.Now().Add(most)
	for _, x := range c.nodes {
		for {
			text, err := x.metrics()
			active := value(text, `penstock_members{state="active"}`)
			if err == nil && active == float64(len(c.nodes)) &&
				value(text, `penstock_partitions{state="held"}`) > 0 &&
				value(text, "penstock_unreplicated_partitions") == 0 {
				break
			}
			if time.Now().After(until) {
				return fmt.Errorf("a node of %s is not whole after %v (%w); it said:\n%s",
					c.program, most, err, x.said.Bytes())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

// counts are sums of what all nodes of a cluster have counted since they started.
type counts struct {
	cpu              float64 // seconds
	sleeps, switches float64
	asks, frames     float64
	words, moves     float64
	bytes            float64
	resident         float64 // MB
}

func (c *cluster) count(sum *counts) error {
	for _, x := range c.nodes {
		// The scrape wakes the node up, so it comes first here, and after the time it comes last.
		text, err := x.metrics()
		if err != nil {
			return err
		}
		sum.asks += value(text, "penstock_peer_asks_total")
		sum.frames += value(text, "penstock_peer_frames_total")
		sum.words += value(text, "penstock_peer_words_total")
		sum.moves += value(text, "penstock_peer_moves_total")
		if err := x.process(sum); err != nil {
			return err
		}
	}
	return nil
}

// process adds what the kernel has counted.
func (x *node) process(sum *counts) error {
	dir := fmt.Sprintf("/proc/%d", x.cmd.Process.Pid)
	tasks, err := filepath.Glob(dir + "/task/*")
	if err != nil || len(tasks) == 0 {
		return errors.Join(fmt.Errorf("%s/task cannot be read", dir), err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task + "/schedstat")
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
		if err != nil {
			return err
		}
		sum.cpu += ns / 1e9
		status, err := os.ReadFile(task + "/status")
		if err != nil {
			continue
		}
		slept := value(string(status), "voluntary_ctxt_switches:")
		sum.sleeps += slept
		sum.switches += slept + value(string(status), "nonvoluntary_ctxt_switches:")
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return err
	}
	sum.resident += value(string(status), "VmRSS:") / 1024
	traffic, err := os.ReadFile(dir + "/io")
	if err != nil {
		return err
	}
	sum.bytes += value(string(traffic), "rchar:") + value(string(traffic), "wchar:")
	return nil
}

func (x *node) metrics() (string, error) {
	answer, err := http.Get("http://" + x.http + "/metrics")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// value is the number behind a name at the beginning of a line; 0 if there is no such line.
func value(text, name string) float64 {
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `\s+([0-9.e+-]+)`)
	m := line.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	v, _ := strconv.ParseFloat(m[1], 64)
	return v
}

// nextPort is where freePorts goes on. It is below those that the kernel gives to sockets that name
// none: a node that runs already could have one of these before the next one listens there.
var nextPort = 20000 + os.Getpid()%8000

// freePorts are addresses of this machine on which nobody listens, neither by TCP nor by UDP.
func freePorts(n int) (addrs []string, err error) {
	const last = 32000
	for len(addrs) < n {
		if nextPort++; nextPort > last {
			return nil, fmt.Errorf("there are no %d free ports below %d", n, last)
		}
		addr := fmt.Sprint("127.0.0.1:", nextPort)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		l.Close()
		if u, err := net.ListenPacket("udp", addr); err == nil {
			u.Close()
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}
