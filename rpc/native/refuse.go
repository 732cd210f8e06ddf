package native

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refusalKey is the key of a context for why its call is refused.
type refusalKey struct{}

// refuse refuses a call: at once, or, if its client has named a deadline, when it comes to a
// handler. gRPC stops the timer of a deadline only then: of each call that ends before, it would
// keep a context and a timer for as long as the client says, and then start a goroutine for each
// timer. A client without a token could fill the memory. A call that comes to a handler costs more
// than one that does not, so others end here.
func (a *admit) refuse(ctx context.Context, method string, why error) (context.Context, error) {
	if _, timed := ctx.Deadline(); timed {
		return context.WithValue(ctx, refusalKey{}, why), nil
	}
	a.refused.note(ctx, method, why)
	return nil, why
}

// refusal is why the call of ctx is refused, or nil.
func refusal(ctx context.Context) error {
	err, _ := ctx.Value(refusalKey{}).(error)
	return err
}

// RegisterService adds a service. Calls that are refused are answered before anything is read of
// their messages.
func (b *bare) RegisterService(desc *grpc.ServiceDesc, service any) {
	guarded := *desc
	guarded.Methods = slices.Clone(desc.Methods)
	for i := range guarded.Methods {
		guarded.Methods[i].Handler = b.guardMethod(*desc, guarded.Methods[i])
	}
	guarded.Streams = slices.Clone(desc.Streams)
	for i := range guarded.Streams {
		guarded.Streams[i].Handler = guardStream(guarded.Streams[i].Handler)
	}
	b.server.RegisterService(&guarded, service)
}

func (b *bare) guardMethod(desc grpc.ServiceDesc, method grpc.MethodDesc) grpc.MethodHandler {
	name := "/" + desc.ServiceName + "/" + method.MethodName
	return func(service any, ctx context.Context, decode func(any) error,
		guard grpc.UnaryServerInterceptor,
	) (any, error) {
		if err := refusal(ctx); err != nil {
			b.refused.note(ctx, name, err)
			return nil, err
		}
		return method.Handler(service, ctx, decode, guard)
	}
}

// guardStream is handler behind refusals, which the interceptor of streams counts.
func guardStream(handler grpc.StreamHandler) grpc.StreamHandler {
	return func(service any, s grpc.ServerStream) error {
		if err := refusal(s.Context()); err != nil {
			return err
		}
		return handler(service, s)
	}
}

// GetServiceInfo tells of all services.
func (b *bare) GetServiceInfo() map[string]grpc.ServiceInfo { return b.server.GetServiceInfo() }

// answerUnknown answers calls of methods that there are not, in gRPC's words.
func (a *admit) answerUnknown(_ any, s grpc.ServerStream) error {
	if err := refusal(s.Context()); err != nil {
		return err
	}
	name, _ := grpc.MethodFromServerStream(s)
	end := strings.LastIndex(name, "/")
	service, method := name[:end+1], name[end+1:]
	for known := range a.single {
		if strings.HasPrefix(known, service) {
			return status.Errorf(codes.Unimplemented, "unknown method %s for service %s", method,
				strings.Trim(service, "/"))
		}
	}
	return status.Errorf(codes.Unimplemented, "unknown service %s", strings.Trim(service, "/"))
}
