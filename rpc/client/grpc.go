package client

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Interceptors are for gRPC servers: they ask a limiter before each call. A call that is not
// admitted ends with RESOURCE_EXHAUSTED, and its RetryInfo says when to retry. A call that could
// not be decided ends with UNAVAILABLE. Handlers find the decision by DecisionOf. Limiter and Limit
// are required.
type Interceptors struct {
	Limiter Limiter
	// Limit is the name of the limit that a call falls under; empty: none. The method is
	// "/package.Service/Method".
	Limit func(ctx context.Context, method string) string
	// Key is the key that a call counts for. Default: the remote address of the connection, IPv6 by
	// /64.
	Key func(ctx context.Context, method string) string
	// Cost is the cost of a call. Default: 1. A stream is charged once, when it begins.
	Cost func(ctx context.Context, method string) int64
}

// Unary is for grpc.ChainUnaryInterceptor.
func (g Interceptors) Unary() grpc.UnaryServerInterceptor {
	g.check()
	return func(ctx context.Context, in any, info *grpc.UnaryServerInfo,
		next grpc.UnaryHandler,
	) (any, error) {
		ctx, err := g.take(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		return next(ctx, in)
	}
}

// Stream is for grpc.ChainStreamInterceptor.
func (g Interceptors) Stream() grpc.StreamServerInterceptor {
	g.check()
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
		next grpc.StreamHandler,
	) error {
		ctx, err := g.take(stream.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		return next(server, decidedStream{stream, ctx})
	}
}

func (g Interceptors) check() {
	if g.Limiter == nil || g.Limit == nil {
		panic("client: Interceptors need a Limiter and a Limit")
	}
}

// decidedStream is a stream with the decision in its context.
type decidedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context is that of the stream, for DecisionOf.
func (s decidedStream) Context() context.Context { return s.ctx }

// take charges a call, and returns the context of its handler. A returned error is for the caller
// of the RPC.
func (g Interceptors) take(ctx context.Context, method string) (context.Context, error) {
	limit, key, cost := g.Limit(ctx, method), "", int64(1)
	if limit == "" {
		return ctx, nil
	}
	if g.Key != nil {
		key = g.Key(ctx, method)
	} else if p, ok := peer.FromContext(ctx); ok {
		key = household(p.Addr.String())
	}
	if g.Cost != nil {
		cost = g.Cost(ctx, method)
	}
	d, err := takeInTime(ctx, g.Limiter, Request{Limit: limit, Key: key, Cost: cost})
	switch {
	case err != nil:
		return ctx, status.Error(codes.Unavailable,
			"the limits of this service cannot be checked at the moment")
	case d.Allowed:
		return withDecision(ctx, d), nil
	}
	s := status.Newf(codes.ResourceExhausted, "limit %q is used up", d.LimitName)
	if wait := again(&d); wait >= 0 {
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{
			RetryDelay: durationpb.New(wait),
		}); err == nil {
			s = detailed
		}
	}
	return ctx, s.Err()
}
