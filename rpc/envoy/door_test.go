package envoy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/rpc/clock"
	"penstock/rpc/native"
	"penstock/rpc/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hand is a clock that stands still until it is set.
type hand struct{ now atomic.Int64 }

func (h *hand) Now() limiter.Instant {
	return limiter.Instant(h.now.Load())
}
func (h *hand) AfterFunc(time.Duration, func()) (stop func()) { return func() {} }
func (h *hand) set(d time.Duration)                           { h.now.Store(int64(d)) }

// silent is a network in which nobody answers. It notes how long it was given.
type silent struct {
	clock *hand
	given []time.Duration
}

func (s *silent) Call(calls []cluster.Call) {
	for i := range calls {
		s.given = append(s.given, time.Duration(calls[i].Deadline-s.clock.Now()))
		calls[i].Err = fmt.Errorf("nobody is there")
		s.clock.set(time.Duration(calls[i].Deadline))
	}
}

func (s *silent) Wait(until limiter.Instant) { s.clock.set(time.Duration(until)) }

// alone makes a door to a node by itself, with the limits of a file.
func alone(t testing.TB, config string) (*Door, *hand) {
	t.Helper()
	clock := new(hand)
	door := newDoor(t, clock, &silent{clock: clock}, cluster.Member{
		ID: "n1", Boot: 1,
		State: cluster.StateActive,
	})
	set(t, door, config)
	return door, clock
}

func newDoor(t testing.TB, clock cluster.Clock, net cluster.Network,
	members ...cluster.Member,
) *Door {
	t.Helper()
	n, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: clock, Network: net,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := cluster.NewView("n1", members)
	if err != nil {
		t.Fatal(err)
	}
	n.SetView(v)
	return New(n, clock, nil)
}

func set(t testing.TB, door *Door, config string) {
	t.Helper()
	limits, err := policy.ParseEnvoy("test.yaml", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	door.Set(limits)
}

const perUser = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, " +
	"requests_per_unit: 2}}\n"

func request(domain, key, value string) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{
		Domain: domain,
		Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
		},
	}
}

