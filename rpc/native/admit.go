package native

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/tap"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
	"penstock/rpc/admin"
	"penstock/rpc/door"
	"penstock/rpc/fair"
)

// mostUnary is how long a call with one request may take, from its header to its answer, if its
// client names no deadline: a request that does not come to its end would be waited for as long as
// its connection lasts. Nothing that is asked so takes a second.
const mostUnary = 10 * time.Second

// unaryCost is about what a call with one check takes of a processor, and streamCost a request in
// a stream.
const (
	unaryCost  = 25 * time.Microsecond
	streamCost = 8 * time.Microsecond
)

// admit decides on a call when its header has come, before anything of its messages is read: it has
// the client pay for the call, refuses calls of clients that are unknown or lack the right to the
// method, and sets calls with one request a deadline. Health stays open: load balancers that ask
// for it often cannot send a token, and learn nothing but "serving".
type admit struct {
	clients *access.Clients // nil: everybody may ask
	// the methods that there are, by their full names; true: it has one request, and a deadline
	single map[string]bool
	gate   *fair.Gate // nil: it lets in all
	// counts calls that are refused; nil: nobody does
	refused *refusals
}

func (a *admit) handle(ctx context.Context, call *tap.Info) (context.Context, error) {
	ctx, why := a.identify(ctx, call)
	if err := a.enter(ctx, call.FullMethodName, why != nil); err != nil {
		why = err
	}
	if why != nil {
		return a.refuse(ctx, call.FullMethodName, door.StatusError(why))
	}
	if _, set := ctx.Deadline(); set || !a.single[call.FullMethodName] || complete(ctx) {
		return ctx, nil
	}
	limited, cancel := context.WithTimeout(ctx, mostUnary)
	_ = cancel // the end of the call, which ctx is told of, is that of limited
	return &undated{limited, ctx}, nil
}

// identify returns ctx with the client of a call, and why that may not call the method.
func (a *admit) identify(ctx context.Context, call *tap.Info) (context.Context, error) {
	if a.clients == nil || isHealth(call.FullMethodName) {
		return ctx, nil
	}
	ticket := a.clients.Identify(firstValue(call.Header, "authorization"), connectionState(ctx))
	if ticket == nil {
		return ctx, access.ErrUnknown
	}
	return access.With(ctx, ticket), admin.MayCall(ticket, call.FullMethodName)
}

// enter has a call count among those of its client until it ends; one that is over is answered at
// once. Of a stream, each request counts, and to open it is paid for. To be told of the end costs
// 4 % of a call, so calls are counted while the gate is busy and not before.
func (a *admit) enter(ctx context.Context, method string, over bool) error {
	if !a.gate.Busy() {
		return nil
	}
	from := door.Caller{Context: ctx}
	client := from.Name()
	switch {
	case isHealth(method):
		client = fair.Health(client)
	case a.clients != nil && from.Ticket() == nil:
		client = fair.Stranger(client)
	}
	w := fair.Work{Cost: unaryCost, Line: from.Line(), Shared: true}
	single, known := a.single[method]
	if known && !single && !over {
		a.gate.Spend(client, w)
		return nil
	}
	if err := a.gate.Enter(client, w); err != nil {
		return err
	}
	if over || !known {
		a.gate.Leave(client)
		return nil
	}
	context.AfterFunc(ctx, func() { a.gate.Leave(client) }) // also if its handler is never called
	return nil
}

// isHealth reports whether a method is of the health service.
func isHealth(method string) bool {
	return strings.HasPrefix(method, "/"+healthv1.Health_ServiceDesc.ServiceName+"/")
}

// connectionState is that of the TLS connection of a call, or nil.
func connectionState(ctx context.Context) *tls.ConnectionState {
	if p, ok := peer.FromContext(ctx); ok {
		return door.TLSState(p.AuthInfo)
	}
	return nil
}

// complete reports whether everything that has been asked on the connection has come whole: most
// requests come with their header, and need no timer.
func complete(ctx context.Context) bool {
	conn := connOf(ctx)
	return conn != nil && !conn.unfinished()
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
func (a *admit) learn(s reflection.ServiceInfoProvider) {
	for service, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			name := "/" + service + "/" + m.Name
			a.single[name] = !m.IsClientStream && !m.IsServerStream &&
				name != penstockv1.Admin_Drain_FullMethodName
		}
	}
}

// firstValue is the first value of key, or empty.
func firstValue(md metadata.MD, key string) string {
	if v := md.Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}
