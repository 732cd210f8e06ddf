package native

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	gubernatorv1 "penstock/proto/gubernator"
	"penstock/rpc/door"
)

// refusals are the calls that a listener has refused for want of a credential or a right, by the
// door that their service is of.
type refusals struct{ own, envoy, gubernator *door.Unauthorized }

func newRefusals(m *door.Metrics, name string) *refusals {
	return &refusals{m.Unauthorized(name), m.Unauthorized("envoy"), m.Unauthorized("gubernator")}
}

// note counts a call of a method if err says that its client is unknown or lacks a right. A nil
// *refusals counts nothing.
func (r *refusals) note(ctx context.Context, method string, err error) {
	if r == nil {
		return
	}
	u := r.own
	switch {
	case strings.HasPrefix(method, "/envoy."):
		u = r.envoy
	case strings.HasPrefix(method, "/"+gubernatorv1.V1_ServiceDesc.ServiceName+"/"):
		u = r.gubernator
	}
	u.NoteCall(ctx, err)
}

// unary is weighAnswer, with calls counted that are refused.
func (r *refusals) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler,
) (any, error) {
	out, err := weighAnswer(ctx, in, info, next)
	if err != nil {
		r.note(ctx, info.FullMethod, err)
	}
	return out, err
}

// stream is weighAnswers, with streams counted that end with a refusal.
func (r *refusals) stream(service any, s grpc.ServerStream, info *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) error {
	err := weighAnswers(service, s, info, next)
	if err != nil {
		r.note(s.Context(), info.FullMethod, err)
	}
	return err
}