// Promise: answers stay inside Envoy's 20 ms also when the owner is dead, and on_error says what
// they are.
func TestOwnerDoesNotAnswer(t *testing.T) {
	for onError, want := range map[string]ratelimitv3.RateLimitResponse_Code{
		"local": ratelimitv3.RateLimitResponse_OK, "allow": ratelimitv3.RateLimitResponse_OK,
		"deny": ratelimitv3.RateLimitResponse_OVER_LIMIT,
	} {
		clock := new(hand)
		clock.set(time.Hour / 4)
		dead := &silent{clock: clock}
		door := newDoor(t, clock, dead, cluster.Member{
			ID: "n1", Boot: 1,
			State: cluster.StateActive,
		}, cluster.Member{
			ID: "n2", Boot: 2,
			State: cluster.StateActive,
		})
		set(t, door, perUser+"on_error: "+onError+"\n")
		asked := 0
		for i := range 20 {
			before := clock.Now()
			calls := len(dead.given)
			out, err := door.ShouldRateLimit(context.Background(), request("d", "user",
				fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Duration(clock.Now() - before); took > within {
				t.Errorf("%s: the answer took %v", onError, took)
			}
			if len(dead.given) == calls {
				continue // its own key, or the breaker is open
			}
			asked++
			if out.OverallCode != want {
				t.Errorf("%s: %v", onError, out)
			}
			if s := out.Statuses[0]; s.CurrentLimit == nil ||
				s.DurationUntilReset.AsDuration() != 45*time.Minute {
				t.Errorf("%s: a status that is not filled in: %v", onError, s)
			}
		}
		if asked == 0 {
			t.Error("no key belonged to the dead owner")
		}
		for _, d := range dead.given {
			if d > within {
				t.Errorf("%s: a peer was given %v", onError, d)
			}
		}
	}
}

func TestDeadlineOfTheClient(t *testing.T) {
	for _, c := range []struct {
		client   time.Duration
		from, to time.Duration
	}{{0, within, within}, {time.Minute, within, within}, {
		10 * time.Millisecond, -time.Hour,
		6 * time.Millisecond,
	}, {-time.Second, -time.Hour, 0}} {
		ctx, cancel := context.Background(), func() {}
		if c.client != 0 {
			ctx, cancel = context.WithTimeout(ctx, c.client)
		}
		if left := time.Duration(deadline(ctx, 0)); left < c.from || left > c.to {
			t.Errorf("a client that waits %v: %v", c.client, left)
		}
		cancel()
	}
}

func TestErrors(t *testing.T) {
	door, _ := alone(t, perUser)
	many := request("d", "user", "x")
	for range cluster.MaxItems {
		many.Descriptors = append(many.Descriptors, many.Descriptors[0])
	}
	short, cancel := context.WithTimeout(context.Background(), -1)
	defer cancel()
	for _, c := range []struct {
		ctx  context.Context
		door *Door
		in   *ratelimitv3.RateLimitRequest
		code codes.Code
		text string
	}{
		{nil, New(nil, nil, nil), request("d", "user", "x"), codes.InvalidArgument, "start it " +
			"with --envoy-config DIR"},
		{
			nil, door, &ratelimitv3.RateLimitRequest{Domain: "d"}, codes.InvalidArgument,
			"descriptors: has 0 descriptors; 1 to 1000",
		},
		{nil, door, many, codes.InvalidArgument, "descriptors: has 1001 descriptors"},
		{nil, door, request("", "user", "x"), codes.InvalidArgument, "domain: is empty"},
		{short, door, request("d", "user", "x"), codes.DeadlineExceeded, "nothing was charged"},
		{nil, door, func() *ratelimitv3.RateLimitRequest {
			_, in := readRequest(t, "0s: d | k=v | k=v@1/fortnight")
			return in
		}(), codes.InvalidArgument, "descriptors[1].limit: has the unit UNKNOWN; SECOND, "},
		{nil, door, func() *ratelimitv3.RateLimitRequest {
			_, in := readRequest(t, "0s: d | k=v@1/2year")
			return in
		}(), codes.InvalidArgument, "descriptors[0].limit: lasts 2 times a year; 366 " +
			"days are the most"},
	} {
		if c.ctx == nil {
			c.ctx = context.Background()
		}
		out, err := c.door.ShouldRateLimit(c.ctx, c.in)
		if status.Code(err) != c.code || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%v: got %v, %v; want %v, %s", c.in, out, err, c.code, c.text)
		}
	}
	if out, err := door.ShouldRateLimit(context.Background(), request("d", "user",
		"x")); err != nil || out.Statuses[0].LimitRemaining != 1 {
		t.Errorf("something was charged: %v, %v", out, err)
	}
	// What protobuf cannot rule out: descriptors and entries that are not there.
	odd := &ratelimitv3.RateLimitRequest{
		Domain: "d",
		Descriptors: []*commonv3.RateLimitDescriptor{
			nil,
			{},
			{Entries: []*commonv3.RateLimitDescriptor_Entry{nil}},
		},
	}
	if out, err := door.ShouldRateLimit(context.Background(), odd); err != nil ||
		len(out.Statuses) != 3 {
		t.Errorf("%v, %v", out, err)
	}
}

// TestOverTheWire asks as an Envoy does, at the listener that all gRPC clients use.
func TestOverTheWire(t *testing.T) {
	door, _ := alone(t, perUser+"response_headers: true\n")
	server := native.NewServer(native.Config{
		Node: door.node, Clock: clock.New(),
		Doors: []native.Door{door}, AuthToken: "secret",
	})
	l := bufconn.Listen(1 << 16)
	go server.Serve(l)
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///envoy",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := ratelimitv3.NewRateLimitServiceClient(conn)
	if _, err := client.ShouldRateLimit(context.Background(), request("d", "user",
		"x")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without the token: %v", err)
	}
	token := grpc.PerRPCCredentials(bearer{})
	for i, want := range []string{"2 1 3600", "2 0 3600", "2 0 3600"} {
		out, err := client.ShouldRateLimit(context.Background(), request("d", "user", "x"), token)
		if err != nil {
			t.Fatal(err)
		}
		var values []string
		for _, h := range out.ResponseHeadersToAdd {
			values = append(values, h.Value)
		}
		if got := strings.Join(values, " "); got != want ||
			(out.OverallCode == ratelimitv3.RateLimitResponse_OVER_LIMIT) != (i == 2) {
			t.Errorf("%d: %v, headers %s", i, out, got)
		}
	}
	for _, service := range []string{"", ratelimitv3.RateLimitService_ServiceDesc.ServiceName} {
		h, err := healthv1.NewHealthClient(conn).Check(context.Background(),
			&healthv1.HealthCheckRequest{Service: service})
		if err != nil || h.Status != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, h, err)
		}
	}
}

type bearer struct{}

func (bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer secret"}, nil
}
func (bearer) RequireTransportSecurity() bool { return false }

// post asks the HTTP door of a node, which has POST /json.
func post(door *Door, path, body string) *httptest.ResponseRecorder {
	h := web.New(web.Config{
		Node:  door.node,
		Doors: map[string]http.Handler{"POST /json": door},
	})
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	rw := httptest.NewRecorder()
	h.ServeHTTP(rw, r)
	return rw
}

