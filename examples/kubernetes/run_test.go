package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// container is a process that runs what a container would, with loopback in the place of its
// network.
type container struct {
	command *exec.Cmd
	env     []string
	rename  *strings.Replacer // what stands in a manifest → where it is here
	said    *log
	ended   chan error
}

// log is what a process says.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// pods is where the containers of a test run.
type pods struct {
	t      *testing.T
	m      *manifests
	binary string
	limits string // the folder of the ConfigMap
	seed   string // where the first member's gossip is
	token  string // of the program
}

func newPods(t *testing.T) *pods {
	p := &pods{
		t: t, m: render(t), binary: filepath.Join(t.TempDir(), "penstock"),
		limits: t.TempDir(), seed: free(t),
	}
	build := exec.Command("go", "build", "-o", p.binary, "./cmd/node")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, text := range p.m.configs["penstock-limits"].Data {
		if err := os.WriteFile(filepath.Join(p.limits, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.token = secretOf(t, p.m, "shop-token", "token")
	// The test looks at members, as the program may not.
	const watcher = "  - {name: test, token: " + testToken + ", admin: read}\n"
	rights := secretOf(t, p.m, "shop-rights", "clients.yaml") + "\n" + watcher
	file := filepath.Join(p.m.keys, "shop", "clients.yaml")
	if err := os.WriteFile(file, []byte(rights), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

const testToken = "a-token-of-the-test-alone"

// secretOf is a file of the Secret with a name that begins so.
func secretOf(t *testing.T, m *manifests, prefix, file string) string {
	t.Helper()
	for name, s := range m.secrets {
		if strings.HasPrefix(name, prefix+"-") {
			return strings.TrimSpace(string(s.Data[file]))
		}
	}
	t.Fatalf("no Secret is called %s", prefix)
	return ""
}

// free is an address of loopback where nobody listens, nor is given one by a listener on port 0.
func free(t *testing.T) string {
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// shortDir is a folder for sockets, because their paths must be short.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "penstock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// run starts a container of a pod.
func (p *pods) run(pod string, c corev1.Container, gossip, sockets string) *container {
	p.t.Helper()
	_, seedPort, _ := net.SplitHostPort(p.seed)
	r := &container{said: new(log), ended: make(chan error, 1), rename: strings.NewReplacer(
		"$(POD).penstock", "localhost", "$(POD)", pod,
		"dns+penstock:7946", "dns+localhost:"+seedPort,
		"0.0.0.0:7946", gossip, "0.0.0.0:7947", "127.0.0.1:0",
		"/etc/penstock/limits", p.limits, "/etc/penstock/keys", p.m.keys,
		"/etc/penstock/rights", filepath.Join(p.m.keys, "shop"), "/run/penstock", sockets,
	)}
	variables := map[string]string{"PENSTOCK_NAME": pod}
	for _, e := range c.EnvFrom {
		maps.Copy(variables, p.m.configs[e.ConfigMapRef.Name].Data)
	}
	if sockets == "" { // a pod has a loopback of its own
		variables["PENSTOCK_GRPC"], variables["PENSTOCK_HTTP"] = "off", "unix://"+
			filepath.Join(shortDir(p.t), "http.sock")
	}
	for name, value := range variables {
		r.env = append(r.env, name+"="+r.rename.Replace(value))
	}
	r.command = exec.Command(p.binary, r.words(c.Args)...)
	r.command.Env, r.command.Stderr = r.env, r.said
	if err := r.command.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { r.ended <- r.command.Wait() }()
	p.t.Cleanup(func() {
		r.command.Process.Kill()
		if p.t.Failed() {
			p.t.Logf("%s said:\n%s", pod, r.said)
		}
	})
	return r
}

func (r *container) words(of []string) (words []string) {
	for _, w := range of {
		words = append(words, r.rename.Replace(w))
	}
	return words
}

// probe runs a probe of the container until it succeeds.
func (p *pods) probe(r *container, probe *corev1.Probe) {
	p.t.Helper()
	p.eventually("a probe succeeds", func() error {
		words := r.words(probe.Exec.Command)
		if words[0] != "/penstock" {
			return fmt.Errorf("%s is not in the image", words[0])
		}
		c := exec.Command(p.binary, words[1:]...)
		c.Env = r.env
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func (p *pods) eventually(what string, check func() error) {
	p.t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(
		20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	p.t.Fatalf("a minute later, not yet: %s: %v", what, err)
}

// end stops a container as Kubernetes does.
func (p *pods) end(r *container) {
	p.t.Helper()
	r.command.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-r.ended:
		if err != nil {
			p.t.Errorf("after SIGTERM: %v\n%s", err, r.said)
		}
	case <-time.After(time.Minute):
		p.t.Errorf("a container goes on a minute after SIGTERM")
	}
}

// decision is an answer of the agent's socket.
type decision struct {
	Allowed, Degraded bool
	Source            string
}

// ask asks the agent that has its sockets in a folder.
func (p *pods) ask(sockets, page string, into any) int {
	p.t.Helper()
	browser := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(sockets, "http.sock"))
		},
	}}
	request, err := http.NewRequest("GET", "http://agent"+page, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	token := p.token
	if page == "/v1/members" {
		token = testToken
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := browser.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if err := json.Unmarshal(text, into); err != nil {
		p.t.Fatalf("%s: %s", page, text)
	}
	return answer.StatusCode
}

// whole waits until an agent sees n members and itself.
func (p *pods) whole(sockets string, n int) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("the agent sees %d members", n), func() error {
		var seen struct {
			Members []struct{ Name, State, Role string }
		}
		p.ask(sockets, "/v1/members", &seen)
		members := 0
		for _, m := range seen.Members {
			if m.Role == "member" && m.State == "active" {
				members++
			}
		}
		if members != n {
			return fmt.Errorf("it sees %v", seen.Members)
		}
		return nil
	})
}

// Promise: the containers of the manifests start, find each other by the service's name, with the
// keys of the Secret, and an agent answers on its sockets for what the members own, also while one
// of them leaves.
func TestContainersRun(t *testing.T) {
	p := newPods(t)
	member := p.m.members.Spec.Template.Spec.Containers[0]
	var members []*container
	for i := range int(*p.m.members.Spec.Replicas) {
		gossip := p.seed
		if i > 0 {
			gossip = "127.0.0.1:0"
		}
		members = append(members, p.run(fmt.Sprintf("penstock-%d", i), member, gossip, ""))
	}
	agent := p.m.app.Spec.Template.Spec.InitContainers[0]
	var agents []*container
	var sockets []string
	for i := range int(*p.m.app.Spec.Replicas) {
		sockets = append(sockets, shortDir(t))
		agents = append(agents, p.run(fmt.Sprintf("shop-%d", i), agent, "127.0.0.1:0", sockets[i]))
	}
	for _, r := range members {
		p.probe(r, member.ReadinessProbe)
	}
	for i, r := range agents {
		p.probe(r, agent.StartupProbe)
		p.whole(sockets[i], len(members))
	}

	// six asks six times for a key of which five pass. A node that a busy machine has kept from
	// running for a while does not decide for a moment, and says so: then it is tried with another
	// key.
	six := func(name string) (key string) {
		t.Helper()
		for try := range 30 {
			key = fmt.Sprintf("%s-%d", name, try)
			var got []decision
			degraded := false
			for i := range 6 {
				var d decision
				code := p.ask(sockets[i%2], "/v1/check?limit=signup&key="+key, &d)
				got, degraded = append(got, d), degraded || d.Degraded
				if (code == 200) != d.Allowed {
					t.Errorf("%s, request %d: %d %+v", key, i+1, code, d)
				}
			}
			for i, d := range got {
				if !degraded && (d.Allowed != (i < 5) || d.Source != "forwarded") {
					t.Errorf("%s, request %d: %+v", key, i+1, d)
				}
			}
			if !degraded {
				return key
			}
		}
		t.Fatalf("%s: none of thirty keys was decided by its owner", name)
		return ""
	}
	alice := six("alice")
	out, err := exec.Command(p.binary, "check", "signup", alice,
		"--addr", "unix://"+filepath.Join(sockets[1], "grpc.sock"),
		"--auth-token-file", filepath.Join(p.m.keys, "shop", "token")).CombinedOutput()
	if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != 2 {
		t.Errorf("the seventh, by the gRPC socket: %v\n%s", err, out)
	}

	for _, row := range []struct {
		page string
		want int
	}{
		{"/v1/check?limit=api&key=x", 200},
		{"/v1/check?limit=other&key=x", 403},
		{"/v1/check?limit=api&key=x&cost=-1", 403},
		{"/v1/ring?key=x", 403},
		{"/metrics", 403},
	} {
		var answer any
		if code := p.ask(sockets[0], row.page, &answer); code != row.want {
			t.Errorf("the program asks %s: %d %v, want %d", row.page, code, answer, row.want)
		}
	}

	p.end(members[2])
	p.whole(sockets[0], 2)
	p.whole(sockets[1], 2)
	six("bob")
	p.eventually("alice is remembered although a member has left", func() error {
		var d decision
		if p.ask(sockets[0], "/v1/peek?limit=signup&cost=1&key="+alice, &d); d.Allowed ||
			d.Degraded {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
	for _, r := range append(members[:2:2], agents...) {
		if strings.Contains(r.said.String(), `"peer":"shop-`) ||
			strings.Contains(r.said.String(), "can be read by other") {
			t.Errorf("a node warns:\n%s", r.said)
		}
	}
	for i, r := range agents {
		p.end(r)
		if _, err := os.Stat(filepath.Join(sockets[i], "http.sock")); !os.IsNotExist(err) {
			t.Errorf("a socket stays behind: %v", err)
		}
	}
}
