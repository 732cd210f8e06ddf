package native

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/rpctest"
	"penstock/rpc/trace"
)

// Promise: a check is in the trace of its client if that is sampled, and has no span if it is not.
// Checks without a trace, or with one that cannot be read, begin one as often as the ratio says.
func TestWhichChecksHaveSpans(t *testing.T) {
	const sampled = rpctest.ClientTrace
	unsampled := sampled[:len(sampled)-1] + "0"
	node := rpctest.Alone(t, rpctest.Specs...)
	doors := map[string]func(*trace.Tracer, string, *cluster.Request, []cluster.Decision) error{
		"http, with a decider": func(tr *trace.Tracer, parent string, r *cluster.Request,
			out []cluster.Decision,
		) error {
			return tr.HTTP(node, parentHeader(parent)).Check(r, out)
		},
		"http": func(tr *trace.Tracer, parent string, r *cluster.Request,
			out []cluster.Decision,
		) error {
			return tr.CheckHTTP(node, parentHeader(parent), r, out)
		},
		"grpc": func(tr *trace.Tracer, parent string, r *cluster.Request,
			out []cluster.Decision,
		) error {
			ctx := t.Context()
			if parent != "" {
				ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("traceparent", parent))
			}
			return tr.GRPC(node, ctx).Check(r, out)
		},
		"grpc, in the program": func(tr *trace.Tracer, parent string, r *cluster.Request,
			out []cluster.Decision,
		) error {
			if parent != "" { // there is no metadata without a context
				return tr.HTTP(node, parentHeader(parent)).Check(r, out)
			}
			return tr.GRPC(node, context.Context(nil)).Check(r, out)
		},
	}
	const asked = 2000
	for name, door := range doors {
		for _, x := range []struct {
			parent      string
			ratio       float64
			least, most int
		}{
			{"", 0, 0, 0},
			{"", 1, asked, asked},
			{"", 0.25, asked / 5, asked * 3 / 10}, // five standard deviations
			{sampled, 0, asked, asked},
			{sampled, 1, asked, asked},
			{unsampled, 0, 0, 0},
			{unsampled, 1, 0, 0},
			{"00-no-trace-01", 0, 0, 0},
			{"00-no-trace-01", 1, asked, asked},
		} {
			spans := &rpctest.ClientTraces{}
			tracer := trace.New(spans, x.ratio)
			for range asked {
				r := &cluster.Request{Items: []cluster.Item{
					{Limit: rpctest.Specs[0].Name, Key: "k", Op: cluster.OpPeek},
				}}
				if err := door(tracer, x.parent, r, make([]cluster.Decision, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if n := spans.All; n < x.least || n > x.most {
				t.Errorf("%s, traceparent %q, ratio %v: %d of %d checks have a span", name,
					x.parent, x.ratio, n, asked)
			}
		}
	}
}

// Promise: the span of a check that is an error says what is wrong with which field, and no key,
// also where the text of the error has the key.
func TestSpansOfErrorsHaveNoKeys(t *testing.T) {
	tree := []limiter.Spec{rpctest.Specs[0], rpctest.Specs[0]}
	tree[0].Name, tree[1].Name, tree[1].Parent = "team", "user", "team"
	node, spans := rpctest.Alone(t, tree...), &rpctest.ClientTraces{}
	r := &cluster.Request{Items: []cluster.Item{{Limit: "user", Key: "secret", Cost: 1}}}
	err := trace.New(spans, 1).CheckHTTP(node, http.Header{}, r, make([]cluster.Decision, 1))
	if err == nil || !strings.Contains(err.Error(), "secret") {
		t.Fatalf("%v; want an error with the key", err)
	}
	if want := []string{"InvalidArgument items[0].key"}; !slices.Equal(spans.Status, want) {
		t.Errorf("the status of the span is %q; want %q", spans.Status, want)
	}
}

func parentHeader(parent string) http.Header {
	h := http.Header{}
	if parent != "" {
		h.Set("traceparent", parent)
	}
	return h
}
