package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/rpc/access"
)

// Promise: refusals for want of a credential or a right are told of at once, and then every ten
// seconds at most, with their number and the last address.
func TestUnauthorizedIsToldOfSeldom(t *testing.T) {
	before, said := slog.Default(), new(bytes.Buffer)
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		u := (*Metrics)(nil).Unauthorized("http")
		denied := &access.Denied{Client: "shop", Right: "refund"}
		u.Note(StatusError(access.ErrUnknown), "10.0.0.1:1")
		for i := range 20 {
			u.Note(fmt.Errorf("as gRPC: %w", StatusError(denied)), fmt.Sprintf("10.0.0.2:%d", i))
		}
		u.Note(errors.New("another"), "10.0.0.9:9")
		(*Unauthorized)(nil).Note(denied, "")
		if n := strings.Count(said.String(), "\n"); n != 1 ||
			!strings.Contains(said.String(), "refused=1 last_from=10.0.0.1:1 ") {
			t.Errorf("%d lines: %s", n, said)
		}
		said.Reset()
		time.Sleep(refusalsLogged)
		u.NoteCall(context.Background(), denied)
		u.Note(access.ErrUnknown, "10.0.0.3:3")
		if got := said.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got,
			"door=http refused=21 last_from=\"\" unknown_in_all=1 forbidden_in_all=21") {
			t.Errorf("after ten seconds: %s", said)
		}
	})
}

// Promise: an error about access is the same over gRPC as before, and still known as one.
func TestAccessErrorsOverGRPC(t *testing.T) {
	for err, code := range map[error]codes.Code{
		access.ErrUnknown: codes.Unauthenticated,
		&access.Denied{Client: "shop", Right: "refund"}: codes.PermissionDenied,
	} {
		s := StatusError(err)
		if status.Code(s) != code || status.Convert(s).Message() != err.Error() || !IsAccess(s) {
			t.Errorf("%v is %v", err, s)
		}
	}
	if s := StatusError(Wrong("key", "is wrong")); IsAccess(s) ||
		status.Code(s) != codes.InvalidArgument {
		t.Errorf("another error is %v", s)
	}
}
