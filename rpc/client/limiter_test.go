package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/limiter"
	"penstock/rpc/client"
)

var (
	_ client.Limiter = (*client.Client)(nil)
	_ client.Limiter = (*client.Fake)(nil)
)

// counting is a Fake that counts as a real limit does, on the clock of the bubble it is in.
func counting(t *testing.T, s limiter.Spec) *client.Fake {
	t.Helper()
	l, err := limiter.New(s)
	if err != nil {
		t.Fatal(err)
	}
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	return &client.Fake{Answer: func(limit, key string, cost int64) (client.Decision, error) {
		d := table.Take(limiter.Instant(time.Now().UnixNano()), l, key, limiter.Hash(key), cost)
		return client.Decision{
			Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
			RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter, Delay: d.Delay, LimitName: limit,
		}, nil
	}}
}

// Promise: Wait returns when the limit has room, and at once if that is too late or never.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := counting(t, limiter.Spec{
			Name: "bucket", Algorithm: limiter.GCRA, Limit: 1,
			Per: time.Second, Burst: 2,
		})
		began := time.Now()
		for i, want := range []time.Duration{0, 0, time.Second, 2 * time.Second, 3 * time.Second} {
			if err := client.Wait(t.Context(), f, "bucket", "k", 1); err != nil ||
				time.Since(began) != want {
				t.Errorf("wait %d: %v after %v, want %v", i+1, err, time.Since(began), want)
			}
		}
		now := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-1)
		defer cancel()
		if err := client.Wait(ctx, f, "bucket", "k", 1); !errors.Is(err, client.ErrTooLate) ||
			time.Since(now) != 0 {
			t.Errorf("a deadline that is too near: %v after %v", err, time.Since(now))
		}
		if err := client.Wait(ctx, f, "bucket", "k", 3); !errors.Is(err, client.ErrNever) ||
			time.Since(now) != 0 {
			t.Errorf("more than ever: %v after %v", err, time.Since(now))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		if err := client.Wait(ctx, f, "bucket", "k", 1); !errors.Is(err, context.Canceled) ||
			time.Since(now) != time.Second/2 {
			t.Errorf("canceled: %v after %v", err, time.Since(now))
		}
		f.Answer = func(string, string, int64) (client.Decision, error) {
			return client.Decision{}, status.Error(codes.NotFound, "no limit of that name")
		}
		if err := client.Wait(t.Context(), f, "none", "k", 1); status.Code(err) != codes.NotFound {
			t.Errorf("an error: %v", err)
		}
	})
}

// Promise: what a node denies because it does not reach the owner is asked for again soon: its
// share may be too small for ever, or used up for an hour.
func TestWaitForAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, retry := range []time.Duration{-1, time.Hour, 10 * time.Millisecond} {
			asked := 0
			f := &client.Fake{Answer: func(string, string, int64) (client.Decision, error) {
				if asked++; asked > 3 {
					return client.Decision{Allowed: true, Source: "owner"}, nil
				}
				return client.Decision{RetryAfter: retry, Source: "fallback", Degraded: true}, nil
			}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			err := client.Wait(ctx, f, "login", "alice", 5)
			if want := 3 * min(uint64(retry), uint64(time.Second)); err != nil ||
				uint64(time.Since(began)) != want {
				t.Errorf("asked again after %v: %v after %v", retry, err, time.Since(began))
			}
			cancel()
		}
	})
}

// Promise: what a limit that shapes admits with a delay is waited for, and not charged where there
// is no time for it.
func TestWaitForAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bounding(t, limiter.Spec{
			Name: "queue", Algorithm: limiter.LeakyBucket, Limit: 1,
			Per: time.Second, Burst: 3,
		})
		began := time.Now()
		for i := range 3 {
			if err := client.Wait(t.Context(), f, "queue", "k", 1); err != nil ||
				time.Since(began) != time.Duration(i)*time.Second {
				t.Errorf("wait %d: %v after %v", i+1, err, time.Since(began))
			}
		}
		now := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		for range 5 {
			if err := client.Wait(ctx, f, "queue", "k", 1); !errors.Is(err, client.ErrTooLate) ||
				time.Since(now) != 0 {
				t.Errorf("%v after %v", err, time.Since(now))
			}
		}
		if err := client.Wait(t.Context(), f, "queue", "k", 1); err != nil ||
			time.Since(now) != time.Second {
			t.Errorf("places that nobody has are taken: %v after %v", err, time.Since(now))
		}
	})
}

