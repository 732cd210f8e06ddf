package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// status is what a node says of how it stands to the others.
type standing struct {
	Epoch  int
	Voters []string
	Lost   []string `json:"lost_voters"`
}

func statusOf(p *process) (s standing, err error) {
	_, body, err := p.call("GET", "/v1/status")
	if err == nil {
		err = json.Unmarshal([]byte(body), &s)
	}
	return s, err
}

// oneCluster is nil if all go by the same list of members.
func oneCluster(nodes ...*process) error {
	if err := agreed(nodes...); err != nil {
		return err
	}
	epoch := 0
	for _, p := range nodes {
		s, err := statusOf(p)
		if err != nil {
			return err
		}
		if epoch == 0 {
			epoch = s.Epoch
		}
		if s.Epoch != epoch || epoch == 0 {
			return fmt.Errorf("%s is in epoch %d, another one in %d", p.name, s.Epoch, epoch)
		}
	}
	return nil
}

// whole is nil if keys have these units left of 10,000, undegraded, wherever they are asked for.
func whole(left int64, keys []string, nodes ...*process) error {
	for i, key := range keys {
		a, err := checkAt(nodes[i%len(nodes)], "big", key+"&cost=0")
		if err != nil || a.Degraded || a.Remaining != left {
			return fmt.Errorf("%s: %+v, %v; want %d left", key, a, err, left)
		}
	}
	return nil
}

// Promise: nodes that are started together with one list of seeds found one cluster, and never two.
func TestFoundedTogether(t *testing.T) {
	limits := write(t, testLimits)
	for range 3 {
		seeds := freeAddresses(t, 3)
		var nodes []*process
		for i, gossip := range seeds {
			p, _ := startProcess(
				t,
				fmt.Sprintf("n%d", i+1),
				"--limits",
				limits,
				"--gossip",
				gossip,
				"--join",
				strings.Join(seeds, ","),
			)
			nodes = append(nodes, p)
		}
		for _, p := range nodes {
			eventually(t, p.name+" is ready", func() error {
				if !strings.Contains(p.log(), `"msg":"ready"`) {
					return errors.New("it is not")
				}
				return nil
			})
		}
		eventually(t, "all are in one cluster", func() error { return oneCluster(nodes...) })
		for _, p := range nodes {
			if strings.Contains(p.log(), "conceded") {
				t.Errorf("%s had founded another cluster:\n%s", p.name, p.log())
			}
			p.cmd.Process.Kill()
		}
	}
}

// Promise: with two of three seeds there, a cluster is founded; with one it is not.
func TestFoundedByAMajority(t *testing.T) {
	t.Parallel()
	limits := write(t, testLimits)
	seeds := freeAddresses(t, 3)
	join := []string{"--limits", limits, "--join", strings.Join(seeds, ",")}
	n1, ready := startProcess(t, "n1", append(join, "--gossip", seeds[0])...)
	select {
	case <-ready:
		t.Fatal("one of three has founded a cluster")
	case <-time.After(3 * time.Second):
	}
	n2 := serveProcess(t, "n2", append(join, "--gossip", seeds[1])...)
	<-ready
	eventually(t, "two of three are a cluster", func() error { return oneCluster(n1, n2) })
}

