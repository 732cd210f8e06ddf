package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"penstock/bench/history/judge"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
)

// connecting is how long a node that has started may take to accept connections.
const connecting = 20 * time.Second

// doors are the ways to ask one node. None of them repeats a request by itself.
type doors struct {
	dir   string
	index int
	web   *http.Client // a connection for each request: net/http repeats a GET on a kept one
	kept  *http.Client // for POST, which it does not repeat
	redis *redis.Client
	conn  *grpc.ClientConn
	grpc  penstockv1.RateLimiterClient
}

func newDoors(dir string, index int) *doors {
	d := &doors{dir: dir, index: index}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.path("http"))
	}
	d.web = &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	d.kept = &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 32}}
	return d
}

// path is that of the socket of a door.
func (d *doors) path(door string) string {
	return filepath.Join(d.dir, fmt.Sprintf("n%d.%s", d.index+1, door))
}

// connect makes connections to a node that has just started, and waits for them.
func (d *doors) connect() (err error) {
	d.closeConnections()
	d.redis = redis.NewClient(&redis.Options{
		Network: "unix", Addr: d.path("redis"), MaxRetries: -1, DialerRetries: 1, Protocol: 2,
		DisableIdentity:       true,
		ContextTimeoutEnabled: true,
	})
	d.conn, err = grpc.NewClient("passthrough:///unix://"+d.path("grpc"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.path("grpc"))
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 20 * time.Millisecond,
				MaxDelay:  100 * time.Millisecond,
			},
			MinConnectTimeout: connecting,
		}),
	)
	if err != nil {
		return err
	}
	d.grpc = penstockv1.NewRateLimiterClient(d.conn)
	ctx, cancel := context.WithTimeout(context.Background(), connecting)
	defer cancel()
	for d.conn.Connect(); ; {
		s := d.conn.GetState()
		if s == connectivity.Ready {
			return d.redis.Ping(ctx).Err()
		}
		if !d.conn.WaitForStateChange(ctx, s) {
			return fmt.Errorf("the gRPC door is %v after %v", s, connecting)
		}
	}
}

func (d *doors) closeConnections() {
	if d.conn != nil {
		_ = d.conn.Close()
		_ = d.redis.Close()
	}
	d.kept.CloseIdleConnections()
}

func (d *doors) close() { d.closeConnections() }

// decision is the JSON of one.
type decision struct {
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"`
	Owner     string `json:"owner"`
	Source    string `json:"source"`
	Degraded  bool   `json:"degraded"`
	Bound     int64  `json:"bound"`
}

func (d *decision) into(o *judge.Op) {
	o.Allowed, o.Remaining, o.Owner, o.Source, o.Mark = d.Allowed, d.Remaining, d.Owner, d.Source,
		judge.Unmarked
	if d.Degraded {
		o.Mark, o.Bound = judge.Marked, d.Bound
	}
}

// get is GET /v1/check.
func (d *doors) get(ctx context.Context, o *judge.Op) error {
	query := url.Values{"limit": {o.Limit}, "key": {o.Key}, "cost": {fmt.Sprint(o.Cost)}}
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodGet,
		"http://node/v1/check?"+query.Encode(),
		nil,
	)
	if err != nil {
		return err
	}
	var answer decision
	if err := ask(d.web, request, &answer); err != nil {
		return err
	}
	answer.into(o)
	return nil
}

func ask(by *http.Client, request *http.Request, into any) error {
	request.Host = "localhost"
	answer, err := by.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	decided := answer.StatusCode == http.StatusOK ||
		answer.StatusCode == http.StatusTooManyRequests &&
			!bytes.Contains(text, []byte(door.Overloaded)) // that is no denial
	if !decided {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return json.Unmarshal(text, into)
}

func (d *doors) post(ctx context.Context, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodPost,
		"http://node"+path,
		bytes.NewReader(text),
	)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	return ask(d.kept, request, into)
}

// items is POST /v1/check with several items.
func (d *doors) items(ctx context.Context, ops []*judge.Op, atomic bool) error {
	body := map[string]any{"atomic": atomic}
	var items []map[string]any
	for _, o := range ops {
		it := map[string]any{"key": o.Key, "cost": o.Cost}
		if inline := inlines[o.Limit]; inline != nil {
			it["inline"] = inline.json()
		} else {
			it["limit"] = o.Limit
		}
		items = append(items, it)
	}
	body["items"] = items
	var answer struct {
		Decisions []decision
		Verdict   struct{ Allowed bool }
	}
	if err := d.post(ctx, "/v1/check", body, &answer); err != nil {
		return err
	}
	if len(answer.Decisions) != len(ops) {
		return fmt.Errorf("%d decisions on %d items", len(answer.Decisions), len(ops))
	}
	for i, o := range ops {
		answer.Decisions[i].into(o)
		o.Refused = atomic && !answer.Verdict.Allowed
	}
	return nil
}