// bounding is counting for requests with a bound.
func bounding(t *testing.T, s limiter.Spec) *boundingFake {
	t.Helper()
	l, err := limiter.New(s)
	if err != nil {
		t.Fatal(err)
	}
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	return &boundingFake{Fake: counting(t, s), limit: l, table: table}
}

type boundingFake struct {
	*client.Fake
	limit *limiter.Limit
	table *limiter.Table
}

func (f *boundingFake) Take(
	ctx context.Context, limit, key string, cost int64,
) (client.Decision, error) {
	return f.Do(ctx, client.Request{Limit: limit, Key: key, Cost: cost})
}

func (f *boundingFake) Do(_ context.Context, r client.Request) (client.Decision, error) {
	return f.said(f.table.Do(limiter.Instant(time.Now().UnixNano()), f.limit, r.Key,
		limiter.Hash(r.Key), limiter.Request{
			Cost: r.Cost, Bounded: r.MaxDelay != 0, MaxDelay: max(0, r.MaxDelay),
		}))
}

func (f *boundingFake) Peek(_ context.Context, _, key string, cost int64) (client.Decision, error) {
	return f.said(f.table.Peek(limiter.Instant(time.Now().UnixNano()), f.limit, key,
		limiter.Hash(key), cost))
}

func (f *boundingFake) said(d limiter.Decision) (client.Decision, error) {
	return client.Decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
		RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter, Delay: d.Delay, LimitName: "later",
	}, nil
}

var delaying = limiter.Spec{
	Name: "later", Algorithm: limiter.GCRA, Limit: 1, Per: time.Second, Burst: 1,
	OnDeny: limiter.DenyDelay, MaxDelay: 10 * time.Second,
}

// Promise: under a limit with on_deny: delay, callers that wait are served in order, and a caller
// with a deadline that is too near charges nothing and takes no turn.
func TestWaitForADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bounding(t, delaying)
		began := time.Now()
		for i := range 3 {
			if err := client.Wait(t.Context(), f, "later", "k", 1); err != nil ||
				time.Since(began) != time.Duration(i)*time.Second {
				t.Errorf("wait %d: %v after %v", i+1, err, time.Since(began))
			}
		}
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			err := client.Wait(ctx, f, "later", "k", 1)
			cancel()
			if !errors.Is(err, client.ErrTooLate) || time.Since(began) > 2*time.Second {
				t.Errorf("a deadline that is too near: %v after %v", err, time.Since(began))
			}
		}
		if err := client.Wait(t.Context(), f, "later", "k", 1); err != nil ||
			time.Since(began) != 3*time.Second {
			t.Errorf("no turn was taken: %v after %v", err, time.Since(began))
		}
		// A deadline that is far enough, though the limit refuses at first.
		for range 10 {
			f.Take(t.Context(), "later", "k", 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := client.Wait(ctx, f, "later", "k", 1); err != nil ||
			time.Since(began) != 14*time.Second {
			t.Errorf("after a denial: %v after %v", err, time.Since(began))
		}
		// One that is between: the limit bears it, and the caller does not.
		for range 5 {
			f.Take(t.Context(), "later", "k", 1)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := client.Wait(ctx, f, "later", "k", 1); err == nil ||
			time.Since(began) > 18*time.Second {
			t.Errorf("six seconds of four: %v after %v", err, time.Since(began))
		}
	})
}

// Promise: middleware waits for a delay before it passes a request on; if its client goes away
// meanwhile, the handler is not called, and the units come back when the turn has come.
func TestMiddlewareWaitsForADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bounding(t, delaying)
		began, served := time.Now(), 0
		h := client.HTTPMiddleware{
			Limiter: f, Limit: client.FixedLimit("later"),
			Key: func(*http.Request) string { return "k" },
		}.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served++
			if d, _ := client.DecisionOf(r.Context()); time.Since(began) < d.Delay {
				t.Errorf("served after %v of %v", time.Since(began), d.Delay)
			}
		}))
		ask := func(ctx context.Context) int {
			rw := httptest.NewRecorder()
			h.ServeHTTP(rw, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			return rw.Code
		}
		for i := range 2 {
			if code := ask(t.Context()); code != 200 || served != i+1 ||
				time.Since(began) != time.Duration(i)*time.Second {
				t.Errorf("%d: %d, %d served after %v", i, code, served, time.Since(began))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/4, cancel)
		if code := ask(ctx); code != 503 || served != 2 {
			t.Errorf("gone away: %d, %d served", code, served)
		}
		time.Sleep(time.Second)
		if d, _ := f.Peek(t.Context(), "later", "k", 1); d.Delay != 0 {
			t.Errorf("its units have not come back: %+v", d)
		}
	})
}

