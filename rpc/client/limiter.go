package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limiter is the part of Penstock that a program needs, to be passed around instead of a *Client.
// It is implemented by Client, by a node embedded in the program (package penstock/embedded) and,
// for tests, by Fake. Its methods are safe for concurrent use. After an error nothing was charged,
// except that UNAVAILABLE and DEADLINE_EXCEEDED leave it unknown.
type Limiter interface {
	// Take charges key cost units of the named limit. A cost of 0 reports the state, a negative one
	// gives back.
	Take(ctx context.Context, limit, key string, cost int64) (Decision, error)
	// Do is Take for a Request, which may also report, drain, or state its time.
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

// Wait charges key cost units of the named limit, as soon as they are admitted. If the deadline of
// ctx comes first, it fails at once, with ErrTooLate; if no wait helps, with ErrNever. Callers that
// wait for one key are not served in order: each asks again when the limit said that there would be
// room. If a limit that shapes admits with a delay, Wait waits for the delay too, or refunds the
// cost.
func Wait(ctx context.Context, l Limiter, limit, key string, cost int64) error {
	for {
		d, err := l.Take(ctx, limit, key, cost)
		if err != nil {
			return err
		}
		wait := d.RetryAfter
		if d.Allowed {
			wait = d.Delay
		}
		switch deadline, limited := ctx.Deadline(); {
		case d.Allowed && wait <= 0:
			return nil
		case wait < 0:
			return fmt.Errorf("limit %q, key %q, cost %d: %w", limit, key, cost, ErrNever)
		case limited && time.Until(deadline) < wait:
			if d.Allowed {
				// if this fails, the units stay charged, which over-admits nothing
				l.Take(ctx, limit, key, -cost)
			}
			return fmt.Errorf("limit %q, key %q: admitted in %v: %w", limit, key, wait, ErrTooLate)
		}
		if err := sleep(ctx, max(wait, time.Millisecond)); err != nil || d.Allowed {
			return err
		}
	}
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
