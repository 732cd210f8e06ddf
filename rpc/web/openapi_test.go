package web

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
	"penstock/rpc/admin"
	"penstock/rpc/catalog"
	"penstock/rpc/clock"
	"penstock/rpc/hold"
	"penstock/rpc/notation"
	"penstock/rpc/page"
	"penstock/rpc/rpctest"
	"penstock/rpc/trace"
)

// What the file of OpenAPI says, as far as it is held against the handlers.
type (
	openAPI struct {
		Paths      map[string]map[string]any
		Components struct {
			Parameters map[string]apiParameter
			Responses  map[string]apiResponse
			Schemas    map[string]apiSchema
		}
	}
	apiOperation struct {
		Parameters []struct {
			Ref          string `json:"$ref"`
			apiParameter `json:",inline"`
		}
		RequestBody *struct {
			Content map[string]struct{ Schema apiSchema }
		}
		Responses map[string]apiResponse
	}
	apiParameter struct{ Name, In string }
	apiResponse  struct {
		Ref     string `json:"$ref"`
		Content map[string]struct{ Schema apiSchema }
	}
	apiSchema struct {
		Ref                  string `json:"$ref"`
		Type                 string
		Enum                 []string
		Required             []string
		Properties           map[string]apiSchema
		AdditionalProperties any `json:"additionalProperties"`
		Items                *apiSchema
	}
)

func readOpenAPI(t *testing.T) (api *openAPI, operations map[string]*apiOperation) {
	t.Helper()
	text, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	api = new(openAPI)
	if err := json.Unmarshal(b, api); err != nil {
		t.Fatal(err)
	}
	operations = map[string]*apiOperation{}
	for path, item := range api.Paths {
		for method, v := range item {
			if method == "description" {
				continue
			}
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			o := new(apiOperation)
			if err := json.Unmarshal(b, o); err != nil {
				t.Fatal(err)
			}
			operations[strings.ToUpper(method)+" "+path] = o
		}
	}
	return api, operations
}

// schema follows a reference.
func (api *openAPI) schema(s apiSchema) apiSchema {
	if name, found := strings.CutPrefix(s.Ref, "#/components/schemas/"); found {
		return api.Components.Schemas[name]
	}
	return s
}

func (api *openAPI) response(r apiResponse) apiResponse {
	if name, found := strings.CutPrefix(r.Ref, "#/components/responses/"); found {
		return api.Components.Responses[name]
	}
	return r
}

// names are those of an operation's parameters that stand there: query or header.
func (api *openAPI) names(o *apiOperation, in string) (names []string) {
	for _, p := range o.Parameters {
		of := p.apiParameter
		if ref, found := strings.CutPrefix(p.Ref, "#/components/parameters/"); found {
			of = api.Components.Parameters[ref]
		}
		if of.In == in {
			names = append(names, of.Name)
		}
	}
	slices.Sort(names)
	return names
}

// wrong says where v is not what s says, or nothing.
func (api *openAPI) wrong(s apiSchema, v any, where string) string {
	s = api.schema(s)
	kind := map[reflect.Kind]string{
		reflect.Map: "object", reflect.Slice: "array",
		reflect.String: "string", reflect.Bool: "boolean",
	}[reflect.ValueOf(v).Kind()]
	if n, ok := v.(json.Number); ok {
		if kind = "number"; !strings.ContainsAny(n.String(), ".eE") {
			kind = "integer"
		}
	}
	if kind != s.Type {
		return fmt.Sprintf("%s is %s %v, not %q", where, kind, v, s.Type)
	}
	if text, ok := v.(string); ok && len(s.Enum) > 0 && !slices.Contains(s.Enum, text) {
		return fmt.Sprintf("%s is %q, not one of %q", where, text, s.Enum)
	}
	object, _ := v.(map[string]any)
	for _, name := range s.Required {
		if _, given := object[name]; !given {
			return fmt.Sprintf("%s lacks %s", where, name)
		}
	}
	for name, v := range object {
		p, known := s.Properties[name]
		switch more := s.AdditionalProperties.(type) {
		case bool:
			if !known && !more {
				return fmt.Sprintf("%s.%s is not in the file", where, name)
			}
		case map[string]any:
			p.Type, known = fmt.Sprint(more["type"]), true
		}
		if known {
			if text := api.wrong(p, v, where+"."+name); text != "" {
				return text
			}
		}
	}
	list, _ := v.([]any)
	for i := range list {
		if text := api.wrong(*s.Items, list[i], fmt.Sprintf("%s[%d]", where, i)); text != "" {
			return text
		}
	}
	return ""
}

