package web

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"penstock/rpc/door"
	"penstock/rpc/page"
	"penstock/rpc/rpctest"
)

// Promise: two keys are never confused, and what is not understood to the letter is refused and
// charges nothing.
func TestHTTPBodiesAreReadToTheLetter(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.PerHour)})
	two := func(second string) string {
		return `{"items":[{"limit":"demo","key":"k"},` + second + `]}`
	}
	for body, field := range map[string]string{
		two(`{"limit":"demo","key":"k","cost":"1"}`): "items[1].cost",
		two(`3`):                          "items[1]",
		two(`{"limit":"demo","KEY":"k"}`): "items[1].KEY",
		"{\"limit\":\"demo\",\"\u212aey\":\"k\"}":              "\u212aey",
		`{"limit":"demo","key":"k","key":"j"}`:                 "key",
		`{"":"k"}`:                                             "body",
		`{"limit":"demo","key":"k\ud800"}`:                     "body",
		`{"limit":"demo","key":"k\ud800\u0041"}`:               "body",
		"{\"limit\":\"demo\",\"key\":\"k\xff\"}":               "body",
		two(`{"limit":"demo","key":"k","x":1}`):                "items[1].x",
		two(`{"key":"k","inline":{"parent":"demo"}}`):          "items[1].inline.parent",
		two(`{"limit":"demo","key":"k","items":[]}`):           "items",
		`{"items":[{"limit":"demo","key":[[["k"]]]}]}`:         "items[0].key[0]",
		`{"items":[` + strings.Repeat("{},", 600_000) + `{}]}`: "items",
	} {
		answer, text := rpctest.Page(h, "POST", "/v1/check", body)
		var p page.Problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || answer.StatusCode != 400 ||
			p.Field != field {
			t.Errorf("%.90s: %d %.300s\nwant 400, field %q", body, answer.StatusCode, text, field)
		}
	}
	for _, key := range []string{"k", "j", "k\ufffd"} {
		if _, text := rpctest.Page(h, "GET", "/v1/peek?limit=demo&key="+key,
			""); !strings.Contains(text, `"remaining":5`) {
			t.Errorf("%q was charged: %s", key, text)
		}
	}
	if answer, text := rpctest.Page(h, "POST", "/v1/check",
		`{"limit":"demo","key":"\ud83d\ude00 \\ud800 \u0041"}`); answer.StatusCode != 200 {
		t.Errorf("whole pairs and escaped backslashes are Unicode: %s", text)
	}
}

// Promise: a page of another site cannot spend or reset limits by a browser on the node's machine.
func TestHTTPRefusesOtherSites(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.PerHour), Admin: true})
	for _, target := range []string{"/v1/check", "/v1/reset"} {
		for _, site := range []struct {
			header, value string
			status        int
		}{
			{"Sec-Fetch-Site", "cross-site", 403},
			{"Origin", "http://elsewhere.example", 403},
			{"Sec-Fetch-Site", "same-origin", 200},
		} {
			if answer, text := rpctest.Page(h, "POST", target, `{"limit":"demo","key":"k"}`,
				site.header, site.value, "Content-Type",
				"application/json"); answer.StatusCode != site.status {
				t.Errorf("%s with %s: %s: %d %s", target, site.header, site.value,
					answer.StatusCode, text)
			}
		}
	}
}

// Promise: --admin shows what --http measured, and no key.
func TestHTTPDoorsShareMetrics(t *testing.T) {
	c := Config{Node: rpctest.Alone(t, rpctest.PerHour)}
	c.Metrics = door.NewMetrics(c.Node)
	rpctest.Page(New(c), "GET", "/v1/check?limit=demo&key=secret", "")
	_, text := rpctest.Page(NewAdmin(c), "GET", "/metrics", "")
	if !strings.Contains(text, `penstock_http_request_seconds_count{path="check"} 1`+"\n") ||
		strings.Contains(text, "secret") {
		t.Errorf("/metrics at the admin listener:\n%s", text)
	}
}

// Promise: forward-auth does not wait for a body that the proxy announces and does not send.
func TestHTTPAuthReadsNoBody(t *testing.T) {
	c := dialAlone(t, time.Hour)
	io.WriteString(c,
		"POST /v1/auth?limit=demo&key=k HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 200") {
		t.Errorf("%q, %v", line, err)
	}
}

