package rpc

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
	"penstock/rpc/native"
	"penstock/rpc/redis"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// clientFile has a client with each kind of right.
const clientFile = `clients:
- {name: shop, token: shop-0123456789abcdef, check: {limits: [five], keys: [shop/]}}
- {name: till, token: till-0123456789abcdef, check: {limits: [five], keys: [shop/]}, refund: true}
- {name: free, token: free-0123456789abcdef, check: {inline: true}}
- {name: edge, token: edge-0123456789abcdef, check: {inline: true, limits: [five, shop]}}
- {name: view, token: view-0123456789abcdef, admin: read}
- {name: root, token: root-0123456789abcdef, admin: write}
- {name: prom, token: prom-0123456789abcdef, metrics: true}
`

func clientsFor(t testing.TB, text string) *access.Clients {
	t.Helper()
	set, err := access.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return access.New(set)
}

const envoyBody = `{"inline":{"name":"envoy/shop","algorithm":"fixed_window","limit":10,` +
	`"per":"1m"},"key":"user=x"}`

const inlineBody = `{"inline":{"algorithm":"gcra","limit":10,"per":"1m"},"key":"shop/1"}`

// Promise: over HTTP a client gets what its rights say. A refusal names the missing right, and
// charges nothing.
func TestRightsOverHTTP(t *testing.T) {
	node := rpctest.Alone(t, five)
	h := web.New(web.Config{Node: node, Clients: clientsFor(t, clientFile), Admin: true})
	for _, row := range []struct {
		client, method, path, body string
		lacks                      string // empty: it may
	}{
		{"shop", "GET", "/v1/check?limit=five&key=shop/1", "", ""},
		{
			"shop", "GET", "/v1/check?limit=five&key=bank/1", "",
			`check for this key; its keys begin with ["shop/"]`,
		},
		{"shop", "GET", "/v1/check?limit=six&key=shop/1", "", `check for the limit "six"`},
		{"shop", "GET", "/v1/check?limit=five&key=shop/1&cost=-1", "", "refund"},
		{"till", "GET", "/v1/check?limit=five&key=shop/1&cost=-1", "", ""},
		{"shop", "GET", "/v1/auth?limit=five&key=shop/1", "", ""},
		{
			"shop", "GET", "/v1/auth?limit=five&key=bank/1", "",
			`check for this key; its keys begin with ["shop/"]`,
		},
		{
			"shop", "GET", "/v1/peek?limit=five&key=bank/1", "",
			`check for this key; its keys begin with ["shop/"]`,
		},
		{"view", "GET", "/v1/peek?limit=five&key=bank/1", "", ""},
		{"view", "GET", "/v1/check?limit=five&key=shop/1", "", "check"},
		{
			"shop", "POST", "/v1/check",
			`{"items":[{"limit":"five","key":"shop/1"},{"limit":"five","key":"bank/1"}]}`,
			`check for this key; its keys begin with ["shop/"]`,
		},
		{"shop", "POST", "/v1/check", inlineBody, "check: {inline: true}"},
		{"free", "POST", "/v1/check", inlineBody, ""},
		{"free", "POST", "/v1/check", envoyBody, `check for the limit "shop"`},
		{"free", "POST", "/v1/reset", envoyBody, `check for the limit "shop"`},
		{"edge", "POST", "/v1/check", envoyBody, ""},
		{"free", "GET", "/v1/check?limit=five&key=shop/1", "", `check for the limit "five"`},
		{
			"shop", "POST", "/v1/reserve", `{"limit":"five","key":"bank/1","ttl_ms":1000}`,
			`check for this key; its keys begin with ["shop/"]`,
		},
		{"shop", "POST", "/v1/reserve", `{"limit":"five","key":"shop/2","ttl_ms":1000}`, ""},
		{"shop", "POST", "/v1/reset", `{"limit":"five","key":"shop/1"}`, "refund"},
		{"till", "POST", "/v1/reset", `{"limit":"five","key":"shop/1"}`, ""},
		{
			"till", "POST", "/v1/reset", `{"limit":"five","key":"bank/1"}`,
			`check for this key; its keys begin with ["shop/"]`,
		},
		{"root", "POST", "/v1/reset", `{"limit":"five","key":"bank/1"}`, ""},
		{
			"shop", "POST", "/v1/GetRateLimits",
			`{"requests":[{"name":"x","unique_key":"shop/1","hits":1,"limit":5,"duration":1000}]}`,
			"check: {inline: true}",
		},
		{
			"free", "POST", "/v1/GetRateLimits",
			`{"requests":[{"name":"x","unique_key":"shop/1","hits":1,"limit":5,"duration":1000}]}`,
			"",
		},
		{
			"free", "POST", "/v1/GetRateLimits",
			`{"requests":[{"name":"x","unique_key":"shop/1","hits":-1,"limit":5,"duration":1000}]}`,
			"refund",
		},
		{"shop", "GET", "/v1/members", "", "admin: read"},
		{"view", "GET", "/v1/members", "", ""},
		{"view", "HEAD", "/v1/limits", "", ""},
		{"view", "GET", "/v1/limits", "", ""},
		{
			"view", "PUT", "/v1/limits", `{"name":"x","algorithm":"gcra","limit":1,"per":"1s"}`,
			"admin: write",
		},
		{"root", "PUT", "/v1/limits", `{"name":"x","algorithm":"gcra","limit":1,"per":"1s"}`, ""},
		{"view", "DELETE", "/v1/limits?name=x", "", "admin: write"},
		{"root", "DELETE", "/v1/limits?name=x", "", ""},
		{"view", "POST", "/v1/drain", "", "admin: write"},
		{"view", "GET", "/debug/pprof/cmdline", "", "admin: write"},
		{"root", "GET", "/debug/pprof/cmdline", "", ""},
		{"view", "GET", "/metrics", "", "metrics"},
		{"prom", "GET", "/metrics", "", ""},
		{"prom", "GET", "/v1/status", "", "admin: read"},
		{"shop", "GET", "/no/such/page", "", "admin: write"},
	} {
		charged := node.Stats().Changes()
		answer, text := rpctest.Page(
			h,
			row.method,
			row.path,
			row.body,
			"Authorization",
			"Bearer "+row.client+"-0123456789abcdef",
		)
		if row.lacks == "" {
			if answer.StatusCode != http.StatusOK {
				t.Errorf(
					"%s %s %s: %d %s",
					row.client,
					row.method,
					row.path,
					answer.StatusCode,
					text,
				)
			}
			continue
		}
		if answer.StatusCode != http.StatusForbidden ||
			!strings.Contains(text, `\"`+row.client+`\" lacks the right`) &&
				!strings.Contains(text, "message") {
			t.Errorf(
				"%s %s %s: %d %s; want that it lacks %s",
				row.client,
				row.method,
				row.path,
				answer.StatusCode,
				text,
				row.lacks,
			)
		}
		var problem struct {
			Right   string `json:"missing_right"`
			Message string `json:"message"` // Gubernator's
		}
		if err := json.Unmarshal([]byte(text), &problem); err != nil ||
			problem.Right != row.lacks &&
				!strings.Contains(problem.Message, "lacks the right "+row.lacks+";") {
			t.Errorf(
				"%s %s %s: %s; want that it lacks %s",
				row.client,
				row.method,
				row.path,
				text,
				row.lacks,
			)
		}
		if node.Stats().Changes() != charged {
			t.Errorf("%s %s %s: something was charged", row.client, row.method, row.path)
		}
	}
}

