package envoy

import (
	"errors"
	"net/http"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protojson"

	"penstock/rpc/door"
	"penstock/rpc/page"
)

// maxBody bounds a request in JSON.
const maxBody = 2 << 20

// remote is the address of a client as net/http has it.
type remote string

func (remote) Network() string  { return "tcp" }
func (a remote) String() string { return string(a) }

// ServeHTTP is POST /json: a RateLimitRequest in proto3 JSON, answered by a RateLimitResponse with
// status 200, or 429 if it is over limit.
func (d *Door) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	in := new(ratelimitv3.RateLimitRequest)
	body, err := page.ReadBody(rw, r, maxBody)
	if err == nil {
		if err = protojson.Unmarshal(body, in); err != nil {
			err = door.Wrong("body", "is not a RateLimitRequest in JSON: %s",
				page.ProtoJSONFault(err))
		}
	} else if large := new(http.MaxBytesError); errors.As(err, &large) {
		err = door.Wrong("body", "has more than %d bytes", large.Limit)
	}
	if err != nil {
		d.failed.Add(1)
		page.Error(rw, err)
		return
	}
	out, err := d.decide(peer.NewContext(r.Context(), &peer.Peer{Addr: remote(r.RemoteAddr)}), in)
	if err != nil {
		page.Error(rw, err)
		return
	}
	text, err := protojson.Marshal(out)
	if err != nil {
		page.Error(rw, err)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Cache-Control", "no-store")
	for _, h := range out.ResponseHeadersToAdd {
		// as it is written: case has no meaning, but people look for it
		rw.Header()[h.Key] = []string{h.Value}
	}
	if out.OverallCode == ratelimitv3.RateLimitResponse_OVER_LIMIT {
		rw.WriteHeader(http.StatusTooManyRequests)
	}
	rw.Write(append(text, '\n'))
}
