package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/limiter"
	"penstock/rpc/clock"
)

// OnError is the answer of Take, Do and Peek while no node can be reached, or none answers in time.
// (If a node answers but cannot reach a key's owner, the limit's own on_error applies instead.)
type OnError uint8

const (
	Fail       OnError = iota // return the error
	FailOpen                  // admit; the decision is degraded, without a bound
	FailClosed                // deny, with a RetryAfter of a second
	// decide by Config.Local, degraded; the error for limits that it does not have
	FailLocal
)

// closedRetry is the RetryAfter of FailClosed.
const closedRetry = time.Second

// fallback decides without any node.
type fallback struct {
	on     OnError
	limits map[string]*limiter.Limit
	table  *limiter.Table
	clock  *clock.Clock // setting the wall clock changes no decision
}

// now is an instant on this process's monotonic clock.
func (c *Client) now() limiter.Instant { return c.fallback.clock.Now() }

// localBytes is the memory for local decisions. It is allocated as keys come.
const localBytes = 4 << 20

func newFallback(c Config) (fallback, error) {
	f := fallback{on: c.OnError, clock: clock.New()}
	switch {
	case c.OnError > FailLocal:
		return f,
			fmt.Errorf("client: Config.OnError is %d; Fail, FailOpen, FailClosed and FailLocal "+
				"are there", c.OnError)
	case (c.OnError == FailLocal) != (len(c.Local) > 0):
		return f,
			fmt.Errorf("client: Config.Local has %d limits; FailLocal needs some, and nothing "+
				"else does", len(c.Local))
	case c.OnError != FailLocal:
		return f, nil
	}
	f.limits = make(map[string]*limiter.Limit)
	for _, s := range c.Local {
		l, err := limiter.New(s)
		if err != nil {
			return f, fmt.Errorf("client: Config.Local: limit %q: %w", s.Name, err)
		}
		f.limits[s.Name] = l
	}
	f.table = limiter.NewTable(limiter.TableConfig{Bytes: localBytes})
	return f, nil
}

// decide answers in place of a node that failed with err, or returns err.
func (f *fallback) decide(ctx context.Context, err error, limit string,
	ask func(limiter.Instant, *limiter.Limit) limiter.Decision,
) (Decision, error) {
	if ctx.Err() == context.Canceled { // the call may have failed before that showed
		return Decision{}, status.FromContextError(ctx.Err()).Err()
	}
	if !nobodyAnswers(err) {
		return Decision{}, err
	}
	d := Decision{LimitName: limit, RetryAfter: -1, Source: "client", Degraded: true}
	switch f.on {
	case FailOpen:
		d.Allowed, d.Bound = true, -1
		return d, nil
	case FailClosed:
		d.RetryAfter = closedRetry
		return d, nil
	case FailLocal:
		if l := f.limits[limit]; l != nil {
			x := ask(f.clock.Now(), l)
			d.Allowed, d.Limit, d.Remaining = x.Allowed, x.Limit, x.Remaining
			d.RetryAfter, d.ResetAfter, d.Delay, d.Bound, d.Drained = x.RetryAfter, x.ResetAfter,
				x.Delay, x.Limit, x.Drained
			return d, nil
		}
	}
	return Decision{}, err
}

// nobodyAnswers reports whether err means that no node answered. It does not if a node refused, or
// if the caller canceled.
func nobodyAnswers(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	}
	return false
}

// take and peek are Take and Peek without any node.
func (f *fallback) take(ctx context.Context, err error, r Request) (Decision, error) {
	at := limiter.Millis(max(0, r.At.UnixMilli()))
	ask := func(now limiter.Instant, l *limiter.Limit) limiter.Decision {
		return f.table.Do(now, l, r.Key, limiter.Hash(r.Key), limiter.Request{
			Cost: r.Cost, Report: r.Report, Drain: r.Drain, Strict: r.Strict, At: at,
			Timed: !r.At.IsZero(), Bounded: r.MaxDelay != 0, MaxDelay: max(0, r.MaxDelay),
		})
	}
	return f.decide(ctx, err, r.Limit, ask)
}

func (f *fallback) peek(
	ctx context.Context, err error, limit, key string, cost int64,
) (Decision, error) {
	ask := func(now limiter.Instant, l *limiter.Limit) limiter.Decision {
		return f.table.Peek(now, l, key, limiter.Hash(key), cost)
	}
	return f.decide(ctx, err, limit, ask)
}
