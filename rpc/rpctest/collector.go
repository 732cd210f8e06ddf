package rpctest

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Collector takes spans as an OpenTelemetry collector does.
type Collector struct {
	*httptest.Server
	mu    sync.Mutex // guards spans
	spans []NodeSpan
}

// NodeSpan is a span, and the node that has made it.
type NodeSpan struct {
	*tracev1.Span
	Node string
}

// NewCollector listens until the test ends.
func NewCollector(t *testing.T) *Collector {
	c := &Collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var in collectorv1.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &in)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range in.ResourceSpans {
			node := ""
			for _, a := range resource.Resource.Attributes {
				if a.Key == "service.instance.id" {
					node = a.Value.GetStringValue()
				}
			}
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					c.spans = append(c.spans, NodeSpan{span, node})
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// Of are the spans of a trace, by their names.
func (c *Collector) Of(trace string) map[string]NodeSpan {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := map[string]NodeSpan{}
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			spans[s.Name] = s
		}
	}
	return spans
}

// WithHeader is ctx for a call with a header, as clients of other programs send it.
func WithHeader(ctx context.Context, name, value string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, name, value)
}
