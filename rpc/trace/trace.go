// Package trace makes OpenTelemetry's spans of checks. Follow one:
//
//  1. A door asks the node by Tracer.HTTP or Tracer.GRPC. The client's place in its trace (W3C
//     Trace Context) is in the header, or in the metadata of the call. The span "penstock.check"
//     begins there.
//  2. The node asks the owner of the key. The line to it makes the span "penstock.ask"
//     (Tracer.Asks), and the ask carries its ids.
//  3. The owner decides in the span "penstock.answer" (Tracer.Answers), a part of the same trace
//     at another node.
//
// No span has a key in it. A nil *Tracer makes none, and costs nothing.
package trace

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	otel "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"penstock/cluster"
	"penstock/rpc/door"
)

// Tracer makes the spans of one node. Its methods are safe for concurrent use.
type Tracer struct {
	spans otel.Tracer
	w3c   propagation.TraceContext
	ratio float64
}

// New makes a Tracer that hands its spans to p. Checks of clients without a trace begin one with
// the probability ratio, 0 to 1. p keeps every span that it is handed: whether there is to be one
// is decided before it is made, for most checks have none, and one that is thrown away takes 7 % of
// the processor time of a check.
func New(p otel.TracerProvider, ratio float64) *Tracer {
	return &Tracer{spans: p.Tracer("penstock"), ratio: ratio}
}

// HTTP is n for a request that a client has made with this header.
func (t *Tracer) HTTP(n *cluster.Node, header http.Header) door.Decider {
	if at := t.fromHTTP(header); at != nil {
		return &node{n, t, "http", at}
	}
	return n
}

// CheckHTTP has n decide on r, as that of HTTP does. No interface stands between, so that r and out
// may lie on the stack of the door.
func (t *Tracer) CheckHTTP(
	n *cluster.Node, header http.Header, r *cluster.Request, out []cluster.Decision,
) error {
	if at := t.fromHTTP(header); at != nil {
		traced := node{n, t, "http", at}
		return traced.Check(r, out)
	}
	return n.Check(r, out)
}

// GRPC is n for a call of a client with this context.
func (t *Tracer) GRPC(n *cluster.Node, ctx context.Context) door.Decider {
	if t == nil {
		return n
	}
	var from propagation.TextMapCarrier
	if ctx != nil && len(metadata.ValueFromIncomingContext(ctx, parentHeader)) > 0 {
		md, _ := metadata.FromIncomingContext(ctx)
		from = metadataCarrier(md)
	}
	if at := t.begins(from); at != nil {
		return &node{n, t, "grpc", at}
	}
	return n
}

// parentHeader is where a client says which trace a check is a part of.
const parentHeader = "traceparent"

// fromHTTP is begins for a request with this header.
func (t *Tracer) fromHTTP(header http.Header) context.Context {
	if t == nil {
		return nil
	}
	if header.Get("Traceparent") == "" { // canonical: Get makes no other of it
		return t.begins(nil)
	}
	return t.begins(propagation.HeaderCarrier(header))
}

// begins is where the span of a check begins: in the trace of its client, if from has a sampled
// one, or in one of its own; nil if the check has none.
func (t *Tracer) begins(from propagation.TextMapCarrier) context.Context {
	if from != nil {
		ctx := t.w3c.Extract(context.Background(), from)
		if at := otel.SpanContextFromContext(ctx); at.IsValid() {
			if at.IsSampled() {
				return ctx
			}
			return nil
		}
	}
	if t.ratio > 0 && rand.Float64() < t.ratio {
		return context.Background()
	}
	return nil
}

// node decides in spans.
type node struct {
	*cluster.Node
	tracer *Tracer
	door   string
	at     context.Context // where the span begins
}

// Untraced is the node without spans.
func (n *node) Untraced() *cluster.Node { return n.Node }

