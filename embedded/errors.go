package embedded

import (
	"context"

	"penstock/rpc/door"
)

// refuses is why nothing is decided for a caller with ctx, or nil.
func (n *Node) refuses(ctx context.Context) error {
	switch {
	case n.leaving.Err() != nil:
		return told(door.ErrClosed)
	case ctx.Err() != nil:
		return told(ctx.Err())
	}
	return nil
}

// told is err as the methods of client.Limiter return it: with the gRPC status that the doors of a
// node would answer it with, so programs need not know which client.Limiter they have.
func told(err error) error { return door.WithCode(err) }
