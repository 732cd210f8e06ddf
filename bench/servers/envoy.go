package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const ratelimitName = "envoyproxy/ratelimit with redis-server"

// envoyLimits is a file of envoyproxy/ratelimit, which both read: a limit for each account.
const envoyLimits = `domain: bench
descriptors:
  - key: account
    rate_limit: {unit: day, requests_per_unit: 1000000000}
`

// writeEnvoyLimits makes the folder that a ratelimit wants, and returns where the file is.
func writeEnvoyLimits(p *Programs) (root, files string, err error) {
	root = filepath.Join(p.Dir, "envoy")
	files = filepath.Join(root, "bench", "config")
	return root, files, errors.Join(os.MkdirAll(files, 0o755),
		os.WriteFile(filepath.Join(files, "bench.yaml"), []byte(envoyLimits), 0o644))
}

// ownEnvoyDoor asks penstock as an Envoy does.
func ownEnvoyDoor(p *Programs) (*running, error) {
	_, files, err := writeEnvoyLimits(p)
	if err != nil {
		return nil, err
	}
	r, doors, err := nodes(p, 1, "--envoy-config", files)
	if err != nil {
		return r, err
	}
	return r, r.askAsEnvoy(doors[0])
}

// ratelimitServer asks a ratelimit that keeps its counters in a redis-server, both of its own. It
// sends no statistics, as nobody would receive them; otherwise it has its default settings.
func ratelimitServer(p *Programs) (*running, error) {
	root, _, err := writeEnvoyLimits(p)
	if err != nil {
		return nil, err
	}
	r, redis, err := startRedis(p)
	if err != nil {
		return r, err
	}
	addrs, err := freePorts("127.0.0.1", 3)
	if err != nil {
		return r, err
	}
	var ports [3]string
	for i, addr := range addrs {
		_, ports[i], _ = net.SplitHostPort(addr)
	}
	s, err := p.start(ratelimitSource.name, []string{
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=bench", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "USE_STATSD=false",
		"GRPC_HOST=127.0.0.1", "HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "GRPC_PORT=" + ports[0],
		"PORT=" + ports[1], "DEBUG_PORT=" + ports[2],
	})
	if err != nil {
		return r, err
	}
	r.servers = append(r.servers, s)
	if err := s.awaitListener(addrs[0]); err != nil {
		return r, err
	}
	return r, r.askAsEnvoy(addrs[0])
}

// askAsEnvoy makes r ask the rate limit service of Envoy: a request with as many descriptors as the
// point has items.
func (r *running) askAsEnvoy(door string) error {
	conn, err := r.dial(door)
	asker := ratelimitv3.NewRateLimitServiceClient(conn)
	r.caller = func(id int, p Point) func() error {
		key := turns(id, p)
		return func() error {
			in := &ratelimitv3.RateLimitRequest{Domain: "bench"}
			for range p.Items {
				in.Descriptors = append(in.Descriptors, &ratelimit.RateLimitDescriptor{
					Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "account", Value: key()}},
				})
			}
			out, err := asker.ShouldRateLimit(context.Background(), in)
			switch {
			case err != nil:
				return err
			case out.OverallCode != ratelimitv3.RateLimitResponse_OK:
				return errDenied
			}
			for _, s := range out.Statuses {
				if s.CurrentLimit == nil {
					return fmt.Errorf("a descriptor met no limit: %v", s)
				}
			}
			return nil
		}
	}
	return err
}
