package rpctest

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/codes"
	otel "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// ClientTrace is the header traceparent of a client with a sampled trace.
const ClientTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// ClientTraces notes which operations make spans of ClientTrace.
type ClientTraces struct {
	noop.TracerProvider
	Of   string // the operation that is asked
	Seen []string
	All  int // spans, of that trace and of others

	Status []string // texts of spans' statuses
}

// Tracer is that of all spans.
func (c *ClientTraces) Tracer(string, ...otel.TracerOption) otel.Tracer { return tracer{of: c} }

type tracer struct {
	noop.Tracer
	of *ClientTraces
}

// Start begins a span.
func (t tracer) Start(
	ctx context.Context, name string, options ...otel.SpanStartOption,
) (context.Context, otel.Span) {
	t.of.All++
	if strings.Contains(ClientTrace, otel.SpanContextFromContext(ctx).TraceID().String()) {
		t.of.Seen = append(t.of.Seen, t.of.Of)
	}
	ctx, s := t.Tracer.Start(ctx, name, options...)
	return ctx, span{s, t.of}
}

type span struct {
	otel.Span
	of *ClientTraces
}

// SetStatus notes the text.
func (s span) SetStatus(_ codes.Code, text string) { s.of.Status = append(s.of.Status, text) }
