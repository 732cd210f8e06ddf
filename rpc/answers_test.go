package rpc

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

func answering(name string, on limiter.OnDeny, a limiter.Answers) limiter.Spec {
	return limiter.Spec{
		Name: name, Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 1, Per: time.Hour,
		OnDeny: on, Answers: a,
	}
}

// Promise: a limit's status and body are the denial that a proxy hands on, unless the question says
// another one; a program that checks gets 429 as ever, and hears of both.
func TestDenialInTheWordsOfTheLimit(t *testing.T) {
	n := rpctest.Alone(
		t,
		answering(
			"words",
			limiter.DenyReject,
			limiter.Answers{Status: 503, Body: `{"e":1}`, ContentType: "application/json"},
		),
		answering("status", limiter.DenyReject, limiter.Answers{Status: 402}),
		answering("plain", limiter.DenyReject, limiter.Answers{}),
	)
	rpctest.SetRules(
		t,
		n,
		rules.Rule{
			Name:  "all",
			Apply: []rules.Apply{{Limit: "plain", Key: "r"}, {Limit: "words", Key: "r"}},
		},
	)
	h := web.New(web.Config{Node: n})
	const iana = `{"type":"https://iana.org`
	for _, row := range []struct {
		ask    string
		status int
		kind   string
		body   string // what it begins with
	}{
		{"/v1/auth?limit=words&key=a", 503, "application/json", `{"e":1}`},
		{"/v1/auth?limit=words&key=b&deny_status=403", 403, "application/json", `{"e":1}`},
		{"/v1/auth?limit=words&key=c&deny_body=no", 503, "text/plain; charset=utf-8", `no`},
		{"/v1/auth?limit=status&key=a", 402, "application/problem+json", iana},
		{"/v1/auth?limit=plain&key=a", 429, "application/problem+json", iana},
		{"/v1/auth", 503, "application/json", `{"e":1}`},
		{"/v1/check?limit=words&key=d", 429, "application/problem+json", iana},
	} {
		if answer, body := rpctest.Page(h, "GET", row.ask, ""); answer.StatusCode != 200 {
			t.Errorf("%s: %d %s", row.ask, answer.StatusCode, body)
		}
		answer, body := rpctest.Page(h, "GET", row.ask, "")
		if answer.StatusCode != row.status || answer.Header.Get("Content-Type") != row.kind ||
			!strings.HasPrefix(body, row.body) || answer.Header.Get("Retry-After") == "" ||
			answer.Header.Get("X-Content-Type-Options") != "nosniff" &&
				row.kind != "application/problem+json" {
			t.Errorf("%s: %d %v %s", row.ask, answer.StatusCode, answer.Header, body)
		}
	}
	var d web.DecisionJSON
	_, body := rpctest.Page(h, "GET", "/v1/check?limit=words&key=d", "")
	if err := json.Unmarshal([]byte(body), &d); err != nil || d.Denial == nil ||
		d.Denial.Status != 503 || d.Denial.ContentType != "application/json" ||
		d.Denial.Body != `{"e":1}` {
		t.Errorf("%s: %v", body, err)
	}
}

// Promise: beyond a limit with on_deny tag or deprioritize, requests go on with its mark, at every
// door, nothing is charged, and they are counted by that name.
func TestMarkedBeyondTheLimit(t *testing.T) {
	station := newStations(t, 1,
		answering("tag", limiter.DenyTag, limiter.Answers{Tag: "bot"}),
		answering("lower", limiter.DenyDeprioritize, limiter.Answers{Tier: 3}),
		answering("both", limiter.DenyTag, limiter.Answers{}),
	)[0]
	n := station.node
	rpctest.SetRules(
		t,
		n,
		rules.Rule{
			Name:  "all",
			Apply: []rules.Apply{{Limit: "lower", Key: "r"}, {Limit: "both", Key: "r"}},
		},
	)
	h := web.New(web.Config{Node: n})
	for _, row := range []struct{ ask, tag, tier string }{
		{"/v1/check?limit=tag&key=a", "bot", ""},
		{"/v1/check?limit=lower&key=a", "", "3"},
		{"/v1/auth?limit=tag&key=b", "bot", ""},
		{"/v1/auth", "over-limit", "3"},
	} {
		for i := range 3 {
			want := row
			if i == 0 {
				want.tag, want.tier = "", ""
			}
			answer, body := rpctest.Page(h, "GET", row.ask, "")
			if answer.StatusCode != 200 || answer.Header.Get("Penstock-Tag") != want.tag ||
				answer.Header.Get("Penstock-Tier") != want.tier {
				t.Errorf(
					"%s, time %d: %d %v %s",
					row.ask,
					i+1,
					answer.StatusCode,
					answer.Header,
					body,
				)
			}
		}
	}
	client := station.client
	for i := range 2 {
		out, err := client.Check(
			rpctest.Patience(t),
			&penstockv1.CheckRequest{Items: []*penstockv1.Item{
				rpctest.Item("tag", "g", 1), rpctest.Item("lower", "g", 1),
			}},
		)
		if err != nil {
			t.Fatal(err)
		}
		tag, lower := out.Decisions[0], out.Decisions[1]
		if over := i == 1; !tag.Allowed || !lower.Allowed || tag.Shadow ||
			(tag.Tag == "bot") != over ||
			(lower.Tier == 3) != over {
			t.Errorf("time %d: %v", i+1, out)
		}
	}
	tallies := n.LimitTallies()
	for limit, want := range map[string][2]uint64{"tag": {3, 5}, "lower": {3, 5}} {
		outcome := cluster.OutcomeTagged
		if limit == "lower" {
			outcome = cluster.OutcomeTier
		}
		if got := tallies[limit].Checks; got[cluster.OutcomeAllowed][0] != want[0] ||
			got[outcome][0] != want[1] {
			t.Errorf("%s: %v", limit, got)
		}
	}
	metrics := web.New(web.Config{Node: n, Admin: true})
	if _, body := rpctest.Page(metrics, "GET", "/metrics", ""); !strings.Contains(
		body,
		`penstock_checks_total{decision="deprioritized",limit="lower",source="owner"} 5`,
	) {
		t.Errorf("metrics lack the decision:\n%s", body)
	}
}

