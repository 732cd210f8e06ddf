package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// trio is three processes that have agreed.
func trio(t *testing.T, limits string) (n1, n2, n3 *process) {
	t.Helper()
	n1 = serveProcess(t, "n1", "--limits", limits)
	n2 = serveProcess(t, "n2", "--limits", limits, "--join", n1.gossip)
	n3 = serveProcess(t, "n3", "--limits", limits, "--join", n1.gossip)
	eventually(t, "all three see each other", func() error { return agreed(n1, n2, n3) })
	return n1, n2, n3
}

// refused waits for the end of a process that was started under a name in use.
func (p *process) refused(t *testing.T) {
	t.Helper()
	if code := p.exitCode(t); code != 1 {
		t.Errorf("the second %s: exit code %d, want 1", p.name, code)
	}
	said := p.log()
	for _, want := range []string{
		"the name of this node is in use", "another node has it",
		"--name",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the second %s does not say %q", p.name, want)
		}
	}
}

// Promise: a name that is in use is refused to a newcomer while its holder answers; the holder is
// not disturbed, also under load.
func TestNameInUseIsRefused(t *testing.T) {
	t.Parallel()
	limits := write(t, testLimits)
	n1, n2, n3 := trio(t, limits)
	stop, charged := make(chan struct{}), 0
	var load sync.WaitGroup
	key := keysOwnedBy(t, n1, 3, "n2", 1)[0]
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if a, err := checkAt(n1, "big", key); err != nil || a.Degraded {
				t.Errorf("a check during the attempt: %+v, %v", a, err)
			}
			charged++
		}
	})
	for range 2 {
		second, ready := startProcess(t, "n2", "--limits", limits, "--join", n3.gossip)
		second.refused(t)
		select {
		case <-ready:
			t.Error("the second n2 was ready for a while")
		default:
		}
	}
	close(stop)
	load.Wait()
	if a, err := checkAt(n3, "big", key); err != nil || a.Owner != "n2" ||
		a.Remaining != int64(10000-charged-1) {
		t.Errorf(
			"after %d checks: %+v, %v; want the first n2 to have counted them all",
			charged,
			a,
			err,
		)
	}
	if err := agreed(n1, n2, n3); err != nil {
		t.Error(err)
	}
	if strings.Contains(n2.log(), "stopping") {
		t.Errorf("the first n2 was disturbed:\n%s", n2.log())
	}
}

// Promise: of two processes of one name that come at the same moment at most one comes in.
func TestNameTakenByTwoAtOnce(t *testing.T) {
	t.Parallel()
	limits := write(t, testLimits)
	n1, n2, n3 := trio(t, limits)
	one, oneReady := startProcess(t, "n4", "--limits", limits, "--join", n1.gossip)
	two, twoReady := startProcess(t, "n4", "--limits", limits, "--join", n3.gossip)
	stays, goes, ready := one, two, oneReady
	select {
	case <-one.exited:
		stays, goes, ready = two, one, twoReady
	case <-two.exited:
	case <-time.After(20 * time.Second):
		t.Fatal("both go on")
	}
	goes.refused(t)
	select {
	case <-ready:
	case <-stays.exited:
		t.Fatal("neither came in")
	case <-time.After(20 * time.Second):
		t.Fatal("the other one is not ready")
	}
	eventually(t, "the cluster of four agrees", func() error { return agreed(n1, n2, n3, stays) })
}

// Promise: a node that was killed, or has stopped, comes back under its name at once, before
// anybody has missed it.
func TestNameIsFreeAfterAnEnd(t *testing.T) {
	t.Parallel()
	limits := write(t, testLimits)
	n1, n2, n3 := trio(t, limits)
	for _, end := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		if err := n2.cmd.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		<-n2.exited
		n2 = serveProcess(t, "n2", "--limits", limits, "--join", n1.gossip)
		eventually(t, "n2 is back after "+end.String(), func() error { return agreed(n1, n2, n3) })
	}
}