// Promise: a delay beyond the deadline of a request is a denial, at the middleware and at the
// interceptors: the caller hears when to come again, and is not told that the service is
// unavailable. Nothing stays charged, also by a limiter that knows of no bound.
func TestDelayBeyondTheDeadlineIsADenial(t *testing.T) {
	for what, later := range map[string]func(*boundingFake) client.Limiter{
		"bounds": func(f *boundingFake) client.Limiter { return f },
		"none":   func(f *boundingFake) client.Limiter { return boundless{f} },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := bounding(t, delaying)
			f.Take(t.Context(), "later", "k", 1)
			f.Take(t.Context(), "later", "k", 1) // the next one has its turn in 2 s
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			h := client.HTTPMiddleware{
				Limiter: later(f), Limit: client.FixedLimit("later"),
				Key: func(*http.Request) string { return "k" },
			}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Errorf("%s: a request is passed on", what)
			}))
			rw := httptest.NewRecorder()
			h.ServeHTTP(rw, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			after := rw.Header().Get("Retry-After")
			if rw.Code != http.StatusTooManyRequests || after != "1" && after != "2" {
				t.Errorf("%s: %d, Retry-After %q", what, rw.Code, after)
			}
			_, err := client.Interceptors{
				Limiter: later(f), Limit: func(context.Context, string) string { return "later" },
				Key: func(context.Context, string) string { return "k" },
			}.Unary()(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
				t.Errorf("%s: a call is passed on", what)
				return nil, nil
			})
			if s := status.Convert(err); s.Code() != codes.ResourceExhausted ||
				len(s.Details()) != 1 {
				t.Errorf("%s: %v", what, err)
			}
			time.Sleep(4 * time.Second)
			if d, _ := f.Peek(t.Context(), "later", "k", 1); d.Delay != 0 {
				t.Errorf("%s: the next one waits for %v: a unit is lost", what, d.Delay)
			}
		})
	}
}

// Promise: the units of a caller that cannot wait for its turn come back when that has come, also
// if the limiter knows of no bound: before, they would be lost.
func TestUnitsOfADelayComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := boundless{bounding(t, delaying)}
		f.Take(t.Context(), "later", "k", 1)
		f.Take(t.Context(), "later", "k", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := client.Wait(ctx, f, "later", "k", 1); !errors.Is(err, client.ErrTooLate) {
			t.Errorf("%v, want ErrTooLate", err)
		}
		time.Sleep(2*time.Second + time.Millisecond) // until the turn of the one that was too late
		if d, _ := f.Peek(t.Context(), "later", "k", 1); d.Delay != 0 {
			t.Errorf("the next one waits for %v: a unit is lost", d.Delay)
		}
	})
}

// boundless is a limiter that knows of no bound.
type boundless struct{ *boundingFake }

func (f boundless) Do(ctx context.Context, r client.Request) (client.Decision, error) {
	return f.Take(ctx, r.Limit, r.Key, r.Cost)
}

func TestAllow(t *testing.T) {
	_, addr := serveNode(t, "n1")
	c := newClient(t, addr)
	ctx := patience(t)
	for i, want := range []bool{true, true, true, false} {
		if ok, err := c.AllowN(ctx, "five", "k", int64(1+i%2)); ok != want || err != nil {
			t.Errorf("allow %d: %v, %v", i+1, ok, err)
		}
	}
	if ok, err := c.Allow(ctx, "five", "k"); !ok || err != nil {
		t.Errorf("the fifth: %v, %v", ok, err)
	}
	if d, err := c.Peek(ctx, "five", "k", 1); d.Allowed || d.Remaining != 0 || err != nil {
		t.Errorf("peek: %+v, %v", d, err)
	}
	if d, err := c.Peek(ctx, "five", "other", 0); !d.Allowed || d.Remaining != 5 ||
		d.LimitName != "five" || err != nil {
		t.Errorf("peek: %+v, %v", d, err)
	}
	if err := c.Wait(ctx, "five", "k", 6); !errors.Is(err, client.ErrNever) {
		t.Errorf("wait: %v", err)
	}
	if _, err := c.Allow(ctx, "none", "k"); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown limit: %v", err)
	}
}

