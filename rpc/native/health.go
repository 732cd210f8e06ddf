package native

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"penstock/cluster"
)

// health is grpc.health.v1: SERVING while the node is ready. It is worked out when somebody asks,
// so there is nothing to keep up to date.
type health struct {
	healthv1.UnimplementedHealthServer
	node     *cluster.Node
	services []string // with a health of their own, which is that of the node
	draining func() bool
	ending   <-chan struct{}
}

// watchEvery is how often Watch looks for a change.
const watchEvery = 500 * time.Millisecond

func (h *health) status(service string) healthv1.HealthCheckResponse_ServingStatus {
	if service != "" && !slices.Contains(h.services, service) {
		return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
	}
	if !h.node.Ready() || h.draining != nil && h.draining() {
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
	return healthv1.HealthCheckResponse_SERVING
}

// Check tells whether the node is ready. The service is empty or one that is served.
func (h *health) Check(_ context.Context,
	in *healthv1.HealthCheckRequest,
) (*healthv1.HealthCheckResponse, error) {
	s := h.status(in.Service)
	if s == healthv1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Errorf(codes.NotFound, "service: %q is not known here", in.Service)
	}
	return &healthv1.HealthCheckResponse{Status: s}, nil
}

// List tells the same of all services.
func (h *health) List(context.Context,
	*healthv1.HealthListRequest,
) (*healthv1.HealthListResponse, error) {
	out := &healthv1.HealthListResponse{Statuses: map[string]*healthv1.HealthCheckResponse{}}
	for _, service := range append([]string{""}, h.services...) {
		out.Statuses[service] = &healthv1.HealthCheckResponse{Status: h.status(service)}
	}
	return out, nil
}

// Watch tells it now, and again within half a second of every change.
func (h *health) Watch(in *healthv1.HealthCheckRequest,
	stream grpc.ServerStreamingServer[healthv1.HealthCheckResponse],
) error {
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	told := healthv1.HealthCheckResponse_UNKNOWN
	for {
		if s := h.status(in.Service); s != told {
			told = s
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: s}); err != nil {
				return err
			}
		}
		select {
		case <-look.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-h.ending:
			return status.Error(codes.Unavailable, "this node is stopping")
		}
	}
}
