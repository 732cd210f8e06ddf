package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rotating is a cluster of three processes with every protection between nodes, each with files of
// its own, while clients ask it.
type rotating struct {
	t      *testing.T
	dir    string
	limits string
	nodes  []*process
}

// in is a file of a node.
func (r *rotating) in(node, file string) string { return filepath.Join(r.dir, node, file) }

// penstock runs a verb, which must succeed.
func (r *rotating) penstock(words ...string) {
	r.t.Helper()
	if out, code := runVerb(r.t, words...); code != 0 {
		r.t.Fatalf("penstock %s: %s", strings.Join(words, " "), out)
	}
}

// copyTo gives a node a file, as a whole.
func (r *rotating) copyTo(node, from, file string) {
	r.t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.in(node, file+".new"), text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.in(node, file+".new"), r.in(node, file)); err != nil {
		r.t.Fatal(err)
	}
}

// serve starts a node with the files that it has.
func (r *rotating) serve(name string, more ...string) *process {
	return serveProcess(r.t, name, append([]string{
		"--limits", r.limits, "--gossip-allow", "127.0.0.0/8",
		"--gossip-key-file", r.in(name, "gossip.key"), "--peer-tls-ca", r.in(name, "ca"),
		"--peer-tls-cert", r.in(name, "cert"), "--peer-tls-key", r.in(name, "key"),
	}, more...)...)
}

// issue gives a node a certificate of the authority in a directory.
func (r *rotating) issue(node, authority string) {
	r.t.Helper()
	dir := filepath.Join(r.dir, authority)
	r.penstock("certs", "add", node, "--dir", dir, "--force")
	r.copyTo(node, filepath.Join(dir, node+".key"), "key")
	r.copyTo(node, filepath.Join(dir, node+".crt"), "cert")
}

// load asks all nodes, with keys of all owners, until done is closed. It counts what goes wrong.
func (r *rotating) load(done chan struct{}) (asked, wrong *atomic.Int64, wait func()) {
	asked, wrong = new(atomic.Int64), new(atomic.Int64)
	var wg sync.WaitGroup
	for _, p := range r.nodes {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(2 * time.Millisecond):
				}
				asked.Add(1)
				answer, err := http.Get(
					fmt.Sprintf("http://%s/v1/check?limit=big&key=k%d", p.http, i%500),
				)
				if err != nil {
					wrong.Add(1)
					r.t.Error(err)
					return
				}
				body, _ := io.ReadAll(answer.Body)
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK ||
					strings.Contains(string(body), `"degraded":true`) {
					wrong.Add(1)
					r.t.Errorf("%s: %s: %s", p.name, answer.Status, body)
				}
			}
		})
	}
	return asked, wrong, wg.Wait
}

