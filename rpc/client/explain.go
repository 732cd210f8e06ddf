package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Explain turns an error of this package, got from targets, into a sentence for people. The
// sentence says which nodes did not answer and why, or repeats their answer, without gRPC's words
// around it.
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
		why = strings.TrimPrefix(strings.TrimPrefix(why, "transport: "), "Error while dialing: ")
		return fmt.Errorf("cannot reach %s: %s", nodes, misled(why))
	}
	switch {
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("no answer from %s in time: %s", nodes, s.Message())
	case s.Code() == codes.Unimplemented && strings.Contains(s.Message(), noService+"v1.Admin"):
		return fmt.Errorf("%s has no Admin service: a node with --admin has it there alone, "+
			"so give that address; or perhaps this is the --peer of a node. %s", nodes, rightDoor)
	case s.Code() == codes.Unimplemented && strings.Contains(s.Message(), noService):
		return fmt.Errorf("%s speaks gRPC, but is not a door for clients; "+
			"perhaps it is the --peer of a node. %s", nodes, rightDoor)
	}
	if s.Code() == codes.Unauthenticated {
		return errors.New(s.Message() + " (--auth-token-file)")
	}
	if s.Code() == codes.Unavailable && hungUp(s.Message()) {
		return fmt.Errorf("cannot reach %s: %s", nodes, itHangsUp)
	}
	return errors.New(s.Message())
}

// noService is how gRPC begins to say that it does not have a service of this project.
const noService = "unknown service penstock."

// hungUp reports whether the other end broke the connection before any valid gRPC answer.
func hungUp(why string) bool {
	return strings.Contains(why, "broken pipe") ||
		strings.Contains(why, "connection reset by peer") || strings.HasSuffix(why, "EOF")
}

const rightDoor = "The gRPC door for clients is the --grpc of a node, with port 7948 by default"

// A server over TLS 1.3 refuses a client without a certificate after the handshake.
const itHangsUp = "it hangs up, so it has just stopped, is another door, needs TLS, or wants a " +
	"certificate of its clients. " + rightDoor

// misled adds advice to gRPC's errors about a door of another protocol.
func misled(why string) string {
	switch {
	case strings.Contains(why, "looked like an HTTP/1.1 header"):
		return "it answers in HTTP/1.1, so this looks like the HTTP door. " + rightDoor
	case strings.Contains(why, "http2: frame too large"):
		return "it does not answer in gRPC, so this is another door. " + rightDoor
	case hungUp(why):
		return itHangsUp
	case strings.Contains(why, "tls: certificate required"):
		return "it wants a certificate of its clients (--tls-cert and --tls-key)"
	case strings.Contains(why, "certificate signed by unknown authority"):
		return why + "; trust the authority of its certificate (--tls-ca)"
	case strings.Contains(why, "connection refused"):
		return why + "; is a node running there?"
	case strings.Contains(why, "does not look like a TLS handshake"):
		return "it answers without TLS; ask it in plaintext"
	}
	return why
}
