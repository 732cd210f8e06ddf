package native

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
	"penstock/rpc/wire"
)

// ruled is a node with two limits and the rules that name them.
func ruled(t testing.TB) *cluster.Node {
	n := rpctest.Alone(t,
		limiter.Spec{
			Name: "login", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
			Limit: 2, Per: time.Hour,
		},
		limiter.Spec{
			Name: "per-ip", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
			Limit: 3, Per: time.Minute,
		},
		limiter.Spec{
			Name: "tries", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
			Limit: 1, Per: time.Hour, DryRun: true,
		},
	)
	rpctest.SetRules(t, n,
		rules.Rule{
			Name: "api", Match: map[string][]string{"path": {"/api/*"}, "method": {"POST"}},
			Apply: []rules.Apply{
				{Limit: "login", Key: "{header:X-User}"},
				{Limit: "per-ip", Key: "{ip}"},
			},
		},
		rules.Rule{
			Name: "all", Match: map[string][]string{"path": {"/api/*", "/web/*"}},
			Apply: []rules.Apply{{Limit: "per-ip", Key: "{ip}"}},
		},
		rules.Rule{
			Name: "health", Match: map[string][]string{"path": {"/api/health"}},
			Unlimited: true,
		},
	)
	return n
}

// asked posts a body and returns the answer.
func asked(t *testing.T, h http.Handler,
	body string,
) (answer web.DecisionsJSON, code int, text string) {
	t.Helper()
	answered, text := rpctest.Page(h, "POST", "/v1/check", body)
	code = answered.StatusCode
	if code == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
	}
	return answer, code, text
}

