// Package envoy_test holds the example against the types that Envoy itself is built from, and tries
// its limits with the descriptors that an Envoy with this configuration would send. It is a module
// of its own: Envoy's types are many.
package envoy_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/rpc/clock"
	"penstock/rpc/envoy"
	"penstock/rpc/peer"
)

// read is envoy.yaml as Envoy reads it: a field that does not exist is an error.
func read(t *testing.T) *bootstrapv3.Bootstrap {
	t.Helper()
	text, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	b := new(bootstrapv3.Bootstrap)
	if err := protojson.Unmarshal(json, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// validate checks m, and all messages that it has packed.
func validate(t *testing.T, m proto.Message) {
	t.Helper()
	if v, ok := m.(interface{ ValidateAll() error }); !ok {
		t.Errorf("%T says nothing of its values", m)
	} else if err := v.ValidateAll(); err != nil {
		t.Errorf("%T: %v", m, err)
	}
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		if packed, ok := m.Interface().(*anypb.Any); ok {
			inner, err := packed.UnmarshalNew()
			if err != nil {
				t.Error(err)
				return
			}
			validate(t, inner)
			return
		}
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.IsMap() && f.MapValue().Message() != nil:
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					walk(v.Message())
					return true
				})
			case f.IsList() && f.Message() != nil:
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			case !f.IsMap() && !f.IsList() && f.Message() != nil:
				walk(v.Message())
			}
			return true
		})
	}
	walk(m.ProtoReflect())
}

func TestConfigurationIsValid(t *testing.T) {
	b := read(t)
	validate(t, b)
	b.StaticResources.Clusters[0].Name = ""
	if b.ValidateAll() == nil {
		t.Error("a cluster without a name is valid: this test cannot fail")
	}
}

// edge is what envoy.yaml says of requests.
func edge(t *testing.T) (domain string, host *routev3.VirtualHost) {
	t.Helper()
	b := read(t)
	manager := new(managerv3.HttpConnectionManager)
	chain := b.StaticResources.Listeners[0].FilterChains[0]
	if err := chain.Filters[0].GetTypedConfig().UnmarshalTo(manager); err != nil {
		t.Fatal(err)
	}
	filter := new(ratelimitfilterv3.RateLimit)
	if err := manager.HttpFilters[0].GetTypedConfig().UnmarshalTo(filter); err != nil {
		t.Fatal(err)
	}
	asked := filter.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName
	for _, c := range b.StaticResources.Clusters {
		if c.Name == asked {
			return filter.Domain, manager.GetRouteConfig().VirtualHosts[0]
		}
	}
	t.Fatalf("no cluster is called %q", asked)
	return "", nil
}

// A request as far as envoy.yaml looks at it.
type request struct{ method, path, address, user string }

// descriptors does what Envoy does with the actions of a route: each rate limit is a descriptor,
// unless one of its actions finds nothing in the request.
func descriptors(
	t *testing.T, host *routev3.VirtualHost, r request,
) (out []*commonv3.RateLimitDescriptor) {
	t.Helper()
	for _, route := range host.Routes {
		if p := route.Match.GetPath(); p != "" && p != r.path ||
			!strings.HasPrefix(r.path, route.Match.GetPrefix()) {
			continue
		}
		limits := route.GetRoute().RateLimits
		own := new(ratelimitfilterv3.RateLimitPerRoute)
		if err := route.TypedPerFilterConfig["envoy.filters.http.ratelimit"].UnmarshalTo(
			own,
		); err != nil {
			t.Fatal(err)
		}
		if own.VhRateLimits == ratelimitfilterv3.RateLimitPerRoute_INCLUDE {
			limits = append(limits, host.RateLimits...)
		}
		for _, l := range limits {
			d, whole := new(commonv3.RateLimitDescriptor), true
			for _, a := range l.Actions {
				e := new(commonv3.RateLimitDescriptor_Entry)
				switch x := a.ActionSpecifier.(type) {
				case *routev3.RateLimit_Action_RemoteAddress_:
					e.Key, e.Value = "remote_address", r.address
				case *routev3.RateLimit_Action_GenericKey_:
					e.Key, e.Value = x.GenericKey.DescriptorKey, x.GenericKey.DescriptorValue
				case *routev3.RateLimit_Action_RequestHeaders_:
					e.Key, e.Value = x.RequestHeaders.DescriptorKey, r.user
				case *routev3.RateLimit_Action_HeaderValueMatch_:
					e.Key = x.HeaderValueMatch.DescriptorKey
					if strings.Contains(
						x.HeaderValueMatch.Headers[0].GetStringMatch().GetSafeRegex().Regex,
						r.method) {
						e.Value = x.HeaderValueMatch.DescriptorValue
					}
				default:
					t.Fatalf("this test does not know the action %T", x)
				}
				whole = whole && e.Value != ""
				d.Entries = append(d.Entries, e)
			}
			if whole {
				out = append(out, d)
			}
		}
		return out
	}
	return nil
}

// TestLimits tries the limits of the example, with a node by itself.
func TestLimits(t *testing.T) {
	domain, host := edge(t)
	limits, err := policy.LoadEnvoy("limits")
	if err != nil {
		t.Fatal(err)
	}
	node, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: noon{}, Network: peer.NewLines(peer.LinesConfig{
			ID: "n1", Boot: 1,
			Clock: clock.New(),
		}),
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	view, err := cluster.NewView("n1", []cluster.Member{{
		ID: "n1", Boot: 1,
		State: cluster.StateActive,
	}})
	if err != nil {
		t.Fatal(err)
	}
	node.SetView(view)
	door := envoy.New(node, noon{}, nil)
	door.Set(limits)
	passed := func(times int, r request) (n int) {
		t.Helper()
		d := descriptors(t, host, r)
		for range times {
			out, err := door.ShouldRateLimit(context.Background(),
				&ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: d})
			if err != nil {
				t.Fatal(err)
			}
			if out.OverallCode == ratelimitv3.RateLimitResponse_OK {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		times int
		r     request
		want  int
	}{
		{150, request{"GET", "/", "192.0.2.1", ""}, 100},
		{10, request{"GET", "/other", "192.0.2.1", "alice"}, 0}, // the same address
		{150, request{"GET", "/", "127.0.0.1", ""}, 150},
		{1, request{"GET", "/", "203.0.113.7", ""}, 0},
		{12, request{"POST", "/login", "192.0.2.2", ""}, 10},
		{6, request{"POST", "/login", "192.0.2.3", "bob"}, 5},
		{6, request{"POST", "/login", "192.0.2.4", "bob"}, 0},
		{6, request{"POST", "/login", "192.0.2.5", "test-1"}, 6},
		{1100, request{"PUT", "/doc", "127.0.0.1", "carol"}, 1000},
		{10, request{"GET", "/doc", "127.0.0.1", "carol"}, 10},
		{1, request{"DELETE", "/doc", "127.0.0.1", "carol"}, 0},
	} {
		if got := passed(c.times, c.r); got != c.want {
			t.Errorf("%d times %+v: %d passed, want %d", c.times, c.r, got, c.want)
		}
	}
}

// noon is a clock that stands still in the middle of all windows.
type noon struct{}

func (noon) Now() limiter.Instant { return limiter.Instant(12 * time.Hour) }

func (noon) AfterFunc(time.Duration, func()) (stop func()) { return func() {} }
