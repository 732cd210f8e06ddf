package native

import (
	"testing"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"penstock/rpc/rpctest"
)

func TestDrainingIsNotServing(t *testing.T) {
	node := rpctest.Alone(t)
	h := &health{node: node, draining: func() bool { return true }}
	if got := h.status(""); got != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("a draining node is %s", got)
	}
}