// Promise: four nodes that die one after the other lose nothing, down to the last one.
func TestDieOneAfterTheOther(t *testing.T) {
	t.Parallel()
	limits := write(t, testLimits)
	n1, n2, n3 := trio(t, limits)
	n4 := serveProcess(t, "n4", "--limits", limits, "--join", n2.gossip)
	nodes := []*process{n2, n1, n4, n3}
	eventually(t, "all four agree", func() error { return oneCluster(nodes...) })
	keys := make([]string, 40)
	for i := range keys {
		keys[i] = fmt.Sprint("die-", i)
		if a, err := checkAt(nodes[i%4], "big", keys[i]+"&cost=7"); err != nil || a.Degraded {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	for len(nodes) > 1 {
		time.Sleep(time.Second) // a quiet second: copies are whole
		if err := nodes[0].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		nodes = nodes[1:]
		eventually(
			t,
			fmt.Sprintf("%d are left, and all is right", len(nodes)),
			func() error { return whole(9993, keys, nodes...) },
		)
	}
}

// Promise: a majority that is silent is never forgotten by time; readyz and the log say what is
// missing and what helps; recover is refused while a majority answers, and else has the rest go on;
// those that come back then join.
func TestMajorityIsLost(t *testing.T) {
	t.Parallel()
	limits := write(t, testLimits)
	n1, n2, n3 := trio(t, limits)
	if out, code := program("recover", "--addr", n1.grpc); code != 1 ||
		!strings.Contains(out, "nothing to recover") {
		t.Errorf("recover with a majority: %d, %s", code, out)
	}
	key := keysOwnedBy(t, n1, 3, "n1", 1)[0]
	if a, err := checkAt(n1, "big", key); err != nil || a.Degraded {
		t.Fatalf("%+v, %v", a, err)
	}
	time.Sleep(time.Second)
	for _, p := range []*process{n2, n3} {
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "n1 notices", func() error {
		_, body, err := n1.call("GET", "/readyz")
		if err == nil &&
			(!strings.Contains(body, "n2, n3 do not answer") ||
				!strings.Contains(body, "penstock recover")) {
			err = fmt.Errorf("readyz says %q", body)
		}
		return err
	})
	if a, err := checkAt(n1, "big", key); err != nil || !a.Degraded {
		t.Errorf("without a majority: %+v, %v; want a degraded answer", a, err)
	}
	if out, code := program("recover", "--addr", n1.grpc); code != 0 ||
		!strings.Contains(out, "goes on without") {
		t.Fatalf("recover: %d, %s", code, out)
	}
	eventually(t, "n1 decides again", func() error {
		a, err := checkAt(n1, "big", key+"&cost=0")
		if err == nil && a.Degraded {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	if _, body, err := n1.call("GET", "/v1/audit"); err != nil ||
		!strings.Contains(body, `"recover"`) {
		t.Errorf("the audit says %s, %v", body, err)
	}
	for _, p := range []*process{n2, n3} {
		if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are in one cluster", func() error { return oneCluster(n1, n2, n3) })
}

// Promise: a cluster goes by the failover of its founder, and one of 300 ms replaces a silent node
// within that time and what the tests' machine adds.
func TestFailover(t *testing.T) {
	limits := write(t, testLimits)
	n1 := serveProcess(t, "n1", "--limits", limits, "--failover", "300ms")
	n2 := serveProcess(t, "n2", "--limits", limits, "--join", n1.gossip, "--failover", "300ms")
	n3 := serveProcess(t, "n3", "--limits", limits, "--join", n1.gossip, "--failover", "300ms")
	eventually(t, "all three agree", func() error { return oneCluster(n1, n2, n3) })
	keys := keysOwnedBy(t, n1, 3, "n3", 5)
	for _, key := range keys {
		if a, err := checkAt(n1, "big", key+"&cost=3"); err != nil || a.Degraded {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	time.Sleep(time.Second)
	if err := n3.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(
		t,
		"its keys are decided by others",
		func() error { return whole(9997, keys, n1, n2) },
	)
	t.Logf("after %v", time.Since(began))
	if err := n3.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() error { return oneCluster(n1, n2, n3) })
	for _, bad := range []string{"0s", "299ms", "61s", "-1s"} {
		if out, code := program("serve", "--failover="+bad); code != 1 ||
			!strings.Contains(out, "--failover") {
			t.Errorf("--failover %s: %d, %s", bad, code, out)
		}
	}
}

// program runs a verb of the program as a process.
func program(words ...string) (said string, code int) {
	out, err := exec.Command(built, words...).CombinedOutput()
	return string(out), exitOf(err)
}

// Promise: when an owner and its heir are killed at once, a key with counters that are gone says
// so, with what may have been forgotten, and no other key does.
func TestOwnerAndHeirAreKilled(t *testing.T) {
	t.Parallel()
	limits := write(t, testLimits)
	n1, n2, n3 := trio(t, limits)
	n4 := serveProcess(t, "n4", "--limits", limits, "--join", n2.gossip)
	n5 := serveProcess(t, "n5", "--limits", limits, "--join", n3.gossip)
	eventually(t, "all five agree", func() error { return oneCluster(n1, n2, n3, n4, n5) })
	keys := keysOwnedBy(t, n1, 5, "n4", 60)
	keys = append(keys, keysOwnedBy(t, n1, 5, "n1", 20)...)
	for _, key := range keys {
		if a, err := checkAt(n1, "big", key+"&cost=7"); err != nil || a.Degraded {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	time.Sleep(time.Second)
	for _, p := range []*process{n4, n5} {
		p.cmd.Process.Kill()
	}
	eventually(t, "three are left", func() error { return oneCluster(n1, n2, n3) })
	forgotten := 0
	eventually(t, "what is forgotten is marked, and nothing else", func() error {
		forgotten = 0
		for _, key := range keys {
			a, err := checkAt(n1, "big", key+"&cost=0")
			if err != nil || a.Degraded != (a.Remaining == 10000) ||
				a.Degraded && a.Bound != 10000 {
				return fmt.Errorf("%s: %+v, %v", key, a, err)
			}
			if a.Degraded {
				forgotten++
			}
		}
		return nil
	})
	if forgotten == 0 || forgotten > 60 {
		t.Errorf(
			"of 80 keys %d are forgotten; want some of those of n4, with n5 as heir",
			forgotten,
		)
	}
}

// Promise: where two clusters of one name meet, the nodes of the one that gives way say so, and
// those of the other one do not.
func TestWhichClusterGivesWayIsSaid(t *testing.T) {
	t.Parallel()
	limits := write(t, testLimits)
	older := serveProcess(t, "n1", "--limits", limits)
	later := serveProcess(t, "n2", "--limits", limits)
	time.Sleep(2 * refusedEvery) // a node looks so often which cluster it is in
	bridge := serveProcess(t, "n3", "--limits", limits,
		"--join", older.gossip, "--join", later.gossip)
	eventually(t, "they are one cluster", func() error { return oneCluster(older, later, bridge) })
	const said = "this node goes on in another cluster of its name"
	eventually(t, "the later one says that it has given way", func() error {
		if !strings.Contains(later.log(), said) {
			return fmt.Errorf("its log:\n%s", later.log())
		}
		return nil
	})
	if strings.Contains(older.log(), said) {
		t.Errorf("the older one says that it has given way:\n%s", older.log())
	}
}
