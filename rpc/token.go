package rpc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	penstockv1 "penstock/proto/penstock/v1"
)

// bearer is the token that clients must send. It compares hashes, so the time says nothing about token or length.
type bearer [sha256.Size]byte

func newBearer(token string) bearer { return sha256.Sum256([]byte(token)) }

// accepts reports whether an Authorization header has the token.
func (b bearer) accepts(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	return b.is([]byte(strings.TrimSpace(token))) && strings.EqualFold(scheme, "Bearer")
}

// is reports whether token is the one.
func (b bearer) is(token []byte) bool {
	sum := sha256.Sum256(token)
	return subtle.ConstantTimeCompare(sum[:], b[:]) == 1
}

// mostUnary is how long a call with one request may take, from its header to its answer, if its client names no deadline: a request that
// does not come to its end would be waited for as long as its connection lasts. Nothing that is asked so takes a second.
const mostUnary = 10 * time.Second

// admit decides on a call when its header has come, before gRPC spends memory on it: it keeps out calls without token, if there is
// one, and sets calls with one request a deadline. Health stays open: load balancers that ask for it often cannot send a token, and
// learn nothing but "serving".
type admit struct {
	token  *bearer         // nil: everybody may ask
	single map[string]bool // full names of the methods with one request that get a deadline
}

func (a *admit) handle(ctx context.Context, call *tap.Info) (context.Context, error) {
	if a.token != nil && !strings.HasPrefix(call.FullMethodName, "/"+healthv1.Health_ServiceDesc.ServiceName+"/") &&
		!a.token.accepts(first(call.Header, "authorization")) {
		return nil, status.Error(codes.Unauthenticated, "authorization: send the cluster's token as \"Bearer TOKEN\"")
	}
	if _, set := ctx.Deadline(); set || !a.single[call.FullMethodName] || complete(ctx) {
		return ctx, nil
	}
	limited, cancel := context.WithTimeout(ctx, mostUnary)
	_ = cancel // the end of the call, which ctx is told of, is that of limited
	return &undated{limited, ctx}, nil
}

// complete reports whether everything that has been asked on the connection has come whole: most requests come with their header, and
// need no timer.
func complete(ctx context.Context) bool {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return false
	}
	info, weighed := p.AuthInfo.(weighedInfo)
	return weighed && !info.conn.unfinished()
}

// undated is a context that ends in time and does not say so: a check without a deadline of its client's has the node's default.
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
