package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// call asks a node's HTTP door.
func (p *process) call(method, page string) (status int, body string, err error) {
	return p.send(method, page, "")
}

// send is call with a body of JSON, if that is not empty.
func (p *process) send(method, page, json string) (status int, body string, err error) {
	r, err := http.NewRequest(method, "http://"+p.http+page, strings.NewReader(json))
	if json != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// Promise: a node that is drained has handed over every count, is not ready, and goes on answering;
// the last one stays.
func TestDrain(t *testing.T) {
	nodes := serveCluster(t, 2)
	charged := func(p *process, key string, cost int) error {
		status, body, err := p.call("GET", fmt.Sprintf("/v1/check?limit=big&key=%s&cost=%d", key,
			cost))
		if err == nil && (status != http.StatusOK || strings.Contains(body, `"degraded":true`)) {
			err = errors.New(body)
		}
		return err
	}
	for i := range 20 {
		key := fmt.Sprintf("k%d", i)
		if err := charged(nodes[0], key, 100+i); err != nil {
			t.Skipf("too busy: this machine answers too late: %v", err)
		}
	}
	eventually(t, "n1 is drained", func() error { // which may be repeated
		status, body, err := nodes[0].call("POST", "/v1/drain")
		if err == nil && status != http.StatusOK {
			err = errors.New(body)
		}
		return err
	})
	if status, body, err := nodes[0].call("GET", "/readyz"); err != nil ||
		status != http.StatusServiceUnavailable || !strings.Contains(body, "Draining") {
		t.Errorf("/readyz: %d %s %v", status, body, err)
	}
	if _, body, err := nodes[1].call("GET", "/v1/members"); err != nil ||
		!strings.Contains(body, `"name":"n1","state":"leaving"`) {
		t.Errorf("members: %s %v", body, err)
	}
	for i := range 20 {
		for _, p := range nodes {
			want := fmt.Sprintf(`"remaining":%d,`, 10000-100-i)
			_, body, err := p.call("GET", fmt.Sprintf("/v1/peek?limit=big&key=k%d", i))
			if err != nil || !strings.Contains(body, want) ||
				!strings.Contains(body, `"owner":"n2"`) {
				t.Errorf("%s says of k%d: %s %v, want %s", p.name, i, body, err, want)
			}
		}
	}
	if status, body, err := nodes[1].call("POST", "/v1/drain"); err != nil ||
		status != http.StatusConflict || !strings.Contains(body, "no other member") {
		t.Errorf("the last one: %d %s %v", status, body, err)
	}
	if status, _, err := nodes[1].call("GET", "/readyz"); err != nil || status != http.StatusOK {
		t.Errorf("the last one is not ready: %d %v", status, err)
	}
}

// Promise: a signal that comes twice, as timeout(1) sends it, is one signal: the node leaves in
// peace.
func TestSignalSentTwiceIsOne(t *testing.T) {
	s, err := selfSettings(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster, s.Role, s.Memory = "test", "member", 8<<20
	book := new(logBook)
	r, err := start(t.Context(), s, slog.New(slog.NewTextHandler(book, nil)))
	if err != nil {
		t.Fatal(err)
	}
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	if err := stopUnlessHurried(r, signals); err != nil {
		t.Errorf("%v; want a stop in peace\n%s", err, book)
	}
}