// Promise: all limits of all rules that match are taken, or none; the answer names the limits that
// refuse, and the largest wait.
func TestAttributesAtTheHTTPDoor(t *testing.T) {
	n := ruled(t)
	h := web.New(web.Config{Node: n})
	const post = `{"attributes":{"path":"/api/login","method":"POST","header:x-user":"ann",` +
		`"ip":"10.0.0.1"}}`
	left := func(limit, key string) int64 {
		_, text := rpctest.Page(h, "GET", "/v1/peek?limit="+limit+"&key="+key, "")
		var d web.DecisionJSON
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	for i := range 2 {
		a, code, text := asked(t, h, post)
		if code != 200 || !a.Allowed || len(a.Decisions) != 2 || !slices.Equal(a.Verdict.Rules,
			[]string{"api", "all"}) || len(a.Verdict.RefusedBy) != 0 {
			t.Fatalf("request %d: %d %s", i, code, text)
		}
	}
	if got := [2]int64{left("login", "ann"), left("per-ip", "10.0.0.1")}; got != [2]int64{0, 1} {
		t.Fatalf("%v are left; a limit of two rules with one key is charged once", got)
	}
	a, _, text := asked(t, h, post)
	if a.Allowed || !slices.Equal(a.Verdict.RefusedBy, []string{"login"}) ||
		a.Verdict.RetryAfterMs < 3_500_000 {
		t.Fatal(text)
	}
	if got := left("per-ip", "10.0.0.1"); got != 1 {
		t.Fatalf("a denied request has charged per-ip: %d are left", got)
	}
	for _, c := range []struct {
		name, body string
		rules      []string
		decisions  int
	}{
		{"no rule matches", `{"attributes":{"path":"/other"}}`, []string{}, 0},
		{
			"left out", `{"attributes":{"path":"/api/health","method":"POST"}}`,
			[]string{"api", "all", "health"},
			0,
		},
		{
			"a header has no case, an unknown attribute no say",
			`{"attributes":{"path":"/web/","ip":"::1","header:X-USER":"bo","colour":"red"}}`,
			[]string{"all"},
			1,
		},
		{"cost 0 looks", `{"cost":0,"attributes":{"path":"/web/","ip":"::1"}}`, []string{"all"}, 1},
	} {
		a, code, text := asked(t, h, c.body)
		if code != 200 || !a.Allowed || !slices.Equal(a.Verdict.Rules, c.rules) ||
			len(a.Decisions) != c.decisions || !strings.Contains(text, `"rules":[`) {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
	}
	if got := left("per-ip", "::1"); got != 2 {
		t.Errorf("of ::1 %d are left", got)
	}
	if got := n.Stats().Unmatched.Load(); got != 1 {
		t.Errorf("%d requests are counted that no rule matches", got)
	}
}

// Promise: bad attributes are errors that name the field, and charge nothing.
func TestBadAttributes(t *testing.T) {
	n := ruled(t)
	h := web.New(web.Config{Node: n})
	long := strings.Repeat("x", cluster.MaxKey+1)
	for _, c := range []struct{ body, want string }{
		{
			`{"attributes":{"path":"/api/","method":"POST","ip":"1"}}`,
			`attributes.header:X-User: is missing; rule \"api\" needs it for the key of limit ` +
				`\"login\"`,
		},
		{`{"attributes":{"path":"/web/","ip":""}}`, `attributes.ip: is missing`},
		{`{"attributes":{"path":"/web/","ip":"1"},"key":"k"}`, `attributes: stand beside items`},
		{
			`{"attributes":{"path":"/web/"},"items":[{"limit":"login","key":"k"}]}`,
			`attributes: stand beside items`,
		},
		{`{"attributes":{"path":7}}`, `attributes: is number`},
		{`{"attributes":{"path":"/a","path":"/b"}}`, `attributes.path: is given twice`},
		{`{"attributes":{"a b":"1"}}`, `attributes: \"a b\" is not an attribute's name`},
		{`{"attributes":{"header:a":"1","header:A":"2"}}`, `attributes.header:a: is given twice`},
		{`{"attributes":["path"]}`, `attributes: is array`},
		{
			`{"attributes":{"path":"/web/","ip":"` + long + `"}}`,
			`attributes: make a key of 1025 bytes for limit \"per-ip\"`,
		},
		{
			`{"attributes":{"path":"` + strings.Repeat("x", rules.MaxValue+1) + `"}}`,
			`attributes.path: has 8193 bytes`,
		},
		{`{"Attributes":{"path":"/"}}`, `Attributes: is unknown`},
	} {
		_, code, text := asked(t, h, c.body)
		if code != 400 || !strings.Contains(text, c.want) {
			t.Errorf("%.80s: %d %.300s\nwant %s", c.body, code, text, c.want)
		}
	}
	if r, text := rpctest.Page(h, "POST", "/v1/check",
		`{"attributes":{"path":"/web/","ip":"1"},"cost":"1"}`); r.StatusCode != 400 ||
		!strings.Contains(text, "cost: is string") {
		t.Error(text)
	}
	if keys := n.Table().Stats().Keys; keys != 0 {
		t.Errorf("%d keys were charged", keys)
	}
	bare := web.New(web.Config{Node: rpctest.Alone(t, rpctest.Specs...), Admin: true})
	if _, code, text := asked(t, bare, `{"attributes":{"path":"/"}}`); code != 404 ||
		!strings.Contains(text, "this node has no rules") {
		t.Error(text)
	}
	if r, text := rpctest.Page(bare, "POST", "/v1/reset",
		`{"attributes":{"path":"/"}}`); r.StatusCode != 400 ||
		!strings.Contains(text, "attributes: are for checks") {
		t.Error(text)
	}
}

// Promise: proxies need name neither limit nor key, if rules do.
func TestForwardAuthByRules(t *testing.T) {
	n := ruled(t)
	h := web.New(web.Config{Node: n})
	ask := func(query string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/v1/auth"+query, nil)
		r.RemoteAddr = "192.0.2.7:1000"
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		rw := httptest.NewRecorder()
		h.ServeHTTP(rw, r)
		return rw
	}
	post := []string{
		"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/api/login?x=1", "X-User",
		"ann",
	}
	for range 2 {
		if rw := ask("", post...); rw.Code != 200 ||
			rpctest.Written(rw.Result(), "RateLimit-Policy")[0] != `"login";q=2;w=3600, `+
				`"per-ip";q=3;w=60` {
			t.Fatal(rw.Code, rw.Header(), rw.Body)
		}
	}
	rw := ask("", post...)
	if rw.Code != 429 || rw.Header().Get("Retry-After") != "3600" ||
		!strings.Contains(rw.Body.String(), `"violated-policies":["login"]`) {
		t.Error(rw.Code, rw.Header(), rw.Body)
	}
	if rw := ask("?deny_status=403&deny_body=no", post...); rw.Code != 403 ||
		rw.Body.String() != "no" {
		t.Error(rw.Code, rw.Body)
	}
	if rw := ask("", "X-Forwarded-Uri", "/web/a"); rw.Code != 200 ||
		!strings.Contains(rw.Body.String(), `"rules":["all"]`) {
		t.Error(rw.Code, rw.Body)
	}
	if rw := ask("", "X-Forwarded-Uri", "/web/a"); rw.Code != 429 { // of three, the posts took two
		t.Error(rw.Code, rw.Body)
	}
	if rw := ask("", "X-Forwarded-Uri", "/"); rw.Code != 200 ||
		rw.Header().Get("RateLimit") != "" || !strings.Contains(rw.Body.String(), `"rules":[]`) {
		t.Error(rw.Code, rw.Body)
	}
	for _, c := range []struct {
		query, want string
		header      []string
		status      int
	}{
		{"?key=k", "key: is given without a limit", nil, 400},
		{"?limit=", "limit: is empty", nil, 400},
		{"?limit=&key=", "limit: is empty", nil, 400},
		{"", "attributes.header:X-User: is missing", post[:4], 400},
		{
			"", "X-Forwarded-Uri, X-Original-URI and X-Original-URL differ",
			[]string{"X-Forwarded-Uri", "/a", "X-Original-URI", "/b"},
			403,
		},
	} {
		if rw := ask(c.query, c.header...); rw.Code != c.status ||
			!strings.Contains(rw.Body.String(), c.want) {
			t.Errorf("%s: %d %s", c.want, rw.Code, rw.Body)
		}
	}
}

// Promise: gRPC takes attributes too, in a stream as well, and a repeat under one id charges once.
func TestAttributesOverGRPC(t *testing.T) {
	n := ruled(t)
	s := &rateLimiter{node: n, clock: clock.New(), inlines: new(door.Inlines)}
	in := &penstockv1.CheckRequest{
		Attributes: map[string]string{
			"path": "/api/login", "method": "POST",
			"header:x-user": "ann", "ip": "10.0.0.1",
		},
		Id: &penstockv1.RequestId{Origin: 7, Sequence: 1},
	}
	for range 3 {
		out, err := s.Check(context.Background(), in)
		if err != nil || !out.Verdict.Allowed || out.Decisions[0].Remaining != 1 ||
			out.Decisions[1].Remaining != 2 {
			t.Fatal(out, err)
		}
	}
	in.Id = nil
	in.Cost = proto.Int64(2)
	if out := answerOnStream(t, s, &penstockv1.CheckStreamRequest{
		Tag:   3,
		Check: in,
	}); out.Tag != 3 || out.Check.GetVerdict().GetAllowed() ||
		!slices.Equal(out.Check.Verdict.RefusedBy, []string{"login"}) ||
		!slices.Equal(out.Check.Verdict.Rules, []string{"api", "all"}) {
		t.Fatal(out)
	}
	if out := answerOnStream(t, s, &penstockv1.CheckStreamRequest{Tag: 4}); out.Error == nil {
		t.Fatal(out)
	}
	for _, c := range []struct {
		in   *penstockv1.CheckRequest
		want string
	}{
		{&penstockv1.CheckRequest{
			Attributes: in.Attributes,
			Items:      []*penstockv1.Item{{Limit: "login", Key: []byte("k")}},
		}, "attributes: are given together with items"},
		{&penstockv1.CheckRequest{
			Cost:  proto.Int64(2),
			Items: []*penstockv1.Item{{Limit: "login", Key: []byte("k")}},
		}, "cost: and id of a request"},
		{&penstockv1.CheckRequest{
			Cost:       proto.Int64(limiter.MaxLimit + 1),
			Attributes: map[string]string{"path": "/api/"},
		}, "attributes.ip: is missing"},
	} {
		if _, err := s.Check(context.Background(),
			c.in); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.in, err)
		}
	}
}

