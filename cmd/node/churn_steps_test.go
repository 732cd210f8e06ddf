package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

const (
	// stepsLimits has a limit that no step uses up: so each unit that is forgotten is seen.
	stepsLimits = `
limits:
  - {name: hot, algorithm: fixed_window, anchor: first_hit, limit: 100000, per: 10m}
  - {name: live, algorithm: gcra, limit: 10, per: 240h}
`
	// chargedBefore is taken from each key before the step that asks for it, and copied.
	chargedBefore = 10
)

// steps are changes of one cluster, one after the other. Each has keys of its own, which are asked
// for through the nodes that are there before and after it.
type steps struct {
	*churn
	started int // nodes so far: none has the name of another one
	taken   int // steps so far
	table   []string
}

// TestStepByStep changes a cluster of real processes until one node is left, or until all have
// other names, and says of each step what it costs. It fails if an answer without a mark does not
// know of what was charged before the fault and copied, or has been admitted after it; if a live
// key loses its count; if a request fails; or if some key has no decider in the end. Units that are
// admitted in the moments before a crash are extra, how many is a figure. All steps, with more keys
// and a higher rate, are measured by:
//
//	go test ./cmd/node -run TestStepByStep -v -args -churn.steps=3 -churn.live=20000 \
//		-churn.rate=1000
//
// With fewer rounds TestDieOneAfterTheOther is left to kill nodes, and TestChurn to send them away.
func TestStepByStep(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	kill := func(s *steps) { s.dies(syscall.SIGKILL) }
	silence := func(s *steps) { s.dies(syscall.SIGSTOP) }
	all := *churnSteps
	for _, x := range []struct {
		name   string
		nodes  int
		rounds int
		round  []func(s *steps)
	}{
		{"they die one after the other (kill -9)", all + 1, all, []func(*steps){kill}},
		{
			"they fall silent one after the other (SIGSTOP)", max(3, all+1), max(2, all),
			[]func(*steps){silence},
		},
		{
			"replaced one by one by new names (kill -9)", 3, max(1, all),
			[]func(*steps){(*steps).joins, kill},
		},
		{
			"replaced one by one by new names (SIGTERM)", 3, all,
			[]func(*steps){(*steps).joins, (*steps).leaves},
		},
	} {
		if x.rounds == 0 {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			s := &steps{churn: &churn{t: t, limits: write(t, stepsLimits)}}
			for range x.nodes {
				s.add()
			}
			s.agree()
			s.settled()
			s.chargeLive()
			s.step("nothing", s.nodes, false, func() {}, func() {})
			for range x.rounds {
				for _, step := range x.round {
					step(s)
				}
			}
			t.Logf("%d live keys, %d checks a second over %d keys:\n%s", *churnLive, *churnRate,
				hotKeys, strings.Join(append([]string{
					"| step | checks | failed | marked | extra | of one key | a key without a " +
						"right answer: the middle one | the worst | without a decider: the worst |",
					"|---|---|---|---|---|---|---|---|---|",
				}, s.table...), "\n"))
		})
	}
}

// add starts a node with a name that none has had.
func (s *steps) add() {
	s.started++
	s.nodes = append(s.nodes, serveProcess(s.t, fmt.Sprintf("n%d", s.started), s.flags()...))
}

// agree waits until all nodes see each other, and nobody else.
func (s *steps) agree() {
	eventually(s.t, fmt.Sprintf("%d nodes agree", len(s.nodes)),
		func() error { return oneCluster(s.nodes...) })
}

// dies kills the oldest node. If it is stopped instead, it is killed when it was replaced, as a
// machine that is silent goes for good; of two nodes the other one cannot know before.
func (s *steps) dies(by syscall.Signal) {
	p, stay := s.nodes[0], s.nodes[1:]
	name := fmt.Sprintf("%s of %d dies", p.name, len(s.nodes))
	if by == syscall.SIGSTOP {
		name = fmt.Sprintf("%s of %d falls silent", p.name, len(s.nodes))
	}
	s.step(name, stay, true, func() {
		s.signal(0, by)
		s.nodes = stay
		if by == syscall.SIGSTOP {
			awaitStop(s.t, p)
		} else {
			<-p.exited
		}
	}, func() {
		if by != syscall.SIGSTOP {
			return
		}
		if len(stay) > 1 {
			s.agree()
		} else {
			s.lastOneMarks()
		}
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
}

// lastOneMarks demands that the one of two that is left decides, and marks all of it.
func (s *steps) lastOneMarks() {
	eventually(s.t, "the last one marks what it decides", func() error {
		for _, d := range s.askAll(0) {
			if !d.Degraded || d.Source != penstockv1.Source_SOURCE_OWNER {
				return fmt.Errorf("%v", d)
			}
		}
		return nil
	})
}

// leaves sends the oldest node away.
func (s *steps) leaves() {
	stay := s.nodes[1:]
	s.step(fmt.Sprintf("%s of %d leaves", s.nodes[0].name, len(s.nodes)), stay, false, func() {
		s.leave(0)
		s.nodes = stay
	}, func() {})
}

func (s *steps) joins() {
	s.step(fmt.Sprintf("n%d joins %d", s.started+1, len(s.nodes)), s.nodes, false, s.add, func() {})
}

// awaitStop waits until a process that was sent SIGSTOP has obeyed.
func awaitStop(t *testing.T, p *process) {
	if runtime.GOOS != "linux" {
		return
	}
	eventually(t, p.name+" has stopped", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			if err != nil || !strings.Contains(string(text), ") T ") {
				return fmt.Errorf("%s: %s, %v", thread, text, err)
			}
		}
		return err
	})
}

