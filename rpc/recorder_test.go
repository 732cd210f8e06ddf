package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/audit"
	"penstock/rpc/door"
	"penstock/rpc/native"
	"penstock/rpc/redis"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// Promise: every change is recorded with client, action, before and after; what only charges is
// not. No token and no key is in it, and only clients that may read see it.
func TestChangesAreRecorded(t *testing.T) {
	const key = "shop/secret-of-a-user"
	lines := new(strings.Builder)
	h := web.New(web.Config{
		Node: rpctest.Alone(t, five), Clients: clientsFor(t, clientFile), Admin: true,
		Audit: audit.New(lines, slog.New(slog.DiscardHandler)),
		Drain: func(context.Context) error { return errors.New("nobody is there") },
	})
	for _, step := range []struct{ client, method, path, body, want string }{
		{"shop", "GET", "/v1/check?limit=five&key=" + key + "&cost=3", "", ""},
		{"shop", "POST", "/v1/reset", `{"limit":"five","key":"` + key + `"}`, ""}, // it may not
		{
			"till", "POST", "/v1/reset", `{"limit":"five","key":"` + key + `"}`,
			`till reset five {"remaining":2} {"remaining":5,"reset":true}`,
		},
		{
			"root", "PUT", "/v1/limits", `{"name":"x","algorithm":"gcra","limit":1,"per":"1s"}`,
			`root put limit x null "limit":1,`,
		},
		{
			"root", "PUT", "/v1/limits", `{"name":"x","algorithm":"gcra","limit":2,"per":"1s"}`,
			`root put limit x "limit":1, "limit":2,`,
		},
		{
			"root", "PUT", "/v1/limits", `{"name":"x","algorithm":"gcra","limit":2,"per":"1s",` +
				`"overrides":[{"key":"vip","limit":7}],"candidate":{"limit":3}}`,
			`root put limit x "name":"x" [{"key":"vip","limit":7}] "candidate":{`,
		},
		{"root", "DELETE", "/v1/limits?name=x", "", `root delete limit x "key":"vip" null`},
		{"root", "DELETE", "/v1/limits?name=x", "", ""}, // it is gone
		{"root", "POST", "/v1/drain", "", `root drain before {"held": nobody is there`},
		{"root", "POST", "/v1/recover", "", `root recover before {"voters":null} alone`},
		{"shop", "GET", "/v1/check?limit=five&key=" + key + "&cost=3", "", ""},
		{
			"till", "GET", "/v1/check?limit=five&key=" + key + "&cost=-2", "",
			`till refund five {"remaining":2} {"remaining":4} units:2`,
		},
	} {
		lines.Reset()
		rpctest.Page(h, step.method, step.path, step.body, "Authorization",
			"Bearer "+step.client+"-0123456789abcdef")
		got := strings.TrimSpace(lines.String())
		if step.want == "" {
			if got != "" {
				t.Errorf("%s %s is recorded: %s", step.method, step.path, got)
			}
			continue
		}
		var e audit.Entry
		if err := json.Unmarshal([]byte(got), &e); err != nil {
			t.Fatalf("%s %s: %q: %v", step.method, step.path, got, err)
		}
		text := func(v any) string { b, _ := json.Marshal(v); return string(b) }
		told := fmt.Sprintf("%s %s %s before %s after %s %s units:%d",
			strings.Fields(e.Who)[0], e.Action, e.Target, text(e.Before), text(e.After), e.Error,
			e.Units)
		for part := range strings.FieldsSeq(step.want) {
			if !strings.Contains(told, part) {
				t.Errorf("%s %s: %s; want %s", step.method, step.path, told, step.want)
			}
		}
		if e.Time.IsZero() || e.From == "" || strings.Contains(got, "secret-of") ||
			strings.Contains(got, "0123456789abcdef") {
			t.Errorf("%s %s: no time, no address, or a secret: %s", step.method, step.path, got)
		}
	}
	answer, body := rpctest.Page(h, "GET", "/v1/audit?count=3", "", "Authorization",
		"Bearer view-0123456789abcdef")
	if answer.StatusCode != http.StatusOK || strings.Count(body, `"action"`) != 3 ||
		strings.Index(body, `"recover"`) > strings.Index(body, `"drain"`) {
		t.Errorf("%d %s; want a refund, the recovery, and the drain before it",
			answer.StatusCode, body)
	}
	if answer, _ := rpctest.Page(h, "GET", "/v1/audit", "", "Authorization",
		"Bearer shop-0123456789abcdef"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a client without admin: read gets %d", answer.StatusCode)
	}
}

