package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
)

// Bad input at every door of a real node gets an error that names the field, and charges nothing.
func TestBadInput(t *testing.T) {
	p := serveProcess(t, "strict", "--limits", write(t, testLimits))
	long := strings.Repeat("k", 2048)
	manyJSON := `{"items":[` + strings.Repeat(`{"limit":"demo","key":"victim"},`, 1000) +
		`{"limit":"demo","key":"victim"}]}`
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		want                     string // in the answer
	}{
		{"empty key", "GET", "/v1/check?limit=demo&key=", "", 400, "key"},
		{"no key", "GET", "/v1/check?limit=demo", "", 400, "key"},
		{"long key", "GET", "/v1/check?limit=demo&key=" + long, "", 400, "key"},
		{"unknown limit", "GET", "/v1/check?limit=nope&key=victim", "", 404, "nope"},
		{"no limit", "GET", "/v1/check?key=victim", "", 400, "limit"},
		{
			"cost beyond int64", "GET", "/v1/check?limit=demo&key=victim&cost=9223372036854775808",
			"",
			400, "cost",
		},
		{"cost no number", "GET", "/v1/check?limit=demo&key=victim&cost=one", "", 400, "cost"},
		{
			"broken JSON", "POST", "/v1/check", `{"items":[{"limit":"demo","key":"victim"}`, 400,
			"JSON",
		},
		{
			"unknown field", "POST", "/v1/check",
			`{"items":[{"limit":"demo","key":"victim","csot":1}]}`, 400, "csot",
		},
		{
			"cost beyond int64 in JSON", "POST", "/v1/check",
			`{"items":[{"limit":"demo","key":"victim","cost":9223372036854775808}]}`, 400, "cost",
		},
		{
			"empty key in the second item", "POST", "/v1/check",
			`{"items":[{"limit":"demo","key":"victim"},{"limit":"demo","key":""}]}`, 400,
			"items[1].key",
		},
		{"1001 items", "POST", "/v1/check", manyJSON, 400, "1 to 1000"},
		{"no items", "POST", "/v1/check", `{"items":[]}`, 400, "items"},
		{
			"inline limit of 0", "POST", "/v1/check",
			`{"items":[{"inline":{"algorithm":"gcra","limit":0,"per":"1m"},"key":"victim"}]}`, 400,
			"limit",
		},
		{"wrong method", "DELETE", "/v1/check?limit=demo&key=victim", "", 405, ""},
		{"no such page", "GET", "/v1/chekc?limit=demo&key=victim", "", 404, ""},
		{"auth without key", "GET", "/v1/auth?limit=demo", "", 400, "key"},
	} {
		t.Run("http "+c.name, func(t *testing.T) {
			r, err := http.NewRequest(c.method, "http://"+p.http+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			if answer.StatusCode != c.status || !strings.Contains(string(text), c.want) {
				t.Errorf("%s\n%s\nwant %d and %q", answer.Status, text, c.status, c.want)
			}
		})
	}

	cost := int64(1)
	good := &penstockv1.Item{Limit: "demo", Key: []byte("victim"), Cost: &cost}
	many := make([]*penstockv1.Item, 1001)
	for i := range many {
		many[i] = good
	}
	caller := dial(t, p)
	for _, c := range []struct {
		name  string
		items []*penstockv1.Item
		want  string
	}{
		{"empty key", []*penstockv1.Item{good, {Limit: "demo"}}, "items[1].key"},
		{"long key", []*penstockv1.Item{good, item("demo", long)}, "items[1].key"},
		{
			"unknown limit",
			[]*penstockv1.Item{good, item("nope", "victim")},
			`items[1].limit: no limit is named "nope"`,
		},
		{"no limit", []*penstockv1.Item{good, item("", "victim")}, "items[1].limit"},
		{"no items", nil, "items"},
		{"1001 items", many, "1001"},
		{
			"inline limit without algorithm",
			[]*penstockv1.Item{good, {
				Inline: &penstockv1.InlineLimit{Limit: 1, PerMs: 1000},
				Key:    []byte("victim"),
			}},
			"items[1].inline.algorithm",
		},
	} {
		t.Run("grpc "+c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			got, err := checkItems(ctx, caller, c.items)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want an error with %q", got, err, c.want)
			}
		})
	}

	answer, err := http.Get("http://" + p.http + "/v1/peek?limit=demo&key=victim")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var state struct{ Remaining int }
	if err := json.NewDecoder(answer.Body).Decode(&state); err != nil || state.Remaining != 5 {
		t.Errorf("after all that, %d of 5 remain (%v): something was charged", state.Remaining, err)
	}
	if out := fmt.Sprint(p.log()); strings.Contains(out, "victim") ||
		strings.Contains(out, "kkkk") {
		t.Errorf("keys are in the log:\n%.2000s", out)
	}
}
