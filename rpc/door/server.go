package door

import (
	"crypto/tls"
	"sync"
	"time"

	"penstock/rpc/wire"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
)

// ServerOptions are what both gRPC doors have in common.
func ServerOptions(t *tls.Config) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:    30 * time.Second,
			Timeout: 5 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             5 * time.Second,
			PermitWithoutStream: true,
		}),
		grpc.WaitForHandlers(true),
		experimental.BufferPool(wire.Buffers),
	}
	return append(options, grpc.Creds(Credentials(t)))
}

// Credentials is TLS, or plaintext if there is none.
func Credentials(t *tls.Config) credentials.TransportCredentials {
	if t == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(t)
}

// Server is a gRPC door: a *grpc.Server that can end its streams.
type Server struct {
	*grpc.Server
	ending chan struct{} // closed when streams shall end
	once   sync.Once
	wait   func() // for what ends with ending beside gRPC
}

// NewServer is s with what closes ending, which its streams look at. wait returns when what the
// door serves beside gRPC has seen that and has ended; nil: there is nothing.
func NewServer(s *grpc.Server, ending chan struct{}, wait func()) *Server {
	if wait == nil {
		wait = func() {}
	}
	return &Server{Server: s, ending: ending, wait: wait}
}

// GracefulStop takes no more calls, lets those under way be answered, and returns when all are.
// Streams end with UNAVAILABLE after the requests that they have taken in; without that they would
// last as long as their clients like.
func (s *Server) GracefulStop() {
	s.once.Do(func() { close(s.ending) })
	s.Server.GracefulStop()
	s.wait()
}

// Stop ends all calls at once, and returns when their handlers have. It may hurry a GracefulStop
// along.
func (s *Server) Stop() {
	s.once.Do(func() { close(s.ending) })
	s.Server.Stop()
	s.wait()
}
