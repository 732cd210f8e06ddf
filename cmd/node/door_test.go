package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/embedded"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// The doors of doors_test.go, each asked in its own words, as it is on the wire.

// protection is how to reach the doors of a node.
type protection struct {
	node  *running
	tls   *tls.Config // nil: plaintext
	token string
}

// protections are the nodes that are asked by allowed callers, and by others.
var protections = map[string]func(*testing.T, *settings) *protection{
	"TLS": func(t *testing.T, s *settings) *protection {
		a := newAuthority(t, "clients")
		s.TLSCert, s.TLSKey = a.issue("door")
		pool := x509.NewCertPool()
		pool.AddCert(a.cert)
		return &protection{tls: &tls.Config{RootCAs: pool, ServerName: "localhost"}}
	},
	"a token": func(t *testing.T, s *settings) *protection {
		p := &protection{token: "a-token-of-some-length"}
		s.AuthTokenFile = write(t, p.token+"\n")
		return p
	},
	"Unix sockets": func(t *testing.T, s *settings) *protection {
		dir, err := os.MkdirTemp("", "doors") // the path of a socket is short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		s.GRPC, s.HTTP, s.Redis = "unix://"+dir+"/grpc", "unix://"+dir+"/http",
			"unix://"+dir+"/redis"
		return new(protection)
	},
}

// doors are all doors of the node, and a program that has joined it.
func (p *protection) doors(t *testing.T) []aDoor {
	t.Helper()
	specs, ruled := []limiter.Spec{}, p.node.node.Rules().Rules()
	for _, l := range p.node.node.Limits() {
		specs = append(specs, l.Spec)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inside, err := embedded.Start(ctx, embedded.Config{
		Name: "inside", Cluster: "test", Gossip: "127.0.0.1:0",
		Join: []string{p.node.gossip.Addr()}, Limits: specs, Rules: ruled, Memory: 4 << 20,
		Agent: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close(context.Background()) })
	client := p.web()
	t.Cleanup(client.client.CloseIdleConnections)
	return []aDoor{
		&httpDoor{client}, &authDoor{client}, p.grpc(t, "gRPC"), p.grpc(t, "Go client"),
		&insideDoor{inside},
		&gubernatorDoor{client}, &envoyDoor{client}, &redisDoor{p},
	}
}

// stranger is a door that may be asked by a caller that is not allowed.
type stranger interface{ keptOut() error }

// where is a door's network and address.
func (p *protection) where(flag string) (network, address string) {
	if path, found := strings.CutPrefix(p.node.doors.address(flag), "unix://"); found {
		return "unix", path
	}
	return "tcp", p.node.doors.address(flag)
}

// strangers are p without what p shows: in plaintext, or without the token.
func (p *protection) strangers() *protection { return &protection{node: p.node} }

// mustFail turns an answer into an error.
func mustFail(err error) error {
	if err == nil {
		return errors.New("a stranger was answered")
	}
	return nil
}

// webClient asks the HTTP listener.
type webClient struct {
	p      *protection
	client *http.Client
	base   string
}

func (p *protection) web() *webClient {
	network, address := p.where("--http")
	scheme := "http"
	if p.tls != nil {
		scheme = "https"
	}
	return &webClient{p: p, base: scheme + "://localhost", client: &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			TLSClientConfig: p.tls,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			},
		},
	}}
}