func TestJSON(t *testing.T) {
	door, _ := alone(t, perUser+"response_headers: true\n")
	remaining := "RateLimit-Remaining" // to the letter
	const body = `{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"x"}]}],` +
		`"hitsAddend":1}`
	for i, want := range []int{200, 200, 429} {
		rw := post(door, "/json", body)
		out := new(ratelimitv3.RateLimitResponse)
		if err := protojson.Unmarshal(rw.Body.Bytes(), out); err != nil || rw.Code != want ||
			len(out.Statuses) != 1 || out.Statuses[0].DurationUntilReset.GetSeconds() != 3600 {
			t.Errorf("%d: status %d, %s (%v)", i, rw.Code, rw.Body, err)
		}
		if got := rw.Header()[remaining]; len(got) != 1 || got[0] != fmt.Sprint(max(0, 1-i)) {
			t.Errorf("%d: RateLimit-Remaining %q", i, got)
		}
	}
	for _, c := range []struct {
		body string
		code int
		text string
	}{
		{"", 400, "body: is not a RateLimitRequest in JSON"},
		{"{", 400, "body: is not a RateLimitRequest in JSON"},
		{`{"domain":"d","descriptor":[]}`, 400, "unknown field"},
		{`{"domain":"d"}`, 400, "descriptors: has 0 descriptors"},
		{`{"descriptors":[{}]}`, 400, "domain: is empty"},
		{`{"domain":"` + strings.Repeat("d", maxBody) + `"}`, 400, "body: has more than " +
			"2097152 bytes"},
	} {
		rw := post(door, "/json", c.body)
		if rw.Code != c.code || !strings.Contains(rw.Body.String(), c.text) ||
			strings.Contains(rw.Body.String(), "proto:") ||
			rw.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.60s: status %d, %s", c.body, rw.Code, rw.Body)
		}
	}
}

// Promise: the same key and limit through two doors count as one.
func TestOneKeyThroughTwoDoors(t *testing.T) {
	door, _ := alone(t, perUser)
	if _, err := door.ShouldRateLimit(context.Background(), request("d", "user", "x")); err != nil {
		t.Fatal(err)
	}
	const inline = `{"key":"user=x","inline":{"name":"envoy/d","algorithm":"fixed_window",` +
		`"limit":2,"per":"1h","anchor":"epoch","drain":true}}`
	if rw := post(door, "/v1/check", inline); !strings.Contains(rw.Body.String(),
		`"remaining":0,`) {
		t.Errorf("%s", rw.Body)
	}
	if out, err := door.ShouldRateLimit(context.Background(), request("d", "user",
		"x")); err != nil || out.OverallCode != ratelimitv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("%v, %v", out, err)
	}
}

// Promise: limits are exchanged as a whole, and what was counted stays, also under another number.
func TestReload(t *testing.T) {
	door, _ := alone(t, perUser)
	ask := func() string {
		out, err := door.ShouldRateLimit(context.Background(), request("d", "user", "x"))
		if err != nil {
			t.Fatal(err)
		}
		return writeResponse(out)
	}
	if got := ask(); got != "OK: OK 1/2 hour 3600" {
		t.Error(got)
	}
	set(t, door, "domain: d\ndescriptors:\n  - {key: user, value: x*, rate_limit: {unit: hour, "+
		"requests_per_unit: 9}}\n")
	if got := ask(); got != "OK: OK 7/9 hour 3600" {
		t.Error(got)
	}
	set(t, door, "domain: e\n")
	if got := ask(); got != "OK: OK" {
		t.Error(got)
	}
}

