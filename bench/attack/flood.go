package main

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	penstockv1 "penstock/proto/penstock/v1"
)

// Floods are requests that each door would answer, from one address, more of them than a node of
// one processor can.

func floodHTTP(ctx context.Context, v *victim) (sent int) {
	c := dial(ctx, "tcp", v.http)
	if c == nil {
		return 0
	}
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c) }()
	text := strings.Repeat("GET /v1/check?limit=demo&key=greedy HTTP/1.1\r\n"+
		"Host: localhost\r\n\r\n", 50)
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return sent
		}
		sent += 50
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

func floodGRPC(ctx context.Context, v *victim) int {
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
				_, _ = penstockv1.NewRateLimiterClient(conn).Check(ctx, demo("greedy"))
				sent.Add(1)
			}
		})
	}
	wg.Wait()
	return int(sent.Load())
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
