package client

import (
	"testing"

	"google.golang.org/protobuf/proto"

	penstockv1 "penstock/proto/penstock/v1"
)

// Promise: no bytes of a server crash its client, and what the library reads, the client reads as
// well.
func FuzzResponse(f *testing.F) {
	for _, r := range []*penstockv1.CheckStreamResponse{
		{Tag: 7, Check: &penstockv1.CheckResponse{Decisions: []*penstockv1.Decision{
			{Allowed: true, RetryAfterMs: -1, LimitName: "l"}, {},
		}}},
		{Tag: 1 << 63, Error: &penstockv1.StreamError{Code: 3, Message: "no"}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{1<<3 | 3, 1<<3 | 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := readResponse(b)
		var library penstockv1.CheckStreamResponse
		if err := proto.Unmarshal(b, &library); err == nil && !ok {
			t.Fatalf("%x is refused; the library reads %v", b, &library)
		}
		var known names
		var d Decision
		n := 0
		for r.next(&d, &known) {
			n++
		}
		if n > len(b) {
			t.Fatalf("%d decisions in %d bytes", n, len(b))
		}
	})
}
