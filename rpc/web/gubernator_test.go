package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	pb "penstock/proto/gubernator"
	"penstock/rpc/door"
	"penstock/rpc/gubernator"
	"penstock/rpc/rpctest"
)

// Promise: the same key and limit through two doors count as one.
func TestGubernatorSharesNamedLimits(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{Node: node})
	rpctest.Page(h, "GET", "/v1/check?limit=demo&key=alice&cost=3", "")
	g := &gubernator.Door{Node: node, Inlines: new(door.Inlines)}
	one := func(r *pb.RateLimitReq) *pb.RateLimitResp {
		out, err := g.Decide(
			&pb.GetRateLimitsReq{Requests: []*pb.RateLimitReq{r}}, door.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		return out.Responses[0]
	}
	r := &pb.RateLimitReq{Name: "demo", UniqueKey: "alice", Hits: 1, Limit: 1000, Duration: 1}
	if got := one(r); got.Status != pb.Status_UNDER_LIMIT || got.Limit != 5 || got.Remaining != 1 {
		t.Errorf("%v; want 1 remaining of the cluster's 5", got)
	}
	if _, body := rpctest.Page(h, "GET", "/v1/peek?limit=demo&key=alice",
		""); !strings.Contains(body, `"remaining":1,`) {
		t.Error(body)
	}
	// And one that requests bring along.
	r.Name, r.Limit, r.Duration = "own", 5, 3_600_000
	one(r)
	inline := `{"key":"alice","cost":3,"inline":{"name":"own","algorithm":"stated_window",` +
		`"limit":5,"per":"1h"}}`
	if _, body := rpctest.Page(h, "POST", "/v1/check", inline); !strings.Contains(body,
		`"remaining":1,`) {
		t.Error(body)
	}
}

