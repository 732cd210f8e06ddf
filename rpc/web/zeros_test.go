package web

import (
	"fmt"
	"strings"
	"testing"

	"penstock/rpc/rpctest"
)

// Promise: a 0 that means nothing is an error that names its field, as in files. Only a field that
// is left out has its default.
func TestZerosThatMeanNothingAreErrors(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...), Admin: true})
	for _, c := range []struct{ limit, field string }{
		{`"algorithm":"gcra","limit":0,"per":"1m"`, "limit"},
		{`"algorithm":"gcra","limit":5,"per":"1m","burst":0`, "burst"},
		{`"algorithm":"stated_bucket","limit":5,"per":"1m","burst":0`, "burst"},
		{`"algorithm":"token_bucket","limit":5,"per":"1m","refill":0`, "refill"},
		{`"algorithm":"sliding_counter","limit":5,"per":"1m","buckets":0`, "buckets"},
		{`"algorithm":"gcra","limit":5,"per":"1m","on_deny":"deprioritize","tier":0`, "tier"},
		{`"algorithm":"leaky_bucket","limit":5,"per":"1m","burst":0`, ""},
		{`"algorithm":"gcra","limit":5,"per":"1m","burst":null,"max_debt":0`, ""},
	} {
		for _, ask := range [][2]string{
			{"POST /v1/check", fmt.Sprintf(`{"inline":{%s},"key":"k"}`, c.limit)},
			{"PUT /v1/limits", fmt.Sprintf(`{"name":"new",%s}`, c.limit)},
		} {
			method, path, _ := strings.Cut(ask[0], " ")
			r, text := rpctest.Page(h, method, path, ask[1])
			if c.field == "" && r.StatusCode == 200 ||
				c.field != "" && r.StatusCode == 400 && strings.Contains(text, c.field+": is 0; ") {
				continue
			}
			t.Errorf("%s: %d %s; want an error about %q", ask[1], r.StatusCode, text, c.field)
		}
	}
	const two = `"overrides":[{"key":"a","limit":7},{"key":"b",`
	for fields, want := range map[string]string{
		`"candidate":{"burst":0}`: "candidate.burst: is 0; ",
		two + `"limit":0}]`:       "overrides[1].limit: is 0; ",
		two + `"burst":0}]`:       "overrides[1].burst: is 0; ",
		two + `"refill":0}]`:      "overrides[1].refill: is 0; ",
	} {
		body := `{"name":"new","algorithm":"gcra","limit":5,"per":"1m",` + fields + `}`
		r, text := rpctest.Page(h, "PUT", "/v1/limits", body)
		if r.StatusCode != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s; want %s", body, r.StatusCode, text, want)
		}
	}
}

// Promise: an error about a limit that comes along offers what is accepted there: no 0, and no
// field of items.
func TestErrorsOfInlineLimitsOfferWhatIsAccepted(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t)})
	for fields, want := range map[string]string{
		`"algorithm":"gcra","burst":-1`:          "inline.burst: is -1; leave it out to",
		`"algorithm":"token_bucket","refill":-7`: "inline.refill: is -7; leave it out to",
		`"algorithm":"gcra","refil":1`: "inline.refil: is unknown; an inline limit has name, " +
			"algorithm, limit, per, burst, anchor, ",
	} {
		for _, form := range []string{`{%s}`, `{"items":[{%s}]}`} {
			body := fmt.Sprintf(form, `"inline":{"limit":5,"per":"1m",`+fields+`},"key":"k"`)
			r, text := rpctest.Page(h, "POST", "/v1/check", body)
			if r.StatusCode != 400 || !strings.Contains(text, want) {
				t.Errorf("%s: %d %s; want %s", body, r.StatusCode, text, want)
			}
		}
	}
}

// Promise: a field that a limit needs and that is not there is said to be missing, and not to be
// wrong.
func TestMissingFieldsOfALimit(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t), Admin: true})
	for fields, want := range map[string]string{
		`"limit":5,"per":"1m"`:           "algorithm: is missing; there is: gcra, fixed_window",
		`"algorithm":"gcra","limit":5`:   "per: is missing; write 10s, 5m",
		`"algorithm":"gcra","per":"1m"`:  "limit: is missing; 1 to 1099511627776 are",
		`"algorithm":"CGRA","per":"1m"`:  "CGRA",
		`"algorithm":"gcra","per":"one"`: "is not a period; write 10s",
	} {
		for path, body := range map[string]string{
			"POST /v1/check": `{"inline":{` + fields + `},"key":"k"}`,
			"PUT /v1/limits": `{"name":"new",` + fields + `}`,
		} {
			method, path, _ := strings.Cut(path, " ")
			r, text := rpctest.Page(h, method, path, body)
			if r.StatusCode != 400 || !strings.Contains(text, want) {
				t.Errorf("%s %s: %d %s; want %s", path, body, r.StatusCode, text, want)
			}
		}
	}
}
