package gubernator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	guber "github.com/mailgun/gubernator/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nodes are the client doors of three Penstock nodes.
var nodes []string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		stop, err := start()
		defer stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// start builds Penstock and runs three nodes of it, which know each other when it returns.
func start() (stop func(), err error) {
	var started []*exec.Cmd
	dir, err := os.MkdirTemp("", "gubernator")
	stop = func() {
		for _, c := range started {
			c.Process.Kill()
			c.Wait()
		}
		os.RemoveAll(dir)
	}
	if err != nil {
		return stop, err
	}
	binary := filepath.Join(dir, "penstock")
	build := exec.Command("go", "build", "-o", binary, "./cmd/node")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return stop, fmt.Errorf("%w\n%s", err, out)
	}
	ports, err := freePorts(12)
	if err != nil {
		return stop, err
	}
	for i := range 3 {
		p := ports[4*i:]
		c := exec.Command(binary, "serve", "--name", fmt.Sprint("n", i+1), "--gossip", p[0],
			"--peer", p[1], "--grpc", p[2],
			"--http", p[3], "--redis", "off", "--join", ports[0], "--cluster", filepath.Base(dir))
		if i == 0 {
			c.Args = append(c.Args[:len(c.Args)-4], c.Args[len(c.Args)-2:]...)
		}
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return stop, err
		}
		started = append(started, c)
		nodes = append(nodes, p[2])
	}
	for i := range 3 {
		if err := wait(ports[4*i+3]); err != nil {
			return stop, err
		}
	}
	return stop, nil
}