// Promise: what is known without the body is said without waiting for it (RFC 9110, 10.1.1). The
// node of this test reads requests for an hour.
func TestHTTPAnswersBeforeTheBody(t *testing.T) {
	for _, row := range []struct{ head, want string }{
		{"POST /v1/check HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 10000000", "413"},
		{"POST /v1/check HTTP/1.1\r\nContent-Length: 10000000", "413"},
		{"POST /v1/none HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 10000000", "404"},
		{"POST /v1/none HTTP/1.1\r\nContent-Length: 10", "404"},
		{"PUT /v1/check HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 10", "405"},
		{"PUT /v1/check HTTP/1.1\r\nTransfer-Encoding: chunked", "405"},
		{"GET /v1/check?limit=demo&key=k HTTP/1.1\r\nContent-Length: 10", "200"},
		{"POST /v1/check HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 10", "100"},
	} {
		c := dialAlone(t, time.Hour)
		io.WriteString(c, row.head+"\r\nHost: 127.0.0.1\r\n\r\n")
		line, err := bufio.NewReader(c).ReadString('\n')
		if !strings.HasPrefix(line, "HTTP/1.1 "+row.want) {
			t.Errorf("%q: %q, %v; want %s", row.head, line, err, row.want)
		}
	}
}

// Promise: a body that nothing has read is not taken for the next request: the answer says that it
// is the last of its connection. After a body that was read the connection is kept.
func TestHTTPConnectionsAfterBodies(t *testing.T) {
	item := `{"limit":"demo","key":"k"}`
	for _, row := range []struct {
		request, body string
		status        int
		closing       bool
	}{
		{"POST /v1/check", item, 200, false},
		{"POST /v1/check", "{", 400, false},
		{"POST /v1/check", item + strings.Repeat(" ", 500_000), 200, false},
		{"GET /v1/check?limit=demo&key=k", item, 200, true},
		{"POST /v1/auth?limit=demo&key=k", item, 200, true},
		{"POST /v1/none", item, 404, true},
		{"PUT /v1/check", item, 405, true},
	} {
		c := dialAlone(t, time.Hour)
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", row.request,
			len(row.body), row.body)
		answers := bufio.NewReader(c)
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("%s: %v", row.request, err)
		}
		text, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != row.status || answer.Close != row.closing {
			t.Errorf("%s: %s %s, closing %v", row.request, answer.Status, text, answer.Close)
		}
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err = http.ReadResponse(answers, nil); (err != nil) != row.closing {
			t.Errorf("%s: the next request on the connection: %v", row.request, err)
		}
	}
}

