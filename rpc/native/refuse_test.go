package native

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/rpctest"
)

// Promise: a call that is refused leaves nothing in memory, also while its connection stays and
// long before the deadline that its client has named.
func TestRefusedCallsLeaveNothing(t *testing.T) {
	conn := openClosed(t, nil)
	objects := func() uint64 {
		var m runtime.MemStats
		for range 2 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapObjects
	}
	for _, c := range []struct {
		what, method string
		deadline     bool
	}{
		{"without a deadline", penstockv1.RateLimiter_Check_FullMethodName, false},
		{"with a deadline", penstockv1.RateLimiter_Check_FullMethodName, true},
		{"of a method that there is not", "/penstock.v1.None/Nothing", true},
	} {
		call := func() {
			ctx := t.Context()
			if c.deadline {
				far, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				ctx = far
			}
			var answer healthv1.HealthCheckResponse
			err := conn.Invoke(ctx, c.method, &healthv1.HealthCheckRequest{}, &answer)
			if status.Code(err) != codes.Unauthenticated {
				t.Fatalf("a call %s is answered with %v", c.what, err)
			}
		}
		for range 200 {
			call()
		}
		const calls = 3000
		before := objects()
		for range calls {
			call()
		}
		if grown := int64(objects() - before); grown > calls/2 {
			t.Errorf("%d calls %s leave %d objects", calls, c.what, grown)
		}
	}
}

// Promise: a call that is refused is answered before its message has come, be it of a method with
// one request, of a stream, or of nothing; and gRPC's words for what there is not stay.
func TestRefusedBeforeTheMessage(t *testing.T) {
	conn := openClosed(t, nil)
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	refused := func(method, token string) error {
		ctx := rpctest.Patience(t)
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		s, err := conn.NewStream(ctx, both, method)
		if err != nil {
			t.Fatal(err)
		}
		return s.RecvMsg(new(healthv1.HealthCheckResponse))
	}
	for _, method := range []string{
		penstockv1.RateLimiter_Check_FullMethodName,
		penstockv1.RateLimiter_CheckStream_FullMethodName,
		penstockv1.Admin_Members_FullMethodName,
		grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName,
		"/penstock.v1.None/Nothing",
	} {
		if err := refused(method, ""); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", method, err)
		}
	}
	const clerk = "clerk-0123456789abcdef"
	if err := refused(penstockv1.Admin_Drain_FullMethodName, clerk); status.Code(err) !=
		codes.PermissionDenied {
		t.Errorf("a call without the right: %v", err)
	}
	for method, want := range map[string]string{
		"/penstock.v1.None/Nothing":        "unknown service penstock.v1.None",
		"/penstock.v1.RateLimiter/Nothing": "unknown method Nothing for service penstock.v1.Rate",
	} {
		err := refused(method, clerk)
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", method, err, want)
		}
	}
}
