package door

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
)

// Promise: an error with a code says what it said before, is what it was before, and has the code
// that a door answers it with.
func TestErrorsWithCodes(t *testing.T) {
	for _, row := range []struct {
		err  error
		code codes.Code
	}{
		{&cluster.UnknownLimitError{}, codes.NotFound},
		{&cluster.UnknownLimitError{Early: true}, codes.Unavailable},
		{Wrong("key", "is missing"), codes.InvalidArgument},
		{context.Canceled, codes.Canceled},
		{fmt.Errorf("take: %w", context.Canceled), codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{cluster.ErrNoView, codes.Unavailable},
		{cluster.ErrHungUp, codes.Canceled},
		{ErrClosed, codes.Canceled},
		{errors.New("nobody knows it"), codes.Internal},
	} {
		coded := WithCode(row.err)
		if status.Code(coded) != row.code || status.Code(fmt.Errorf("do: %w", coded)) != row.code {
			t.Errorf("%v has the code %v, want %v", row.err, status.Code(coded), row.code)
		}
		if !errors.Is(coded, row.err) || coded.Error() != row.err.Error() {
			t.Errorf("%v became %v", row.err, coded)
		}
	}
}
