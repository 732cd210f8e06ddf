package servers

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

const emptyMethod = "/bench.Empty/Call"

// ServeEmpty answers calls that say nothing with nothing, by a gRPC server with default options:
// the least that a unary call can cost. It returns only with an error.
func ServeEmpty(l net.Listener) error {
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "bench.Empty",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Call",
			Handler: func(_ any, _ context.Context, decode func(any) error,
				_ grpc.UnaryServerInterceptor,
			) (any, error) {
				return &emptypb.Empty{}, decode(&emptypb.Empty{})
			},
		}},
	}, struct{}{})
	return s.Serve(l)
}
