package gubernator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"penstock/cluster"
	pb "penstock/proto/gubernator"
	"penstock/rpc/door"
	"penstock/rpc/page"
)

// This file serves the protocol's JSON as Gubernator's own gateway does: field names of the .proto
// file, and camelCase too; fields that are not known are passed over (names of algorithms and
// behaviors that are not known are errors); all fields are written, 64-bit numbers as strings;
// errors are google.rpc.Status.

// maxBody is the most that a page reads, in bytes.
const maxBody = 2 << 20

// RateLimitsPage is POST /v1/GetRateLimits; caller names the client.
func (g *Door) RateLimitsPage(caller func(*http.Request) door.Caller) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		in, err := readPage(rw, r)
		if err != nil {
			g.Node.Stats().Refused.Add(1)
			writePage(rw, nil, err)
			return
		}
		out, err := g.Decide(in, caller(r))
		writePage(rw, out, err)
	}
}

// HealthPage is GET /v1/HealthCheck.
func (g *Door) HealthPage(rw http.ResponseWriter, r *http.Request) {
	out, err := g.HealthCheck(r.Context(), nil)
	writePage(rw, out, err)
}

// LivePage is GET /v1/LiveCheck.
func (g *Door) LivePage(rw http.ResponseWriter, r *http.Request) {
	out, err := g.LiveCheck(r.Context(), nil)
	writePage(rw, out, err)
}

// maxObjects is how many objects a body has at most: itself, its requests and their metadata, and
// some that are not known.
const maxObjects = 4 * cluster.MaxItems

// readPage reads a body. An error is a gRPC status.
func readPage(rw http.ResponseWriter, r *http.Request) (*pb.GetRateLimitsReq, error) {
	b, err := page.ReadBody(rw, r, maxBody)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, status.Errorf(codes.OutOfRange, "body: has more than %d bytes", large.Limit)
	case err != nil:
		return nil, door.StatusError(err)
	case objects(b) > maxObjects: // before each takes the memory of a request
		return nil, status.Errorf(codes.OutOfRange,
			"Requests.RateLimits list too large; max size is '%d'", cluster.MaxItems)
	}
	in := new(pb.GetRateLimitsReq)
	if protojson.Unmarshal(b, in) == nil {
		return in, nil
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, in); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "body: %s", page.ProtoJSONFault(err))
	}
	return in, unknownName(b)
}

// unknownName is an error about the first name of an algorithm or a behavior in b that is not
// known. DiscardUnknown takes it for one that is left out: a request would be decided by another
// algorithm than it asks for.
func unknownName(b []byte) error {
	var body struct {
		Requests []struct{ Algorithm, Behavior any }
	}
	if err := json.Unmarshal(b, &body); err != nil {
		return status.Errorf(codes.InvalidArgument, "body: %v", err)
	}
	for i, r := range body.Requests {
		for _, f := range []struct {
			field string
			value any
			known map[string]int32
		}{
			{"algorithm", r.Algorithm, pb.Algorithm_value},
			{"behavior", r.Behavior, pb.Behavior_value},
		} {
			name, isText := f.value.(string)
			if _, known := f.known[name]; isText && !known {
				return status.Errorf(codes.InvalidArgument, "requests[%d].%s: %.60q is unknown; "+
					"there is: %s", i, f.field, name,
					strings.Join(slices.Sorted(maps.Keys(f.known)), ", "))
			}
		}
	}
	return nil
}

// objects is how many objects a JSON text has at most.
func objects(b []byte) (n int) {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case quoted && b[i] == '\\':
			i++
		case b[i] == '"':
			quoted = !quoted
		case b[i] == '{' && !quoted:
			n++
		}
	}
	return n
}

// gatewayStatus is the HTTP status that grpc-gateway has for the codes of this door.
var gatewayStatus = map[codes.Code]int{
	codes.InvalidArgument: http.StatusBadRequest, codes.OutOfRange: http.StatusBadRequest,
	codes.NotFound:         http.StatusNotFound,
	codes.DeadlineExceeded: http.StatusGatewayTimeout,
	codes.Unavailable:      http.StatusServiceUnavailable,
	codes.PermissionDenied: http.StatusForbidden, codes.Unauthenticated: http.StatusUnauthorized,
}

func writePage(rw http.ResponseWriter, out proto.Message, err error) {
	if err != nil {
		if door.IsAccess(err) {
			f := door.Explain(err)
			page.Challenge(rw.Header(), &f)
		}
		s := status.Convert(err)
		code, known := gatewayStatus[s.Code()]
		if !known {
			code = http.StatusInternalServerError
		}
		page.JSON(rw, code, struct {
			Code    codes.Code `json:"code"`
			Message string     `json:"message"`
			Details []struct{} `json:"details"`
		}{s.Code(), s.Message(), []struct{}{}})
		return
	}
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(out)
	if err != nil {
		writePage(rw, nil, fmt.Errorf("the answer cannot be written: %w", err))
		return
	}
	page.Body(rw, http.StatusOK, b)
}
