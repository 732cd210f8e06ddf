package rpc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
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

// guard keeps out of a gRPC door who does not send token, if there is one. Health stays open: whoever asks for it often
// cannot send a token, and learns nothing but "serving".
func guard(token string) []grpc.ServerOption {
	if token == "" {
		return nil
	}
	b := newBearer(token)
	check := func(ctx context.Context, method string) error {
		if strings.HasPrefix(method, "/"+healthv1.Health_ServiceDesc.ServiceName+"/") {
			return nil
		}
		md, _ := metadata.FromIncomingContext(ctx)
		if !b.accepts(first(md, "authorization")) {
			return status.Error(codes.Unauthenticated, "authorization: send the cluster's token as \"Bearer TOKEN\"")
		}
		return nil
	}
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := check(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, in)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := check(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return next(srv, stream)
		}),
	}
}