// Check decides on r as the node does, in a span.
func (n *node) Check(r *cluster.Request, out []cluster.Decision) error {
	_, span := n.tracer.spans.Start(n.at, "penstock.check",
		otel.WithSpanKind(otel.SpanKindServer))
	defer span.End()
	r.Trace = place(span)
	err := n.Node.Check(r, out)
	r.Trace = cluster.Trace{}
	span.SetAttributes(attribute.String("penstock.door", n.door),
		attribute.Int("penstock.items", len(r.Items)))
	if err != nil {
		span.SetStatus(codes.Error, fault(err))
		return err
	}
	span.SetAttributes(outcome(out)...)
	return nil
}

// fault is the kind of an error and the field that is wrong. Its text may have a key in it.
func fault(err error) string {
	f := door.Explain(err)
	return strings.TrimSpace(f.Code.String() + " " + f.Field)
}

// outcome is what was decided: of several items the first one that is denied, or else the first.
func outcome(out []cluster.Decision) []attribute.KeyValue {
	if len(out) == 0 {
		return nil
	}
	d, allowed := &out[0], true
	for i := range out {
		if allowed && !out[i].Allowed {
			d, allowed = &out[i], false
		}
	}
	return []attribute.KeyValue{
		attribute.Bool("penstock.allowed", allowed),
		attribute.String("penstock.limit", d.Rule.Name),
		attribute.String("penstock.source", d.Source.String()),
		attribute.String("penstock.owner", d.Owner),
		attribute.Bool("penstock.degraded", d.Degraded),
	}
}

// Asks begins a span for each call that is a part of a trace. done ends them, when the calls are
// answered.
func (t *Tracer) Asks(calls []cluster.Call) (done func()) {
	if t == nil {
		return nothing
	}
	var spans []otel.Span
	var of []*cluster.Call
	for i := range calls {
		c := &calls[i]
		if c.Ask == nil || c.Ask.Trace == (cluster.Trace{}) {
			continue
		}
		span := t.part(c.Ask, "penstock.ask", otel.SpanKindClient, c.To.ID)
		c.Ask.Trace = place(span)
		spans, of = append(spans, span), append(of, c)
	}
	if spans == nil {
		return nothing
	}
	return func() {
		for i, span := range spans {
			if err := of[i].Err; err != nil {
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}
	}
}

// Answers begins a span for an ask of another node that is a part of a trace. done ends it.
func (t *Tracer) Answers(a *cluster.Ask, asker string) (done func()) {
	if t == nil || a.Trace == (cluster.Trace{}) {
		return nothing
	}
	span := t.part(a, "penstock.answer", otel.SpanKindServer, asker)
	a.Trace = place(span) // an heir may send the ask on
	return func() { span.End() }
}

func nothing() {}

// part begins a span at one end of an ask. peer is the node at the other end.
func (t *Tracer) part(a *cluster.Ask, name string, kind otel.SpanKind, peer string) otel.Span {
	at := otel.NewSpanContext(otel.SpanContextConfig{
		TraceID: a.Trace.ID, SpanID: a.Trace.Span, TraceFlags: otel.FlagsSampled, Remote: true,
	})
	_, span := t.spans.Start(otel.ContextWithRemoteSpanContext(context.Background(), at), name,
		otel.WithSpanKind(kind), otel.WithAttributes(attribute.String("penstock.peer", peer),
			attribute.Int("penstock.items", len(a.Items))))
	return span
}

// place is where what a span does belongs.
func place(span otel.Span) cluster.Trace {
	at := span.SpanContext()
	return cluster.Trace{ID: at.TraceID(), Span: at.SpanID()}
}

// metadataCarrier reads the metadata of a call.
type metadataCarrier metadata.MD

// Get returns the first value of a name.
func (m metadataCarrier) Get(name string) string {
	if values := metadata.MD(m).Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set is not used: nothing is written to a client's metadata.
func (m metadataCarrier) Set(name, value string) { metadata.MD(m).Set(name, value) }

// Keys are all names.
func (m metadataCarrier) Keys() (names []string) {
	for name := range m {
		names = append(names, name)
	}
	return names
}