// freePorts are addresses on loopback that were free a moment ago.
func freePorts(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// wait returns when the node at this address sees three active members.
func wait(address string) error {
	end := time.Now().Add(time.Minute)
	for time.Now().Before(end) {
		if answer, err := http.Get("http://" + address + "/v1/members"); err == nil {
			b := new(strings.Builder)
			answer.Write(b)
			answer.Body.Close()
			if strings.Count(b.String(), `"state":"active"`) == 3 {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s sees no cluster of three", address)
}

func client(t *testing.T, i int) guber.V1Client {
	t.Helper()
	c, err := guber.DialV1Server(nodes[i%len(nodes)], nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends one request to one node after the other.
func ask(t *testing.T, i int, r *guber.RateLimitReq) *guber.RateLimitResp {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := client(t, i).GetRateLimits(ctx,
		&guber.GetRateLimitsReq{Requests: []*guber.RateLimitReq{r}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Responses[0]
}

const (
	under, over = guber.Status_UNDER_LIMIT, guber.Status_OVER_LIMIT
	leaky       = guber.Algorithm_LEAKY_BUCKET
)

type row struct {
	hits      int64
	remaining int64
	status    guber.Status
}

// The rows of Gubernator's own functional tests that need no waiting, each request at another node
// than the last.
func TestBehaviours(t *testing.T) {
	const minute = 60 * guber.Second
	for name, c := range map[string]struct {
		base *guber.RateLimitReq
		rows []row
	}{
		"TestOverTheLimit": {
			&guber.RateLimitReq{Limit: 2, Duration: minute},
			[]row{{1, 1, under}, {1, 0, under}, {1, 0, over}},
		},
		"TestTokenBucketNegativeHits": {
			&guber.RateLimitReq{Limit: 2, Duration: minute},
			[]row{{-1, 3, under}, {-1, 4, under}, {4, 0, under}, {-1, 1, under}},
		},
		"TestDrainOverLimit/token": {
			&guber.RateLimitReq{
				Limit: 10, Duration: minute,
				Behavior: guber.Behavior_DRAIN_OVER_LIMIT,
			},
			[]row{{0, 10, under}, {1, 9, under}, {100, 0, over}, {0, 0, under}},
		},
		"TestDrainOverLimit/leaky": {
			&guber.RateLimitReq{
				Limit:    10,
				Duration: 60 * minute, Algorithm: leaky, Behavior: guber.Behavior_DRAIN_OVER_LIMIT,
			},
			[]row{{0, 10, under}, {1, 9, under}, {100, 0, over}, {0, 0, under}},
		},
		"TestTokenBucketRequestMoreThanAvailable": {&guber.RateLimitReq{
			Limit:    2000,
			Duration: minute,
		}, []row{
			{1000, 1000, under},
			{1500, 1000, over},
			{500, 500, under},
			{400, 100, under},
			{100, 0, under},
			{1, 0, over},
		}},
		"TestLeakyBucketRequestMoreThanAvailable": {
			&guber.RateLimitReq{
				Limit:    2000,
				Duration: 60 * 60 * minute, Algorithm: leaky,
			},
			[]row{
				{1000, 1000, under},
				{1500, 1000, over},
				{500, 500, under},
				{400, 100, under},
				{100, 0, under},
				{1, 0, over},
			},
		},
		"TestLeakyBucketNegativeHits": {
			&guber.RateLimitReq{
				Limit:    10,
				Duration: 60 * minute, Algorithm: leaky,
			},
			[]row{{1, 9, under}, {-1, 10, under}, {10, 0, under}, {-1, 1, under}},
		},
		"TestLeakyBucketWithBurst": {
			&guber.RateLimitReq{
				Limit: 10, Burst: 20,
				Duration: 60 * minute, Algorithm: leaky,
			},
			[]row{{1, 19, under}, {1, 18, under}, {18, 0, under}, {1, 0, over}},
		},
		"TestLeakyBucketDivBug": {
			&guber.RateLimitReq{
				Limit:    2000,
				Duration: 60 * 60 * minute, Algorithm: leaky,
			},
			[]row{{1, 1999, under}, {100, 1899, under}},
		},
		"TestGlobalRateLimits": {
			&guber.RateLimitReq{
				Limit: 5, Duration: minute,
				Behavior: guber.Behavior_GLOBAL,
			},
			[]row{
				{1, 4, under},
				{2, 2, under},
				{0, 2, under},
				{0, 2, under},
				{2, 0, under},
				{1, 0, over},
			},
		},
		"TestTokenBucketGregorian": {
			&guber.RateLimitReq{
				Limit:    60,
				Duration: guber.GregorianYears, Behavior: guber.Behavior_DURATION_IS_GREGORIAN,
			},
			[]row{{1, 59, under}, {1, 58, under}, {58, 0, under}, {1, 0, over}},
		},
		"weeks": {&guber.RateLimitReq{
			Limit:    60,
			Duration: guber.GregorianWeeks, Behavior: guber.Behavior_DURATION_IS_GREGORIAN,
			Algorithm: leaky,
		}, []row{{60, 0, under}, {1, 0, over}}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, want := range c.rows {
				r := &guber.RateLimitReq{
					Name: name, UniqueKey: "account:1234", Hits: want.hits, Limit: c.base.Limit,
					Burst:    c.base.Burst,
					Duration: c.base.Duration, Algorithm: c.base.Algorithm,
					Behavior: c.base.Behavior,
				}
				got := ask(t, i, r)
				if got.Status != want.status || got.Remaining != want.remaining ||
					got.Limit != r.Limit || got.Error != "" ||
					got.ResetTime < time.Now().Add(-time.Second).UnixMilli() {
					t.Errorf("row %d: %v, want %+v", i+1, got, want)
				}
				if owner := got.Metadata["owner"]; owner != nodes[0] && owner != nodes[1] &&
					owner != nodes[2] {
					t.Errorf("row %d: the owner is %q", i+1, owner)
				}
			}
		})
	}
}

// TestChangeLimit and TestResetRemaining, of Gubernator.
func TestChanges(t *testing.T) {
	for i, c := range []struct {
		algorithm guber.Algorithm
		limit     int64
		behavior  guber.Behavior
		remaining int64
	}{
		{0, 100, 0, 99},
		{0, 100, 0, 98},
		{0, 10, 0, 7},
		{0, 10, 0, 6},
		{0, 200, 0, 195},
		{leaky, 100, 0, 99},
		{leaky, 10, 0, 9},
		{leaky, 10, 0, 8},
		{leaky, 10, guber.Behavior_RESET_REMAINING, 10},
		{leaky, 10, 0, 9},
		{0, 100, guber.Behavior_RESET_REMAINING, 100},
		{0, 100, 0, 99},
	} {
		got := ask(t, i, &guber.RateLimitReq{
			Name: "test_change_limit", UniqueKey: "account:1234", Algorithm: c.algorithm,
			Behavior: c.behavior, Duration: 9_000_000, Limit: c.limit, Hits: 1,
		})
		if got.Status != under || got.Remaining != c.remaining || got.Limit != c.limit ||
			got.ResetTime == 0 {
			t.Errorf("row %d: %v, want %d remaining", i+1, got, c.remaining)
		}
	}
}

func TestMissingFields(t *testing.T) {
	for i, c := range []struct {
		request *guber.RateLimitReq
		status  guber.Status
		err     string
	}{
		{&guber.RateLimitReq{Name: "missing", UniqueKey: "a", Hits: 1, Limit: 10}, under, ""},
		{&guber.RateLimitReq{Name: "missing", UniqueKey: "b", Hits: 1, Duration: 10_000}, over, ""},
		{
			&guber.RateLimitReq{UniqueKey: "a", Hits: 1, Duration: 10_000, Limit: 5}, under,
			"field 'namespace' cannot be empty",
		},
		{
			&guber.RateLimitReq{Name: "missing", Hits: 1, Duration: 10_000, Limit: 5}, under,
			"field 'unique_key' cannot be empty",
		},
	} {
		if got := ask(t, i, c.request); got.Status != c.status || got.Error != c.err {
			t.Errorf("%v: %v", c.request, got)
		}
	}
}

// A window ends at one time, on every node.
func TestOneResetTime(t *testing.T) {
	want := int64(0)
	for i := range 9 {
		got := ask(t, i, &guber.RateLimitReq{
			Name: "reset", UniqueKey: "k", Hits: 1, Limit: 100,
			Duration: 600_000,
		})
		if want == 0 {
			want = got.ResetTime
		}
		// clocks of three nodes, and a busy machine
		if diff := got.ResetTime - want; diff < -50 || diff > 50 {
			t.Errorf("request %d: %d ms away from the first", i+1, diff)
		}
	}
}

func TestBatch(t *testing.T) {
	in := &guber.GetRateLimitsReq{}
	for i := range 1000 {
		in.Requests = append(in.Requests, &guber.RateLimitReq{
			Name:      "batch",
			UniqueKey: fmt.Sprint(i), Hits: int64(i % 7), Limit: 10, Duration: 600_000,
		})
	}
	out, err := client(t, 0).GetRateLimits(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]bool{}
	for i, r := range out.Responses {
		if r.Remaining != 10-int64(i%7) || r.Status != under || r.Error != "" {
			t.Fatalf("request %d: %v", i, r)
		}
		owners[r.Metadata["owner"]] = true
	}
	if len(owners) != 3 {
		t.Errorf("owners: %v", owners)
	}
	in.Requests = append(in.Requests, &guber.RateLimitReq{
		Name: "batch", UniqueKey: "k", Hits: 1,
		Limit: 10, Duration: 1,
	})
	if _, err := client(t, 0).GetRateLimits(t.Context(), in); status.Code(err) != codes.OutOfRange {
		t.Errorf("a thousand and one: %v", err)
	}
}

func TestHealthCheck(t *testing.T) {
	for i := range 3 {
		if h, err := client(t, i).HealthCheck(t.Context(), &guber.HealthCheckReq{}); err != nil ||
			h.Status != "healthy" || h.PeerCount != 3 || h.Message != "" {
			t.Errorf("%v, %v", h, err)
		}
	}
}

// Promise: no more are admitted than the limit says, whichever nodes are asked. (995 of 100 were,
// with GLOBAL.)
func TestExactlyTheLimit(t *testing.T) {
	var wg sync.WaitGroup
	var admitted atomic.Int64
	for i := range 30 {
		c := client(t, i)
		wg.Go(func() {
			for range 20 {
				out, err := c.GetRateLimits(context.Background(),
					&guber.GetRateLimitsReq{Requests: []*guber.RateLimitReq{
						{
							Name: "exact", UniqueKey: "k", Hits: 1, Limit: 100, Duration: 600_000,
							Behavior: guber.Behavior_GLOBAL,
						},
					}})
				if err == nil && out.Responses[0].Status == under {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != 100 {
		t.Errorf("%d of 100 were admitted", n)
	}
}

// Promise: a request is charged once, however short the patience of its client. (300 requests of
// one hit were charged 1,077 hits elsewhere.)
func TestNothingIsChargedTwice(t *testing.T) {
	const requests, limit = 300, 1_000_000
	r := &guber.RateLimitReq{
		Name: "patience", UniqueKey: "k", Hits: 1, Limit: limit,
		Duration: 600_000,
	}
	var wg sync.WaitGroup
	for i := range 3 {
		c := client(t, i)
		for n := range requests / 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(),
					time.Duration(n)*20*time.Microsecond)
				defer cancel()
				c.GetRateLimits(ctx, &guber.GetRateLimitsReq{Requests: []*guber.RateLimitReq{r}})
			})
		}
	}
	wg.Wait()
	probe := &guber.RateLimitReq{
		Name: r.Name, UniqueKey: r.UniqueKey, Limit: limit,
		Duration: r.Duration,
	}
	if charged := limit - ask(t, 0, probe).Remaining; charged > requests {
		t.Errorf("%d hits were charged for %d requests", charged, requests)
	}
}