// item is an op as gRPC says it.
func item(o *judge.Op, id *penstockv1.RequestId) *penstockv1.Item {
	it := &penstockv1.Item{Key: []byte(o.Key), Cost: &o.Cost, Id: id}
	if inline := inlines[o.Limit]; inline != nil {
		it.Inline = inline.proto()
	} else {
		it.Limit = o.Limit
	}
	return it
}

func heard(o *judge.Op, d *penstockv1.Decision) {
	o.Allowed, o.Remaining, o.Owner, o.Source, o.Mark = d.Allowed, d.Remaining, d.Owner,
		sources[d.Source], judge.Unmarked
	if d.Degraded {
		o.Mark, o.Bound = judge.Marked, d.Bound
	}
}

var sources = map[penstockv1.Source]string{
	penstockv1.Source_SOURCE_OWNER: "owner", penstockv1.Source_SOURCE_FORWARDED: "forwarded",
	penstockv1.Source_SOURCE_FALLBACK: "fallback", penstockv1.Source_SOURCE_LEASE: "lease",
	penstockv1.Source_SOURCE_REPLICA:      "replica",
	penstockv1.Source_SOURCE_DENIED_CACHE: "denied-cache",
}

// call is Check over gRPC.
func (d *doors) call(
	ctx context.Context,
	ops []*judge.Op,
	atomic bool,
	id *penstockv1.RequestId,
) error {
	in := &penstockv1.CheckRequest{Atomic: atomic}
	for _, o := range ops {
		in.Items = append(in.Items, item(o, id))
	}
	out, err := d.grpc.Check(ctx, in)
	if err != nil {
		return err
	}
	for i, o := range ops {
		heard(o, out.Decisions[i])
		o.Refused = atomic && !out.Verdict.Allowed
	}
	return nil
}

// look is Peek over gRPC.
func (d *doors) look(ctx context.Context, ops []*judge.Op) error {
	in := &penstockv1.PeekRequest{}
	for _, o := range ops {
		it := item(o, nil)
		it.Cost = nil
		in.Items = append(in.Items, it)
	}
	out, err := d.grpc.Peek(ctx, in)
	if err != nil {
		return err
	}
	for i, o := range ops {
		heard(o, out.Decisions[i])
	}
	return nil
}

// throttle is CL.THROTTLE or RL.REDUCE.
func (d *doors) throttle(ctx context.Context, o *judge.Op) error {
	l := inlines[o.Limit]
	o.Mark = judge.Unknown
	if l.bucket {
		tokens, err := d.redis.Do(ctx, "RL.REDUCE", o.Key, l.capacity, l.seconds, "TAKE", o.Cost).
			Int64()
		o.Allowed, o.Remaining = tokens >= o.Cost, tokens
		if o.Allowed {
			o.Remaining -= o.Cost
		}
		return err
	}
	numbers, err := d.redis.Do(ctx, "CL.THROTTLE", o.Key, l.capacity-1, 1, l.seconds, o.Cost).
		Int64Slice()
	if err != nil {
		return err
	}
	if len(numbers) != 5 {
		return fmt.Errorf("%d numbers", len(numbers))
	}
	o.Allowed, o.Remaining = numbers[0] == 0, numbers[2]
	return nil
}

// reserve is POST /v1/reserve, or Reserve over gRPC. It returns the id of the hold.
func (d *doors) reserve(
	ctx context.Context,
	o *judge.Op,
	ttl time.Duration,
) (id string, err error) {
	if o.Door == "http" {
		var answer struct {
			ID string `json:"id"`
			decision
		}
		err := d.post(ctx, "/v1/reserve", map[string]any{
			"limit": o.Limit, "key": o.Key, "cost": o.Cost, "ttl_ms": ttl.Milliseconds(),
		}, &answer)
		answer.into(o)
		return answer.ID, err
	}
	out, err := d.grpc.Reserve(
		ctx,
		&penstockv1.ReserveRequest{
			Items: []*penstockv1.Item{item(o, nil)},
			TtlMs: ttl.Milliseconds(),
		},
	)
	if err != nil {
		return "", err
	}
	if len(out.Holds) != 1 {
		return "", errors.New("no hold in the answer")
	}
	heard(o, out.Holds[0].Decision)
	return out.Holds[0].Id, nil
}

// settle is POST /v1/settle, or Settle over gRPC.
func (d *doors) settle(ctx context.Context, o *judge.Op, id string) error {
	if o.Door == "http" {
		var answer decision
		err := d.post(ctx, "/v1/settle", map[string]any{"id": id, "actual": o.Cost}, &answer)
		answer.into(o)
		return err
	}
	out, err := d.grpc.Settle(ctx, &penstockv1.SettleRequest{Id: id, Actual: o.Cost})
	if err != nil {
		return err
	}
	heard(o, out.Decision)
	return nil
}
