package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"penstock/rpc/peer"
	"penstock/rpc/trace"
)

// tracing says where spans of checks go.
type tracing struct {
	TraceEndpoint string  `group:"traces" placeholder:"URL" help:"Send spans of checks to this collector by OTLP over HTTP, as in http://127.0.0.1:4318. Default: there are no spans. OTEL_EXPORTER_OTLP_HEADERS gives headers."`
	TraceRatio    float64 `group:"traces" default:"0" placeholder:"SHARE" help:"Share of the checks without a trace of their client that begin one, 0 to 1. Checks of clients with a sampled trace (traceparent) are always in that."`
}

// spans are what makes and sends them. The zero value makes none.
type spans struct {
	tracer   *trace.Tracer
	provider *sdktrace.TracerProvider
}

// peer is the tracer as lines between nodes want it.
func (s spans) peer() peer.Tracer {
	if s.tracer == nil {
		return nil
	}
	return s.tracer
}

// tracesPath is where collectors take spans, unless the URL has another path.
const tracesPath = "/v1/traces"

// spans begins to send spans of the node with this name.
func (t tracing) spans(node string, log *slog.Logger) (s spans, err error) {
	switch {
	case !(t.TraceRatio >= 0 && t.TraceRatio <= 1): // nor is it a number, perhaps
		return s, fmt.Errorf("--trace-ratio %v: give 0 to 1", t.TraceRatio)
	case t.TraceEndpoint == "" && t.TraceRatio > 0:
		return s, fmt.Errorf("--trace-ratio: needs --trace-endpoint, the collector for the spans")
	case t.TraceEndpoint == "":
		return s, nil
	}
	to, err := url.Parse(t.TraceEndpoint)
	if err != nil { // its text has the URL, perhaps with a password
		return s, errors.New("--trace-endpoint: give a URL as http://127.0.0.1:4318")
	}
	switch {
	case to.User != nil:
		return s, fmt.Errorf("--trace-endpoint %s: a name and a password are not sent; give the "+
			"collector's header by OTEL_EXPORTER_OTLP_HEADERS", to.Redacted())
	case to.Host == "" || to.Scheme != "http" && to.Scheme != "https":
		return s, fmt.Errorf("--trace-endpoint %q: give a URL as http://127.0.0.1:4318",
			t.TraceEndpoint)
	}
	to.Path = cmp.Or(strings.TrimSuffix(to.Path, "/"), tracesPath)
	exporter, err := otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(to.String()))
	if err != nil {
		return s, fmt.Errorf("--trace-endpoint: %w", err)
	}
	s.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&logged{SpanExporter: exporter, log: log, to: to.Redacted()}),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "penstock"),
			attribute.String("service.instance.id", node),
			attribute.String("service.version", version()))),
	)
	s.tracer = trace.New(s.provider, t.TraceRatio)
	return s, nil
}

// spansAtEnd bounds how long the last spans are waited for when the node stops.
const spansAtEnd = 2 * time.Second

// close sends what is left.
func (s spans) close(ctx context.Context) {
	if s.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, spansAtEnd)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // what could not be sent is in the log
}

// logged is an exporter that puts its errors in the log of the node, once a minute at most: checks
// are decided without spans as well.
type logged struct {
	sdktrace.SpanExporter
	log *slog.Logger
	to  string
	at  time.Time // of the last line; one goroutine calls ExportSpans
}

// ExportSpans sends spans.
func (l *logged) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := l.SpanExporter.ExportSpans(ctx, spans)
	if err != nil && time.Since(l.at) > time.Minute {
		l.at = time.Now()
		l.log.Warn("spans could not be sent", "collector", l.to, "spans", len(spans), "err", err)
	}
	return nil
}
