package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Explain turns an error of this package, got from targets, into a sentence for people: which nodes did not answer
// and why, or what they said, without gRPC's words around it.
func Explain(err error, targets []string) error {
	s, known := status.FromError(err)
	if err == nil || !known {
		return err
	}
	nodes := strings.Join(targets, ", ")
	if _, why, found := strings.Cut(s.Message(), "connection error: desc = "); found {
		if words, err := strconv.Unquote(why); err == nil {
			why = words
		}
		return fmt.Errorf("cannot reach %s: %s", nodes, strings.TrimPrefix(why, "transport: "))
	}
	if s.Code() == codes.DeadlineExceeded {
		return fmt.Errorf("no answer from %s in time: %s", nodes, s.Message())
	}
	return errors.New(s.Message())
}
