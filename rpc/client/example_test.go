package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// exampleTB lets an example start what the tests start.
type exampleTB struct {
	testing.TB
	undo []func()
}

func (e *exampleTB) Helper()           {}
func (e *exampleTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
func (e *exampleTB) Cleanup(f func())  { e.undo = append(e.undo, f) }

// startNode runs a node with a limit of five units in ten minutes, named five, one of 10,000, named
// big, and one of two permits, named permits.
func startNode() (addr string, stop func()) {
	var e exampleTB
	_, addr = serveNode(&e, "n1")
	return addr, func() {
		for i := range e.undo {
			e.undo[len(e.undo)-1-i]()
		}
	}
}

func ExampleClient() {
	addr, stop := startNode()
	defer stop()

	c, err := client.New(client.Config{Targets: []string{addr}})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	ctx := context.Background()
	for _, cost := range []int64{3, 3, 2} {
		d, err := c.Take(ctx, "five", "alice", cost)
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 2 <nil>
	// false 2 <nil>
	// true 0 <nil>
}

func ExampleClient_DoAll() {
	addr, stop := startNode()
	defer stop()

	c, _ := client.New(client.Config{Targets: []string{addr}})
	defer c.Close()
	decisions, err := c.DoAll(context.Background(), []client.Request{
		{Limit: "five", Key: "alice", Cost: 4},
		{Limit: "five", Key: "alice", Cost: 4},
		{Limit: "five", Key: "bob", Cost: 4},
	})
	if err != nil {
		panic(err)
	}
	for _, d := range decisions {
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 1
	// false 1
	// true 1
}

func ExampleClient_DoTogether() {
	addr, stop := startNode()
	defer stop()

	c, _ := client.New(client.Config{Targets: []string{addr}})
	defer c.Close()
	ctx := context.Background()
	d, err := c.DoTogether(ctx, []client.Request{
		{Limit: "big", Key: "alice", Cost: 1},
		{Limit: "five", Key: "alice", Cost: 6},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("big:", d[0].Allowed, "five:", d[1].Allowed)
	left, _ := c.Peek(ctx, "big", "alice", 0)
	fmt.Println("left of big:", left.Remaining)
	// Output:
	// big: true five: false
	// left of big: 10000
}

func ExampleClient_Conn() {
	addr, stop := startNode()
	defer stop()

	c, _ := client.New(client.Config{Targets: []string{addr}})
	defer c.Close()
	answer, err := penstockv1.NewAdminClient(c.Conn()).Members(context.Background(),
		&penstockv1.MembersRequest{})
	if err != nil {
		panic(err)
	}
	for _, m := range answer.Members {
		fmt.Println(m.Name, m.State)
	}
	// Output: n1 active
}

func ExampleReservation() {
	addr, stop := startNode()
	defer stop()

	c, _ := client.New(client.Config{Targets: []string{addr}})
	defer c.Close()
	ctx := context.Background()
	r, err := c.Reserve(ctx, "big", "team-7", 2000, time.Minute) // an estimate
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Allowed, r.Remaining)
	fmt.Println(r.Settle(ctx, 300)) // the real price
	d, _ := c.Peek(ctx, "big", "team-7", 0)
	fmt.Println(d.Remaining)
	// Output:
	// true 8000
	// <nil>
	// 9700
}

func ExamplePermit() {
	addr, stop := startNode()
	defer stop()

	c, _ := client.New(client.Config{Targets: []string{addr}})
	defer c.Close()
	ctx := context.Background()
	p, err := c.Acquire(ctx, "permits", "reports", 1, time.Minute, client.HoldOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Allowed, p.Remaining)
	fmt.Println(p.Release(ctx))
	// Output:
	// true 1
	// <nil>
}

func ExampleWait() {
	full := &client.Fake{Answer: func(string, string, int64) (client.Decision, error) {
		return client.Decision{RetryAfter: time.Hour}, nil
	}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := client.Wait(ctx, full, "five", "alice", 1)
	fmt.Println(errors.Is(err, client.ErrTooLate)) // at once: an hour is beyond the deadline
	// Output: true
}

func ExampleHTTPMiddleware() {
	page := http.HandlerFunc(func(rw http.ResponseWriter,
		_ *http.Request,
	) {
		fmt.Fprint(rw, "a page")
	})
	limited := client.HTTPMiddleware{
		Limiter: new(client.Fake), // a *client.Client, or an *embedded.Node
		Limit:   client.FixedLimit("api"),
		Key:     func(r *http.Request) string { return r.Header.Get("X-User") },
	}.Wrap(page)

	answer := httptest.NewRecorder()
	limited.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	fmt.Println(answer.Code, answer.Body)
	// Output: 200 a page
}

func ExampleInterceptors() {
	limits := client.Interceptors{
		Limiter: &client.Fake{Answer: func(limit, _ string, _ int64) (client.Decision, error) {
			return client.Decision{LimitName: limit, RetryAfter: time.Second}, nil
		}},
		Limit: func(context.Context, string) string { return "api" },
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limits.Unary()),
		grpc.ChainStreamInterceptor(limits.Stream()))
	defer server.Stop()

	call := &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Place"}
	_, err := limits.Unary()(context.Background(), nil, call,
		func(context.Context, any) (any, error) { return nil, nil })
	fmt.Println(status.Code(err) == codes.ResourceExhausted, err)
	// Output: true rpc error: code = ResourceExhausted desc = limit "api" is used up
}

func ExampleFake() {
	limits := &client.Fake{Answer: func(_, key string, _ int64) (client.Decision, error) {
		return client.Decision{Allowed: key != "mallory"}, nil
	}}
	ok, _ := client.Allow(context.Background(), limits, "login", "mallory")
	fmt.Println(ok, limits.Calls()[0].Key)
	// Output: false mallory
}

func ExampleTransport() {
	asked := 0
	busy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			rw.Header().Set("Retry-After", "0")
			rw.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer busy.Close()
	base := busy.Client()
	answer, err := (&http.Client{Transport: &client.Transport{Base: base.Transport}}).Get(busy.URL)
	if err != nil {
		panic(err)
	}
	answer.Body.Close()
	fmt.Println(answer.StatusCode, "after", asked, "requests")
	// Output: 200 after 2 requests
}
