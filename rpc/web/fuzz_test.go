package web

import (
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"penstock/rpc/rpctest"
)

// Promise: whatever a query says, it is answered, or refused as the fault of its sender.
func FuzzHTTPQuery(f *testing.F) {
	rpctest.MinimizeBriefly()
	paths := []string{"/v1/check", "/v1/peek", "/v1/auth", "/v1/keys", "/v1/top"}
	f.Add(byte(0), "limit=demo&key=a&cost=-9223372036854775808&report=true&at_ms=1&headers=ietf,x",
		"")
	f.Add(byte(1), "limit=demo&key=a&cost=%2b1&key=b", "")
	f.Add(byte(2), "limit=demo&key={header:X-User}:{ip}&deny_status=503&deny_body=x", "10.0.0.1")
	f.Add(byte(2), "limit=demo&key={ip}", "10.0.0.1, [::1]:80")
	f.Add(byte(3), "prefix=a&cursor=1.f&count=3", "")
	f.Add(byte(4), "count=0&limit=%zz", "")
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	h := New(Config{Node: rpctest.Alone(f, rpctest.Specs...), TrustedProxies: all})
	f.Fuzz(func(t *testing.T, at byte, query, forwarded string) {
		r := httptest.NewRequest("GET", paths[int(at)%len(paths)], nil)
		r.URL.RawQuery = query
		r.Header["X-Forwarded-For"] = []string{forwarded}
		r.Header["X-User"] = []string{forwarded}
		rw := httptest.NewRecorder()
		h.ServeHTTP(rw, r)
		text := rw.Body.String()
		known := slices.Contains([]int{200, 400, 403, 404, 429}, rw.Code) ||
			strings.Contains(query, "deny_status")
		if !known || rw.Code == 400 && !json.Valid([]byte(text)) {
			t.Fatalf("%s?%s: %d %s", r.URL.Path, query, rw.Code, text)
		}
	})
}

// Promise: a name that an attacker can point at this machine is accepted only if it is listed,
// however it is written.
func FuzzHTTPOrigin(f *testing.F) {
	rpctest.MinimizeBriefly()
	f.Add("evil.example", "http://evil.example", "")
	f.Add("LOCALHOST.:80", "null", "cross-site")
	f.Add("[::1]:80", "http://[::1]:80", "same-origin")
	f.Add("127.0.0.1.evil.example", "", "none")
	f.Add("a.example:8080", "https://a.example", "same-site")
	w := newWeb(Config{Node: rpctest.Alone(f), Hosts: NewHosts("a.example")})
	f.Fuzz(func(t *testing.T, host, origin, site string) {
		u, err := url.Parse("http://" + host)
		if err == nil && u.Host == host && host != "" && w.Hosts.accepts(host) {
			name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
			_, err := netip.ParseAddr(name)
			listed := slices.Contains([]string{"", "a.example", "localhost"}, name)
			if err != nil && !listed && !strings.HasSuffix(name, ".localhost") {
				t.Fatalf("the name %q is accepted as %q", name, host)
			}
		}
		r := httptest.NewRequest("GET", "/v1/check", nil)
		r.Host = host
		r.Header["Origin"], r.Header["Sec-Fetch-Site"] = []string{origin}, []string{site}
		foreign := site != "" && site != "none" && site != "same-origin"
		if u, err := url.Parse(origin); site == "" && err == nil && u.Host != "" {
			name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
			foreign = u.Host != host && name != "a.example"
		}
		if foreign && !w.Hosts.crossSite(r) {
			t.Fatalf("origin %q, site %q at %q counts as the same site", origin, site, host)
		}
	})
}