// Promise: gossip keys, certificates and the authority of nodes are exchanged while three processes
// run under load: no request fails, none is degraded, and a newcomer needs the new ones.
func TestSecretsAreRotatedUnderLoad(t *testing.T) {
	t.Parallel()
	r := &rotating{t: t, dir: t.TempDir(), limits: write(t, testLimits)}
	names := []string{"n1", "n2", "n3", "n4", "late"}
	for _, name := range append([]string{"old", "new"}, names...) {
		if err := os.Mkdir(filepath.Join(r.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	keys := filepath.Join(r.dir, "gossip.key")
	r.penstock("keygen", "--out", keys)
	for _, authority := range []string{"old", "new"} {
		r.penstock("certs", "init", "--dir", filepath.Join(r.dir, authority))
	}
	first := filepath.Join(r.dir, "first.key") // before any rotation
	for i, name := range names {
		r.issue(name, "old")
		r.copyTo(name, filepath.Join(r.dir, "old", "ca.crt"), "ca")
		r.copyTo(name, keys, "gossip.key")
		if i == 0 {
			r.copyTo(name, keys, "first")
			first = r.in(name, "first")
		}
		if i < 3 {
			var join []string
			if i > 0 {
				join = []string{"--join", r.nodes[0].gossip}
			}
			r.nodes = append(r.nodes, r.serve(name, join...))
		}
	}
	for _, p := range r.nodes {
		waitForMembers(t, p, 3)
	}
	done := make(chan struct{})
	asked, wrong, wait := r.load(done)

	for i, step := range []string{rotateAdd, rotateUse, rotateRemove} {
		r.penstock("keygen", "--rotate", step, "--out", keys)
		for _, p := range r.nodes { // one after the other, as files come to machines
			r.copyTo(p.name, keys, "gossip.key")
			eventually(t, p.name+" has read the keys", func() error {
				if n := strings.Count(p.log(), `"msg":"gossip keys are loaded"`); n < i+2 {
					return fmt.Errorf("%d times", n)
				}
				return nil
			})
		}
	}
	both := filepath.Join(r.dir, "both.crt")
	concat(t, both, filepath.Join(r.dir, "old", "ca.crt"), filepath.Join(r.dir, "new", "ca.crt"))
	for _, p := range r.nodes {
		r.copyTo(p.name, both, "ca")
	}
	for _, p := range r.nodes {
		r.issue(p.name, "new")
	}
	for _, p := range r.nodes {
		r.copyTo(p.name, filepath.Join(r.dir, "new", "ca.crt"), "ca")
	}

	// All lines to and from a newcomer are new: each node dials it, and it dials each.
	r.copyTo("n4", keys, "gossip.key")
	r.copyTo("n4", filepath.Join(r.dir, "new", "ca.crt"), "ca")
	r.issue("n4", "new")
	n4 := r.serve("n4", "--join", r.nodes[0].gossip)
	for _, p := range append(r.nodes, n4) {
		waitForMembers(t, p, 4)
	}
	close(done)
	wait()
	t.Logf("%d requests, %d failed or degraded", asked.Load(), wrong.Load())
	for i, p := range append(r.nodes, n4) {
		for _, owner := range []string{"n1", "n4"} {
			key := keysOwnedBy(t, p, 4, owner, 1)[0]
			if a, err := checkAt(p, "big", fmt.Sprint(key)); err != nil || a.Degraded ||
				a.Owner != owner {
				t.Errorf("node %d asks %s: %+v, %v", i+1, owner, a, err)
			}
		}
	}

	// The key before opens nothing any more.
	r.copyTo("late", first, "gossip.key")
	late, ready := startProcess(
		t,
		"late",
		"--limits",
		r.limits,
		"--gossip-key-file",
		r.in("late", "gossip.key"),
		"--peer-tls-cert",
		r.in("late", "cert"),
		"--peer-tls-key",
		r.in("late", "key"),
		"--peer-tls-ca",
		r.in("late", "ca"),
		"--join",
		r.nodes[0].gossip,
	)
	eventually(t, "a node with the old key says that it has other keys", func() error {
		if strings.Contains(
			late.log(),
			"it has other gossip keys: give all nodes the same --gossip-key-file",
		) {
			return nil
		}
		return fmt.Errorf("it says %s", late.log())
	})
	select {
	case <-ready:
		t.Error("a node with the old key has joined")
	default:
	}
}

func concat(t *testing.T, to string, files ...string) {
	t.Helper()
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	if err := os.WriteFile(to, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Bad input: a broken file of gossip keys does not replace a good one, and log and metric say it;
// at the start each is an error.
func TestBrokenGossipKeys(t *testing.T) {
	good, err := exec.Command(built, "keygen").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, string(good))
	p := serveProcess(t, "n1", "--gossip-key-file", file)
	metric := func(want string) func() error {
		return func() error {
			answer, err := http.Get("http://" + p.http + "/metrics")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			if !strings.Contains(
				string(text),
				"\npenstock_config_last_reload_successful "+want+"\n",
			) {
				return fmt.Errorf("the metric is not %s", want)
			}
			return nil
		}
	}
	for _, c := range []struct{ text, want string }{
		{"c2hvcnQ=\n", "this is not a key of 32 bytes"},
		{"", "holds no key"},
		{"# a comment alone\n", "holds no key"},
		{string(good) + strings.Repeat("00", 31) + "\n", ":2: this is not a key of 32 bytes"},
	} {
		putFile(t, file, c.text)
		eventually(t, "the metric says that a file is broken", metric("0"))
		eventually(t, "the log says so, and why", func() error {
			if log := p.log(); !strings.Contains(log,
				"gossip keys are not loaded; those in force stay") ||
				!strings.Contains(log, c.want) {
				return fmt.Errorf("%q: the log has not %q:\n%s", c.text, c.want, log)
			}
			return nil
		})
		if strings.Contains(p.log(), strings.TrimSpace(string(good))) {
			t.Error("the log has the key")
		}
		putFile(t, file, string(good))
		eventually(t, "the metric is good again", metric("1"))

		q, _ := startProcess(t, "broken", "--gossip-key-file", write(t, c.text))
		if code := q.exitCode(t); code != 1 || !strings.Contains(q.log(), c.want) {
			t.Errorf(
				"%q: a node starts, or says something else: exit code %d\n%s",
				c.text,
				code,
				q.log(),
			)
		}
	}
}

// Promise: each step of a rotation does one thing, and a step out of turn is an error.
func TestRotationSteps(t *testing.T) {
	for _, c := range []struct{ keys, step, want string }{
		{"a", rotateAdd, "ax"},
		{"ab", rotateAdd, "abx"},
		{"ab", rotateUse, "ba"},
		{"abc", rotateUse, "cab"},
		{"ab", rotateRemove, "a"},
		{"a", rotateUse, "--rotate use: the file has one key; begin with --rotate add"},
		{"a", rotateRemove, "--rotate remove: the file has one key; begin with --rotate add"},
	} {
		var keys [][]byte
		for i := range c.keys {
			keys = append(keys, []byte{c.keys[i]})
		}
		var got string
		after, err := rotated(c.step, keys, []byte("x"))
		for _, key := range after {
			got += string(key)
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s of %s: %s; want %s", c.step, c.keys, got, c.want)
		}
	}
	file := filepath.Join(t.TempDir(), "key")
	if out, code := runVerb(t, "keygen", "--rotate", "add"); code != 1 ||
		!strings.Contains(out, "--out") {
		t.Errorf("--rotate without --out: %d, %s", code, out)
	}
	if out, code := runVerb(t, "keygen", "--rotate", "add", "--out", file); code != 1 ||
		!strings.Contains(out, "no such file") {
		t.Errorf("--rotate of no file: %d, %s", code, out)
	}
}
