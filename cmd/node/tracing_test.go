package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
	"penstock/rpc/rpctest"
)

const clientSpan = "00f067aa0ba902b7"

// traceparent is the header of a client with a trace that is kept, or is not.
func traceparent(trace string, kept bool) string {
	flags := "00"
	if kept {
		flags = "01"
	}
	return "00-" + trace + "-" + clientSpan + "-" + flags
}

// wholeTrace reports what is wrong with the trace of a check that n1 was asked, and n2 has decided.
func wholeTrace(c *rpctest.Collector, trace string) error {
	spans := c.Of(trace)
	check, ask, answer := spans["penstock.check"], spans["penstock.ask"], spans["penstock.answer"]
	if len(spans) != 3 || check.Span == nil || ask.Span == nil || answer.Span == nil {
		return fmt.Errorf("the trace has %d spans: %v", len(spans), spans)
	}
	if hex.EncodeToString(check.ParentSpanId) != clientSpan ||
		string(ask.ParentSpanId) != string(check.SpanId) ||
		string(answer.ParentSpanId) != string(ask.SpanId) {
		return fmt.Errorf("the spans do not follow from each other: %v", spans)
	}
	if check.Node != "n1" || ask.Node != "n1" || answer.Node != "n2" {
		return fmt.Errorf("the spans are made at %s, %s and %s", check.Node, ask.Node, answer.Node)
	}
	text := fmt.Sprint(spans)
	for _, want := range []string{"login", "forwarded", "penstock.owner", "n2"} {
		if !strings.Contains(text, want) {
			return fmt.Errorf("the spans lack %q: %s", want, text)
		}
	}
	if strings.Contains(text, "secret-key") {
		return fmt.Errorf("a span has the key in it: %s", text)
	}
	return nil
}

// Promise: a check of a client with a sampled trace makes three spans that follow from each other:
// at the door, of the ask to the owner, and at the owner, with no key in them. It does by HTTP, by
// gRPC and by rules. Without a sampled trace there are none, and without --trace-endpoint as well.
func TestSpansOfAForwardedCheck(t *testing.T) {
	c := rpctest.NewCollector(t)
	limits := write(t, triedLimits+`rules:
  - match: {user: "*"}
    apply: [{limit: login, key: "{user}"}]
`)
	n1 := serveProcess(t, "n1", "--limits", limits, "--trace-endpoint", c.URL)
	n2 := serveProcess(t, "n2", "--limits", limits, "--trace-endpoint", c.URL,
		"--join", n1.gossip)
	for _, p := range []*process{n1, n2} {
		waitForMembers(t, p, 2)
	}
	key := ""
	for i := 0; key == ""; i++ {
		name := fmt.Sprintf("secret-key-%d", i)
		if _, body, _ := n1.call("GET", "/v1/peek?limit=login&key="+name); strings.Contains(body,
			`"owner":"n2"`) {
			key = name
		}
	}
	const byHTTP, byRules = "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737"
	const byGRPC, unkept = "4bf92f3577b34da6a3ce929d0e0e4738", "4bf92f3577b34da6a3ce929d0e0e4739"
	ask := func(method, path, body, parent string) {
		t.Helper()
		r, err := http.NewRequest(method, "http://"+n1.http+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("traceparent", parent)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal(answer, err)
		}
		answer.Body.Close()
	}
	ask("GET", "/v1/check?limit=login&key="+key, "", traceparent(unkept, false))
	ask("GET", "/v1/check?limit=login&key="+key, "", traceparent(byHTTP, true))
	ask("POST", "/v1/check", `{"attributes":{"user":"`+key+`"}}`, traceparent(byRules, true))
	asked, err := client.New(client.Config{Targets: []string{n1.grpc}})
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	ctx := rpctest.WithHeader(context.Background(), "traceparent", traceparent(byGRPC, true))
	item := &penstockv1.Item{Limit: "login", Key: []byte(key)}
	if _, err := penstockv1.NewRateLimiterClient(asked.Conn()).Check(ctx,
		&penstockv1.CheckRequest{Items: []*penstockv1.Item{item}}); err != nil {
		t.Fatal(err)
	}
	for _, trace := range []string{byHTTP, byRules, byGRPC} {
		eventually(t, "the trace is whole", func() error { return wholeTrace(c, trace) })
	}
	if spans := c.Of(unkept); len(spans) != 0 {
		t.Errorf("a trace that its client does not keep has spans: %v", spans)
	}
}

// Promise: a collector that is away costs a line in the log, and no check; what is wrong with the
// flags is said at the start.
func TestSpansWithoutACollector(t *testing.T) {
	p := serveProcess(t, "n1", "--trace-endpoint", "http://127.0.0.1:1", "--trace-ratio", "1")
	body := `{"items":[{"inline":{"algorithm":"gcra","limit":9,"per":"1h"},"key":"k"}]}`
	if status, answer, err := p.send("POST", "/v1/check", body); status != http.StatusOK {
		t.Fatal(status, answer, err)
	}
	for flags, want := range map[string]string{
		"--trace-ratio=0.5": "--trace-ratio: needs --trace-endpoint",
		"--trace-ratio=2":   "--trace-ratio 2: give 0 to 1",
		"--trace-ratio=NaN": "--trace-ratio NaN: give 0 to 1",
		"--trace-endpoint=collector:4318": `--trace-endpoint "collector:4318": give a URL as ` +
			`http://127.0.0.1:4318`,
		"--trace-endpoint=http://u:secret@collector":  "OTEL_EXPORTER_OTLP_HEADERS",
		"--trace-endpoint=http://u:secret@ collector": "--trace-endpoint: give a URL",
	} {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second) // else it would serve
		said, err := exec.CommandContext(ctx, built, "serve", "--gossip=off", "--peer=off",
			"--grpc=off",
			"--http=127.0.0.1:0", "--redis=off", flags).CombinedOutput()
		stop()
		if err == nil || !strings.Contains(string(said), want) ||
			strings.Contains(string(said), "secret") {
			t.Errorf("%s: %v: %s", flags, err, said)
		}
	}
}
