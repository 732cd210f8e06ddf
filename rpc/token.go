package rpc

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
)

// mostUnary is how long a call with one request may take, from its header to its answer, if its
// client names no deadline: a request that does not come to its end would be waited for as long as
// its connection lasts. Nothing that is asked so takes a second.
const mostUnary = 10 * time.Second

// admit decides on a call when its header has come, before gRPC spends memory on it: it keeps out
// calls of clients that are unknown or lack the right to the method, and sets calls with one
// request a deadline. Health stays open: load balancers that ask for it often cannot send a token,
// and learn nothing but "serving".
type admit struct {
	clients *access.Clients // nil: everybody may ask
	single  map[string]bool // full names of the methods with one request that get a deadline
}

func (a *admit) handle(ctx context.Context, call *tap.Info) (context.Context, error) {
	if a.clients != nil && !strings.HasPrefix(call.FullMethodName, "/"+healthv1.Health_ServiceDesc.ServiceName+"/") {
		ticket := a.clients.Identify(first(call.Header, "authorization"), connectionState(ctx))
		if ticket == nil {
			return nil, StatusError(access.ErrUnknown)
		}
		if err := mayCall(ticket, call.FullMethodName); err != nil {
			return nil, StatusError(err)
		}
		ctx = access.With(ctx, ticket)
	}
	if _, set := ctx.Deadline(); set || !a.single[call.FullMethodName] || complete(ctx) {
		return ctx, nil
	}
	limited, cancel := context.WithTimeout(ctx, mostUnary)
	_ = cancel // the end of the call, which ctx is told of, is that of limited
	return &undated{limited, ctx}, nil
}

// connectionState is that of the TLS connection of a call, or nil.
func connectionState(ctx context.Context) *tls.ConnectionState {
	if p, ok := peer.FromContext(ctx); ok {
		return tlsState(p.AuthInfo)
	}
	return nil
}

// complete reports whether everything that has been asked on the connection has come whole: most
// requests come with their header, and need no timer.
func complete(ctx context.Context) bool {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return false
	}
	info, weighed := p.AuthInfo.(weighedInfo)
	return weighed && !info.conn.unfinished()
}

// undated is a context that ends in time and does not say so: a check without a deadline of its
// client's has the node's default.
type undated struct {
	context.Context
	outer context.Context
}

// Deadline is the client's.
func (u *undated) Deadline() (time.Time, bool) { return u.outer.Deadline() }

// learn notes the methods of s. A drain may take as long as its client likes.
func (a *admit) learn(s *grpc.Server) {
	for service, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			name := "/" + service + "/" + m.Name
			a.single[name] = !m.IsClientStream && !m.IsServerStream && name != penstockv1.Admin_Drain_FullMethodName
		}
	}
}
