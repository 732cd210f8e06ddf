package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/limiter"
)

// Limiter is the part of Penstock that a program needs, to be passed around instead of a *Client.
// It is implemented by Client, by a node embedded in the program (package penstock/embedded) and,
// for tests, by Fake. Its methods are safe for concurrent use. After an error nothing was charged,
// except that UNAVAILABLE, DEADLINE_EXCEEDED, CANCELED and INTERNAL leave it unknown.
type Limiter interface {
	// Take charges key cost units of the named limit. A cost of 0 reports the state, a negative one
	// gives back.
	Take(ctx context.Context, limit, key string, cost int64) (Decision, error)
	// Do is Take for a Request, which may also report, drain, state its time or bound its delay.
	Do(ctx context.Context, r Request) (Decision, error)
	// Peek answers as Take would, and changes nothing.
	Peek(ctx context.Context, limit, key string, cost int64) (Decision, error)
	// Reserve reserves estimate units of key until the reservation is settled, or until ttl is
	// over.
	Reserve(ctx context.Context, limit, key string, estimate int64,
		ttl time.Duration) (*Reservation, error)
}

// Allow charges one unit, and reports whether it was admitted.
func Allow(ctx context.Context, l Limiter, limit, key string) (bool, error) {
	return AllowN(ctx, l, limit, key, 1)
}

// AllowN charges n units at once, and reports whether they were admitted.
func AllowN(ctx context.Context, l Limiter, limit, key string, n int64) (bool, error) {
	d, err := l.Take(ctx, limit, key, n)
	return d.Allowed, err
}

// ErrTooLate says that a limit would admit the request, but only after the context's deadline.
// Nothing was charged.
var ErrTooLate = errors.New("not admitted before the deadline")

// ErrNever says that a limit never admits that much at once, however long the caller waits. Nothing
// was charged.
var ErrNever = errors.New("more than the limit ever admits at once")

// fallbackRetry is how long a caller waits at most that a node has denied which could not reach the
// owner of the key: its share may never admit what the limit does, and the owner may be back any
// moment.
const fallbackRetry = time.Second

// again is how long a caller waits that d denies; below zero, no wait helps.
func again(d *Decision) time.Duration {
	if d.Source == fallbackSource && (d.RetryAfter < 0 || d.RetryAfter > fallbackRetry) {
		return fallbackRetry
	}
	return d.RetryAfter
}

// Wait charges key cost units of the named limit, as soon as they are admitted. If the deadline of
// ctx comes first, it fails at once, with ErrTooLate; if no wait helps, with ErrNever. Callers that
// wait for one key are not served in order: each asks again when the limit said that there
// would be room. If a limit admits with a delay (on_deny: delay, leaky_bucket), Wait waits for the
// delay too, and those callers are served in order. If ctx ends meanwhile, the cost is given back.
func Wait(ctx context.Context, l Limiter, limit, key string, cost int64) error {
	deadline, limited := ctx.Deadline()
	for {
		r := Request{Limit: limit, Key: key, Cost: cost}
		r.boundBy(ctx)
		d, err := l.Do(ctx, r)
		if err != nil {
			return err
		}
		if d.Allowed {
			return waitDelay(ctx, l, &r, d.Delay)
		}
		wait := again(&d)
		switch turn := max(wait, d.Delay); {
		case wait < 0:
			return fmt.Errorf("limit %q, key %q, cost %d: %w", limit, key, cost, ErrNever)
		case limited && time.Until(deadline) < turn:
			return fmt.Errorf("limit %q, key %q: admitted in %v: %w", limit, key, turn, ErrTooLate)
		}
		if err := sleep(ctx, max(wait, time.Millisecond)); err != nil {
			return err
		}
	}
}

// boundBy has a charge bear no delay beyond the deadline of ctx, if it has one.
func (r *Request) boundBy(ctx context.Context) {
	deadline, limited := ctx.Deadline()
	if !limited || r.Cost <= 0 {
		return
	}
	r.MaxDelay = min(time.Until(deadline), limiter.LongestDelay)
	if r.MaxDelay < time.Millisecond { // zero would be no bound
		r.MaxDelay = -1
	}
}

// takeInTime charges r and waits for its delay. Where the delay would end after the deadline of
// ctx, the request is denied; by a limiter without bounds it is charged, and the cost comes back
// when its turn has come.
func takeInTime(ctx context.Context, l Limiter, r Request) (Decision, error) {
	r.boundBy(ctx)
	d, err := l.Do(ctx, r)
	if err != nil || !d.Allowed {
		return d, err
	}
	if err = waitDelay(ctx, l, &r, d.Delay); errors.Is(err, ErrTooLate) {
		d.Allowed, d.RetryAfter = false, d.Delay
		return d, nil
	}
	return d, err
}

// waitDelay waits for the delay of r, which was admitted with it. If ctx ends before, it gives the
// cost back.
func waitDelay(ctx context.Context, l Limiter, r *Request, delay time.Duration) error {
	if delay <= 0 {
		return nil
	}
	if deadline, limited := ctx.Deadline(); limited && time.Until(deadline) < delay {
		giveBack(context.WithoutCancel(ctx), l, r, delay)
		return fmt.Errorf("limit %q, key %q: admitted in %v: %w", r.Limit, r.Key, delay, ErrTooLate)
	}
	began := time.Now()
	err := sleep(ctx, delay)
	if err != nil {
		giveBack(context.WithoutCancel(ctx), l, r, delay-time.Since(began))
	}
	return err
}

// giveBack gives back the cost of r when its turn has come, in that time: before, a limit with
// on_deny: delay takes nothing back. It does not wait for that. If it fails, the units stay
// charged, which over-admits nothing.
func giveBack(ctx context.Context, l Limiter, r *Request, turn time.Duration) {
	time.AfterFunc(turn, func() {
		ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
		_, _ = l.Take(ctx, r.Limit, r.Key, -r.Cost)
	})
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Allow charges one unit, and reports whether it was admitted.
func (c *Client) Allow(ctx context.Context, limit, key string) (bool, error) {
	return Allow(ctx, c, limit, key)
}

// AllowN charges n units at once, and reports whether they were admitted.
func (c *Client) AllowN(ctx context.Context, limit, key string, n int64) (bool, error) {
	return AllowN(ctx, c, limit, key, n)
}

// Wait charges units as soon as they are admitted: see the function Wait.
func (c *Client) Wait(ctx context.Context, limit, key string, cost int64) error {
	return Wait(ctx, c, limit, key, cost)
}