// Promise: a first node, which has no seeds, comes back under its name too: it finds out when the
// others find it.
func TestFirstNodeIsBackAfterAKill(t *testing.T) {
	t.Parallel()
	limits, gossip := write(t, testLimits), freeAddress(t)
	n1 := serveProcess(t, "n1", "--limits", limits, "--gossip", gossip)
	n2 := serveProcess(t, "n2", "--limits", limits, "--join", gossip)
	eventually(t, "both see each other", func() error { return agreed(n1, n2) })
	n1.cmd.Process.Kill()
	<-n1.exited
	n1 = serveProcess(t, "n1", "--limits", limits, "--gossip", gossip)
	eventually(t, "n1 is back", func() error { return agreed(n1, n2) })
}

// freeAddress is an address of loopback where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	return freeAddresses(t, 1)[0]
}

// agreed is nil if each of these processes sees all of them as active, no others that are there,
// and the same ring.
func agreed(nodes ...*process) error {
	ring := ""
	for _, p := range nodes {
		type named struct{ Name, State string }
		var seen struct {
			Members []named
			Ring    string
		}
		_, body, err := p.call("GET", "/v1/members")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(body), &seen); err != nil {
			return err
		}
		if ring == "" {
			ring = seen.Ring
		}
		active := 0
		for _, m := range seen.Members {
			if m.State == "active" {
				active++
			}
		}
		seen.Members = slices.DeleteFunc(seen.Members,
			func(m named) bool { return m.State == "failed" })
		if active != len(nodes) || len(seen.Members) != len(nodes) || seen.Ring != ring {
			return fmt.Errorf("%s sees %s", p.name, body)
		}
	}
	return nil
}

// checked is an answer to GET /v1/check.
type checked struct {
	Allowed   bool
	Remaining int64
	Owner     string
	Degraded  bool
	Bound     int64
}

func checkAt(p *process, limit, key string) (a checked, err error) {
	_, body, err := p.call("GET", "/v1/check?limit="+limit+"&key="+key)
	if err == nil {
		err = json.Unmarshal([]byte(body), &a)
	}
	return a, err
}

// Promise: a node that was stopped is replaced under its name once the others have found that it
// does not answer. When it goes on, it decides nothing as an owner, and ends: of each key no more
// is admitted than the limit says, but for what it marks.
func TestNameOfAStoppedNode(t *testing.T) {
	soonAndLate(t, nameOfAStoppedNode)
}

// soonAndLate plays a stop that is over soon, and one after which gossip has given the node up.
func soonAndLate(t *testing.T, play func(t *testing.T, late bool)) {
	t.Run("soon", func(t *testing.T) { play(t, false) })
	t.Run("when gossip has given it up", func(t *testing.T) { play(t, true) })
}

func nameOfAStoppedNode(t *testing.T, late bool) {
	t.Parallel()
	limits := write(t, testLimits)
	n1, n2, before := trio(t, limits)
	var keys []string
	admitted, marked := map[string]int{}, map[string]int{}
	for _, owner := range []string{"n1", "n2", "n3"} {
		keys = append(keys, keysOwnedBy(t, n1, 3, owner, 10)...)
	}
	ask := func(times int, nodes ...*process) {
		for i := range times {
			for k, key := range keys {
				p := nodes[(i+k)%len(nodes)]
				a, err := checkAt(p, "demo", key)
				switch {
				case err != nil && p != before: // it ends while it is asked
					t.Errorf("%s at %s: %v", key, p.name, err)
				case a.Degraded && p != before:
					t.Errorf("%s at %s is marked: %+v", key, p.name, a)
				case a.Allowed && a.Degraded:
					marked[key]++
				case a.Allowed:
					admitted[key]++
				}
			}
		}
	}
	ask(2, n1, n2, before)
	time.Sleep(time.Second)
	if err := before.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if late {
		waitForMembers(t, n1, 2)
	}
	after := serveProcess(t, "n3", "--limits", limits, "--join", n1.gossip+","+n2.gossip)
	eventually(t, "another n3 is there", func() error { return oneCluster(n1, n2, after) })
	ask(1, n1, n2, after)
	if err := before.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ask(4, before, n1, n2, after)
	before.refused(t)
	ask(2, n1, n2, after)
	for _, key := range keys {
		if n := admitted[key]; n > 5 || n+marked[key] < 5 {
			t.Errorf("%d of 5 of %s are admitted, and %d that are marked", n, key, marked[key])
		}
	}
}