func TestGubernatorHealth(t *testing.T) {
	draining := false
	h := New(Config{Node: rpctest.Alone(t), Draining: func() bool { return draining }})
	for _, want := range []string{"healthy", "unhealthy"} {
		answer, body := rpctest.Page(h, "GET", "/v1/HealthCheck", "")
		var got struct {
			Status    string `json:"status"`
			Message   string `json:"message"`
			PeerCount int    `json:"peer_count"`
			Local     []struct {
				HTTP string `json:"http_address"`
			} `json:"local_peers"`
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != 200 ||
			got.Status != want || got.PeerCount != 1 ||
			(got.Message == "") != (want == "healthy") || got.Local[0].HTTP != "127.0.0.1:7949" {
			t.Errorf("%d %s, %v; want %s", answer.StatusCode, body, err, want)
		}
		draining = true
	}
	if answer, body := rpctest.Page(h, "GET", "/v1/LiveCheck", ""); answer.StatusCode != 200 ||
		strings.TrimSpace(body) != "{}" {
		t.Errorf("LiveCheck: %d %s", answer.StatusCode, body)
	}
}

// Promise: JSON is read and written as by Gubernator's gateway, and what is broken charges nothing.
func TestGubernatorJSON(t *testing.T) {
	node := rpctest.Alone(t)
	h := New(Config{Node: node})
	for i, body := range []string{
		`{"requests":[{"name":"n","unique_key":"k","hits":1,"limit":10,"duration":60000}]}`,
		`{"requests":[{"name":"n","uniqueKey":"k","hits":"1","limit":"10","duration":"60000",` +
			`"algorithm":"TOKEN_BUCKET","behavior":1}]}`,
		`{"requests":[{"name":"n","unique_key":"k","hits":1e0,"limit":10,"duration":60000,` +
			`"behavior":"GLOBAL","metadata":{"a":"b"},"createdAt":"1","later":[{}]}],"more":1}`,
	} {
		answer, text := rpctest.Page(h, "POST", "/v1/GetRateLimits", body)
		var out struct {
			Responses []map[string]any `json:"responses"`
		}
		if err := json.Unmarshal([]byte(text), &out); err != nil || answer.StatusCode != 200 ||
			answer.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %s", body, answer.StatusCode, text)
		}
		r := out.Responses[0]
		_, isText := r["reset_time"].(string)
		if r["status"] != "UNDER_LIMIT" || r["limit"] != "10" ||
			r["remaining"] != fmt.Sprint(9-i) || !isText || r["error"] != "" ||
			r["metadata"].(map[string]any)["owner"] != "n1" {
			t.Errorf("%s: %s", body, text)
		}
	}
	keys := node.Table().Stats().Keys
	one := func(field string) string {
		return `{"requests":[{"name":"n","unique_key":"new","hits":1,"limit":10,"duration":60000,` +
			field + `}]}`
	}
	for body, code := range map[string]int{
		"":                                       400,
		"{":                                      400,
		"[]":                                     400,
		`{"requests":[{"hits":"x"}]}`:            400,
		`{"requests":[{"hits":1.5}]}`:            400,
		one(`"algorithm":"leaky"`):               400,
		one(`"behavior":"GLOBAL|BATCHING"`):      400,
		one(`"later":1,"behavior":"DRAIN"`):      400,
		`{"requests":[null]}`:                    400,
		"{\"requests\":[{\"name\":\"\xff\"}]}":   400,
		`{"requests":[{"name":"a","name":"b"}]}`: 400,
		`{"requests":[` + strings.Repeat("{},", 1000) + `{}]}`:           400,
		`{"requests":[` + strings.Repeat("{},", 500_000) + `{}]}`:        400,
		`{"requests":[{"name":"` + strings.Repeat("n", maxBody) + `"}]}`: 400,
	} {
		answer, text := rpctest.Page(h, "POST", "/v1/GetRateLimits", body)
		var out struct {
			Code    int
			Message string
			Details []any
		}
		if err := json.Unmarshal([]byte(text), &out); err != nil || answer.StatusCode != code ||
			out.Code == 0 || out.Message == "" || out.Details == nil ||
			strings.Contains(text, "proto:") {
			t.Errorf("%.60s: %d %.200s; want %d", body, answer.StatusCode, text, code)
		}
	}
	if answer, _ := rpctest.Page(h, "GET", "/v1/GetRateLimits",
		""); answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", answer.StatusCode)
	}
	if answer, _ := rpctest.Page(h, "POST", "/v1/GetRateLimits", `{}`, "Sec-Fetch-Site",
		"cross-site"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another site: %d", answer.StatusCode)
	}
	if now := node.Table().Stats().Keys; now != keys {
		t.Errorf("requests in error left %d keys", now-keys)
	}
}

// Promise: a body of requests that are too many does not take their memory.
func TestGubernatorBodyIsCountedBeforeItIsRead(t *testing.T) {
	body := `{"requests":[` + strings.Repeat("{},", 500_000) + `{}]}`
	h := New(Config{Node: rpctest.Alone(t)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rpctest.Page(h, "POST", "/v1/GetRateLimits", body)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 20<<20 {
		t.Errorf("%d MiB for a body of %d", took>>20, len(body)>>20)
	}
}

func FuzzGubernatorJSON(f *testing.F) {
	f.Add(
		`{"requests":[{"name":"n","unique_key":"k","hits":"1","limit":10,"duration":60000,` +
			`"metadata":{"\"{":"\\"}}]}`)
	f.Add(`{"requests":[{"behavior":36,"algorithm":"LEAKY_BUCKET"}]}`)
	h := New(Config{Node: rpctest.Alone(f)})
	f.Fuzz(func(t *testing.T, body string) {
		answer, text := rpctest.Page(h, "POST", "/v1/GetRateLimits", body)
		if !json.Valid([]byte(text)) || answer.StatusCode != 200 && answer.StatusCode != 400 {
			t.Fatalf("%q: %d %s", body, answer.StatusCode, text)
		}
	})
}