// Promise: the other doors record resets as well.
func TestOtherDoorsRecordResets(t *testing.T) {
	lines := new(strings.Builder)
	book := audit.New(lines, slog.New(slog.DiscardHandler))
	s := newStations(t, 1, five)[0]
	c := rpctest.TalkTo(t, rpctest.Serve(t, redis.New(redis.Config{Node: s.node, Audit: book})))
	c.Says("CL.THROTTLE k 5 10 60", "*5\r\n")
	for range 5 {
		c.In.ReadString('\n')
	}
	c.Says("DEL k absent", ":1\r\n")
	if got := lines.String(); strings.Count(got, `"action":"reset"`) != 1 ||
		!strings.Contains(got, "cl.throttle") || !strings.Contains(got,
		`"before":{"remaining":0},"after":{"remaining":1,"reset":true}`) {
		t.Errorf("DEL: %s", got)
	}
	lines.Reset()
	h := web.New(web.Config{Node: s.node, Audit: book})
	rpctest.Page(h, "POST", "/v1/GetRateLimits",
		`{"requests":[{"name":"x","unique_key":"k","behavior":8,"limit":5,"duration":1000},`+
			`{"name":"x","unique_key":"k","hits":1,"limit":5,"duration":1000}]}`)
	if got := lines.String(); strings.Count(got, `"action":"reset"`) != 1 ||
		!strings.Contains(got, `"target":"x"`) || !strings.Contains(got,
		`"before":{"remaining":5},"after":{"remaining":5,"reset":true}`) {
		t.Errorf("RESET_REMAINING: %s", got)
	}
}

// Promise: a hold that an administrator extends or settles is recorded, with the key's hash and not
// the key. What the client that holds does to it is no change of an administrator's.
func TestSettlementsOfAdministratorsAreRecorded(t *testing.T) {
	lines := new(strings.Builder)
	h := web.New(web.Config{
		Node: rpctest.Alone(t, five), Clients: clientsFor(t, clientFile), Admin: true,
		Audit: audit.New(lines, slog.New(slog.DiscardHandler)),
	})
	as := func(client, path, body string) string {
		answer, text := rpctest.Page(h, "POST", path, body, "Authorization",
			"Bearer "+client+"-0123456789abcdef")
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %d %s", client, path, answer.StatusCode, text)
		}
		return text
	}
	var hold struct{ ID string }
	reserve := func() {
		text := as("shop", "/v1/reserve", `{"limit":"five","key":"shop/secret","ttl_ms":60000}`)
		if err := json.Unmarshal([]byte(text), &hold); err != nil || hold.ID == "" {
			t.Fatalf("%v: %s", err, text)
		}
		lines.Reset()
	}
	reserve()
	as("shop", "/v1/extend", fmt.Sprintf(`{"id":%q,"ttl_ms":60000}`, hold.ID))
	as("shop", "/v1/settle", fmt.Sprintf(`{"id":%q,"actual":1}`, hold.ID))
	if lines.Len() > 0 {
		t.Errorf("what the client itself does is recorded: %s", lines)
	}
	reserve()
	for _, row := range []struct{ action, body, after string }{
		{"extend", `{"id":%q,"ttl_ms":70000}`, `{"remaining":3,"ttl_ms":70000}`},
		{"settle", `{"id":%q,"actual":1}`, `{"remaining":3}`},
	} {
		lines.Reset()
		as("root", "/v1/"+row.action, fmt.Sprintf(row.body, hold.ID))
		var e audit.Entry
		if err := json.Unmarshal([]byte(lines.String()), &e); err != nil {
			t.Fatalf("%s: %v: %q", row.action, err, lines)
		}
		if e.Action != row.action || e.Target != "five" || !strings.HasPrefix(e.Who, "root") ||
			e.Key != audit.HashKey("shop/secret") || strings.Contains(lines.String(), "shop/") ||
			!strings.Contains(lines.String(), `"before":{"remaining":3},"after":`+row.after) {
			t.Errorf("%s is recorded as %s", row.action, lines)
		}
	}
}

// Promise: a settlement is recorded also if its key could not be looked at before.
func TestSettlementsWithoutALookAreRecorded(t *testing.T) {
	lines := new(strings.Builder)
	r := door.Recorder{
		Log: audit.New(lines, slog.New(slog.DiscardHandler)),
		Who: clientsFor(t, clientFile).Token([]byte("root-0123456789abcdef")),
	}
	r.AtHold(&cluster.Item{Limit: "five", Key: "k", Op: cluster.OpSettle}, nil,
		new(cluster.Decision))
	if got := lines.String(); !strings.Contains(got, `"action":"settle"`) ||
		strings.Contains(got, `"before"`) {
		t.Errorf("recorded as %q", got)
	}
}

// Promise: a credit is recorded also if its answer is lost: it may have been given.
func TestLostCreditsAreRecorded(t *testing.T) {
	lines := new(strings.Builder)
	s := newStations(t, 2, five)
	key := rpctest.OwnKey(s[1].node, 0)
	s[1].doors[0].Stop() // that for peers
	address := s[0].open(native.NewServer(native.Config{
		Node: s[0].node, Clock: s[0].clock,
		Audit: audit.New(lines, slog.New(slog.DiscardHandler)),
	}))
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = penstockv1.NewAdminClient(conn).Credit(t.Context(), &penstockv1.CreditRequest{
		Limit: "five", Key: []byte(key), Units: 1,
	})
	var e audit.Entry
	if bad := json.Unmarshal([]byte(lines.String()), &e); bad != nil || e.Action != "credit" ||
		status.Code(err) != codes.Unavailable || !strings.Contains(e.Error, "cannot be reached") {
		t.Errorf("%v is recorded as %q", err, lines)
	}
}