// Promise: the verdict of a request is written by hand as the library would write it.
func TestVerdictOnTheWire(t *testing.T) {
	for _, v := range []*penstockv1.Verdict{
		{},
		{Allowed: true, RetryAfterMs: -1},
		{
			RefusedBy: []string{"a", strings.Repeat("b", 200)}, RetryAfterMs: 77,
			Rules: []string{"r", "limits.yaml:3"},
		},
		{RefusedBy: []string{""}},
	} {
		c := &checkCall{out: decisions(1, 1, "a"), verdict: v}
		b, err := c.write(wire.NewCodec())
		if err != nil {
			t.Fatal(err)
		}
		got := new(penstockv1.CheckResponse)
		if err := proto.Unmarshal(b.Materialize(), got); err != nil ||
			!proto.Equal(got, c.response()) {
			t.Errorf("%v became %v (%v)", c.response(), got, err)
		}
	}
}

// answerOnStream is what s answers to in on a stream.
func answerOnStream(t *testing.T, s *rateLimiter,
	in *penstockv1.CheckStreamRequest,
) *penstockv1.CheckStreamResponse {
	t.Helper()
	asked, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	c := new(streamCall)
	if err := wire.NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(asked)}, c); err != nil {
		t.Fatal(err)
	}
	s.answer(c)
	answered, err := wire.NewCodec().Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out := new(penstockv1.CheckStreamResponse)
	if err := proto.Unmarshal(answered.Materialize(), out); err != nil {
		t.Fatal(err)
	}
	return out
}
