package embedded

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/rpc/door"
)

// errClosed is what a node that was closed answers: by itself it would give away units that the
// others have counted. Nothing was charged.
var errClosed = status.Error(codes.Canceled, "embedded: the node is closed")

// refuses is why nothing is decided for a caller with ctx, or nil.
func (n *Node) refuses(ctx context.Context) error {
	switch {
	case n.leaving.Err() != nil:
		return errClosed
	case ctx.Err() != nil:
		return told(ctx.Err())
	}
	return nil
}

// failure is an error with the gRPC status that the doors of a node would answer it with: so
// programs need not know which client.Limiter they have.
type failure struct{ error }

// told is err as the methods of client.Limiter return it.
func told(err error) error { return failure{err} }

// Unwrap is the error of the node, or of the context.
func (f failure) Unwrap() error { return f.error }

// GRPCStatus is for status.Code and status.FromError.
func (f failure) GRPCStatus() *status.Status {
	if errors.Is(f.error, context.Canceled) {
		return status.FromContextError(f.error)
	}
	return status.Convert(door.StatusError(f.error))
}
