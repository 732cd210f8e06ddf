package rpc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/native"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

const holders = `clients:
- {name: greedy, token: greedy-0123456789abcdef, check: {limits: ["*"]}}
- {name: polite, token: polite-0123456789abcdef, check: {limits: ["*"]}}
`

// Promise: a client that names another holder with each call has no more holds open than there is
// room left for, at whichever door of whichever node it asks, and is told why. Another client gets
// its holds, and one that is settled makes room.
func TestInventedHoldersAreOneClient(t *testing.T) {
	s := newStations(t, 2, limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency, Limit: 1 << 30, Per: time.Hour,
	})
	key := rpctest.OwnKey(s[0].node, 0)
	clients := clientsFor(t, holders)
	api := rpctest.Dial(t, s[1].open(native.NewServer(native.Config{
		Node: s[1].node, Clock: clock.New(), Clients: clients,
	})))
	invented := 0
	reserve := func(client string, n int) (*penstockv1.ReserveResponse, error) {
		invented++
		ctx := metadata.AppendToOutgoingContext(rpctest.Patience(t), "authorization",
			"Bearer "+client+"-0123456789abcdef")
		in := &penstockv1.ReserveRequest{TtlMs: 600_000, Holder: fmt.Sprint("holder ", invented)}
		for range n {
			in.Items = append(in.Items, rpctest.Item("permits", key, 1))
		}
		return api.Reserve(ctx, in)
	}
	post := func(client, path, body string) (code int, answer map[string]any) {
		invented++
		r, text := rpctest.Page(web.New(web.Config{Node: s[0].node, Clients: clients}), "POST",
			path, body, "Authorization", "Bearer "+client+"-0123456789abcdef")
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		if retry := r.Header.Get("Retry-After"); r.StatusCode == 429 && retry != "1" {
			t.Errorf("Retry-After: %q", retry)
		}
		return r.StatusCode, answer
	}
	byHTTP := func(client string) (int, map[string]any) {
		return post(client, "/v1/reserve", fmt.Sprintf(
			`{"limit":"permits","key":%q,"ttl_ms":600000,"holder":"holder %d"}`, key, invented))
	}

	const each = 1 << 9
	var first string
	for range limiter.MaxHoldsOfLimit / 2 / each {
		out, err := reserve("greedy", each)
		if err != nil || !out.Allowed {
			t.Fatalf("call %d: %v, %v", invented, out.GetAllowed(), err)
		}
		first = out.Holds[0].Id
	}
	const why = "items: this client has as many holds open, of this limit or on one node,"
	_, err := reserve("greedy", 1)
	if status.Code(err) != codes.ResourceExhausted ||
		!strings.HasPrefix(status.Convert(err).Message(), why) {
		t.Errorf("over gRPC: %v", err)
	}
	code, answer := byHTTP("greedy")
	detail, _ := answer["detail"].(string)
	if code != 429 || answer["type"] != "urn:penstock:problem:overloaded" ||
		!strings.HasPrefix(detail, why) {
		t.Errorf("over HTTP: %d %v", code, answer)
	}
	if n := s[0].node.Stats().HoldsRefused.Load(); n != 2 {
		t.Errorf("%d refusals are counted", n)
	}
	post("greedy", "/v1/settle", fmt.Sprintf(`{"id":%q,"actual":0}`, first))
	if code, answer := byHTTP("greedy"); code != 200 || answer["allowed"] != true {
		t.Errorf("when one is settled: %d %v", code, answer)
	}
	if _, err := reserve("greedy", 1); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("and one more: %v", err)
	}
	if out, err := reserve("polite", each); err != nil || !out.Allowed {
		t.Errorf("another client over gRPC: %v", err)
	}
	if code, answer := byHTTP("polite"); code != 200 || answer["allowed"] != true {
		t.Errorf("another client over HTTP: %d %v", code, answer)
	}
}
