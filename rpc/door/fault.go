package door

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
	"penstock/rpc/fair"
)

// Fault is what a door says instead of an answer. With each of them nothing was charged. As an
// error it says its text.
type Fault struct {
	Code   codes.Code // for gRPC
	Status int        // for HTTP
	Field  string     // of the request that is wrong, as in "items[3].key"; empty if no field is
	Text   string     // what is wrong, where, and what to do; begins with the field
	Right  string     // that the client lacks
	Type   string     // of the problem, for HTTP; empty: its status says it all
}

func (f *Fault) Error() string { return f.Text }

// Overloaded is the type of the problem that a refused request has, to tell it from a denial.
const Overloaded = "urn:penstock:problem:overloaded"

// Explain maps the errors of Node.Check to what the doors say. An error that it does not know is a
// fault of ours.
func Explain(err error) Fault {
	var input *cluster.InputError
	var unknown *cluster.UnknownLimitError
	f := Fault{Text: err.Error()}
	var own *Fault
	var denied *access.Denied
	switch {
	case errors.As(err, &denied):
		f.Code, f.Status, f.Field = codes.PermissionDenied, http.StatusForbidden, "authorization"
		f.Right = denied.Right
	case errors.Is(err, access.ErrUnknown):
		f.Code, f.Status, f.Field = codes.Unauthenticated, http.StatusUnauthorized, "authorization"
	case errors.As(err, &own):
		f = *own
	case errors.As(err, &input):
		f.Code, f.Status, f.Field = codes.InvalidArgument, http.StatusBadRequest, input.Field
	case errors.As(err, &unknown) && unknown.Early:
		f.Code, f.Status = codes.Unavailable, http.StatusServiceUnavailable
	case errors.As(err, &unknown):
		f.Code, f.Status, f.Field = codes.NotFound, http.StatusNotFound, fmt.Sprintf(
			"items[%d].limit", unknown.Item)
	case errors.Is(err, cluster.ErrNoRules):
		f.Code, f.Status, f.Field = codes.NotFound, http.StatusNotFound, "attributes"
	case errors.Is(err, fair.ErrOverloaded):
		f.Code, f.Status, f.Type = codes.ResourceExhausted, http.StatusTooManyRequests, Overloaded
	case errors.Is(err, cluster.ErrMajority), errors.Is(err, cluster.ErrNotAgreed):
		f.Code, f.Status = codes.FailedPrecondition, http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded):
		f.Code, f.Status = codes.DeadlineExceeded, http.StatusGatewayTimeout
	case errors.Is(err, cluster.ErrHungUp):
		f.Code, f.Status = codes.Canceled, http.StatusServiceUnavailable
	case errors.Is(err, cluster.ErrNoView):
		f.Code, f.Status = codes.Unavailable, http.StatusServiceUnavailable
	case errors.Is(err, cluster.ErrExpired):
		f.Code, f.Status = codes.DeadlineExceeded, http.StatusGatewayTimeout
	default:
		f.Code, f.Status = codes.Internal, http.StatusInternalServerError
	}
	return f
}

// StatusError is an error of Node.Check as gRPC carries it. IsAccess knows it still.
func StatusError(err error) error {
	f := Explain(err)
	if s := status.New(f.Code, f.Text); IsAccess(err) {
		return &accessStatus{s, err}
	}
	return status.Error(f.Code, f.Text)
}

// accessStatus is an error about a client that is unknown, or lacks a right.
type accessStatus struct {
	status *status.Status
	cause  error
}

func (s *accessStatus) Error() string              { return s.status.Err().Error() }
func (s *accessStatus) GRPCStatus() *status.Status { return s.status }
func (s *accessStatus) Unwrap() error              { return s.cause }

// IsAccess reports whether err says that the client is unknown, or lacks a right.
func IsAccess(err error) bool {
	var denied *access.Denied
	return errors.As(err, &denied) || errors.Is(err, access.ErrUnknown)
}

// Wrong says what is wrong with a field of a request.
func Wrong(field, format string, a ...any) error {
	return &cluster.InputError{Field: field, Reason: fmt.Sprintf(format, a...)}
}

// InlineError says that the inline limit of an item is wrong: it turns a *limiter.SpecError into an
// *cluster.InputError that names the field as the client wrote it.
func InlineError(item int, err error) error {
	var spec *limiter.SpecError
	var refused *Fault
	switch {
	case IsAccess(err):
		return err
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &spec):
		return &cluster.InputError{
			Field: fmt.Sprintf("items[%d].inline.%s", item, spec.Field), Reason: spec.Reason,
		}
	}
	return &cluster.InputError{Field: fmt.Sprintf("items[%d].inline", item), Reason: err.Error()}
}

// ErrBodies is what reading a body returns while there is no room for it.
var ErrBodies error = &Fault{
	Code: codes.Unavailable, Status: http.StatusServiceUnavailable, Field: "body",
	Text: "body: this node has no room for more request bodies; try again in a moment",
}
