package peer

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/rpc/catalog"
	"penstock/rpc/wire"
)

// Messages about the log of limits travel beside the stream of a line, on its connection: they are
// rare, and a check must not wait behind them. Their metadata is that of a stream.
const (
	catalogService = "penstock.peer.v1.Limits"
	catalogMethod  = "/" + catalogService + "/Tell"
)

// Tell carries a message of the catalog to m, and its answer back. See catalog.Network.
func (p *Lines) Tell(ctx context.Context, m cluster.Member, text []byte) ([]byte, error) {
	return p.invoke(ctx, m, catalogMethod, text)
}

// invoke carries a message to m that is no ask, and its answer back.
func (p *Lines) invoke(
	ctx context.Context, m cluster.Member, method string, text []byte,
) ([]byte, error) {
	l, err := p.line(m)
	if err != nil {
		return nil, err
	}
	me := greeting{p.config.Cluster, p.config.ID, p.config.Boot}
	var answer wire.Message
	var header metadata.MD
	var at grpcpeer.Peer
	ctx = metadata.NewOutgoingContext(ctx, me.metadata())
	if err := l.conn.Invoke(ctx, method, &text, &answer, grpc.Header(&header),
		grpc.Peer(&at)); err != nil {
		return nil, explainProtocol(err)
	}
	defer answer.Free()
	g, _, ok := readGreeting(header)
	if !ok || g.cluster != p.config.Cluster || g.node != m.ID || g.boot != m.Boot {
		return nil, fmt.Errorf("another node answers there: %s, boot %016x", g.node, g.boot)
	}
	if id := shown(grpcpeer.NewContext(ctx, &at)); id != nil {
		if err := id.check(g.node, m.Role); err != nil {
			return nil, err
		}
	}
	return slices.Clone(answer.Bytes()), nil
}

// registerCatalog has s answer what Tell sends.
func registerCatalog(s *grpc.Server, d *peerDoor, c *catalog.Catalog) {
	d.register(s, catalogService, "Tell",
		func(_ context.Context, text []byte, agent bool) ([]byte, error) {
			return c.Answer(text, agent)
		})
}

// answerer answers the message of another node. agent says that it is an agent.
type answerer func(ctx context.Context, text []byte, agent bool) ([]byte, error)

// register has s answer the messages of one method, which are no asks.
func (d *peerDoor) register(s *grpc.Server, service, method string, a answerer) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: method,
			Handler: func(
				_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
			) (any, error) {
				return d.tell(ctx, a, decode)
			},
		}},
	}, nil)
}

func (d *peerDoor) tell(ctx context.Context, a answerer, decode func(any) error) (any, error) {
	_, agent, err := d.met(ctx)
	if err != nil {
		return nil, err
	}
	if err := grpc.SetHeader(ctx, d.me.metadata()); err != nil {
		return nil, err
	}
	var m wire.Message
	if err := decode(&m); err != nil {
		return nil, err
	}
	defer m.Free()
	answer, err := a(ctx, m.Bytes(), agent)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &answer, nil
}