// Promise: while no node answers, a client does what it was told to do then; what a node refuses
// stays refused.
func TestOnError(t *testing.T) {
	local := []limiter.Spec{{Name: "five", Algorithm: limiter.GCRA, Limit: 2, Per: time.Hour}}
	for _, c := range []struct {
		config client.Config
		limit  string
		want   []client.Decision // without the waits
		code   codes.Code
	}{
		{client.Config{}, "five", nil, codes.Unavailable},
		{
			client.Config{OnError: client.FailOpen},
			"five",
			[]client.Decision{{Allowed: true, Bound: -1}},
			0,
		},
		{client.Config{OnError: client.FailClosed}, "five", []client.Decision{{}}, 0},
		{client.Config{OnError: client.FailLocal, Local: local}, "other", nil, codes.Unavailable},
		{client.Config{OnError: client.FailLocal, Local: local}, "five", []client.Decision{
			{Allowed: true, Bound: 2, Limit: 2, Remaining: 1},
			{Allowed: true, Bound: 2, Limit: 2},
			{Bound: 2, Limit: 2},
		}, 0},
	} {
		c.config.Targets = []string{deadAddress(t)}
		n, err := client.New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range append(c.want, make([]client.Decision, max(0, 1-len(c.want)))...) {
			got, err := n.Take(patience(t), c.limit, "k", 1)
			if status.Code(err) != c.code {
				t.Errorf("%+v: %v", c.config, err)
				break
			}
			if err != nil {
				continue
			}
			if !got.Allowed && got.RetryAfter <= 0 {
				t.Errorf("%+v: a denial that does not say when to come again: %+v", c.config, got)
			}
			want.LimitName, want.Source, want.Degraded = c.limit, "client", true
			want.RetryAfter, want.ResetAfter = got.RetryAfter, got.ResetAfter
			if got != want {
				t.Errorf("%+v:\n got %+v\nwant %+v", c.config, got, want)
			}
		}
		if d, err := n.Peek(patience(t), c.limit, "new", 1); status.Code(err) != c.code ||
			err == nil && d.Allowed != (c.config.OnError != client.FailClosed) {
			t.Errorf("%+v: peek: %+v, %v", c.config, d, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if d, err := n.Take(gone, c.limit, "k", 1); err == nil {
			t.Errorf("%+v: a caller who has gone is answered %+v", c.config, d)
		}
		n.Close()
	}

	_, addr := serveNode(t, "n1")
	open, err := client.New(client.Config{Targets: []string{addr}, OnError: client.FailOpen})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := open.Take(patience(t), "none", "k", 1); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown limit fails open: %v", err)
	}
	for _, bad := range []client.Config{
		{OnError: client.FailLocal},
		{OnError: client.FailOpen, Local: local},
		{OnError: client.FailLocal + 1},
		{OnError: client.FailLocal, Local: []limiter.Spec{{Name: "bad"}}},
	} {
		bad.Targets = []string{addr}
		if _, err := client.New(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestFake(t *testing.T) {
	f := new(client.Fake)
	if d, err := f.Take(t.Context(), "login", "alice", 2); !d.Allowed || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
	f.Answer = func(limit, key string, cost int64) (client.Decision, error) {
		return client.Decision{Allowed: key == "alice"}, nil
	}
	if ok, err := client.Allow(t.Context(), f, "login", "bob"); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	if d, err := f.Peek(t.Context(), "login", "alice", 0); !d.Allowed || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Take(gone, "login", "alice", 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	report := client.Request{
		Limit: "login", Key: "alice", Cost: 9, Report: true,
		At: time.Unix(5, 0),
	}
	if _, err := f.Do(t.Context(), report); err != nil {
		t.Error(err)
	}
	r, err := f.Reserve(t.Context(), "login", "alice", 7, time.Minute)
	if err != nil || r.Settle(t.Context(), 3) != nil {
		t.Error(err)
	}
	if no, err := f.Reserve(t.Context(), "login", "bob", 7, time.Minute); err != nil ||
		no.Allowed || no.Settle(t.Context(), 3) != nil {
		t.Error(err)
	}
	asked := func(key string, cost int64, peek bool) client.FakeCall {
		return client.FakeCall{
			Request: client.Request{Limit: "login", Key: key, Cost: cost},
			Peek:    peek,
		}
	}
	want := []client.FakeCall{
		asked("alice", 2, false), asked("bob", 1, false),
		asked("alice", 0, true), asked("alice", 1, false),
		{Request: report},
	}
	set := func(key string, cost int64) client.Request {
		return client.Request{Limit: "login", Key: key, Cost: cost}
	}
	want = append(want, client.FakeCall{Request: set("alice", 7), Reserve: true},
		client.FakeCall{Request: set("alice", 3), Settle: true}, client.FakeCall{
			Request: set("bob", 7), Reserve: true,
		})
	got := f.Calls()
	if len(got) != len(want) {
		t.Fatalf("asked %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("asked %v, want %v", got[i], want[i])
		}
	}
}
