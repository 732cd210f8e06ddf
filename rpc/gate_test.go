package rpc

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/fair"
	"penstock/rpc/native"
	"penstock/rpc/redis"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// Promise: a client that has used up its share of the requests under way hears OVERLOADED at
// every door, in the door's own words, and nothing is charged. Another client at the same door is
// answered, and so is the first one when its requests are over. No door forgets to leave.
func TestOverloadIsSaidAtEveryDoor(t *testing.T) {
	gate := fair.Fixed(9)
	s := newStations(t, 1, five)[0]
	clients := clientsFor(t,
		clientFile+"- {name: full, token: full-0123456789abcdef, check: {limits: [five], "+
			"inline: true}}\n")
	grpcDoor := native.NewServer(native.Config{
		Node: s.node, Clock: clock.New(), Clients: clients, Gate: gate,
	})
	api := rpctest.Dial(t, s.open(grpcDoor))
	h := web.New(web.Config{Node: s.node, Clients: clients, Gate: gate, Admin: true})
	talk := rpctest.TalkTo(t,
		rpctest.Serve(t, redis.New(redis.Config{Node: s.node, Clients: clients, Gate: gate})))
	talk.Says("AUTH full full-0123456789abcdef", "+OK\r\n")
	talk.Says("CL.THROTTLE shop/r 9 10 60 1", "*5\r\n:0\r\n:10\r\n:9\r\n:-1\r\n:6\r\n")

	as := func(client string) (code codes.Code, stream codes.Code, answer *http.Response,
		body string,
	) {
		ctx := metadata.AppendToOutgoingContext(rpctest.Patience(t), "authorization",
			"Bearer "+client+"-0123456789abcdef")
		in := &penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("five", "shop/1", 0)}}
		_, err := api.Check(ctx, in)
		talk, serr := api.CheckStream(ctx)
		if serr != nil {
			t.Fatal(serr)
		}
		if serr = talk.Send(&penstockv1.CheckStreamRequest{Check: in}); serr != nil {
			t.Fatal(serr)
		}
		out, serr := talk.Recv()
		if serr != nil {
			t.Fatal(serr)
		}
		_ = talk.CloseSend()
		_, _ = talk.Recv()
		answer, body = rpctest.Page(h, "GET", "/v1/check?limit=five&key=shop/1", "",
			"Authorization", "Bearer "+client+"-0123456789abcdef")
		return status.Code(err), codes.Code(out.GetError().GetCode()), answer, body
	}
	filled := 0
	for gate.Enter("client full", fair.Work{}) == nil {
		filled++
	}
	charged := s.node.Stats().Changes()
	unary, stream, answer, body := as("full")
	if unary != codes.ResourceExhausted || stream != codes.ResourceExhausted {
		t.Errorf("gRPC says %s and, in a stream, %s", unary, stream)
	}
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") != "1" ||
		!strings.Contains(body, `"type":"urn:penstock:problem:overloaded"`) {
		t.Errorf("HTTP says %d %v %s", answer.StatusCode, answer.Header, body)
	}
	talk.Says("CL.THROTTLE shop/r 9 10 60 1", "-BUSY "+fair.ErrOverloaded.Error()+"\r\n")
	talk.Says("PING", "+PONG\r\n")
	if now := s.node.Stats().Changes(); now != charged {
		t.Errorf("refused requests have charged %d times", now-charged)
	}
	if answer, _ := rpctest.Page(h, "GET", "/metrics", "", "Authorization",
		"Bearer prom-0123456789abcdef"); answer.StatusCode != http.StatusOK {
		t.Errorf("the metrics of a node with too many requests: %d", answer.StatusCode)
	}

	if unary, stream, answer, body = as("shop"); unary != codes.OK || stream != codes.OK ||
		answer.StatusCode != http.StatusOK {
		t.Errorf("another client gets %s, %s, %d %s", unary, stream, answer.StatusCode, body)
	}
	for range filled {
		gate.Leave("client full")
	}
	if unary, stream, answer, body = as("full"); unary != codes.OK || stream != codes.OK ||
		answer.StatusCode != http.StatusOK {
		t.Errorf("the first client gets %s, %s, %d %s later", unary, stream, answer.StatusCode,
			body)
	}
	talk.Says("PING", "+PONG\r\n")
	grpcDoor.GracefulStop()
	rpctest.Eventually(t, "all requests have left", func() bool { return gate.Figures().Used == 0 })
}
