package main

import (
	"strings"
	"testing"

	"penstock/limiter/policy"
)

// Promise: whatever stands in a file of another program, import writes limits that are accepted, or
// says what is wrong with the file, and does not panic.
func FuzzImport(f *testing.F) {
	f.Add(
		"domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: day, requests_per_unit: " +
			"1}}\n",
	)
	f.Add("domain: a\ndescriptors: [{key: k, value: \"v*\", descriptors: [{key: x}]}]\n")
	f.Add(
		`{"requests":[{"name":"a","limit":"1","duration":"1000","behavior":"GLOBAL"}]} ` +
			`{"name":"b"}`,
	)
	f.Add("limit_req_zone $uri zone=a:1m rate=1r/s;\nserver { location / { limit_req zone=a; } }\n")
	f.Add("limit_conn_zone \"$a{\" zone=c:1m; server { server_name ~x; limit_conn c 1; }")
	f.Add(
		"services: [{name: a, plugins: [{name: rate-limiting, config: {minute: 1, limit_by: " +
			"ip}}]}]",
	)
	f.Add("1.0 [0 127.0.0.1:1] \"CL.THROTTLE\" \"a:b\" \"1\" \"2\" \"3\"\ncl.throttle a 1 2 3 4\n")
	f.Fuzz(func(t *testing.T, text string) {
		for from, read := range importers {
			d := &draft{file: "FILE"}
			if err := read(d, []byte(text)); err != nil {
				if !strings.Contains(err.Error(), "FILE") {
					t.Errorf("%s: an error without the file: %v", from, err)
				}
				continue
			}
			if len(d.limits) == 0 {
				continue
			}
			if _, err := policy.Parse("out", []byte(d.yaml(from))); err != nil &&
				strings.Contains(err.Error(), "unexpected") {
				t.Errorf("%s: what was written is not YAML: %v\n%s", from, err, d.yaml(from))
			}
		}
	})
}
