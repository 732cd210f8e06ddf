package client

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/limiter"
)

// OnError says what Take, Do and Peek of a Client answer while no node does: none can be reached, or none answers in time.
// (A node that answers while a key's owner cannot be reached goes by the limit's own on_error instead.)
type OnError uint8

const (
	Fail       OnError = iota // the error
	FailOpen                  // yes, degraded without bound
	FailClosed                // no, to be tried again in a second
	FailLocal                 // what Config.Local says, degraded; the error for limits that it does not have
)

// closedRetry is the RetryAfter of FailClosed.
const closedRetry = time.Second

// fallback decides without any node.
type fallback struct {
	on     OnError
	limits map[string]*limiter.Limit
	table  *limiter.Table
	start  time.Time // wall and monotonic clock, read once: who sets the wall clock changes no decision
}

func (f *fallback) now() limiter.Instant {
	return limiter.Instant(f.start.UnixNano()).Add(time.Since(f.start))
}

// now is an instant on this process's monotonic clock.
func (c *Client) now() limiter.Instant { return c.fallback.now() }

// localBytes is the memory for local decisions, taken as keys come.
const localBytes = 4 << 20

func newFallback(c Config) (fallback, error) {
	f := fallback{on: c.OnError, start: time.Now()}
	switch {
	case c.OnError > FailLocal:
		return f, fmt.Errorf("client: Config.OnError is %d; Fail, FailOpen, FailClosed and FailLocal are there", c.OnError)
	case (c.OnError == FailLocal) != (len(c.Local) > 0):
		return f, fmt.Errorf("client: Config.Local has %d limits; FailLocal needs some, and nothing else does", len(c.Local))
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

// decide answers instead of a node that failed with err, or passes err on.
func (f *fallback) decide(err error, limit string, ask func(limiter.Instant, *limiter.Limit) limiter.Decision) (Decision, error) {
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
			x := ask(f.now(), l)
			d.Allowed, d.Limit, d.Remaining = x.Allowed, x.Limit, x.Remaining
			d.RetryAfter, d.ResetAfter, d.Delay, d.Bound, d.Drained = x.RetryAfter, x.ResetAfter, x.Delay, x.Limit, x.Drained
			return d, nil
		}
	}
	return Decision{}, err
}

// nobodyAnswers reports whether err says that no node did, and not that one refused, or that the caller has gone.
func nobodyAnswers(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	}
	return false
}

// take and peek are Take and Peek without any node.
func (f *fallback) take(err error, r Request) (Decision, error) {
	at := limiter.Millis(max(0, r.At.UnixMilli()))
	return f.decide(err, r.Limit, func(now limiter.Instant, l *limiter.Limit) limiter.Decision {
		return f.table.Do(now, l, r.Key, limiter.Hash(r.Key), limiter.Request{
			Cost: r.Cost, Report: r.Report, Drain: r.Drain, Strict: r.Strict, At: at, Timed: !r.At.IsZero(),
		})
	})
}

func (f *fallback) peek(err error, limit, key string, cost int64) (Decision, error) {
	return f.decide(err, limit, func(now limiter.Instant, l *limiter.Limit) limiter.Decision {
		return f.table.Peek(now, l, key, limiter.Hash(key), cost)
	})
}