func TestMetadata(t *testing.T) {
	door, _ := alone(t, `
domain: d
response_metadata: true
descriptors:
  - {key: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1},
     metadata: {route: {to: a, hops: 1}, x: 1}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 9},
     metadata: {route: {to: b, by: [1, null]}, y: {z: true}}}
`)
	_, in := readRequest(t, "0s: d 1 | a=1 | b=2+1@9/hour | b=2")
	request := fmt.Sprintf(`"domain":"d","descriptors":[{"entries":["a=1"]},
		{"entries":["b=2"],"hitsAddend":1,"limit":%q},{"entries":["b=2"]}],"hitsAddend":1`,
		in.Descriptors[1].Limit.String())
	for i, added := range []string{
		`"metadata":{"route":{"to":"a","hops":1,"by":[1,null]},"x":1,"y":{"z":true}}`,
		`"quotaModeViolations":[0],"metadata":{"route":{"to":"b","by":[1,null]},"y":{"z":true}}`,
	} {
		want := "{" + request + `,"quotaModeEnabled":true,` + added + "}"
		out, err := door.ShouldRateLimit(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		expected := out.DynamicMetadata.ProtoReflect().New().Interface()
		if err := protojson.Unmarshal([]byte(want), expected); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(out.DynamicMetadata, expected) {
			t.Errorf("%d:\n got %v\nwant %v", i, out.DynamicMetadata, expected)
		}
	}
}

// Promise: metrics per limit, and no more series than the files ask for, whatever clients send.
func TestMetrics(t *testing.T) {
	door, _ := alone(t, `
domain: d
descriptors:
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: seen, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
`)
	send := func(text string) {
		t.Helper()
		_, in := readRequest(t, "0s: "+text)
		if _, err := door.ShouldRateLimit(context.Background(), in); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{
		"d | plain=x+7", "d | plain=x+2", "d | plain=x+1", "d | plain=x+1", "d | plain=y",
		"d | plain=y-1", "d | plain=y+0",
		"d | shadow=x | shadow=x", "d | free=x+5", "d | seen=x", "d | other=x",
		"d | k=v@1/hour", "e | plain=x",
	} {
		send(text)
	}
	for i := range 2 * maxDetailed {
		send(fmt.Sprintf("d | seen=%d", i))
	}
	if _, err := door.ShouldRateLimit(context.Background(), request("", "k", "v")); err == nil {
		t.Fatal("no error")
	}
	got := gathered(t, door)
	for name, want := range map[string]float64{
		"hits plain": 12, "within_limit plain": 11, "near_limit plain": 2, "over_limit plain": 1,
		"shadow_mode plain": 0,
		"hits shadow":       2, "within_limit shadow": 1, "over_limit shadow": 1,
		"shadow_mode shadow": 1,
		"hits free":          5, "within_limit free": 5, "hits seen_x": 1, "hits seen_0": 1,
		"hits " + overridden: 1,
		"domain_not_found":   1, "errors": 1, "limits": 4,
	} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	detailed, sum := 0, 0.0
	for name, v := range got {
		if strings.HasPrefix(name, "hits seen") {
			detailed++
			sum += v
		}
	}
	if detailed > maxDetailed+1 || sum != 2*maxDetailed+1 {
		t.Errorf("%d series with %v hits", detailed, sum)
	}
	set(t, door, "domain: d\ndescriptors:\n  - {key: plain, rate_limit: {unit: hour, "+
		"requests_per_unit: 20}}\n")
	if got := gathered(t, door); got["hits plain"] != 12 || got["hits seen_x"] != 1 {
		t.Errorf("a reload forgot what was counted: %v, %v", got["hits plain"], got["hits seen_x"])
	} else if _, still := got["hits shadow"]; still {
		t.Error("a limit that is gone is still shown")
	}
}

func gathered(t *testing.T, door *Door) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(door)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "penstock_envoy_"), "_total")
			for _, l := range m.Label {
				if l.GetName() == "descriptor" {
					name += " " + l.GetValue()
				}
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

// FuzzShouldRateLimit: no request makes the door panic, and every answer has a status for each
// descriptor.
func FuzzShouldRateLimit(f *testing.F) {
	for _, text := range []string{
		"d | user=x", "d 3 | user=x+0 | user=y-3",
		"d | user=x@5/15minute", "e | a=b",
	} {
		_, in := readRequest(f, "0s: "+text)
		b, err := proto.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	door, clock := alone(f, perUser+"  - {key: q, value: '*', quota_mode: true, rate_limit: "+
		"{unit: second, requests_per_unit: 1}}\nresponse_headers: true\nresponse_metadata: true\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		in := new(ratelimitv3.RateLimitRequest)
		if proto.Unmarshal(b, in) != nil {
			return
		}
		clock.set(time.Duration(len(b)) * time.Second)
		out, err := door.ShouldRateLimit(context.Background(), in)
		if err != nil {
			if c := status.Code(err); c != codes.InvalidArgument {
				t.Fatalf("%v", err)
			}
			return
		}
		if len(out.Statuses) != len(in.Descriptors) ||
			out.OverallCode == ratelimitv3.RateLimitResponse_UNKNOWN {
			t.Fatalf("%v", out)
		}
		for _, s := range out.Statuses {
			if s.Code == ratelimitv3.RateLimitResponse_UNKNOWN ||
				s.CurrentLimit != nil && s.DurationUntilReset.GetSeconds() < 1 {
				t.Fatalf("%v", s)
			}
		}
	})
}

// BenchmarkShouldRateLimit is the door and the node, without the wire.
func BenchmarkShouldRateLimit(b *testing.B) {
	door, _ := alone(b, "domain: d\ndescriptors:\n  - {key: path, value: login, descriptors: "+
		"[{key: user, rate_limit: {unit: hour, requests_per_unit: 4294967295}}]}\n")
	_, in := readRequest(b, "0s: d | path=login,user=alice")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := door.ShouldRateLimit(context.Background(), in); err != nil {
			b.Fatal(err)
		}
	}
}
