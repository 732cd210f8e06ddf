package door

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrClosed is what a node says that was closed: by itself it would give away units that the others
// have counted. Nothing was charged.
var ErrClosed error = &Fault{
	Code: codes.Canceled, Status: http.StatusServiceUnavailable, Text: "the node is closed",
}

// Coded is an error with the gRPC status that a door would answer it with: so a program that has a
// node inside gets the codes that it gets from the client of a node.
type Coded struct{ error }

// WithCode is err, which is not nil, with its code.
func WithCode(err error) Coded { return Coded{err} }

// Unwrap is the error of the node, or of the context.
func (c Coded) Unwrap() error { return c.error }

// GRPCStatus is for status.Code and status.FromError.
func (c Coded) GRPCStatus() *status.Status {
	if errors.Is(c.error, context.Canceled) {
		return status.FromContextError(c.error)
	}
	return status.Convert(StatusError(c.error))
}