// registered are the pages of this package, as its sources have them, and those that cmd/node adds.
func registered(t *testing.T) (patterns []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`m\.[hH]andle(?:Func|Charge)?\("([^"]+)"`)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			patterns = append(patterns, m[1])
		}
	}
	wiring, err := os.ReadFile("../../cmd/node/doors.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`http\.Handler\{"([^"]+)"`).FindAllStringSubmatch(
		string(wiring), -1) {
		patterns = append(patterns, m[1])
	}
	return patterns
}

// undocumented are pages that are for people and their tools, and no interface.
var undocumented = regexp.MustCompile(
	`^(/|GET /\{\$\}|GET /debug/pprof/.*|GET /ui/.*|GET /v1/cluster/.*)$`,
)

// without is a node that waits for a cluster of which nobody is there.
func without(t *testing.T) *cluster.Node {
	t.Helper()
	n, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: clock.New(), Network: rpctest.Unreached{T: t},
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Membership().Agree(cluster.Trust{})
	v, err := cluster.NewView("n1", []cluster.Member{{ID: "n1", Boot: 1}})
	if err != nil {
		t.Fatal(err)
	}
	n.SetView(v)
	return n
}

// Promise: docs/openapi.yaml says what the handlers do: paths, parameters, fields of requests, both
// ways.
func TestOpenAPIHasWhatTheHandlersHave(t *testing.T) {
	api, operations := readOpenAPI(t)
	seen := map[string]bool{}
	for _, pattern := range registered(t) {
		if pattern == "/v1/auth" {
			pattern = "GET /v1/auth" // all methods are one there
		}
		seen[pattern] = true
		if operations[pattern] == nil && !undocumented.MatchString(pattern) {
			t.Errorf("%s is served, and not in the file", pattern)
		}
	}
	for name := range operations {
		if !seen[name] {
			t.Errorf("%s is in the file, and not served", name)
		}
	}

	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...), Admin: true})
	for name, o := range operations {
		_, path, _ := strings.Cut(name, " ")
		want := api.names(o, "query")
		if len(want) == 0 || !strings.HasPrefix(name, "GET") {
			continue
		}
		_, body := rpctest.Page(h, "GET", path+"?nonsense=1", "")
		_, list, found := strings.Cut(body, "there is: ")
		list, _, _ = strings.Cut(list, `"`)
		got := strings.Split(list, ", ")
		slices.Sort(got)
		if !found || !slices.Equal(got, want) {
			t.Errorf("%s takes %q; the file says %q", name, got, want)
		}
	}

	for name, v := range map[string]any{
		"Request": bodyJSON{}, "Item": itemJSON{}, "Inline": notation.LimitJSON{},
		"Decision": DecisionJSON{}, "Decisions": DecisionsJSON{},
		"Verdict": verdictJSON{}, "AuthDenial": exceededTogether{},
		"Reservation": reserveJSON{}, "Hold": holdJSON{}, "Holds": reservedJSON{},
		"Settlement": settleJSON{}, "Extension": extendJSON{},
		"Problem": page.Problem{}, "Denial": exceeded{}, "Member": admin.MemberJSON{},
		"NamedLimits": admin.NamedLimits{}, "NamedLimit": admin.NamedLimit{},
		"Candidate": admin.CandidateJSON{},
		"Put":       putJSON{}, "Done": adminDone{}, "Changed": limitDone{},
		"LimitHistory": limitHistory{}, "LimitEntry": catalog.Entry{}, "Top": admin.TopKeys{},
		"OpenHolds": admin.OpenHolds{}, "OpenHold": admin.OpenHold{}, "KeyState": admin.KeyState{},
	} {
		want, got := slices.Sorted(maps.Keys(api.Components.Schemas[name].Properties)),
			slices.Compact(slices.Sorted(slices.Values(fieldsOf(reflect.TypeOf(v)))))
		if !slices.Equal(got, want) {
			t.Errorf("%s has the fields\n%q; the file says\n%q", name, got, want)
		}
	}
}

// fieldsOf are the names that t's fields have in JSON.
func fieldsOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
			names = append(names, name)
		case f.Anonymous && f.Type.Kind() == reflect.Pointer:
			names = append(names, fieldsOf(f.Type.Elem())...)
		case f.Anonymous:
			names = append(names, fieldsOf(f.Type)...)
		}
	}
	return names
}

