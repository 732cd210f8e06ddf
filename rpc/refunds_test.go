package rpc

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"penstock/cluster"
	"penstock/limiter/rules"
	"penstock/proto/gubernator"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
	"penstock/rpc/audit"
	"penstock/rpc/door"
	"penstock/rpc/native"
	"penstock/rpc/redis"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// ledger reads an audit log.
type ledger struct {
	t     *testing.T
	lines *strings.Builder
	log   *audit.Log
}

func newLedger(t *testing.T) *ledger {
	lines := new(strings.Builder)
	return &ledger{t, lines, audit.New(lines, slog.New(slog.DiscardHandler))}
}

// demands compares the entries since the last call with want: target, units, before and after of
// each refund. Each says from where it came, with a port.
func (l *ledger) demands(what, want string) {
	l.t.Helper()
	var got []string
	for line := range strings.Lines(l.lines.String()) {
		var e struct {
			audit.Entry
			Before struct{ Remaining int64 } `json:"before"`
			After  struct{ Remaining int64 } `json:"after"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			l.t.Fatalf("%s: %v: %s", what, err, line)
		}
		got = append(got, fmt.Sprintf("%s %s %d: %d→%d", e.Action, e.Target, e.Units,
			e.Before.Remaining, e.After.Remaining))
		if e.Who == "" || !strings.Contains(e.From, ":") || e.Key == "" {
			l.t.Errorf("%s: the client, its address with a port, or the key is missing: %s", what,
				line)
		}
	}
	l.lines.Reset()
	if text := strings.Join(got, ", "); text != want {
		l.t.Errorf("%s is recorded as %q; want %q", what, text, want)
	}
}

// Promise: what gives back is recorded at every page of HTTP that charges: once for each item, as
// the key was before and is after. A take, a look, and what was refused are not.
func TestRefundsOverHTTPAreRecorded(t *testing.T) {
	node, book := rpctest.Alone(t, five), newLedger(t)
	rpctest.SetRules(t, node, rules.Rule{
		Name: "all", Apply: []rules.Apply{{Limit: "five", Key: "{who}"}},
	})
	h := web.New(web.Config{Node: node, Audit: book.log})
	ask := func(method, path, body string) {
		t.Helper()
		if answer, text := rpctest.Page(h, method, path, body); answer.StatusCode >= 400 &&
			answer.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%s %s %s: %d %s", method, path, body, answer.StatusCode, text)
		}
	}
	for _, row := range []struct{ method, path, body, want string }{
		{"GET", "/v1/check?limit=five&key=k&cost=5", "", ""},
		{"GET", "/v1/check?limit=five&key=k&cost=-1", "", "refund five 1: 0→1"},
		{"GET", "/v1/peek?limit=five&key=k&cost=-1", "", ""},
		{"GET", "/v1/auth?limit=five&key=k&cost=-1", "", "refund five 1: 1→2"},
		{"POST", "/v1/check", `{"limit":"five","key":"k","cost":-1}`, "refund five 1: 2→3"},
		{
			"POST", "/v1/check", `{"items":[{"limit":"five","key":"k","cost":1},` +
				`{"limit":"five","key":"k","cost":-2},{"limit":"five","key":"m","cost":-1}]}`,
			"refund five 2: 3→4, refund five 1: 5→5",
		},
		{"POST", "/v1/check", `{"atomic":true,"items":[{"limit":"five","key":"z","cost":9},` +
			`{"limit":"five","key":"k","cost":-1}]}`, ""}, // the first is refused
		{"POST", "/v1/check", `{"attributes":{"who":"k"},"cost":-1}`, "refund five 1: 4→5"},
		{"POST", "/v1/GetRateLimits", `{"requests":[{"name":"x","unique_key":"k","hits":3,` +
			`"limit":5,"duration":1000000}]}`, ""},
		{"POST", "/v1/GetRateLimits", `{"requests":[{"name":"x","unique_key":"k","hits":-2,` +
			`"limit":5,"duration":1000000}]}`, "refund x 2: 2→4"},
	} {
		ask(row.method, row.path, row.body)
		book.demands(row.method+" "+row.path+" "+row.body, row.want)
	}
}

// Promise: so it is over gRPC, in streams, at Gubernator's service, and over the Redis protocol.
func TestRefundsAtOtherDoorsAreRecorded(t *testing.T) {
	s, book := newStations(t, 1, five)[0], newLedger(t)
	rpctest.SetRules(t, s.node, rules.Rule{
		Name: "all", Apply: []rules.Apply{{Limit: "five", Key: "{who}"}},
	})
	conn, err := grpc.NewClient(s.open(native.NewServer(native.Config{
		Node: s.node, Clock: s.clock, Audit: book.log,
	})), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	calls, ctx := penstockv1.NewRateLimiterClient(conn), rpctest.Patience(t)
	stream, err := calls.CheckStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	check := func(in *penstockv1.CheckRequest, streamed bool) {
		t.Helper()
		var err error
		if !streamed {
			_, err = calls.Check(ctx, in)
		} else if err = stream.Send(&penstockv1.CheckStreamRequest{Check: in}); err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	five := func(cost int64) *penstockv1.CheckRequest {
		return &penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("five", "k", cost)}}
	}
	for _, streamed := range []bool{false, true} {
		what := fmt.Sprintf("a call (in a stream: %v)", streamed)
		check(five(5), streamed)
		book.demands(what, "")
		check(five(-1), streamed)
		book.demands(what, "refund five 1: 0→1")
		all := five(-1)
		all.Atomic = true // which the library reads
		check(all, streamed)
		book.demands(what, "refund five 1: 1→2")
		back := int64(-3)
		check(&penstockv1.CheckRequest{
			Attributes: map[string]string{"who": "k"}, Cost: &back,
		}, streamed)
		book.demands(what, "refund five 3: 2→5")
	}
	v1 := gubernator.NewV1Client(conn)
	for _, row := range []struct {
		hits int64
		want string
	}{{3, ""}, {-2, "refund x 2: 2→4"}} {
		if _, err := v1.GetRateLimits(ctx, &gubernator.GetRateLimitsReq{
			Requests: []*gubernator.RateLimitReq{{
				Name: "x", UniqueKey: "k", Hits: row.hits, Limit: 5, Duration: 1000000,
			}},
		}); err != nil {
			t.Fatal(err)
		}
		book.demands("Gubernator", row.want)
	}
	c := rpctest.TalkTo(t, rpctest.Serve(t, redis.New(redis.Config{
		Node: s.node, Audit: book.log,
	})))
	says := func(line string, replies int) {
		t.Helper()
		c.Send(line)
		for range replies {
			if _, err := c.In.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	says(rpctest.Command("CL.THROTTLE", "k", "4", "10", "3600", "3"), 6)
	book.demands("CL.THROTTLE", "")
	says(rpctest.Command("CL.THROTTLE", "k", "4", "10", "3600", "-2"), 6)
	book.demands("CL.THROTTLE", "refund cl.throttle 2: 2→4")
	says(rpctest.Command("MULTI")+rpctest.Command("CL.THROTTLE", "k", "4", "10", "3600", "-1")+
		rpctest.Command("EXEC"), 9)
	book.demands("EXEC", "refund cl.throttle 1: 4→5")
	says(rpctest.Command("CL.THROTTLE", "k", "4", "10", "3600", "1"), 6)
	book.demands("CL.THROTTLE", "")
}

// Promise: a refund without an answer of the owner is recorded with the error: it may have been
// given. One that was denied is no change.
func TestRefundsOfUnknownFateAreRecorded(t *testing.T) {
	book := newLedger(t)
	r := door.Recorder{Log: book.log, From: "10.0.0.1:5", Who: (*access.Ticket)(nil)}
	request := &cluster.Request{Items: []cluster.Item{
		{Limit: "five", Key: "k", Cost: -2}, {Limit: "five", Key: "k", Cost: -3},
	}}
	r.Changes(request, nil, []cluster.Decision{
		{Source: cluster.SourceFallback, Owner: "n2"}, {Source: cluster.SourceOwner},
	})
	if got := book.lines.String(); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, `"units":2`) || !strings.Contains(got, "n2, which owns the key") ||
		strings.Contains(got, `"after"`) || strings.Contains(got, `"before"`) {
		t.Errorf("recorded as %s", got)
	}
}

// Promise: to find out that nothing is given back costs no memory.
func TestChargesAreNotRecorded(t *testing.T) {
	items := []cluster.Item{{Cost: 1}, {Cost: 0}, {Cost: -1, Op: cluster.OpPeek}}
	if n := testing.AllocsPerRun(100, func() {
		if door.GivesBack(items) {
			t.Error("a take or a look gives back")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// counting counts the keys that a decider is asked about.
type counting struct {
	*cluster.Node
	keys int
}

func (c *counting) Check(r *cluster.Request, out []cluster.Decision) error {
	c.keys += len(r.Items)
	return c.Node.Check(r, out)
}

// Promise: where the audit log has no file of its own, refunds are traffic as takes are: they leave
// no line among those of the program, and no key is looked at for them. Resets leave theirs.
func TestRefundsAreTrafficWithoutAnAuditFile(t *testing.T) {
	lines := new(strings.Builder)
	log := audit.New(nil, slog.New(slog.NewTextHandler(lines, nil)))
	r := door.Recorder{Log: log, From: "10.0.0.1:5"}
	n := &counting{Node: rpctest.Alone(t, five)}
	for _, row := range []struct {
		op            cluster.Op
		cost          int64
		keys, entries int
	}{
		{cluster.OpTake, 3, 1, 0},
		{cluster.OpTake, -1, 1, 0},
		{cluster.OpReset, 0, 2, 1},
	} {
		lines.Reset()
		n.keys = 0
		request := cluster.Request{Items: []cluster.Item{
			{Limit: "five", Key: "k", Op: row.op, Cost: row.cost},
		}}
		if err := r.Check(n, &request, make([]cluster.Decision, 1)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(lines.String(), "\n"); got != row.entries || n.keys != row.keys {
			t.Errorf("op %v, cost %d: %d keys are asked for and %d lines written, want %d and %d",
				row.op, row.cost, n.keys, got, row.keys, row.entries)
		}
	}
}