// call sends a request, and reads an answer in JSON, if it is one. What the door calls an error is
// an error.
func (w *webClient) call(method, page, body string, into any,
	header ...string,
) (*http.Response, error) {
	r, err := http.NewRequest(method, w.base+page, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if w.p.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.p.token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != 200 && answer.StatusCode != 429 {
		return nil, fmt.Errorf("%s %.200s: %d: %.300s", method, page, answer.StatusCode, text)
	}
	if into != nil {
		err = json.Unmarshal(text, into)
	}
	return answer, err
}

func (w *webClient) slow() error {
	network, address := w.p.where("--http")
	return cutOff(network, address,
		"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
}

func (w *webClient) keptOut() error {
	_, err := w.p.strangers().web().call("GET", "/v1/check?limit=five&key=stranger", "", nil)
	return mustFail(err)
}

type httpDoor struct{ *webClient }

func (d *httpDoor) name() string { return "HTTP" }

// inlines are the cluster's limits as a request of HTTP brings them along.
var inlines = map[string]string{
	"five": `{"name":"mine","algorithm":"fixed_window","anchor":"first_hit","limit":5,"per":"10m"}`,
}

func (d *httpDoor) ask(all bool, qs ...question) ([]answer, error) {
	page, items := "/v1/check", []string{}
	for _, q := range qs {
		limit := fmt.Sprintf(`"limit":%q`, q.limit)
		switch inline := inlines[q.limit]; {
		case q.from == ofEnvoy || q.from == ofRequest && inline == "":
			return nil, errNone
		case q.from == ofRequest:
			limit = `"inline":` + inline
		}
		switch q.op {
		case "reset":
			page = "/v1/reset"
		case "peek":
			if q.from != ofRequest {
				return d.query("/v1/peek", q)
			}
			q.cost = 0
		}
		text := fmt.Sprintf(`{%s,"key":%q,"cost":%d,"report":%t,"drain":%t,"strict":%t`, limit,
			q.key, q.cost, q.report, q.drain, q.strict)
		if q.at != nil {
			text += fmt.Sprintf(`,"at_ms":%d`, *q.at)
		}
		items = append(items, text+"}")
	}
	if len(qs) == 1 && page == "/v1/check" && qs[0].from != ofRequest {
		return d.query(page, qs[0])
	}
	var out struct{ Decisions []decision }
	_, err := d.call("POST", page, fmt.Sprintf(`{"items":[%s],"atomic":%t}`,
		strings.Join(items, ","), all), &out)
	return answersOf(out.Decisions), err
}

// query is a question as a URL.
func (d *httpDoor) query(page string, q question) ([]answer, error) {
	v := url.Values{"limit": {q.limit}, "key": {q.key}, "cost": {fmt.Sprint(q.cost)}}
	for name, set := range map[string]bool{
		"report": q.report, "drain": q.drain,
		"strict": q.strict,
	} {
		if set {
			v.Set(name, "true")
		}
	}
	if q.at != nil {
		v.Set("at_ms", fmt.Sprint(*q.at))
	}
	var out decision
	_, err := d.call("GET", page+"?"+v.Encode(), "", &out)
	return answersOf([]decision{out}), err
}

func answersOf(ds []decision) (as []answer) {
	ms := func(n int64) time.Duration { return time.Duration(max(0, n)) * time.Millisecond }
	for _, d := range ds {
		as = append(as, answer{d.Allowed, d.Remaining, ms(d.RetryAfter), ms(d.Delay), d.Shadow})
	}
	return as
}

func (d *httpDoor) fault(kind string) error {
	body := map[string]string{
		"unknown":   `{"limit":"nowhere","key":"` + faultKey + `"}`,
		"malformed": `{"items":[{"limit":"five","key":"` + faultKey + `"},`,
		"oversize":  `{"limit":"five","key":"` + faultKey + `"}` + strings.Repeat(" ", 3<<20),
	}[kind]
	_, err := d.call("POST", "/v1/check", body, nil)
	return err
}

// twin asks about what another door has charged: the limit of the cluster, or of a request, or of
// Envoy's files.
func (d *httpDoor) twin(other aDoor, q question) question {
	switch other.(type) {
	case *envoyDoor:
		inlines["edge"] = `{"name":"envoy/edge","algorithm":"fixed_window","limit":5,` +
			`"per":"365d","drain":true}`
		q.limit, q.from, q.key = "edge", ofRequest, "mine="+q.key
	case *redisDoor:
		inlines["cell"] = `{"name":"cl.throttle","algorithm":"gcra","limit":5,"per":"10m",` +
			`"burst":5}`
		q.limit, q.from = "cell", ofRequest
	}
	return q
}

type authDoor struct{ *webClient }

func (d *authDoor) name() string { return "forward-auth" }

func (d *authDoor) ask(all bool, qs ...question) ([]answer, error) {
	q := qs[0]
	if all || len(qs) > 1 || q.from == ofRequest || q.from == ofEnvoy || q.op == "reset" ||
		q.report || q.drain || q.strict || q.at != nil {
		return nil, errNone
	}
	if q.op == "peek" {
		q.cost = 0
	}
	answered, err := d.call("GET", "/v1/auth?"+url.Values{
		"limit": {q.limit}, "key": {q.key},
		"cost": {fmt.Sprint(q.cost)},
	}.Encode(), "", nil)
	if err != nil {
		return nil, err
	}
	h := answered.Header
	number := func(text string) int64 {
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	_, text, _ := strings.Cut(h.Get("RateLimit"), ";r=")
	text, _, _ = strings.Cut(text, ";")
	return []answer{{
		answered.StatusCode == 200, number(text),
		time.Duration(number(h.Get("Retry-After"))) * time.Second,
		time.Duration(number(h.Get("Penstock-Delay-Ms"))) * time.Millisecond,
		h.Get("Penstock-Shadow") != "",
	}}, nil
}

func (d *authDoor) fault(kind string) error {
	page := map[string]string{
		"unknown":   "/v1/auth?limit=nowhere&key=" + faultKey,
		"malformed": "/v1/auth?limit=five&key={" + faultKey,
		"oversize":  "/v1/auth?limit=five&key=" + strings.Repeat("k", 1025),
	}[kind]
	_, err := d.call("GET", page, "", nil)
	return err
}

// grpcDoor is penstock.v1: in items, as "gRPC", and by the interface of Go programs where that has
// words.
type grpcDoor struct {
	title string
	p     *protection
	c     *client.Client
}

func (p *protection) grpc(t *testing.T, title string) *grpcDoor {
	t.Helper()
	c, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &grpcDoor{title, p, c}
}

func (p *protection) dial() (*client.Client, error) {
	return client.New(client.Config{
		Targets: []string{p.node.doors.address("--grpc")}, TLS: p.tls,
		Token: p.token,
	})
}

func (d *grpcDoor) name() string { return d.title }

func (d *grpcDoor) ask(all bool, qs ...question) ([]answer, error) {
	if d.title == "Go client" && !all && len(qs) == 1 {
		if as, err := askLimiter(d.c, qs[0]); !errors.Is(err, errNone) {
			return as, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	call := func(items []*penstockv1.Item) ([]*penstockv1.Decision, error) {
		out, err := limitsOf(d.c).Check(ctx, &penstockv1.CheckRequest{Items: items, Atomic: all})
		return out.GetDecisions(), err
	}
	var items []*penstockv1.Item
	for _, q := range qs {
		it := &penstockv1.Item{
			Limit: q.limit, Key: []byte(q.key), Cost: &q.cost, Report: q.report,
			Drain: q.drain, Strict: q.strict, AtMs: q.at,
		}
		switch {
		case q.from == ofEnvoy || q.from == ofRequest && q.limit != "five":
			return nil, errNone
		case q.from == ofRequest:
			it.Limit, it.Inline = "", &penstockv1.InlineLimit{
				Name: "mine", Algorithm: penstockv1.Algorithm_ALGORITHM_FIXED_WINDOW,
				Anchor: penstockv1.Anchor_ANCHOR_FIRST_HIT,
				Limit:  5, PerMs: (10 * time.Minute).Milliseconds(),
			}
		}
		switch q.op {
		case "peek":
			call = func(items []*penstockv1.Item) ([]*penstockv1.Decision, error) {
				out, err := limitsOf(d.c).Peek(ctx, &penstockv1.PeekRequest{Items: items})
				return out.GetDecisions(), err
			}
		case "reset":
			call = func(items []*penstockv1.Item) ([]*penstockv1.Decision, error) {
				out, err := limitsOf(d.c).Reset(ctx, &penstockv1.ResetRequest{Items: items})
				return out.GetDecisions(), err
			}
		}
		items = append(items, it)
	}
	out, err := call(items)
	if err != nil {
		return nil, err
	}
	var ds []decision
	for _, x := range out {
		ds = append(ds, decisionOf("", x))
	}
	return answersOf(ds), nil
}

func (d *grpcDoor) fault(kind string) error { return faultLimiter(d.c, kind) }

func (d *grpcDoor) twin(_ aDoor, q question) question { return q }

// slow: the beginning of a greeting of HTTP/2.
func (d *grpcDoor) slow() error {
	network, address := d.p.where("--grpc")
	return cutOff(network, address, "PRI * HTTP")
}

func (d *grpcDoor) keptOut() error {
	c, err := d.p.strangers().dial()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err = c.Take(ctx, "five", "stranger", 1)
	return mustFail(err)
}

type gubernatorDoor struct{ *webClient }

func (d *gubernatorDoor) name() string { return "Gubernator" }

func (d *gubernatorDoor) ask(all bool, qs ...question) ([]answer, error) {
	var items []string
	for _, q := range qs {
		if all || q.from == ofEnvoy || q.report || q.strict || q.at != nil || q.limit == "queue" ||
			q.limit == "dry" {
			return nil, errNone
		}
		behavior, name := 0, q.limit
		if q.drain {
			behavior |= 32
		}
		switch q.op {
		case "reset":
			behavior |= 8
		case "peek":
			q.cost = 0
		}
		if q.from == ofRequest || q.limit == "visit" { // for requests that state their time
			name = "mine"
		}
		items = append(items,
			fmt.Sprintf(
				`{"name":%q,"unique_key":%q,"hits":%d,"limit":5,"duration":600000,"behavior":%d}`,
				name, q.key, q.cost, behavior))
	}
	var out struct {
		Responses []struct {
			Status, Remaining, Error string
			Metadata                 map[string]string
		}
	}
	if _, err := d.call("POST", "/v1/GetRateLimits", `{"requests":[`+strings.Join(items, ",")+`]}`,
		&out); err != nil {
		return nil, err
	}
	var as []answer
	for _, r := range out.Responses {
		if r.Error != "" {
			return nil, errors.New(r.Error)
		}
		a := answer{allowed: r.Status == "UNDER_LIMIT"}
		a.remaining, _ = strconv.ParseInt(r.Remaining, 10, 64)
		ms, _ := strconv.ParseInt(r.Metadata["retry_after_ms"], 10, 64)
		a.retry = time.Duration(ms) * time.Millisecond
		as = append(as, a)
	}
	return as, nil
}

func (d *gubernatorDoor) fault(kind string) error {
	one := `{"name":"five","unique_key":"` + faultKey + `","hits":1,"limit":5,"duration":600000}`
	body := map[string]string{
		"malformed": `{"requests":[` + one + `,`,
		"oversize":  `{"requests":[` + strings.Repeat(one+",", 1000) + one + `]}`,
	}[kind]
	if body == "" { // a limit that is not there comes with each request
		return errNone
	}
	_, err := d.call("POST", "/v1/GetRateLimits", body, nil)
	return err
}

type envoyDoor struct{ *webClient }

func (d *envoyDoor) name() string { return "Envoy" }

func (d *envoyDoor) ask(all bool, qs ...question) ([]answer, error) {
	domain := "edge"
	if all {
		domain = "whole"
	}
	var items []string
	for _, q := range qs {
		if q.from == ofCluster || q.report || q.drain || q.strict || q.at != nil ||
			q.op == "reset" || q.limit != "five" && q.limit != "dry" {
			return nil, errNone
		}
		if q.op == "peek" {
			q.cost = 0
		}
		text := fmt.Sprintf(`{"entries":[{"key":%q,"value":%q}]`, q.limit, q.key)
		if q.from == ofRequest {
			text = fmt.Sprintf(
				`{"entries":[{"key":"mine","value":%q}],"limit":{"requestsPerUnit":5,`+
					`"unit":"YEAR"}`, q.key)
		}
		text += fmt.Sprintf(`,"hitsAddend":"%d"`, max(q.cost, -q.cost))
		if q.cost < 0 {
			text += `,"isNegativeHits":true`
		}
		items = append(items, text+"}")
	}
	var out struct {
		OverallCode string
		Statuses    []struct {
			Code               string
			LimitRemaining     int64
			DurationUntilReset string
		}
	}
	if _, err := d.call("POST", "/json", fmt.Sprintf(`{"domain":%q,"descriptors":[%s]}`, domain,
		strings.Join(items, ",")), &out); err != nil {
		return nil, err
	}
	var as []answer
	for i, s := range out.Statuses {
		retry, _ := time.ParseDuration(s.DurationUntilReset)
		a := answer{allowed: s.Code == "OK", remaining: s.LimitRemaining, retry: retry}
		if qs[i].limit == "dry" { // Envoys are not told: it is in the metrics
			return nil, errNone
		}
		as = append(as, a)
	}
	return as, nil
}

func (d *envoyDoor) fault(kind string) error {
	begin := `{"domain":"edge","descriptors":[{"entries":[{"key":"five","value":"` + faultKey +
		`"}]}`
	body := map[string]string{"malformed": begin + ",", "oversize": begin + "]}" +
		strings.Repeat(" ", 3<<20)}[kind]
	if body == "" { // what no file has passes, as in the original
		return errNone
	}
	_, err := d.call("POST", "/json", body, nil)
	return err
}

type redisDoor struct{ p *protection }

func (d *redisDoor) name() string { return "Redis" }

// talk sends commands and reads as many replies, each one line or a list of lines.
func (d *redisDoor) talk(commands ...[]string) (replies [][]string, err error) {
	network, address := d.p.where("--redis")
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if d.p.tls != nil {
		conn = tls.Client(conn, d.p.tls)
	}
	if d.p.token != "" {
		commands = append([][]string{{"AUTH", d.p.token}}, commands...)
	}
	var b bytes.Buffer
	for _, words := range commands {
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	if _, err := conn.Write(b.Bytes()); err != nil {
		return nil, err
	}
	for in := bufio.NewReader(conn); len(replies) < len(commands); {
		lines, n := []string{}, 1
		for len(lines) < n {
			line, err := in.ReadString('\n')
			if err != nil {
				return nil, err
			}
			line = strings.TrimSuffix(line, "\r\n")
			if line[0] == '-' {
				return nil, errors.New(line)
			}
			if line[0] == '*' {
				n, _ = strconv.Atoi(line[1:])
				continue
			}
			lines = append(lines, line[1:])
		}
		replies = append(replies, lines)
	}
	if d.p.token != "" {
		replies = replies[1:]
	}
	return replies, nil
}

func (d *redisDoor) ask(all bool, qs ...question) ([]answer, error) {
	var commands [][]string
	for _, q := range qs {
		switch {
		case all || len(qs) > 1 || q.from == ofCluster || q.from == ofEnvoy || q.op == "reset" ||
			q.report:
			return nil, errNone
		case q.limit == "visit" && q.cost >= 0:
			words := []string{"RL.REDUCE", q.key, "5", "600", "TAKE", fmt.Sprint(q.cost)}
			if q.at != nil {
				words = append(words, "AT", fmt.Sprint(*q.at/1000))
			}
			if q.strict {
				words = append(words, "STRICT")
			}
			commands = append(commands, words, []string{"RL.GET", q.key, "5", "600"})
		case q.limit != "five":
			return nil, errNone
		default:
			if q.op == "peek" {
				q.cost = 0
			}
			commands = append(commands, []string{
				"CL.THROTTLE", q.key, "4", "5", "600",
				fmt.Sprint(q.cost),
			})
		}
	}
	replies, err := d.talk(commands...)
	if err != nil {
		return nil, err
	}
	if number := func(i, k int) int64 {
		n, _ := strconv.ParseInt(replies[i][k], 10,
			64)
		return n
	}; len(replies[0]) == 1 {
		// what there was before
		return []answer{{allowed: number(0, 0) >= qs[0].cost, remaining: number(1, 0)}}, nil
	} else {
		return []answer{{
			allowed: number(0, 0) == 0, remaining: number(0, 2),
			retry: time.Duration(max(0, number(0, 3))) * time.Second,
		}}, nil
	}
}

func (d *redisDoor) fault(kind string) error {
	words := map[string][]string{
		"malformed": {"CL.THROTTLE", faultKey, "four", "5", "600"},
		"oversize":  {"CL.THROTTLE", strings.Repeat("k", 1025), "4", "5", "600"},
	}[kind]
	if words == nil { // each command brings its limit along
		return errNone
	}
	_, err := d.talk(words)
	return err
}

func (d *redisDoor) slow() error {
	network, address := d.p.where("--redis")
	return cutOff(network, address, "*3\r\n$9\r\nRL.RED")
}

func (d *redisDoor) keptOut() error {
	_, err := (&redisDoor{d.p.strangers()}).talk([]string{
		"CL.THROTTLE", "stranger", "4", "5",
		"600",
	})
	return mustFail(err)
}

// reservation sets four of five aside, looks, and settles for one.
func reservation(d aDoor, key string) error {
	q := question{limit: "five", key: key, op: "peek"}
	var settle func() error
	var limiter client.Limiter
	switch d := d.(type) {
	case *httpDoor:
		var out struct{ Holds []struct{ ID string } }
		if _, err := d.call("POST", "/v1/reserve",
			fmt.Sprintf(`{"items":[{"limit":"five","key":%q,"cost":4}],"ttl_ms":60000}`, q.key),
			&out); err != nil {
			return err
		}
		settle = func() error {
			_, err := d.call("POST", "/v1/settle",
				fmt.Sprintf(`{"id":%q,"actual":1}`, out.Holds[0].ID), nil)
			return err
		}
	case *grpcDoor:
		limiter = d.c
	case *insideDoor:
		limiter = d.node
	default:
		return errNone
	}
	if limiter != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := limiter.Reserve(ctx, "five", q.key, 4, time.Minute)
		if err != nil {
			return err
		}
		settle = func() error { return r.Settle(ctx, 1) }
	}
	if err := wants(d, q, left(1)); err != nil {
		return err
	}
	return errors.Join(settle(), wants(d, q, left(4)))
}

// byRules says what is known of a request: five of five and one of the five of another limit are
// taken, then nothing is.
func byRules(d aDoor, key string) error {
	known := map[string]string{"path": "/ruled", "header:x-user": key}
	ask := func(cost int64) (allowed bool, refusedBy []string, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var out struct {
			Allowed bool
			Verdict struct {
				RefusedBy []string `json:"refused_by"`
			}
		}
		switch d := d.(type) {
		case *httpDoor:
			var body []byte
			if body, err = json.Marshal(map[string]any{
				"attributes": known,
				"cost":       cost,
			}); err == nil {
				_, err = d.call("POST", "/v1/check", string(body), &out)
			}
		case *authDoor:
			_, err = d.call("GET", fmt.Sprintf("/v1/auth?cost=%d", cost), "", &out,
				"X-Forwarded-Uri", "/ruled", "X-User", key)
		case *grpcDoor:
			v, err := d.c.CheckRules(ctx, known, cost)
			return v.Allowed, v.RefusedBy, err
		case *insideDoor:
			v, err := d.node.CheckRules(ctx, known, cost)
			return v.Allowed, v.RefusedBy, err
		default:
			err = errNone
		}
		return out.Allowed, out.Verdict.RefusedBy, err
	}
	if allowed, by, err := ask(4); err != nil || !allowed {
		return errors.Join(err, fmt.Errorf("4 of 5 are refused by %v", by))
	}
	if allowed, by, err := ask(2); err != nil || allowed || len(by) != 2 {
		return errors.Join(err, fmt.Errorf("%v, refused by %v", allowed, by))
	}
	return wants(d, question{limit: "owing", key: key, op: "peek"}, left(1))
}

// envoyWhole is a domain with requests that are admitted as a whole or not at all.
const envoyWhole = `
domain: whole
atomic: true
descriptors:
  - {key: five, rate_limit: {unit: year, requests_per_unit: 5}}
`

func writeEnvoy(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{"edge.yaml": doorEnvoy, "whole.yaml": envoyWhole} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
