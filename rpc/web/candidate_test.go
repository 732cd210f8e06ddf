package web

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/admin"
	"penstock/rpc/history"
	"penstock/rpc/rpctest"
)

// trying is a node with the limit tried in its file, with a candidate.
func trying(t *testing.T) *cluster.Node {
	t.Helper()
	n := rpctest.Alone(t)
	s := rpctest.Specs[0]
	s.Name = "tried"
	l, err := limiter.New(s)
	if err == nil {
		l, err = l.WithCandidate(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.SetLimits(cluster.Limits{"tried": l})
	return n
}

// Promise: a candidate is put with its limit, never changes an answer, says on GET /v1/limits and
// in the metrics what it would have done, and takes the limit's place when it is promoted; what
// keys have used of the limit stays.
func TestCandidateIsPutShownAndPromoted(t *testing.T) {
	n := rpctest.Alone(t)
	h := New(Config{Node: n, Admin: true})
	put := func(candidate string) (int, string) {
		r, text := rpctest.Page(h, "PUT", "/v1/limits", `{"name":"new","algorithm":"fixed_window",`+
			`"anchor":"first_hit","limit":5,"per":"1h","dry_run":false,"candidate":`+candidate+`}`)
		return r.StatusCode, text
	}
	if code, text := put(`{"limit":2}`); code != 200 {
		t.Fatal(code, text)
	}
	for i := range 7 {
		want := 200
		if i >= 5 {
			want = 429
		}
		if r, text := rpctest.Page(h, "GET", "/v1/check?limit=new&key=k",
			""); r.StatusCode != want {
			t.Fatalf("check %d: %d %s; want %d", i, r.StatusCode, text, want)
		}
	}
	var out admin.NamedLimits
	_, text := rpctest.Page(h, "GET", "/v1/limits", "")
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out.Limits) != 1 ||
		out.Limits[0].Candidate == nil {
		t.Fatal(err, text)
	}
	c := out.Limits[0].Candidate
	if *c.Limit != 2 || c.Per != "1h0m0s" || c.Allowed != 2 || c.Denied != 5 ||
		c.NewlyDenied != 3 || c.NewlyAllowed != 0 {
		t.Errorf("%+v; want 2 allowed, 5 denied, 3 of them newly", c)
	}
	_, text = rpctest.Page(h, "GET", "/metrics", "")
	for _, want := range []string{
		`penstock_candidate_checks_total{candidate="allowed",decision="allowed",limit="new"} 2`,
		`penstock_candidate_checks_total{candidate="denied",decision="allowed",limit="new"} 3`,
		`penstock_candidate_checks_total{candidate="denied",decision="denied",limit="new"} 2`,
		`penstock_checks_total{decision="allowed",limit="new",source="owner"} 5`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(text, "(candidate)") {
		t.Error("/metrics counts the candidate as a limit")
	}
	if r, text := rpctest.Page(h, "POST", "/v1/limits/promote?name=new", ""); r.StatusCode != 200 {
		t.Fatal(r.StatusCode, text)
	}
	if l := n.Limits()["new"]; l.Limit != 2 || l.Candidate() != nil {
		t.Errorf("promoted: %+v", l.Spec)
	}
	if r, text := rpctest.Page(h, "GET", "/v1/check?limit=new&key=k", ""); r.StatusCode != 429 {
		t.Errorf("what the key has used is forgotten: %d %s", r.StatusCode, text)
	}
	for candidate, want := range map[string]string{
		`{"limit":0}`:   "limit.candidate.limit: ",
		`{"limit":"2"}`: "candidate.limit: ",
		`{"on_error":"deny"}`: "limit.candidate.on_error: is not a candidate's; it has: " +
			"algorithm, limit",
		`{"algorithm":"concurrency"}`: "limit.candidate.algorithm: concurrency counts permits",
		`{"algorithm":"fancy"}`:       `limit.candidate.algorithm: \"fancy\" is not there`,
		`5`:                           "candidate: ",
	} {
		if code, text := put(candidate); code != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s; want %q", candidate, code, text, want)
		}
	}
	if code, text := put(`{"algorithm":"gcra","limit":3}`); code != 200 ||
		n.Limits()["new"].Candidate().Per.Hours() != 1 {
		t.Errorf("another algorithm: %d %s", code, text)
	}
	for name, want := range map[string]string{
		"x (candidate)": "is the name of a candidate's counters",
		"inline":        "is the name of limits that requests bring along",
		"cl.throttle":   "is the name of limits of CL.THROTTLE",
		"envoy/shop":    "is the name of limits of Envoy's domains",
	} {
		r, text := rpctest.Page(h, "PUT", "/v1/limits",
			fmt.Sprintf(`{"name":%q,"algorithm":"gcra","limit":5,"per":"1h"}`, name))
		if r.StatusCode != 400 || !strings.Contains(text, want) ||
			!strings.Contains(text, `"field":"limit.name"`) {
			t.Errorf("a name that is taken: %d %s; want %q", r.StatusCode, text, want)
		}
	}
}

// Promise: the page names the keys that a candidate would deny most often, of its limit alone.
func TestPageNamesWhatCandidatesDeny(t *testing.T) {
	h := overviewOf(t)
	for _, name := range []string{"one", "two"} {
		r, text := rpctest.Page(h, "PUT", "/v1/limits", `{"name":"`+name+`","limit":5,"per":"1h",`+
			`"algorithm":"fixed_window","candidate":{"limit":2}}`)
		if r.StatusCode != 200 {
			t.Fatal(text)
		}
	}
	for key, times := range map[string]int{"often": 7, "seldom": 3, "never": 2} {
		for range times {
			rpctest.Page(h, "GET", "/v1/check?limit=one&key="+key, "")
		}
	}
	var out struct {
		Limits []struct {
			Name string
			Keys []history.Heavy `json:"newly_denied_keys"`
		}
	}
	_, text := rpctest.Page(h, "GET", "/v1/cluster/limits", "")
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out.Limits) != 2 {
		t.Fatal(err, text)
	}
	got := ""
	for _, l := range out.Limits {
		for _, k := range l.Keys {
			got += fmt.Sprintf("%s %s %d; ", l.Name, k.Key, k.Checks)
		}
	}
	if want := "one often 3; one seldom 1; "; got != want { // the limit itself denies 2 of often
		t.Errorf("%q; want %q", got, want)
	}
}
