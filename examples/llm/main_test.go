package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/client"
	"penstock/rpc/clock"
	"penstock/rpc/native"
	"penstock/rpc/peer"
)

// node runs a node with the limits of the proxy, and returns a client of it.
func node(t *testing.T) *client.Client {
	t.Helper()
	clock := clock.New()
	n, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: clock, Network: peer.NewLines(peer.LinesConfig{
			ID: "n1", Boot: 1,
			Cluster: "test", Clock: clock,
		}),
		Table: limiter.NewTable(limiter.TableConfig{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	limits := cluster.Limits{}
	for _, s := range []limiter.Spec{
		{Name: "tokens", Algorithm: limiter.GCRA, Limit: 2000, Per: time.Hour, MaxDebt: 1000},
		{Name: "requests", Algorithm: limiter.GCRA, Limit: 3, Per: time.Hour},
	} {
		if limits[s.Name], err = limiter.New(s); err != nil {
			t.Fatal(err)
		}
	}
	n.SetLimits(limits)
	v, err := cluster.NewView("n1", []cluster.Member{{
		ID: "n1", Boot: 1,
		State: cluster.StateActive,
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.SetView(v)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := native.NewServer(native.Config{Node: n, Clock: clock})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	c, err := client.New(client.Config{Targets: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestProxy(t *testing.T) {
	limits := node(t)
	usage := ""
	model := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		d, err := limits.Peek(r.Context(), "tokens", "a", 0)
		if err != nil || d.Remaining > 1500 {
			t.Errorf("while the model works %d tokens are left, %v: the estimate does not count",
				d.Remaining, err)
		}
		fmt.Fprintf(rw, `{"choices":[]%s}`, usage)
	}))
	defer model.Close()
	p := httptest.NewServer(&proxy{limits: limits, model: model.URL})
	defer p.Close()
	for _, row := range []struct {
		usage     string
		maxTokens int
		status    int
		text      string
		left      int64 // tokens
	}{
		{`,"usage":{"total_tokens":100}`, 500, 200, "choices", 1900},
		{`,"usage":{"total_tokens":700}`, 500, 200, "choices", 1200}, // more than was reserved
		// and the request is not counted
		{``, 1500, 429, "tokens: ", 1200},
		// the model does not say: 509 were estimated
		{``, 500, 200, "choices", 691},
		{``, 100, 429, "requests: 0 of 3", 691}, // and no tokens are
	} {
		usage = row.usage
		r, _ := http.NewRequest("POST", p.URL,
			strings.NewReader(fmt.Sprintf(`{"max_tokens":%4d,"messages":[]}`, row.maxTokens)))
		r.Header.Set("X-Team", "a")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 200)
		n, _ := answer.Body.Read(text)
		answer.Body.Close()
		if answer.StatusCode != row.status || !strings.Contains(string(text[:n]), row.text) ||
			(answer.Header.Get("Retry-After") != "") != (row.status == 429) {
			t.Errorf("%+v: %s %s", row, answer.Status, text[:n])
		}
		if d, err := limits.Peek(t.Context(), "tokens", "a", 0); err != nil ||
			d.Remaining != row.left {
			t.Errorf("%+v: %d tokens are left, %v", row, d.Remaining, err)
		}
	}
}
