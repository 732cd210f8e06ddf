package main

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	penstockv1 "penstock/proto/penstock/v1"
)

// Floods are requests that each door would answer, from one address, more of them than a node of
// one processor can. The answer to some of them is a refusal.

// isClosed says that the node wants a token, of which a flood has none.
func (a *attack) isClosed() bool { return strings.HasPrefix(a.name, "flood-unknown-") }

// floodHTTP sends requests for a page to a Host in pipelines, and reads the answers.
func floodHTTP(page, host string) func(context.Context, *victim) int {
	text := strings.Repeat("GET "+page+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n", 50)
	return func(ctx context.Context, v *victim) (sent int) {
		c := dial(ctx, "tcp", v.http)
		if c == nil {
			return 0
		}
		defer c.Close()
		go func() { _, _ = io.Copy(io.Discard, c) }()
		for {
			if _, err := io.WriteString(c, text); err != nil {
				return sent
			}
			sent += 50
		}
	}
}

// dialGRPC opens a connection of gRPC.
func dialGRPC(address string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		append(more, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// demo is a check of the victim's limit.
func demo(key string) *penstockv1.CheckRequest {
	return &penstockv1.CheckRequest{
		Items: []*penstockv1.Item{{Limit: "demo", Key: []byte(key)}},
	}
}

// floodGRPC has 64 goroutines call over one connection.
func floodGRPC(call func(context.Context, *grpc.ClientConn)) func(context.Context, *victim) int {
	return func(ctx context.Context, v *victim) int {
		conn, err := dialGRPC(v.grpc)
		if err != nil {
			return 0
		}
		defer conn.Close()
		var sent atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for ctx.Err() == nil {
					call(ctx, conn)
					sent.Add(1)
				}
			})
		}
		wg.Wait()
		return int(sent.Load())
	}
}

// callCheck asks for a check, without a token.
func callCheck(ctx context.Context, conn *grpc.ClientConn) {
	_, _ = penstockv1.NewRateLimiterClient(conn).Check(ctx, demo("greedy"))
}

// callHealth asks for the health of the node.
func callHealth(ctx context.Context, conn *grpc.ClientConn) {
	_, _ = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
}

// callNothing calls what the node has not.
func callNothing(ctx context.Context, conn *grpc.ClientConn) {
	var answer healthv1.HealthCheckResponse
	_ = conn.Invoke(ctx, "/none.None/None", &healthv1.HealthCheckRequest{}, &answer)
}

func floodStream(ctx context.Context, v *victim) (sent int) {
	conn, err := dialGRPC(v.grpc)
	if err != nil {
		return 0
	}
	defer conn.Close()
	stream, err := penstockv1.NewRateLimiterClient(conn).CheckStream(ctx)
	if err != nil {
		return 0
	}
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	for {
		in := &penstockv1.CheckStreamRequest{Tag: uint64(sent), Check: demo("greedy")}
		if stream.Send(in) != nil {
			return sent
		}
		sent++
	}
}