// Promise: a stream outlives its token: what is in force when a request comes decides.
func TestRightsOverGRPC(t *testing.T) {
	s := newStations(t, 1, five)[0]
	clients := clientsFor(t, clientFile)
	limiter := rpctest.Dial(t,
		s.open(native.NewServer(native.Config{Node: s.node, Clock: s.clock, Clients: clients})))
	ctx := metadata.AppendToOutgoingContext(
		rpctest.Patience(t),
		"authorization",
		"Bearer shop-0123456789abcdef",
	)
	stream, err := limiter.CheckStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	say := func(key string) codes.Code {
		t.Helper()
		if err := stream.Send(&penstockv1.CheckStreamRequest{Check: &penstockv1.CheckRequest{
			Items: []*penstockv1.Item{rpctest.Item("five", key, 1)},
		}}); err != nil {
			t.Fatal(err)
		}
		out, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return codes.Code(out.GetError().GetCode())
	}
	if a, b := say("shop/1"), say("bank/1"); a != codes.OK || b != codes.PermissionDenied {
		t.Errorf("a stream answers %s and %s", a, b)
	}
	clients.Replace(access.Alone("another-0123456789abcdef"))
	if code := say("shop/1"); code != codes.Unauthenticated {
		t.Errorf("a stream whose token was taken away answers %s", code)
	}
}

// Promise: the Redis door says NOPERM for a missing right, also between MULTI and EXEC.
func TestRightsOverRedis(t *testing.T) {
	s := newStations(t, 1)[0]
	clients := clientsFor(
		t,
		clientFile+"- {name: mine, token: mine-0123456789abcdef, check: {inline: true, keys: "+
			"[m/]}}\n",
	)
	c := rpctest.TalkTo(t, rpctest.Serve(t,
		redis.New(redis.Config{Node: s.node, Clients: clients})))
	const noPerm = "-NOPERM authorization: the client "
	c.Says("AUTH shop-0123456789abcdef", "+OK\r\n")
	c.Says("CL.THROTTLE k 5 10 60", noPerm+`"shop" lacks the right check: {inline: true}`)
	c.In.ReadString('\n')
	c.Says("AUTH shop mine-0123456789abcdef",
		"-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	c.Says("AUTH mine mine-0123456789abcdef", "+OK\r\n")
	c.Says("RL.REDUCE m/1 5 60", ":5\r\n")
	for _, line := range []string{
		"RL.REDUCE n/1 5 60", "CL.THROTTLE n/1 5 10 60",
		"RL.GET n/1 5 60", "TTL n/1", "EXISTS m/1 n/1",
	} {
		c.Says(line, noPerm+`"mine" lacks the right check for this key`)
		c.In.ReadString('\n')
	}
	for _, line := range []string{"CL.THROTTLE m/1 5 10 60 -1", "DEL m/1"} {
		c.Says(line, noPerm+`"mine" lacks the right refund`)
		c.In.ReadString('\n')
	}
	c.Says("RL.GET m/1 5 60", ":4\r\n")
	clients.Replace(access.Alone("another-0123456789abcdef"))
	c.Says("RL.GET m/1 5 60", "-NOAUTH Authentication required.\r\n")
	c.Says("PING", "-NOAUTH Authentication required.\r\n")
}