// Promise: a body that does not come whole is refused in words about the body, and charges nothing.
func TestHTTPBodiesComeWhole(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.Config = NewServer(New(Config{Node: rpctest.Alone(t, rpctest.PerHour)}))
	s.Config.ReadTimeout = 50 * time.Millisecond
	s.Start()
	defer s.Close()
	for _, row := range []struct {
		path, body string
		half       bool // nothing comes after it, and the connection stays open
		status     int
		want       string
	}{
		{"check", "Content-Length: 9\r\n\r\n{", true, 408, "body: has not come within "},
		{"check", "Content-Length: 9\r\n\r\n{", false, 400, "body: is shorter than "},
		{"check", "Transfer-Encoding: chunked\r\n\r\nx\r\n", false, 400, "body: cannot be read: "},
		{"GetRateLimits", "Content-Length: 9\r\n\r\n{", true, 400, "body: has not come within "},
	} {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(c, "POST /v1/"+row.path+" HTTP/1.1\r\nHost: x\r\n"+row.body)
		if !row.half {
			c.(*net.TCPConn).CloseWrite()
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != row.status || !strings.Contains(string(text), row.want) ||
			strings.Contains(string(text), "127.0.0.1") {
			t.Errorf("%s %q: %s %s\nwant %d %q", row.path, row.body, answer.Status, text,
				row.status, row.want)
		}
	}
}

// dialAlone connects to a node of its own, which reads requests for so long.
func dialAlone(t *testing.T, timeout time.Duration) net.Conn {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.Config = NewServer(New(Config{Node: rpctest.Alone(t, rpctest.PerHour)}))
	s.Config.ReadTimeout = timeout
	s.Start()
	t.Cleanup(s.Close)
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// Promise: a request that two readers could understand in two ways is the last of its connection:
// one that has chunks may have had a length as well.
func TestNothingFollowsChunks(t *testing.T) {
	c := dialAlone(t, requestTimeout)
	body := `{"limit":"demo","key":"k"}`
	fmt.Fprintf(c, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
		"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"+
		"GET /v1/check?limit=demo&key=k HTTP/1.1\r\nHost: x\r\n\r\n", len(body), body)
	all, err := io.ReadAll(c)
	if answers := strings.Count(string(all), "HTTP/1.1 "); err != nil || answers != 1 {
		t.Errorf("%d answers, %v: %s", answers, err, all)
	}
}

// Promise: a key names one client, and no request can make it name another one.
func TestHTTPKeysNameOneClient(t *testing.T) {
	w := newWeb(Config{
		Node:           rpctest.Alone(t),
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	for _, row := range []struct {
		template, peer string
		headers        []string
		want           string // "" for an error
	}{
		{"plain", "1.2.3.4:5", nil, "plain"},
		{"{header:|anonymous}", "1.2.3.4:5", nil, ""},
		{"{header:X User|anonymous}", "1.2.3.4:5", nil, ""},
		{"u:{header:X-User}", "1.2.3.4:5", []string{"X-User", "a:b"}, "u:a:b"},
		{"{header:X}", "1.2.3.4:5", []string{"X", "a", "X", "b"}, ""},
		{"{header:X|nobody}", "1.2.3.4:5", []string{"X", "a", "X", "a"}, ""},
		{"{header:X}", "1.2.3.4:5", nil, ""},
		{"{header:X|nobody}", "1.2.3.4:5", nil, "nobody"},
		{"{header:X|nobody}", "1.2.3.4:5", []string{"X", ""}, "nobody"},
		{"{header:X|nobody}", "1.2.3.4:5", []string{"X", "a"}, "a"},
		{"{header:X|no:body}:{ip}", "1.2.3.4:5", nil, "no%3Abody:1.2.3.4"},
		{"{header:Host}", "1.2.3.4:5", nil, "example.com"},
		{"{header:A}:{header:B}", "1.2.3.4:5", []string{"A", "x:y", "B", "z"}, "x%3Ay:z"},
		{"{header:A}:{header:B}", "1.2.3.4:5", []string{"A", "x", "B", "y:z"}, "x:y%3Az"},
		{"{header:A}:{header:B}", "1.2.3.4:5", []string{"A", "x%3Ay", "B", "z"}, "x%253Ay:z"},
		{"{header:A}{header:B}", "1.2.3.4:5", []string{"A", "x", "B", "y"}, ""},
		{"{method} {path}", "1.2.3.4:5", []string{
			"X-Forwarded-Method", "PUT", "X-Forwarded-Uri",
			"/a%2e/b/../c?q",
		}, "PUT /a./c"},
		{"{path}", "1.2.3.4:5", []string{"X-Original-URI", "//login"}, "/login"},
		{
			"{path}", "1.2.3.4:5",
			[]string{"X-Original-URI", "/login", "X-Forwarded-Uri", "/free"},
			"",
		},
		{
			"{method}", "1.2.3.4:5",
			[]string{"X-Original-Method", "PUT", "X-Forwarded-Method", "GET"},
			"",
		},
		{
			"{method}", "1.2.3.4:5",
			[]string{"X-Original-Method", "PUT", "X-Forwarded-Method", "PUT"},
			"PUT",
		},
		{"{method}", "1.2.3.4:5", []string{
			"X-Forwarded-Method", "PUT", "X-Forwarded-Method", "GET",
		}, ""},
		{"{host}", "1.2.3.4:5", nil, "example.com"},
		{"{host}", "1.2.3.4:5", []string{"X-Forwarded-Host", "Shop.example:443"}, "shop.example"},
		{"{host}", "1.2.3.4:5", []string{"X-Original-Host", "shop.example."}, "shop.example"},
		{"{host}", "1.2.3.4:5", []string{
			"X-Original-Host", "shop.example", "X-Forwarded-Host", "free.example",
		}, ""},
		{"{host}", "1.2.3.4:5", []string{
			"X-Original-Host", "shop.example", "X-Forwarded-Host", "shop.example",
		}, "shop.example"},
		{"{host}", "1.2.3.4:5", []string{
			"X-Forwarded-Host", "free.example", "X-Forwarded-Host", "shop.example",
		}, ""},
		{"{host}", "1.2.3.4:5", []string{"X-Forwarded-Host", "free.example, shop.example"}, ""},
		{"{ip}", "1.2.3.4:5", []string{"X-Forwarded-For", "9.9.9.9"}, "1.2.3.4"},
		{"{ip}", "10.1.1.1:5", []string{"X-Forwarded-For", "6.6.6.6, 9.9.9.9"}, "9.9.9.9"},
		{"{ip}", "10.1.1.1:5", []string{
			"X-Forwarded-For", "6.6.6.6", "X-Forwarded-For",
			"9.9.9.9:77, 10.2.2.2",
		}, "9.9.9.9"},
		{"{ip}", "10.1.1.1:5", nil, "10.1.1.1"},
		{"{ip}", "[2001:db8:1:2:3:4:5:6]:5", nil, "2001:db8:1:2::/64"},
		{"{ip}", "[::ffff:1.2.3.4]:5", nil, "1.2.3.4"},
		{"{ip}", "@", []string{"X-Forwarded-For", "9.9.9.9"}, "9.9.9.9"},
		{"{ip}", "@", nil, ""},
		{"{who}", "1.2.3.4:5", nil, ""},
		{"{ip", "1.2.3.4:5", nil, ""},
		{"ip}", "1.2.3.4:5", nil, ""},
	} {
		r := httptest.NewRequest("GET", "/v1/auth", nil)
		r.RemoteAddr = row.peer
		for i := 0; i < len(row.headers); i += 2 {
			r.Header.Add(row.headers[i], row.headers[i+1])
		}
		got, err := w.proxies.fill(row.template, r)
		if (err != nil) != (row.want == "") || got != row.want {
			t.Errorf("%s from %s with %v: %q, %v; want %q", row.template, row.peer, row.headers,
				got, err, row.want)
		}
	}
}

// Promise: two keys are never confused: what a body is decoded to says the same again.
func FuzzHTTPKeysStayApart(f *testing.F) {
	f.Add([]byte(`{"items":[{"limit":"a","key":"b","cost":-1},` +
		`{"inline":{"algorithm":"gcra","limit":1,"per":"1m"},"key":"c"}],"atomic":true}`))
	f.Add([]byte(`{"limit":"a","key":"\ud83d\ude00\\u0041"}`))
	f.Add([]byte(`{"limit":"a","key":"\ud800"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := decodeJSON[bodyJSON](b, bodyFields)
		if err != nil {
			if f := door.Explain(err); f.Status != 400 || f.Field == "" {
				t.Fatalf("%q: an error without a field: %v", b, err)
			}
			return
		}
		again, err := json.Marshal([]any{body.Items, body.itemJSON})
		if err != nil || strings.Contains(string(again), "\ufffd") && !strings.Contains(string(b),
			"\ufffd") && !strings.Contains(strings.ToLower(string(b)), `\ufffd`) {
			t.Fatalf("%q became %q, %v", b, again, err)
		}
	})
}

// unreadBody fails a test that reads it.
type unreadBody struct{ t *testing.T }

func (b unreadBody) Read([]byte) (int, error) {
	b.t.Error("a body that is declared to be too large is read")
	return 0, io.EOF
}

// Promise: a body that says that it is too large is refused before it comes.
func TestHTTPLargeBodiesAreNotWaitedFor(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.PerHour)})
	for path, status := range map[string]int{"/v1/check": 413, "/v1/GetRateLimits": 400} {
		r := httptest.NewRequest("POST", path, unreadBody{t})
		r.ContentLength = maxBody + 1
		rw := httptest.NewRecorder()
		if h.ServeHTTP(rw, r); rw.Code != status ||
			!strings.Contains(rw.Body.String(), "2097152 bytes") {
			t.Errorf("%s: %d %s", path, rw.Code, rw.Body)
		}
	}
}