// Promise: each operation answers with the statuses, the types of body and the fields that the file
// says, and with no others.
func TestOpenAPISaysWhatIsAnswered(t *testing.T) {
	api, operations := readOpenAPI(t)
	lost, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: clock.New(),
		Network: rpctest.Unreached{T: t},
		Table:   limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	traced := &rpctest.ClientTraces{}
	config := Config{
		Node: rpctest.Alone(t, rpctest.Specs...), Admin: true, Version: "v9",
		Started: time.Now(), Trace: trace.New(traced, 0),
	}
	rpctest.SetRules(t, config.Node, rules.Rule{
		Name:  "posts",
		Match: map[string][]string{"method": {"POST"}}, Apply: []rules.Apply{{
			Limit: "demo",
			Key:   "{path}",
		}},
	})
	h := New(config)
	nowhere := New(Config{Node: lost, Admin: true})
	config.AuthToken = "secret"
	late, out := config, config
	late.AuthToken, out.AuthToken = "", ""
	late.Drain = func(context.Context) error { return context.DeadlineExceeded }
	out.Drain = func(context.Context) error { return nil }
	closed := New(config)
	hosted := New(Config{Node: config.Node, Hosts: NewHosts()})
	rpctest.Page(h, "GET", "/v1/check?limit=demo&key=full&cost=5", "")

	reserved := func(key string) string {
		var hold holdJSON
		_, text := rpctest.Page(h, "POST", "/v1/reserve", `{"limit":"demo","key":"`+key+
			`","ttl_ms":60000}`)
		if err := json.Unmarshal([]byte(text), &hold); err != nil || hold.ID == "" {
			t.Fatalf("%s: %v", text, err)
		}
		return hold.ID
	}
	settled, open := reserved("k"), reserved("k")
	released := rpctest.PerHour
	released.Unsettled = limiter.UnsettledRelease
	ticking := rpctest.Alone(t, released)
	ticking.Start()
	defer ticking.Stop()
	ticks := New(Config{Node: ticking})
	var overdue holdJSON
	_, text := rpctest.Page(ticks, "POST", "/v1/reserve", `{"limit":"demo","key":"k","ttl_ms":100}`)
	if err := json.Unmarshal([]byte(text), &overdue); err != nil || overdue.ID == "" {
		t.Fatalf("%s: %v", text, err)
	}
	rpctest.Eventually(t, "the hold has run out", func() bool {
		_, text := rpctest.Page(ticks, "GET", "/v1/peek?limit=demo&key=k", "")
		return strings.Contains(text, `"remaining":5`)
	})
	unknown := hold.Token(&cluster.Item{Limit: "demo", Key: "k"}, cluster.ID{Origin: 1})
	const item = `{"limit":"demo","key":"k"}`
	foreign := []string{"Origin", "http://elsewhere.example", "Sec-Fetch-Site", "cross-site"}
	answered := map[string]bool{}
	for _, c := range []struct {
		h         http.Handler
		operation string
		query     string
		body      string
		header    []string
		status    int
	}{
		{h, "GET /v1/check", "?limit=demo&key=k", "", nil, 200},
		{h, "GET /v1/check", "?limit=demo", "", nil, 400},
		{closed, "GET /v1/check", "?limit=demo&key=k", "", nil, 401},
		{h, "GET /v1/check", "?limit=demo&key=k", "", foreign, 403},
		{h, "GET /v1/check", "?limit=nowhere&key=k", "", nil, 404},
		{hosted, "GET /v1/check", "?limit=demo&key=k", "", nil, 421},
		{h, "GET /v1/check", "?limit=demo&key=full", "", nil, 429},
		{nowhere, "GET /v1/check", "?limit=demo&key=k", "", nil, 503},
		{h, "POST /v1/check", "", item, nil, 200},
		{h, "POST /v1/check", "", `{"items":[` + item + `,` + item + `],"atomic":true}`, nil, 200},
		{h, "POST /v1/check", "", `{"attributes":{"method":"POST","path":"/a"}}`, nil, 200},
		{h, "POST /v1/check", "", `{"attributes":{"method":"GET"}}`, nil, 200},
		{h, "POST /v1/check", "", `{`, nil, 400},
		{h, "POST /v1/check", "", item, foreign, 403},
		{h, "POST /v1/check", "", `{"limit":"nowhere","key":"k"}`, nil, 404},
		{h, "POST /v1/check", "", strings.Repeat(" ", maxBody+1), nil, 413},
		{h, "POST /v1/check", "", item, []string{"Content-Encoding", "gzip"}, 415},
		{nowhere, "POST /v1/check", "", item, nil, 503},
		{h, "GET /v1/peek", "?limit=demo&key=full&cost=1", "", nil, 200},
		{h, "GET /v1/peek", "?limit=demo", "", nil, 400},
		{h, "GET /v1/peek", "?limit=nowhere&key=k", "", nil, 404},
		{nowhere, "GET /v1/peek", "?limit=demo&key=k", "", nil, 503},
		{h, "GET /v1/auth", "?limit=demo&key={method}", "", nil, 200},
		{h, "GET /v1/auth", "?limit=demo&key={header:X-User}", "", nil, 400},
		{h, "GET /v1/auth", "", "", nil, 200},
		{
			h, "GET /v1/auth", "", "",
			[]string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/a"},
			200,
		},
		{h, "GET /v1/auth", "?cost=5", "", []string{
			"X-Forwarded-Method", "POST",
			"X-Forwarded-Uri", "/a",
		}, 429},
		{h, "GET /v1/auth", "?limit=nowhere&key=k", "", nil, 404},
		{h, "GET /v1/auth", "?limit=demo&key=full", "", nil, 429},
		{h, "GET /v1/auth", "?limit=demo&key=full&deny_status=418&deny_body=no", "", nil, 418},
		{h, "GET /v1/auth", "?limit=demo&key=full&deny_status=403", "", nil, 403},
		{nowhere, "GET /v1/auth", "?limit=demo&key=k", "", nil, 503},
		{h, "POST /v1/reset", "", item, nil, 200},
		{h, "POST /v1/reset", "", `[]`, nil, 400},
		{h, "POST /v1/reset", "", item, foreign, 403},
		{h, "POST /v1/reset", "", `{"limit":"nowhere","key":"k"}`, nil, 404},
		{h, "POST /v1/reserve", "", `{"limit":"demo","key":"k","ttl_ms":1000}`, nil, 200},
		{h, "POST /v1/reserve", "", item, nil, 400},
		{h, "POST /v1/reserve", "", item, foreign, 403},
		{h, "POST /v1/reserve", "", `{"limit":"nowhere","key":"k","ttl_ms":1000}`, nil, 404},
		{h, "POST /v1/reserve", "", strings.Repeat(" ", maxBody+1), nil, 413},
		{nowhere, "POST /v1/reserve", "", `{"limit":"demo","key":"k","ttl_ms":1000}`, nil, 503},
		{h, "POST /v1/settle", "", `{"id":"` + settled + `","actual":1}`, nil, 200},
		{h, "POST /v1/settle", "", `{"id":"` + settled + `","actual":2}`, nil, 409},
		{h, "POST /v1/settle", "", `{"id":"","actual":1}`, nil, 400},
		{h, "POST /v1/settle", "", `{"id":"` + settled + `","actual":1,"holder":"x"}`, nil, 403},
		{h, "POST /v1/settle", "", `{"id":"` + unknown + `","actual":1}`, nil, 404},
		{ticks, "POST /v1/settle", "", `{"id":"` + overdue.ID + `","actual":0}`, nil, 410},
		{h, "POST /v1/extend", "", `{"id":"` + settled + `","ttl_ms":1}`, nil, 400},
		{h, "POST /v1/extend", "", `{"id":"` + open + `","ttl_ms":1000}`, nil, 200},
		{h, "POST /v1/extend", "", `{"id":"` + unknown + `","ttl_ms":1000}`, nil, 404},
		{h, "POST /v1/extend", "", `{"id":"` + settled + `","ttl_ms":1000}`, nil, 410},
		{h, "GET /v1/members", "", "", nil, 200},
		{nowhere, "GET /v1/members", "", "", nil, 503},
		{h, "GET /v1/ring", "?key=k", "", nil, 200},
		{h, "GET /v1/ring", "?key=", "", nil, 400},
		{nowhere, "GET /v1/ring", "?key=k", "", nil, 503},
		{h, "GET /v1/status", "", "", nil, 200},
		{h, "GET /v1/limits", "", "", nil, 200},
		{
			h, "PUT /v1/limits", "", `{"name":"new","algorithm":"gcra","limit":5,"per":"1m"}`, nil,
			200,
		},
		{
			h, "PUT /v1/limits", "", `{"name":"new","algorithm":"gcra","limit":0,"per":"1m"}`, nil,
			400,
		},
		{h, "PUT /v1/limits", "", `{"name":"new"}`, foreign, 403},
		{
			h, "PUT /v1/limits", "?version=9@x",
			`{"name":"demo","algorithm":"gcra","limit":5,"per":"1m"}`, nil, 409,
		},
		{
			h, "PUT /v1/limits", "",
			`{"name":"new","algorithm":"gcra","limit":5,"per":"1m","candidate":{"limit":4}}`, nil,
			200,
		},
		{h, "GET /v1/limits", "", "", nil, 200},
		{h, "POST /v1/limits/promote", "?name=new&version=9@x", "", nil, 409},
		{h, "POST /v1/limits/promote", "?name=new", "", nil, 200},
		{h, "POST /v1/limits/promote", "?name=new", "", nil, 400},
		{h, "POST /v1/limits/promote", "?name=none", "", nil, 404},
		{
			New(Config{Node: trying(t), Admin: true}), "POST /v1/limits/promote",
			"?name=tried", "", nil, 200,
		},
		{h, "POST /v1/limits/promote", "?name=new&version=9@x", "", nil, 400},
		{h, "GET /v1/limits/history", "?name=new", "", nil, 200},
		{h, "GET /v1/limits/history", "?nme=new", "", nil, 400},
		{h, "POST /v1/limits/rollback", "?name=new&to=9@x", "", nil, 404},
		{h, "POST /v1/limits/rollback", "?name=new&to=1", "", nil, 400},
		{h, "POST /v1/limits/rollback", "?name=new&to=1@n1&version=9@x", "", nil, 409},
		{h, "POST /v1/limits/rollback", "?name=new&to=1@n1", "", nil, 200},
		{h, "DELETE /v1/limits", "?nme=new", "", nil, 400},
		{h, "DELETE /v1/limits", "?name=demo", "", nil, 409},
		{h, "DELETE /v1/limits", "?name=new", "", nil, 200},
		{h, "DELETE /v1/limits", "?name=new", "", nil, 404},
		{h, "POST /v1/drain", "", "", foreign, 403},
		{h, "POST /v1/drain", "", "", nil, 409},
		{New(late), "POST /v1/drain", "", "", nil, 504},
		{New(out), "POST /v1/drain", "", "", nil, 200},
		{h, "POST /v1/recover", "", "", foreign, 403},
		{h, "POST /v1/recover", "", "", nil, 409},
		{New(Config{Node: without(t), Admin: true}), "POST /v1/recover", "", "", nil, 200},
		{h, "GET /v1/holds", "?limit=demo&key=k", "", nil, 200},
		{h, "GET /v1/holds", "?count=1001", "", nil, 400},
		{nowhere, "GET /v1/holds", "?key=k", "", nil, 421},
		{h, "GET /v1/top", "?count=3", "", nil, 200},
		{h, "GET /v1/top", "?count=0", "", nil, 400},
		{h, "GET /v1/audit", "?count=3", "", nil, 200},
		{h, "GET /v1/audit", "?count=0", "", nil, 400},
		{
			h, "POST /v1/GetRateLimits", "",
			`{"requests":[{"name":"n","unique_key":"k","hits":1,"limit":5,"duration":1000}]}`, nil,
			200,
		},
		{h, "POST /v1/GetRateLimits", "", `{`, nil, 400},
		{h, "POST /v1/GetRateLimits", "", `{}`, foreign, 403},
		{h, "GET /v1/HealthCheck", "", "", nil, 200},
		{h, "GET /v1/LiveCheck", "", "", nil, 200},
		{closed, "GET /healthz", "", "", nil, 200},
		{closed, "GET /readyz", "", "", nil, 200},
		{nowhere, "GET /readyz", "", "", nil, 503},
		{closed, "GET /healthcheck", "", "", nil, 200},
		{nowhere, "GET /healthcheck", "", "", nil, 500},
		{h, "GET /metrics", "", "", nil, 200},
	} {
		method, path, _ := strings.Cut(c.operation, " ")
		r := httptest.NewRequest(method, path, strings.NewReader(c.body))
		r.URL.RawQuery = strings.TrimPrefix(c.query, "?")
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		r.Header.Set("Traceparent", rpctest.ClientTrace)
		rw := httptest.NewRecorder()
		traced.Of = c.operation
		c.h.ServeHTTP(rw, r)
		where := fmt.Sprintf("%s%s %.50s: %d", c.operation, c.query, c.body, rw.Code)
		o := operations[c.operation]
		if o == nil || rw.Code != c.status {
			t.Errorf("%s, want %d: %s", where, c.status, rw.Body)
			continue
		}
		code := fmt.Sprint(rw.Code)
		if _, exact := o.Responses[code]; !exact {
			code = code[:1] + "XX"
		}
		answered[c.operation+" "+code] = true
		said, documented := o.Responses[code]
		kind, _, _ := mime.ParseMediaType(rw.Header().Get("Content-Type"))
		content, known := api.response(said).Content[kind]
		switch {
		case !documented:
			t.Errorf("%s is not in the file", where)
		case !known && kind != "": // a text without a type of its own is given one by net/http
			t.Errorf("%s: the type %s is not in the file", where, kind)
		case strings.HasSuffix(kind, "json"):
			var v any
			d := json.NewDecoder(rw.Body)
			d.UseNumber()
			if err := d.Decode(&v); err != nil {
				t.Errorf("%s: %v", where, err)
			} else if text := api.wrong(content.Schema, v, "body"); text != "" {
				t.Errorf("%s: %s", where, text)
			}
		}
	}
	for name, o := range operations {
		said := slices.Contains(api.names(o, "header"), "traceparent")
		if said != slices.Contains(traced.Seen, name) {
			t.Errorf("%s reads traceparent: %v; the file says %v", name, !said, said)
		}
		for code := range o.Responses {
			// which is a door of its own: rpc/envoy tries it
			if !answered[name+" "+code] && name != "POST /json" {
				t.Errorf("%s: the file says %s, and nothing here is answered so", name, code)
			}
		}
	}
}
