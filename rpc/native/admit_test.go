package native

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
	"penstock/rpc/clock"
	"penstock/rpc/fair"
	"penstock/rpc/rpctest"
)

// openClosed opens a door that knows two clients, and connects to it. A gate of nil lets in all.
func openClosed(t *testing.T, gate *fair.Gate) *grpc.ClientConn {
	t.Helper()
	set, err := access.Parse([]byte(`clients:
- {name: clerk, token: clerk-0123456789abcdef, admin: read}
- {name: other, token: other-0123456789abcdef, admin: read}
`))
	if err != nil {
		t.Fatal(err)
	}
	d := NewServer(Config{
		Node: rpctest.Alone(t, rpctest.Specs...), Clock: clock.New(), Clients: access.New(set),
		Gate: gate,
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = d.Serve(l) }()
	t.Cleanup(d.Stop)
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Promise: calls that are refused or unknown, and those for health, are paid for as others are: an
// address that has had its share hears OVERLOADED. Health has an account of its own, and so has a
// client that is known, also at that address.
func TestCallsThatAreRefusedArePaidFor(t *testing.T) {
	gate := fair.Strained(1e-6, func() time.Duration { return 0 })
	conn := openClosed(t, gate)
	call := func(method, token string) codes.Code {
		ctx := rpctest.Patience(t)
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization",
				"Bearer "+token+"-0123456789abcdef")
		}
		var answer healthv1.HealthCheckResponse
		return status.Code(conn.Invoke(ctx, method, &healthv1.HealthCheckRequest{}, &answer))
	}
	for _, c := range []struct {
		what, method, token string
		code                codes.Code
	}{
		{
			"a call of nobody", penstockv1.RateLimiter_Check_FullMethodName, "",
			codes.Unauthenticated,
		},
		{"a call for health", healthv1.Health_Check_FullMethodName, "", codes.OK},
		{
			"a call without a right", penstockv1.Admin_Drain_FullMethodName, "clerk",
			codes.PermissionDenied,
		},
		{"a call of nothing", "/penstock.v1.None/Nothing", "other", codes.Unimplemented},
	} {
		if code := call(c.method, c.token); code != c.code {
			t.Errorf("%s is answered with %v, not %v", c.what, code, c.code)
		}
		if code := call(c.method, c.token); code != codes.ResourceExhausted {
			t.Errorf("%s of a client that has had its share is answered with %v", c.what, code)
		}
	}
	rpctest.Eventually(t, "all calls have left", func() bool { return gate.Figures().Used == 0 })
}
