package rpc

import (
	"encoding/json"
	"fmt"
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

// delayed lets one go on every quarter of an hour, and three wait.
func delayed(name string, dry bool) limiter.Spec {
	return limiter.Spec{
		Name: name, Algorithm: limiter.GCRA, Limit: 4, Per: time.Hour, Burst: 1,
		OnDeny: limiter.DenyDelay, MaxDelay: time.Hour - time.Minute, DryRun: dry,
	}
}

// waits are the delays of those that wait, in ms, each at most that much: the test takes some time.
var waits = []int64{0, 900_000, 1_800_000, 2_700_000}

// isAbout reports whether a delay is the i-th of waits.
func isAbout(delay int64, i int) bool {
	return delay == waits[i] || delay < waits[i] && delay > waits[i]-600_000
}

// Promise: beyond a limit with on_deny: delay, requests are admitted and told how long to wait, by
// each door that has a field for it, up to max_delay; the next is denied, and charges nothing.
func TestDelayAtEveryDoor(t *testing.T) {
	station := newStations(t, 1, delayed("later", false), delayed("second", false))[0]
	rpctest.SetRules(t, station.node, rules.Rule{Name: "all", Apply: []rules.Apply{
		{Limit: "later", Key: "r"}, {Limit: "second", Key: "r"},
	}})
	h := web.New(web.Config{Node: station.node})
	inline := `{"key":"i","inline":{"algorithm":"gcra","limit":4,"per":"1h","burst":1,` +
		`"on_deny":"delay","max_delay":"59m"}}`
	for _, ask := range []struct{ method, path, body string }{
		{"GET", "/v1/check?limit=later&key=a", ""},
		{"POST", "/v1/check", `{"limit":"later","key":"b"}`},
		{"POST", "/v1/check", inline},
		{"GET", "/v1/auth?limit=later&key=c", ""},
		{"GET", "/v1/auth", ""},
	} {
		for i := range len(waits) + 1 {
			answer, body := rpctest.Page(h, ask.method, ask.path, ask.body)
			header := answer.Header.Get("Penstock-Delay-Ms")
			if i == len(waits) {
				if answer.StatusCode != 429 && ask.method == "GET" || header != "" ||
					!strings.Contains(body, `"allowed":false`) {
					t.Errorf("%s: %d, waits %q: %s", ask.path, answer.StatusCode, header, body)
				}
				continue
			}
			var d web.DecisionJSON
			err := json.Unmarshal([]byte(body), &d)
			told, _ := strconv.ParseInt(header, 10, 64)
			if ask.path == "/v1/auth" || ask.method == "POST" {
				if d.DelayMs = told; ask.method == "POST" {
					err = json.Unmarshal([]byte(body), &d)
					told = d.DelayMs
				}
			}
			if answer.StatusCode != 200 || err != nil || !isAbout(told, i) || d.DelayMs != told {
				t.Errorf("%s %d: %d, waits %q, %v: %s", ask.path, i, answer.StatusCode, header, err,
					body)
			}
		}
	}
	for i := range len(waits) + 1 {
		out, err := station.client.Check(rpctest.Patience(t), &penstockv1.CheckRequest{
			Items: []*penstockv1.Item{
				rpctest.Item("later", "g", 1), rpctest.Item("second", "g", 1),
			},
			Atomic: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range out.Decisions {
			if denied := i == len(waits); d.Allowed == denied ||
				!denied && !isAbout(d.DelayMs, i) || denied && (d.RetryAfterMs < 1 ||
				d.RetryAfterMs > waits[1]) {
				t.Errorf("gRPC %d: %v", i, d)
			}
		}
	}
	tally := station.node.LimitTallies()["second"].Checks
	if tally[cluster.OutcomeAllowed][0] != 2 || tally[cluster.OutcomeDelayed][0] != 6 ||
		tally[cluster.OutcomeDenied][0] != 2 {
		t.Errorf("counted as %v", tally)
	}
	h = web.New(web.Config{Node: station.node, Admin: true})
	_, body := rpctest.Page(h, "GET", "/metrics", "")
	if !strings.Contains(body,
		`penstock_checks_total{decision="delayed",limit="second",source="owner"} 6`) {
		t.Errorf("metrics lack the decision:\n%s", body)
	}
	if _, body = rpctest.Page(h, "GET", "/v1/limits", ""); !strings.Contains(body, `"delayed":6`) ||
		!strings.Contains(body, `"on_deny":"delay"`) ||
		!strings.Contains(body, `"max_delay":"59m0s"`) {
		t.Error(body)
	}
}

// Promise: in dry_run nobody is told to wait, and what would wait is marked as if denied.
func TestDelayInDryRun(t *testing.T) {
	n := rpctest.Alone(t, delayed("dry", true))
	h := web.New(web.Config{Node: n})
	for i := range len(waits) + 2 {
		path := "/v1/check?limit=dry&key=a"
		if i == 2 {
			path += "&max_delay_ms=0"
		}
		answer, body := rpctest.Page(h, "GET", path, "")
		var d web.DecisionJSON
		if err := json.Unmarshal([]byte(body), &d); err != nil || answer.StatusCode != 200 ||
			d.DelayMs != 0 || d.Shadow != (i > 0) ||
			answer.Header.Get("Penstock-Delay-Ms") != "" {
			t.Errorf("%d: %d %s", i, answer.StatusCode, body)
		}
	}
}

// Promise: a node that does not own the key passes the delay on, remembers a denial and no delay,
// and the owner decides by the limit that travels.
func TestDelayFromAfar(t *testing.T) {
	stations := newStations(t, 2, delayed("later", false))
	key := rpctest.OwnKey(stations[1].node, 0)
	h := web.New(web.Config{Node: stations[0].node})
	inline := fmt.Sprintf(`{"key":%q,"inline":{"name":"mine","algorithm":"gcra","limit":4,`+
		`"per":"1h","burst":1,"on_deny":"delay","max_delay":"59m"}}`, key)
	for _, ask := range []struct{ method, path, body string }{
		{"GET", "/v1/check?limit=later&key=" + key, ""}, {"POST", "/v1/check", inline},
	} {
		sources := map[string]bool{}
		for i := range len(waits) + 20 {
			_, body := rpctest.Page(h, ask.method, ask.path, ask.body)
			var d web.DecisionJSON
			if err := json.Unmarshal([]byte(body), &d); err != nil {
				t.Fatal(err, body)
			}
			if i < len(waits) &&
				(!d.Allowed || d.Source != "forwarded" || !isAbout(d.DelayMs, i)) ||
				i >= len(waits) && (d.Allowed || d.DelayMs != 0) {
				t.Errorf("%d: %s", i, body)
			}
			sources[d.Source] = true
		}
		if !sources["denied-cache"] {
			t.Errorf("no denial is remembered: %v", sources)
		}
	}
}

// Promise: a caller that says how long it bears to wait is refused instead, at every door that has
// a delay, and nothing is charged; also for several keys, and for a proxy that asks the rules.
func TestDelayThatACallerBears(t *testing.T) {
	stations := newStations(t, 2, delayed("later", false), delayed("second", false))
	n := stations[0].node
	rpctest.SetRules(t, n, rules.Rule{Name: "all", Apply: []rules.Apply{
		{Limit: "later", Key: "r"}, {Limit: "second", Key: "r"},
	}})
	h := web.New(web.Config{Node: n})
	ask := func(method, path, body string) bool {
		answer, text := rpctest.Page(h, method, path, body)
		if answer.StatusCode != 200 && answer.StatusCode != 429 {
			t.Fatalf("%s: %d %s", path, answer.StatusCode, text)
		}
		return answer.StatusCode == 200 && !strings.Contains(text, `"allowed":false`)
	}
	own, others := rpctest.OwnKey(n, 0), rpctest.OwnKey(stations[1].node, 0)
	for _, key := range []string{own, others} {
		for _, row := range []struct {
			longest string
			allowed bool
		}{
			{"0", true},
			{"0", false},
			{"1000", false},
			{"900000", true},
			{"900000", false},
			{"1800000", true},
		} {
			path := "/v1/check?limit=later&max_delay_ms=" + row.longest + "&key=" + key
			body := `{"limit":"second","key":"` + key + `","max_delay_ms":` + row.longest + `}`
			if ask("GET", path, "") != row.allowed {
				t.Errorf("query %q: %+v", key, row)
			}
			if ask("POST", "/v1/check", body) != row.allowed {
				t.Errorf("body %q: %+v", key, row)
			}
		}
	}
	for i := range 3 {
		if got := ask("GET", "/v1/auth?max_delay_ms=0", ""); got != (i == 0) {
			t.Errorf("by the rules, %d: %v", i, got)
		}
	}
	own, others = rpctest.OwnKey(n, 1), rpctest.OwnKey(stations[1].node, 1)
	for i := range 3 {
		items := []*penstockv1.Item{rpctest.Item("later", own, 1), rpctest.Item("later", others, 1)}
		for _, it := range items {
			it.MaxDelayMs = new(int64(0))
		}
		out, err := stations[0].client.Check(rpctest.Patience(t), &penstockv1.CheckRequest{
			Items: items, Atomic: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range out.Decisions {
			if d.Allowed != (i == 0) {
				t.Errorf("several owners, %d: %v", i, d)
			}
		}
	}
	for _, bad := range []string{"-1", "3600001", "x", "9223372036854775807"} {
		answer, text := rpctest.Page(h, "GET", "/v1/check?limit=later&key=a&max_delay_ms="+bad, "")
		if answer.StatusCode != 400 || !strings.Contains(text, "max_delay_ms") {
			t.Errorf("%s: %d %s", bad, answer.StatusCode, text)
		}
	}
}
