//go:build linux

package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// again starts a node that has ended anew, with the addresses that it had.
func again(t *testing.T, old, seed *running) *running {
	t.Helper()
	s := old.settingsAgain()
	s.Join = []string{seed.gossip.Addr()}
	r, err := start(t.Context(), s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// threeWithHourly starts the nodes of a demo of which the limit admits so many an hour.
func threeWithHourly(t *testing.T, limit int64) []*running {
	t.Helper()
	hourly, err := limiter.New(limiter.Spec{
		Name: "demo", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: limit,
		Per: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := startThree(t.Context(), slog.New(slog.DiscardHandler),
		func(i int, first *running) (settings, error) {
			s, err := freeDemo(i, first)
			s.named = cluster.Limits{"demo": hourly}
			return s, err
		})
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// Promise: on a terminal, top shows the whole cluster and what changes, in any size of the window;
// it goes on without the node that it was started with, names it, and counts it again when it is
// back; and q gives the terminal back.
func TestTopLive(t *testing.T) {
	nodes := threeWithHourly(t, 5)
	defer func() { stopAll(nodes) }()
	defer http.DefaultClient.CloseIdleConnections()
	check := func(r *running, key string) {
		get(t, "http://"+r.member.HTTPAddr+"/v1/check?limit=demo&key="+key)
	}
	for i := range 60 {
		check(nodes[i%demoNodes], fmt.Sprintf("key-%02d", i))
	}
	p := startPTY(t, 80, 24, nil, "top", "--addr", nodes[0].member.GRPCAddr)
	p.shows("3 members", "key-00", "KEY", "used: exact; 60 keys",
		"asked and denied a second: exact",
		"keys 1 to 18 of 60", "by used")
	for line := range strings.Lines(p.text()) {
		if strings.Contains(line, "key-00") && !strings.Contains(line, "demo") {
			t.Errorf("80 columns are not enough for a limit: %s", line)
		}
	}
	p.press("jj\x1b[B")
	p.shows("keys 4 to 21 of 60", "!key-00")
	p.press("G")
	p.shows("keys 43 to 60 of 60")
	p.press("\x1b[5~k")
	p.shows("keys 24 to 41 of 60")
	p.press("g")
	p.shows("keys 1 to 18 of 60")

	// What happens now is shown: a key is asked for and denied at two doors.
	denied := regexp.MustCompile(
		`\n +5 +5 +([0-9,.]+) +([0-9,.]+) +59m[0-9]+s +demo +node-. +alice\n`)
	eventually(t, "a rate of a key that is denied", func() error {
		check(nodes[1], "alice")
		check(nodes[2], "alice")
		if now := denied.FindStringSubmatch(p.text()); now == nil || now[2] == "0.0" ||
			!strings.Contains(p.colours(), red) {
			return fmt.Errorf("colours %q:\n%s", p.colours(), p.text())
		}
		return nil
	})
	p.press("o")
	p.shows("by asked for")

	p.resize(30, 12)
	p.shows("USED", "KEY", "alice", "!OWNER", "q quits")
	p.resize(120, 16)
	p.shows("OWNER", "FULL IN", "keys 1 to 10 of 61")
	p.resize(80, 24)

	dead := nodes[0]
	dead.crash()
	p.shows("2 members", dead.member.ID+" does not answer any more")
	p.shows(dead.member.ID + " failed")
	nodes[0] = again(t, dead, nodes[1])
	p.shows("3 members", dead.member.ID+" answers")

	p.press("q")
	if err := p.ends(); err != nil {
		t.Errorf("q ends with %v", err)
	}
}

// Promise: on a terminal, top --holds shows the open holds of the whole cluster and what becomes of
// them; it goes on when its node is gone, and q gives the terminal back.
func TestTopHoldsLive(t *testing.T) {
	nodes := threeWithHourly(t, 50)
	defer func() { stopAll(nodes) }()
	p := startPTY(t, 80, 24, nil, "top", "--holds", "--addr", nodes[0].member.GRPCAddr)
	p.shows("3 members", "holds 0 to 0 of 0")
	reserve := func(key string, ttl int) (id string) {
		t.Helper()
		body := fmt.Sprintf(`{"items":[{"limit":"demo","key":%q,"cost":3}],"ttl_ms":%d,`+
			`"holder":"worker"}`, key, ttl)
		status, answer, err := (&process{http: nodes[1].member.HTTPAddr}).send("POST",
			"/v1/reserve", body)
		found := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(answer)
		if err != nil || status != http.StatusOK || found == nil {
			t.Fatal(status, answer, err)
		}
		return found[1]
	}
	first := reserve("alice", 600_000)
	for i := range 29 {
		reserve(fmt.Sprintf("key-%02d", i), 900_000)
	}
	p.shows("holds 1 to 21 of 30", "alice", "worker", "KEY", "UNITS")
	if strings.Contains(p.colours(), yellow) {
		t.Errorf("a hold that has minutes left is marked:\n%s", p.text())
	}
	p.press("G")
	p.shows("holds 10 to 30 of 30", "!alice")
	p.press("g")
	p.shows("holds 1 to 21 of 30", "alice")
	reserve("soon", 4_000)
	p.shows("of 31", "soon")
	if !strings.Contains(p.colours(), yellow) {
		t.Errorf("a hold that runs out soon is not marked:\n%s", p.text())
	}
	status, answer, err := (&process{http: nodes[1].member.HTTPAddr}).send("POST", "/v1/settle",
		fmt.Sprintf(`{"id":%q,"actual":1}`, first))
	if err != nil || status != http.StatusOK {
		t.Fatal(status, answer, err)
	}
	p.shows("holds 1 to 21 of 29", "!alice", "!soon")
	nodes[0].crash()
	p.shows("2 members", "of 29")
	p.press("q")
	if err := p.ends(); err != nil {
		t.Errorf("q ends with %v", err)
	}
	nodes = nodes[1:]
}

// Promise: however top ends, the terminal is as it was; and while it is stopped, too.
func TestTopEnds(t *testing.T) {
	r, _ := startNode(t, func(s *settings) { s.GRPC = "127.0.0.1:0" })
	r.waitReady(t)
	for name, end := range map[string]func(p *pty){
		"ctrl-C":  func(p *pty) { p.press("\x03") },
		"SIGINT":  func(p *pty) { p.cmd.Process.Signal(syscall.SIGINT) },
		"SIGTERM": func(p *pty) { p.cmd.Process.Signal(syscall.SIGTERM) },
		"SIGHUP":  func(p *pty) { p.cmd.Process.Signal(syscall.SIGHUP) },
		"SIGQUIT": func(p *pty) { p.cmd.Process.Signal(syscall.SIGQUIT) },
		"ctrl-Z": func(p *pty) {
			p.press("\x1a")
			p.pauses()
			p.press("q")
		},
		"SIGTSTP": func(p *pty) {
			p.cmd.Process.Signal(syscall.SIGTSTP)
			p.pauses()
			p.press("q")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPTY(t, 80, 24, nil, "top", "--addr", r.member.GRPCAddr)
			p.shows("1 member,", "q quits")
			end(p)
			if err := p.ends(); err != nil {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// pauses waits until the program is stopped, looks at the terminal, and lets the program go on.
func (p *pty) pauses() {
	p.t.Helper()
	eventually(p.t, "it is stopped", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err == nil && !strings.Contains(string(stat), ") T ") {
			err = fmt.Errorf("%s", stat)
		}
		return err
	})
	p.givenBack()
	p.cmd.Process.Signal(syscall.SIGCONT)
	p.shows("q quits")
}

// Promise: with --once, on a terminal that cannot be redrawn, and without one, top prints once; and
// colours are left out where they are not wanted.
func TestTopOnce(t *testing.T) {
	r, _ := startNode(t, func(s *settings) { s.GRPC = "127.0.0.1:0" })
	r.waitReady(t)
	top := []string{"top", "--addr", r.member.GRPCAddr}
	for name, c := range map[string]struct {
		env  []string
		args []string
	}{
		"--once":    {nil, []string{"--once"}},
		"TERM=dumb": {[]string{"TERM=dumb"}, nil},
		"json":      {nil, []string{"-o", "json"}},
		"--holds":   {nil, []string{"--holds", "--once"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPTY(t, 80, 24, c.env, append(top, c.args...)...)
			if err := p.ends(); err != nil {
				t.Errorf("it ends with %v", err)
			}
			p.shows("!q quits")
		})
	}
	t.Run("NO_COLOR", func(t *testing.T) {
		p := startPTY(t, 80, 24, []string{"NO_COLOR=1"}, top...)
		p.shows("q quits")
		if p.colours() != "" {
			t.Errorf("it has colours: %s", p.colours())
		}
		p.press("q")
		p.ends()
	})
	t.Run("a wrong address", func(t *testing.T) {
		p := startPTY(t, 80, 24, nil, "top", "--addr", "127.0.0.1:1", "--timeout", "500ms")
		if p.ends() == nil {
			t.Error("it succeeds")
		}
		p.shows("cannot reach")
	})
}
