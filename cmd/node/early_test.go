package main

import (
	"fmt"
	"net"
	"net/http"
	"testing"
)

// Promise: a name that a node does not know is called unknown when it has learned which limits were
// put at others; before that its clients are told to try again.
func TestUnknownLimitBeforeTheClusterIsMet(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	status := func(addr string) (code int, err error) {
		answer, err := http.Get("http://" + addr + "/v1/check?limit=nobody-knows&key=k")
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	startProcess(t, "early", "--join", "127.0.0.1:1", "--http", free)
	eventually(t, "a node that has met no seed says so", func() error {
		if code, err := status(free); err != nil || code != 503 {
			return fmt.Errorf("status %d, %v; want 503", code, err)
		}
		return nil
	})
	first := serveProcess(t, "first")
	for _, p := range []*process{first, serveProcess(t, "second", "--join", first.gossip)} {
		if code, err := status(p.http); err != nil || code != 404 {
			t.Errorf("%s: status %d, %v; want 404", p.name, code, err)
		}
	}
}
