// Command grpc is a gRPC server that asks Penstock before it answers: 5 calls an hour for each
// user. With -call it is a client of that server: it calls once, and prints the code, and when to
// come again.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/rpc/client"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "host:port to serve on, or to call")
	nodes := flag.String("penstock", "127.0.0.1:7948", "gRPC doors of Penstock nodes, with "+
		"commas between them")
	user := flag.String("call", "", "call as this user, instead of serving")
	flag.Parse()
	if *user != "" {
		call(*listen, *user)
		return
	}
	limits, err := client.New(client.Config{
		Targets: strings.Split(*nodes, ","),
		OnError: client.FailOpen,
	})
	if err != nil {
		log.Fatal(err)
	}
	limited := client.Interceptors{
		Limiter: limits,
		Limit:   func(context.Context, string) string { return "api" },
		Key: func(ctx context.Context, _ string) string {
			md, _ := metadata.FromIncomingContext(ctx)
			return cmp.Or(strings.Join(md.Get("user"), ","), "anonymous") // a key is never empty
		},
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(limited.Unary()),
		grpc.ChainStreamInterceptor(limited.Stream()))
	healthv1.RegisterHealthServer(s, health.NewServer()) // the service of this example
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(s.Serve(l))
}

func call(address, user string) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = healthv1.NewHealthClient(conn).Check(metadata.AppendToOutgoingContext(ctx, "user",
		user), &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	s := status.Convert(err)
	fmt.Print(s.Code())
	for _, d := range s.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			fmt.Print(", again in ", retry.RetryDelay.AsDuration().Round(time.Minute))
		}
	}
	fmt.Println()
}