// Promise: the wait of a denial is spread in each answer about it, never shorter than the true one,
// which is that of the same limit without a spread; also where a node denies from memory.
func TestSpreadAtEveryDoor(t *testing.T) {
	spread := answering("spread", limiter.DenyReject, limiter.Answers{Spread: 100})
	stations := newStations(t, 2, spread)
	key := rpctest.OwnKey(stations[1].node, 0)
	h := web.New(web.Config{Node: stations[0].node})
	rpctest.Page(h, "GET", "/v1/check?limit=spread&key="+key, "")
	var waits []int64
	sources, latest := map[string]bool{}, int64(0)
	for range 200 {
		answer, body := rpctest.Page(h, "GET", "/v1/check?limit=spread&key="+key, "")
		var d web.DecisionJSON
		if err := json.Unmarshal([]byte(body), &d); err != nil || d.Allowed {
			t.Fatal(body, err)
		}
		after, err := strconv.ParseInt(answer.Header.Get("Retry-After"), 10, 64)
		if err != nil || after*1000 < d.RetryAfterMs {
			t.Errorf("Retry-After %d for %d ms", after, d.RetryAfterMs)
		}
		// The window is over when the key is as new.
		if d.RetryAfterMs < d.ResetAfterMs || d.RetryAfterMs > 2*d.ResetAfterMs {
			t.Errorf("%d ms, of %d", d.RetryAfterMs, d.ResetAfterMs)
		}
		sources[d.Source] = true
		waits, latest = append(waits, d.RetryAfterMs), max(latest, d.RetryAfterMs)
	}
	if !sources["forwarded"] || !sources["denied-cache"] {
		t.Errorf("no denial from memory, or none of the owner: %v", sources)
	}
	if latest < time.Hour.Milliseconds()*3/2 {
		t.Errorf("the longest of %d is %d ms", len(waits), latest)
	}
	client := stations[0].client
	distinct := map[int64]bool{}
	for range 20 {
		out, err := client.Check(
			context.Background(),
			&penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("spread", key, 1)}},
		)
		if err != nil {
			t.Fatal(err)
		}
		d := out.Decisions[0]
		if distinct[d.RetryAfterMs] = true; d.Allowed || d.RetryAfterMs < d.ResetAfterMs {
			t.Error(d)
		}
	}
	if len(distinct) < 10 {
		t.Errorf("20 answers with %d waits", len(distinct))
	}
}

// Promise: PUT takes a whole limit: its answers and its overrides too; GET and Admin show them.
func TestPutAWholeLimit(t *testing.T) {
	n := rpctest.Alone(t)
	h := web.New(web.Config{Node: n, Admin: true})
	answer, body := rpctest.Page(
		h,
		"PUT",
		"/v1/limits",
		`{"name":"w","algorithm":"gcra","limit":1,"per":"1h","spread":"10%","status":503,
		"body":"later",
		"overrides":[{"key":"vip/*","limit":5},{"key":"10.0.0.0/8","unlimited":true}],
		"candidate":{"limit":2}}`,
	)
	l := n.Limits()["w"]
	if answer.StatusCode != http.StatusOK || l == nil || l.For("vip/a").Limit != 5 ||
		!l.For("10.1.1.1").Unlimited ||
		l.Candidate().For("vip/a").Limit != 5 ||
		l.Answers != (limiter.Answers{
			Spread: 10, Status: 503, Body: "later", ContentType: "text/plain; charset=utf-8",
		}) {
		t.Fatalf("%d %s: %+v", answer.StatusCode, body, l)
	}
	if _, body = rpctest.Page(h, "GET", "/v1/limits", ""); !strings.Contains(
		body,
		`"spread":"10%"`,
	) ||
		!strings.Contains(body, `"status":503,"body":"later"`) ||
		!strings.Contains(body, `"overrides":2`) {
		t.Error(body)
	}
}
