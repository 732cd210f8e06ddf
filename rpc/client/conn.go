package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	penstockv1 "penstock/proto/penstock/v1"
)

// Conn is the client's connection for the generated stubs of penstock.v1, as in
//
//	members, err := penstockv1.NewAdminClient(c.Conn()).Members(ctx, &penstockv1.MembersRequest{})
//
// A call without a deadline gets DefaultTimeout. If the connection breaks, a call is sent once
// more, to the next target that can be reached; items of Check, Reserve and Reset without an id get
// one, so that they have their effect once. Admin.Recover and Admin.Credit are sent once. Streams
// are not repeated. Errors are gRPC statuses, but that of Admin.Holds for a key that another node
// decides on: ErrElsewhere.
func (c *Client) Conn() grpc.ClientConnInterface { return conn{c} }

// ErrElsewhere says that the connected node does not decide on a key.
var ErrElsewhere = errors.New("another node decides on this key")

type conn struct{ client *Client }

func (k conn) Invoke(ctx context.Context, method string, in, out any,
	options ...grpc.CallOption,
) error {
	call := func(ctx context.Context) error {
		return k.client.conn.Invoke(ctx, method, in, out,
			options...)
	}
	switch asked := in.(type) {
	case *penstockv1.RecoverRequest, *penstockv1.CreditRequest:
		return k.client.once(ctx, call)
	case *penstockv1.CheckRequest:
		if repeatable(asked.Items) && (asked.Id != nil || len(asked.Attributes) == 0) {
			break
		}
		own := proto.CloneOf(asked)
		k.client.identify(own.Items)
		if len(own.Attributes) > 0 && own.Id == nil {
			own.Id = k.client.nextID()
		}
		in = own
	case *penstockv1.ReserveRequest:
		if !repeatable(asked.Items) {
			own := proto.CloneOf(asked)
			k.client.identify(own.Items)
			in = own
		}
	case *penstockv1.ResetRequest:
		if !repeatable(asked.Items) {
			own := proto.CloneOf(asked)
			k.client.identify(own.Items)
			in = own
		}
	}
	err := k.client.twice(ctx, call)
	if _, holds := in.(*penstockv1.HoldsRequest); holds &&
		status.Code(err) == codes.FailedPrecondition {
		return fmt.Errorf("%w: %s", ErrElsewhere, status.Convert(err).Message())
	}
	return err
}

func (k conn) NewStream(ctx context.Context, d *grpc.StreamDesc, method string,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return k.client.conn.NewStream(ctx, d, method, options...)
}

// repeatable reports whether all items have ids.
func repeatable(items []*penstockv1.Item) bool {
	return !slices.ContainsFunc(items, func(it *penstockv1.Item) bool { return it.GetId() == nil })
}

// identify draws ids for the items without one. These are copies: the caller's items stay as they
// are, and are new requests if the caller sends them again.
func (c *Client) identify(items []*penstockv1.Item) {
	for _, it := range items {
		if it.Id == nil {
			it.Id = c.nextID()
		}
	}
}
