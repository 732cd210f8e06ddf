//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/rpc/history"
)

// Promise: in the demo, k ends the owner of the key that everybody asks for, and r brings it back.
// Both say what came of it, with what was lost beside what is promised; the table and the page of
// another node show it; and q gives the terminal back.
func TestDemoKill(t *testing.T) {
	t.Setenv("TERM", "xterm")
	d, err := startDemo(t.Context(), slog.New(slog.DiscardHandler), freeDemo, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	p := newPTY(t, 80, 40)
	ended := make(chan error)
	go func() {
		ended <- d.operate(t.Context(), shell{in: p.slave, out: p.slave}, &screen{out: p.slave})
	}()
	p.shows("agent-1", "k kills the owner", "!killed")
	p.press("r")
	p.shows("all nodes run")

	victim, others := d.choose()
	name := victim.member.ID
	seen := pageEvents(t, others[0])
	p.press("k")
	p.shows(name + ` owns "alice"`)
	p.press("k")
	p.shows("not yet")
	p.shows(name+" is killed, without a goodbye", `decides for "alice" after`)
	p.shows("lost with "+name, "promised")
	address := others[0].member.HTTPAddr + "/ui/#failures"
	if !strings.Contains(p.text(), address) {
		t.Errorf("the address is broken:\n%s", p.text())
	}
	lost := regexp.MustCompile(`([0-9]+) units? of the worst key, at most ([0-9]+) promised`)
	if !lost.MatchString(unbroken(p.text())) || !strings.Contains(p.text(), name+"   killed") {
		t.Errorf("the terminal shows:\n%s", p.text())
	}
	p.press("k")
	p.shows(name + " is down already")
	eventually(t, "the page shows the end, the heirs, and what was measured", seen.tell(name))

	p.press("r")
	p.shows(name+" is back", "with the counters")
	eventually(t, "the table shows it", func() error {
		if rows := strings.Split(p.text(), "\n"); !slices.ContainsFunc(rows[len(rows)-6:],
			func(row string) bool { return strings.HasPrefix(row, name+"   active") }) {
			return fmt.Errorf("%s", p.text())
		}
		return nil
	})
	again, _ := d.choose()
	if again.member.ID != name || again.member.Boot == victim.member.Boot {
		t.Errorf("%q is owned by %s; want the new start of %s", demoKey, again.member.ID, name)
	}
	p.press("q")
	if err := <-ended; err != nil {
		t.Errorf("q ends with %v", err)
	}
}

// openPage is what the page of a node is told.
type openPage struct {
	lines chan string
	seen  map[string]bool
	by    map[string]*history.Verdict
}

// pageEvents opens the page of a node, as a browser does.
func pageEvents(t *testing.T, r *running) *openPage {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, "GET",
		"http://"+r.member.HTTPAddr+"/v1/cluster/watch?span=5m", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	p := &openPage{
		lines: make(chan string, 1000), seen: map[string]bool{}, by: map[string]*history.Verdict{},
	}
	go func() {
		defer answer.Body.Close()
		in := bufio.NewScanner(answer.Body)
		in.Buffer(nil, 1<<24)
		for in.Scan() {
			if text, found := strings.CutPrefix(in.Text(), "data: ["); found {
				p.lines <- "[" + text
			}
		}
	}()
	return p
}

// tell returns a check of whether the page knows what became of a node.
func (p *openPage) tell(name string) func() error {
	return func() error {
		for len(p.lines) > 0 {
			var events []struct {
				Kind, Node string
				Verdict    *history.Verdict
			}
			if err := json.Unmarshal([]byte(<-p.lines), &events); err != nil {
				return err
			}
			for _, e := range events {
				p.seen[e.Kind] = true
				if e.Verdict != nil {
					p.by[e.Node] = e.Verdict
				}
			}
		}
		if v := p.by[name]; !p.seen[history.Takeover] || v == nil || v.Nodes < 2 || v.Keys == 0 {
			return fmt.Errorf("events %v, verdict %+v", p.seen, v)
		}
		return nil
	}
}

// Promise: what the demo says of the time without an owner goes by answers after its end that are
// whole, of other nodes; what it says of losses names a promise that is broken.
func TestDemoSays(t *testing.T) {
	begin := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	l := &demoLoad{
		victim: "node-2", lost: []string{demoKey, "load-1"}, keys: []string{"load-1", "load-2"},
		moved: map[string]moved{},
	}
	see := func(key, owner string, degraded bool, err error, after time.Duration) {
		l.see(key, &cluster.Decision{Owner: owner, Degraded: degraded}, err, begin.Add(after))
	}
	see(demoKey, "node-3", false, nil, -time.Second) // before its end nothing counts
	l.begin(begin)
	see(demoKey, "node-2", false, nil, time.Millisecond) // an answer that was under way
	see(demoKey, "node-3", true, nil, 100*time.Millisecond)
	see("load-1", "", false, cluster.ErrNoView, 100*time.Millisecond)
	see(demoKey, "node-3", false, nil, 400*time.Millisecond)
	see(demoKey, "node-1", false, nil, 900*time.Millisecond) // it moved once already
	if l.done() {
		t.Error("done, although load-1 is not decided")
	}
	see("load-1", "node-1", false, nil, 800*time.Millisecond)
	want := `node-3 decides for "alice" after 0.40s; all 2 keys of node-2 that are asked for are ` +
		"decided by others after 0.80s. Since its end: 1 degraded answer, 1 failed request"
	if got := l.text(); !l.done() || got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for want, v := range map[string]history.Verdict{
		"3 units of the worst key, at most 4 promised": {Keys: 4, Worst: 3, Promised: 4, Extra: 9},
		"9 units of 4 keys in all":                     {Keys: 4, Worst: 3, Promised: 4, Extra: 9},
		"BROKEN for 2 keys":                            {Keys: 4, Worst: 9, Promised: 4, Broken: 2},
		"cannot be told":                               {},
	} {
		if got := lostText("node-2", v); !strings.Contains(got, want) {
			t.Errorf("%s; want %s", got, want)
		}
	}
}

// Promise: the rules of the demo put requests under its limits.
func TestDemoRules(t *testing.T) {
	var s settings
	if err := loadDemo(&s); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/login": "[login:eve]", "/api/orders": "[api:eve quota:eve]", "/other": "[]",
	} {
		m, err := s.ruled.Match(map[string]string{"path": path, "user": "eve"})
		got := []string{}
		for _, c := range m.Items {
			got = append(got, c.Limit.Name+":"+c.Key)
		}
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v; want %s", path, got, err, want)
		}
	}
}