// step has keys of its own asked for through some nodes while fault is run, and then judges. What
// was admitted before the end of a fault that crashes a node may be forgotten. After is run when
// nobody asks any more.
func (s *steps) step(name string, through []*process, crashes bool, fault, after func()) {
	s.taken++
	a := &asked{prefix: fmt.Sprintf("step-%d-", s.taken)}
	s.asked = a
	s.dial(through)
	s.chargeBefore()
	a.counting.Store(!crashes)

	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { s.ask(stop) })
	time.Sleep(500 * time.Millisecond)
	fault()
	a.counting.Store(true)
	time.Sleep(*churnFor)
	close(stop)
	asking.Wait()

	after()
	s.agree()
	lost := s.lostLive()
	if lost > 0 {
		s.t.Errorf("%s: %d of %d keys have lost what was charged to them long before", name, lost,
			*churnLive)
	}
	sum, worst := s.forgotten(name)
	if e := a.first.Load(); e != nil {
		s.t.Errorf("%s: %d of %d checks have failed: %v", name, a.failed.Load(), a.checks.Load(),
			*e)
	}
	if n := len(a.wrong); n > 0 {
		s.t.Errorf("%s: %d answers have no mark and are wrong, the first one: %s", name, n,
			a.wrong[0])
	}
	middle, longest := a.gaps()
	_, undecided := a.gapsOf(&a.decided)
	s.table = append(s.table, fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %v | %v | %v |", name,
		a.checks.Load(), a.failed.Load(), a.degraded.Load(), sum, worst,
		middle.Round(time.Millisecond), longest.Round(time.Millisecond),
		undecided.Round(time.Millisecond)))
}

// dial makes a client for each of these nodes, which asks no other one.
func (s *steps) dial(nodes []*process) {
	clients := make([]*client.Client, len(nodes))
	for i, p := range nodes {
		clients[i] = dial(s.t, p)
		if _, err := adminOf(clients[i]).Members(s.t.Context(),
			&penstockv1.MembersRequest{}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.clients.Store(&clients)
}

// askAll asks for the hot keys of a step at once.
func (s *steps) askAll(cost int64) []*penstockv1.Decision {
	var items []*penstockv1.Item
	for key := range hotKeys {
		it := item("hot", s.asked.name(key))
		it.Cost = &cost
		items = append(items, it)
	}
	decisions, err := checkItems(s.t.Context(), (*s.clients.Load())[0], items)
	if err != nil {
		s.t.Fatal(err)
	}
	return decisions
}

// chargeBefore takes units from the hot keys of a step, and waits until they are copied.
func (s *steps) chargeBefore() {
	for key, d := range s.askAll(chargedBefore) {
		if d.Degraded || !d.Allowed {
			s.t.Fatalf("a key before the fault: %v", d)
		}
		s.asked.sure[key].Store(chargedBefore)
	}
	awaitCopies(s.t, s.nodes)
}

// forgotten are the units of the hot keys of a step that were admitted and are not counted in the
// end: of all, and of the worst. They may be admitted once more.
func (s *steps) forgotten(name string) (sum, worst int64) {
	for range 50 { // what shares have admitted is charged afterwards
		sum, worst = 0, 0
		for key, d := range s.askAll(0) {
			over := s.asked.admitted[key].Load() + chargedBefore - (d.Limit - d.Remaining)
			sum, worst = sum+max(0, over), max(worst, over)
		}
		if sum == 0 || s.asked.degraded.Load() == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for key, d := range s.askAll(0) {
		if used, sure := d.Limit-d.Remaining, s.asked.sure[key].Load(); d.Degraded || used < sure {
			s.t.Errorf("%s: %d units of %s were sure, and %d are counted in the end: %v", name,
				sure, s.asked.name(key), used, d)
		}
	}
	return sum, worst
}
